"""Retrievers and stores of LangChain and LlamaIndex as engines."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document as LangChainDocument
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode

from context_agent import EngineCorpus

TEXTS = [f"A passage about subject {number}." for number in range(20)]


def make_store() -> InMemoryVectorStore:
    store = InMemoryVectorStore(DeterministicFakeEmbedding(size=16))
    documents = [
        LangChainDocument(text, id=f"p{n}", metadata={"n": n, "title": f"T{n}"}) for n, text in enumerate(TEXTS)
    ]
    store.add_documents(documents)
    return store


def test_a_langchain_store_returns_as_many_as_a_search_needs() -> None:
    corpus = EngineCorpus(make_store())
    hits = corpus.search(TEXTS[3], k=7)
    assert (hits[0].chunk.document_id, hits[0].chunk.title, hits[0].chunk.metadata["n"]) == ("p3", "T3", 3)
    assert len(hits) == 7
    assert corpus.name == "engine:InMemoryVectorStore"


def test_a_langchain_retriever_over_a_store_does_too() -> None:
    assert len(EngineCorpus(make_store().as_retriever()).search(TEXTS[3], k=7)) == 7


def test_any_other_langchain_retriever_returns_what_it_returns() -> None:
    class Fixed(BaseRetriever):
        def _get_relevant_documents(
            self, query: str, *, run_manager: CallbackManagerForRetrieverRun
        ) -> list[LangChainDocument]:
            return [LangChainDocument(text) for text in TEXTS[:3]]

    hits = EngineCorpus(Fixed()).search("anything", k=7)
    assert [hit.chunk.text for hit in hits] == TEXTS[:3]


def nodes() -> list[Any]:
    text_nodes = [TextNode(id_=f"n{number}", text=text, metadata={"n": number}) for number, text in enumerate(TEXTS)]
    for node in text_nodes[:2]:
        node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="guide")
    return text_nodes


def test_a_llamaindex_index_returns_as_many_as_a_search_needs() -> None:
    index = VectorStoreIndex(nodes(), embed_model=MockEmbedding(8))
    assert len(EngineCorpus(index).search("anything", k=7)) == 7
    corpus = EngineCorpus(index.as_retriever(similarity_top_k=4))
    assert len(corpus.search("anything", k=7)) == 4


def test_nodes_of_one_source_are_one_document() -> None:
    corpus = EngineCorpus(VectorStoreIndex(nodes(), embed_model=MockEmbedding(8)))
    documents = {hit.chunk.document_id for hit in corpus.search("anything", k=20)}
    assert documents == {"guide", *(f"n{number}" for number in range(2, 20))}
    assert [chunk.text for chunk in sorted(corpus.read("guide"), key=lambda chunk: chunk.text)] == TEXTS[:2]
