"""LlamaIndex: nodes from memory, an existing store, filters, and pruning alone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from chromadb.api.models.Collection import Collection
from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.schema import MetadataMode, NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import FilterCondition, FilterOperator, MetadataFilter, MetadataFilters
from llama_index.vector_stores.chroma import ChromaVectorStore

from context_agent import SearchAgent
from context_agent.errors import ConfigError
from context_agent.integrations.llamaindex import ContextAgentRetriever, PruningPostprocessor
from context_agent.integrations.passage_pruning import THRESHOLD
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from tests.support.film_question import QUESTION, TEXTS, vector


class Hashed(BaseEmbedding):
    """An embedding that counts its queries."""

    queries: int = 0
    texts: int = 0

    def _get_text_embedding(self, text: str) -> list[float]:
        self.texts += 1
        return vector(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        self.queries += 1
        return vector(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


def sources() -> list[Document]:
    return [
        Document(id_=f"own-{n}", text=t, metadata={"title": h, "year": y})
        for n, (h, (t, y)) in enumerate(TEXTS.items())
    ]


@pytest.fixture
def index(collection: Collection) -> VectorStoreIndex:
    context = StorageContext.from_defaults(vector_store=ChromaVectorStore(chroma_collection=collection))
    return VectorStoreIndex.from_documents(sources(), storage_context=context, embed_model=Hashed())


def where(*filters: Any, condition: FilterCondition = FilterCondition.AND) -> MetadataFilters:
    return MetadataFilters(filters=list(filters), condition=condition)


def test_a_node_carries_id_score_metadata_and_trajectory(agent: SearchAgent) -> None:
    first, second, *_ = ContextAgentRetriever(agent).retrieve(QUESTION)
    assert first.node.get_content() == TEXTS["Rope"][0]
    assert (first.node.node_id, first.node.ref_doc_id, first.node.metadata["year"]) == ("d0_0", "d0", 1948)
    assert first.score is not None
    assert second.score is not None
    assert first.score > second.score
    assert Path(first.node.metadata["ctx1_trajectory"]).exists()
    assert "ctx1_" not in first.node.get_content(MetadataMode.LLM)
    assert "ctx1_" not in first.node.get_content(MetadataMode.EMBED)


def test_an_existing_index_is_searched_as_it_stands(index: VectorStoreIndex) -> None:
    model = index._embed_model
    assert isinstance(model, Hashed)
    embedded_count = model.texts
    retriever = ContextAgentRetriever.from_chroma(index, similarity_top_k=2, corpus={"title_key": "title"})
    hits = retriever.retrieve(QUESTION)
    assert sorted(str(hit.node.ref_doc_id) for hit in hits) == ["own-0", "own-1"]
    assert {hit.node.node_id for hit in hits} <= set(index.vector_store.client.get()["ids"])
    assert "_node_content" not in hits[0].node.metadata
    assert "Rope" in {hit.node.metadata["title"] for hit in hits}
    assert model.texts == embedded_count, "nothing is embedded again"
    assert model.queries > 0
    retriever.similarity_top_k = 1
    assert len(retriever.retrieve(QUESTION)) == 1
    retriever.close()
    assert len(index.as_retriever(similarity_top_k=3).retrieve(QUESTION)) == 3, "the store stays open"


def test_chunks_of_one_source_are_one_document(collection: Collection) -> None:
    nodes = [TextNode(id_=f"n{n}", text=text, embedding=vector(text)) for n, (text, _) in enumerate(TEXTS.values())]
    for node in nodes:
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="book")
    store = ChromaVectorStore(chroma_collection=collection)
    store.add(nodes)
    retriever = ContextAgentRetriever.from_chroma(store, embed_model=Hashed(), per_document=None)
    hits = retriever.retrieve(QUESTION)
    assert {hit.node.ref_doc_id for hit in hits} == {"book"}
    assert len(hits) > 1
    retriever.close()


def test_nodes_without_a_source_stay_apart(collection: Collection) -> None:
    store = ChromaVectorStore(chroma_collection=collection)
    store.add([TextNode(id_=f"n{n}", text=t, embedding=vector(t)) for n, (t, _) in enumerate(TEXTS.values())])
    retriever = ContextAgentRetriever.from_chroma(store, embed_model=Hashed(), similarity_top_k=2)
    assert [hit.node.node_id for hit in retriever.retrieve(QUESTION)] == ["n0", "n1"]
    retriever.close()


def test_filters_are_passed_on(agent: SearchAgent, index: VectorStoreIndex) -> None:
    after_1900 = MetadataFilter(key="year", operator=FilterOperator.GT, value=1900)
    rope = MetadataFilter(key="year", value=1948)
    for retriever in (ContextAgentRetriever(agent), ContextAgentRetriever.from_chroma(index)):
        retriever.filters = where(after_1900, where(rope, condition=FilterCondition.NOT))
        assert [hit.node.metadata["year"] for hit in retriever.retrieve(QUESTION)] == [1979]
        retriever.close()


def test_inside_a_running_loop_and_in_a_query_engine(agent: SearchAgent) -> None:
    retriever = ContextAgentRetriever(agent, similarity_top_k=2)

    async def call_in_loop() -> list[list[NodeWithScore]]:
        blocking = retriever.retrieve(QUESTION)
        return [blocking, *await asyncio.gather(*(retriever.aretrieve(QUESTION) for _ in range(6)))]

    assert [[hit.node.node_id for hit in hits] for hits in asyncio.run(call_in_loop())] == [["d0_0", "d1_0"]] * 7
    synthesizer = get_response_synthesizer(llm=MockLLM())
    engine = RetrieverQueryEngine(retriever, synthesizer, [PruningPostprocessor(k=1, threshold=0)])
    assert [hit.node.node_id for hit in engine.query(QUESTION).source_nodes] == ["d0_0"]


def test_pruning_alone() -> None:
    nodes = [NodeWithScore(node=document) for document in sources()]
    pruned = PruningPostprocessor().postprocess_nodes(nodes[::-1], query_str=QUESTION)
    assert [hit.node.node_id for hit in pruned] == ["own-1", "own-0"], "in the order given"
    assert all(hit.score is not None and hit.score >= THRESHOLD for hit in pruned)
    assert len(asyncio.run(PruningPostprocessor().apostprocess_nodes(nodes, query_str=QUESTION))) == 2
    with pytest.raises(ConfigError, match="query_str"):
        PruningPostprocessor().postprocess_nodes(nodes)


def test_a_folder_of_llamaindex_opens_without_options(collection: Collection, tmp_path: Path) -> None:
    context = StorageContext.from_defaults(vector_store=ChromaVectorStore(chroma_collection=collection))
    pages = [(place, page) for place in "abc" for page in "12"]
    documents = [
        Document(text=f"{place} {page}", metadata={"file_path": f"/{place}.pdf", "file_name": f"{place}.pdf"})
        for place, page in pages
    ]
    VectorStoreIndex.from_documents(documents, storage_context=context, embed_model=Hashed())
    with ChromaCorpus.open(tmp_path / "chroma", embedder="none") as corpus:
        chunks = corpus.read("/b.pdf")
        assert [(chunk.text, chunk.title) for chunk in chunks] == [("b 1", "b.pdf"), ("b 2", "b.pdf")]
        assert len(corpus.notices) == 2
