"""Chroma's embedding functions behind the protocol, with a real collection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb.api import ClientAPI

from context_agent.errors import EmbedderError
from context_agent.retrieval.embedders import Embedder, load_embedder
from context_agent.retrieval.embedders.chroma import ChromaEmbedder


class Lengths(chromadb.EmbeddingFunction[list[str]]):
    """Vectors that tell a text's length; queries lie on another axis than documents."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, input: list[str]) -> Any:
        self.calls.append(len(input))
        return [np.array([len(text), 1.0, 0.0], dtype=np.float32) for text in input]

    def embed_query(self, input: list[str]) -> Any:
        return [np.array([len(text), 0.0, 1.0], dtype=np.float32) for text in input]

    @staticmethod
    def name() -> str:
        return "lengths"

    def get_config(self) -> dict[str, Any]:
        return {}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> Lengths:
        return Lengths()


class Offline(Lengths):
    def __call__(self, input: list[str]) -> Any:
        raise OSError("no network")


def test_a_function_becomes_an_embedder() -> None:
    embedder = ChromaEmbedder(Lengths())
    assert isinstance(embedder, Embedder)
    assert (embedder.name, embedder.dimension) == ("chroma:lengths", 3)
    np.testing.assert_allclose(embedder.embed_documents(["abc", ""]), [[3 / 10**0.5, 1 / 10**0.5, 0], [0, 0, 0]])


def test_queries_go_the_functions_own_way() -> None:
    embedder = ChromaEmbedder(Lengths())
    np.testing.assert_allclose(embedder.embed_query("abc"), [3 / 10**0.5, 0, 1 / 10**0.5])
    assert not embedder.embed_query(" ").any()


def test_many_texts_go_in_batches() -> None:
    function = Lengths()
    assert ChromaEmbedder(function).embed_documents(["a"] * 600).shape == (600, 3)
    assert max(function.calls) == 256


@pytest.fixture
def client() -> Iterator[ClientAPI]:
    client = chromadb.EphemeralClient()
    yield client
    client.delete_collection("held")


def test_the_function_that_the_caller_passed_embeds_as_it_is(client: ClientAPI) -> None:
    embedder = ChromaEmbedder.of_collection(client.create_collection("held", embedding_function=Lengths()))
    assert embedder is not None
    np.testing.assert_array_equal(embedder.embed_query("abc"), [3, 0, 1])
    np.testing.assert_array_equal(embedder.embed_documents(["abcd"]), [[4, 1, 0]])


def test_a_stored_function_is_not_one_that_the_caller_passed(client: ClientAPI) -> None:
    client.create_collection("held", embedding_function=Lengths())
    assert ChromaEmbedder.of_collection(client.get_collection("held")) is None
    assert ChromaEmbedder.of_collection(client.get_collection("held", embedding_function=None)) is None


def test_chromas_default_is_made_without_a_download() -> None:
    assert load_embedder("chroma-default").name == "chroma-default"


def test_a_failed_download_says_that_there_is_one() -> None:
    with pytest.raises(EmbedderError, match=r"no network.*downloads an ONNX model.*--embedder static"):
        ChromaEmbedder(Offline(), name="chroma-default").embed_documents(["a"])


def test_a_failure_of_another_function_speaks_of_no_download() -> None:
    with pytest.raises(EmbedderError, match=r"^chroma:lengths failed on 1 texts \(no network\)$"):
        ChromaEmbedder(Offline()).embed_documents(["a"])


def test_an_answer_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(EmbedderError, match="shape"):
        ChromaEmbedder(lambda texts: [[1.0, 2.0]], name="one").embed_documents(["a", "b"])
