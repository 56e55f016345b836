"""Embedders of callers, whose vectors every corpus checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from context_agent import ChromaCorpus, Document, EngineCorpus, MemoryCorpus, index_documents
from context_agent.errors import ContextAgentError, DimensionError, EmbedderError
from context_agent.retrieval.embedders import document_vectors, query_vector

DOCUMENTS = [Document("a", "A film."), Document("b", "A long play.")]
GOOD = [0.6, 0.8]
WRONG = [
    ([0.6, math.nan], EmbedderError, "finite"),
    ([0.6, 1e300], EmbedderError, "finite"),
    ([0.6, 0.8, 0.0], DimensionError, "vectors of 2 numbers"),
    (["x", "y"], EmbedderError, "vectors of numbers"),
]


class Fixed:
    """An embedder that returns the same vectors for all texts, as lists."""

    name, dimension = "fixed", 2

    def __init__(self, document: list[Any] = GOOD, query: list[Any] = GOOD) -> None:
        self._document, self._query = document, query

    def embed_documents(self, texts: Sequence[str]) -> Any:
        return [self._document for _ in texts]

    def embed_query(self, text: str) -> Any:
        return self._query


def test_lists_of_numbers_are_vectors(tmp_path: Path) -> None:
    embedder: Any = Fixed()
    index_documents(DOCUMENTS, tmp_path, embedder=embedder)
    with ChromaCorpus.open(tmp_path, embedder=embedder) as stored:
        for corpus in (stored, MemoryCorpus(DOCUMENTS, embedder=embedder)):
            assert [hit.dense for hit in corpus.search("film")] == pytest.approx([1, 1])
            assert corpus.similarity("film", ["a_0"]).tolist() == [pytest.approx(1)]


@pytest.mark.parametrize(("vector", "error", "message"), WRONG, ids=["NaN", "past float32", "too long", "words"])
def test_other_vectors_are_refused(vector: list[Any], error: type[ContextAgentError], message: str) -> None:
    embedder: Any = Fixed(vector, vector)
    with pytest.raises(error, match=f"fixed must return .*{message}"):
        document_vectors(embedder, ["A film."])
    with pytest.raises(error, match=f"fixed must return .*{message}"):
        query_vector(embedder, "film")


@pytest.mark.parametrize(
    "use",
    [
        lambda embedder, folder: index_documents(DOCUMENTS, folder, embedder=embedder),
        lambda embedder, folder: MemoryCorpus(DOCUMENTS, embedder=embedder),
        lambda embedder, folder: EngineCorpus(lambda query: ["A film. " * 600], embedder=embedder).search("film"),
    ],
    ids=["index_documents", "MemoryCorpus", "EngineCorpus"],
)
def test_no_corpus_takes_them(use: Callable[[Any, Path], object], tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match="fixed must return finite numbers"):
        use(Fixed([math.nan, 1.0]), tmp_path)


@pytest.mark.parametrize("query", [[0.6, 0.8, 0.0], [GOOD]], ids=["too long", "a table"])
def test_a_query_of_another_shape_is_an_error_of_the_package(query: list[Any]) -> None:
    embedder: Any = Fixed(query=query)
    with pytest.raises(DimensionError, match="vectors of 2 numbers for a query"):
        MemoryCorpus(DOCUMENTS, embedder=embedder).search("film")
