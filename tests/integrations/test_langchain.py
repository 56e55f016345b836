"""LangChain: its standard tests, an existing Chroma store, and pruning alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import chromadb
import pytest
from chromadb.api.models.Collection import Collection
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableLambda
from langchain_tests.integration_tests import RetrieversIntegrationTests
from pydantic import ValidationError

from context_agent import MemoryCorpus, SearchAgent
from context_agent.errors import ConfigError, CorpusEmptyError, EmbedderError
from context_agent.harness.trajectory_file import read
from context_agent.integrations.langchain import ContextAgentRetriever, PruningCompressor
from context_agent.integrations.passage_pruning import THRESHOLD
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from tests.support.film_question import QUESTION, TEXTS, vector

DOCUMENTS = [
    Document(id=f"own-{n}", page_content=text, metadata={"title": title, "year": year})
    for n, (title, (text, year)) in enumerate(TEXTS.items())
]


class Counting(Embeddings):
    """Embeddings that count the texts they embed."""

    def __init__(self) -> None:
        self.documents = self.queries = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.documents += len(texts)
        return [vector(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        self.queries += 1
        return vector(text)


def folder_of(collection: Collection) -> str:
    return str(collection._client.get_settings().persist_directory)


class TestLangChainStandard(RetrieversIntegrationTests):
    """LangChain's standard tests for retrievers."""

    @pytest.fixture(autouse=True)
    def _agent(self, films: MemoryCorpus) -> Iterator[None]:
        with SearchAgent(films) as agent:
            self.agent = agent
            yield

    @property
    def retriever_constructor(self) -> type[ContextAgentRetriever]:
        return ContextAgentRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"agent": self.agent}

    @property
    def retriever_query_example(self) -> str:
        return "Which director made films, bread, comets and operas in Florence?"


def test_a_document_carries_id_score_metadata_and_trajectory(agent: SearchAgent) -> None:
    first, second, *_ = ContextAgentRetriever(agent=agent).invoke(QUESTION)
    assert (first.page_content, first.metadata["year"]) == TEXTS["Rope"]
    assert second.metadata["ctx1_title"] == "Alfred Hitchcock"
    assert [first.id, first.metadata["ctx1_document_id"], first.metadata["ctx1_rank"]] == ["d0_0", "d0", 1]
    assert 1 >= first.metadata["ctx1_score"] > second.metadata["ctx1_score"] > 0
    trajectory = read(Path(first.metadata["ctx1_trajectory"]))
    assert [document.id for document in trajectory.end.documents][:2] == ["d0", "d1"]


def test_filters_of_the_retriever_and_of_a_call_hold_together(agent: SearchAgent) -> None:
    retriever = ContextAgentRetriever(agent=agent, where={"year": {"$gt": 1500}})
    years = {document.metadata["year"] for document in retriever.invoke(QUESTION, where={"year": {"$lt": 1900}})}
    assert years
    assert years <= {1680, 1598}
    assert 1200 not in {document.metadata["year"] for document in retriever.invoke("bread made of flour")}


def test_all_passages_of_a_document_on_request() -> None:
    from context_agent import Document as Source

    text = "Ada wrote of engines in 1843. " * 40
    corpus = MemoryCorpus([Source("long", text, "Ada"), Source("short", "Bread.", "Bread")], chunk_size=64)
    with SearchAgent(corpus) as agent:
        limited = ContextAgentRetriever(agent=agent).invoke("What did Ada write of?")
        all_passages = ContextAgentRetriever(agent=agent, per_document=None).invoke("What did Ada write of?")
    assert [document.metadata["ctx1_document_id"] for document in limited].count("long") == 1
    assert [document.metadata["ctx1_document_id"] for document in all_passages].count("long") > 1
    assert len({document.id for document in all_passages}) == len(all_passages)


def test_inside_a_running_loop_in_a_chain_and_in_many_threads(agent: SearchAgent) -> None:
    retriever = ContextAgentRetriever(agent=agent, k=2)
    chain = retriever | RunnableLambda(lambda documents: [document.id for document in documents])
    expected = chain.invoke(QUESTION)

    async def call_in_loop() -> list[Any]:
        blocking = chain.invoke(QUESTION)
        return [blocking, *await asyncio.gather(*(chain.ainvoke(QUESTION) for _ in range(8)))]

    assert asyncio.run(call_in_loop()) == [expected] * 9
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(chain.invoke, [QUESTION] * 16)) == [expected] * 16
    assert chain.batch([QUESTION] * 4) == [expected] * 4


@pytest.mark.parametrize("options", [{"k": 0}, {"per_document": 0}])
def test_senseless_options_are_refused(agent: SearchAgent, options: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        ContextAgentRetriever(agent=agent, **options)
    with pytest.raises(ConfigError, match=r"`k` must be .*at least 1; got 0"):
        ContextAgentRetriever(agent=agent).invoke(QUESTION, k=0)


@pytest.mark.parametrize("kept", ["folder", "memory"])
def test_an_existing_store_is_searched_as_it_stands(kept: str, tmp_path: Path) -> None:
    earlier = set(threading.enumerate())
    model = Counting()
    location = {"persist_directory": str(tmp_path)} if kept == "folder" else {"client": chromadb.EphemeralClient()}
    store = Chroma("films", model, **location)
    store.add_documents(DOCUMENTS)
    before = store.get(include=["documents", "metadatas"])
    embedded_count = model.documents
    retriever = ContextAgentRetriever.from_chroma(store, k=2, corpus={"title_key": "title"}, seed=3)
    assert retriever.agent.seed == 3
    documents = retriever.invoke(QUESTION)
    assert [document.id for document in documents] == ["own-0", "own-1"]
    assert documents[0].page_content == TEXTS["Rope"][0]
    assert documents[0].metadata["title"] == "Rope"
    assert [document.id for document in retriever.invoke(QUESTION, where={"year": 1979})] == ["own-1"]
    assert model.documents == embedded_count, "nothing is embedded again"
    assert model.queries > 0
    retriever.close()
    retriever.close()
    for thread in set(threading.enumerate()) - earlier:
        if thread.name.startswith("ctx1"):
            thread.join(5)
            assert not thread.is_alive(), "its worker threads end"
    assert store.get(include=["documents", "metadatas"]) == before
    assert len(store.similarity_search("bread", k=2)) == 2, "the store stays open"
    store.delete_collection()


def test_chroma_s_own_collection_with_a_function_in_hand(tmp_path: Path) -> None:
    class OwnFunction(chromadb.EmbeddingFunction[Any]):
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, input: Any) -> Any:
            self.calls += 1
            return [vector(text) for text in input]

    function = OwnFunction()
    client = chromadb.PersistentClient(str(tmp_path))
    with pytest.warns(DeprecationWarning, match="does not implement name"):
        collection = client.create_collection("mine", embedding_function=function)
    collection.add(ids=["a", "b"], documents=[TEXTS["Rope"][0], TEXTS["Alfred Hitchcock"][0]])
    calls_before = function.calls
    retriever = ContextAgentRetriever.from_chroma(collection)
    assert {document.id for document in retriever.invoke(QUESTION)} == {"a", "b"}
    assert function.calls > calls_before
    retriever.close()
    client.close()  # type: ignore[attr-defined]


def test_what_cannot_be_opened_is_refused_and_leaves_nothing_open(collection: Collection) -> None:
    store = Chroma("mine", Counting(), client=chromadb.PersistentClient(folder_of(collection)))
    with pytest.raises(CorpusEmptyError, match="mine"):
        ContextAgentRetriever.from_chroma(store)
    store.add_documents(DOCUMENTS)
    with pytest.raises(ConfigError, match=r"does not say which embedder.*--embedder SPEC"):
        ContextAgentRetriever.from_chroma(collection)
    with pytest.raises(TypeError, match="colour"):
        ContextAgentRetriever.from_chroma(store, colour="red")
    with pytest.raises(ConfigError, match="profile"):
        ContextAgentRetriever.from_chroma(store, profile="none such")
    with pytest.raises(ConfigError, match="refuses the metadata filter"):
        ContextAgentRetriever.from_chroma(store).invoke(QUESTION, where={"year": {"$like": 1}})


def test_a_model_that_fails_is_named(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Counting()
    collection.add(ids=["a"], documents=["text"], embeddings=[vector("text")])
    monkeypatch.setattr(Counting, "embed_query", lambda *_: 1 / 0)
    store = Chroma("mine", model, client=chromadb.PersistentClient(folder_of(collection)))
    with pytest.raises(EmbedderError, match=r"tests:Counting failed .division by zero"):
        ContextAgentRetriever.from_chroma(store).invoke(QUESTION)


def test_pruning_alone_drops_what_the_policy_would() -> None:
    pruned = PruningCompressor().compress_documents(DOCUMENTS[::-1], QUESTION)
    assert [document.id for document in pruned] == ["own-1", "own-0"], "in the order given"
    assert all(document.metadata["ctx1_score"] >= THRESHOLD for document in pruned)
    assert "ctx1_score" not in DOCUMENTS[0].metadata


def test_pruning_keeps_to_its_budget() -> None:
    pruned = PruningCompressor(tokens=15, threshold=0).compress_documents(DOCUMENTS, QUESTION)
    assert "own-0" in {document.id for document in pruned}
    assert len(pruned) < len(DOCUMENTS)
    assert [
        document.id for document in PruningCompressor(k=1, threshold=0).compress_documents(DOCUMENTS, QUESTION)
    ] == ["own-0"]
    assert PruningCompressor(threshold=1).compress_documents(DOCUMENTS, QUESTION) == []
    assert PruningCompressor().compress_documents([], QUESTION) == []
    with pytest.raises(ConfigError, match="`threshold` must be from 0 to 1; got 2"):
        PruningCompressor(threshold=2).compress_documents(DOCUMENTS, QUESTION)


def test_a_document_without_a_title_has_no_title_to_match() -> None:
    def score(metadata: dict[str, Any]) -> float:
        document = Document(page_content="It opened in 1948.", metadata=metadata)
        (scored,) = PruningCompressor(threshold=0).compress_documents([document], "What is None?")
        return float(scored.metadata["ctx1_score"])

    assert score({"title": None}) == score({})


async def test_pruning_behind_another_retriever() -> None:
    source = RunnableLambda(lambda _: DOCUMENTS)
    chain = source | RunnableLambda(lambda documents: PruningCompressor().compress_documents(documents, QUESTION))
    assert [document.id for document in await chain.ainvoke(QUESTION)] == ["own-0", "own-1"]
    assert len(await PruningCompressor().acompress_documents(DOCUMENTS, QUESTION)) == 2


def test_a_folder_of_langchain_opens_without_options(tmp_path: Path) -> None:
    store = Chroma("langchain", Counting(), persist_directory=str(tmp_path))
    pages = [(place, page) for place in "abc" for page in (1, 0)]
    store.add_documents(
        [Document(f"{place} {page}", metadata={"source": place, "page": page}) for place, page in pages]
    )
    with ChromaCorpus.open(tmp_path, embedder="none") as corpus:
        assert [chunk.text for chunk in corpus.read("b")] == ["b 0", "b 1"]
        assert len(corpus.notices) == 2
