"""Collections that other programs made: embedders as functions, and none at all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest

from context_agent import Document, MemoryCorpus, SearchAgent
from context_agent.cli.app import _print_error, run
from context_agent.errors import ConfigError, CorpusEmptyError, DimensionError, EmbedderError, UnknownEmbedderError
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents

TEXTS = ["The Lume flows past Brasko.", "Ness is a river of the north.", "Corran has a fair in May."]


def letters(texts: list[str]) -> list[list[float]]:
    """How often each letter occurs."""
    return [[float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]


class Unregistered(chromadb.EmbeddingFunction[Any]):
    """A Chroma function that only its author's program knows."""

    def __init__(self) -> None:
        pass

    def __call__(self, input: Any) -> Any:
        return [np.array(row, np.float32) for row in letters(list(input))]

    @staticmethod
    def name() -> str:
        return "unregistered"

    def get_config(self) -> dict[str, Any]:
        return {}

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> Unregistered:
        return Unregistered()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Collections as other programs make them: `elsewhere` and `own-function`."""
    path = tmp_path_factory.mktemp("collections")
    client: Any = chromadb.PersistentClient(str(path))
    ids = [f"r{number}" for number in range(len(TEXTS))]
    vectors: Any = letters(TEXTS)
    client.create_collection("elsewhere", embedding_function=None).add(ids=ids, documents=TEXTS, embeddings=vectors)
    client.create_collection("own-function", embedding_function=Unregistered()).add(ids=ids, documents=TEXTS)
    client.close()
    return path


@pytest.mark.parametrize("collection", ["elsewhere", "own-function"])
@pytest.mark.parametrize("embedder", [letters, Unregistered(), lambda texts: np.array(letters(texts))])
def test_any_function_from_texts_to_vectors_is_an_embedder(folder: Path, collection: str, embedder: Any) -> None:
    with ChromaCorpus.open(folder, collection=collection, embedder=embedder) as corpus:
        hits = corpus.search("the river ness of the north")
        assert hits[0].chunk.text == TEXTS[1]
        assert hits[0].dense is not None
        assert corpus.embedder.dimension == 26


def test_a_function_indexes_and_opens_what_it_indexed(tmp_path: Path) -> None:
    documents = [Document(str(number), text) for number, text in enumerate(TEXTS)]
    index_documents(documents, tmp_path / "i", embedder=letters)
    with ChromaCorpus.open(tmp_path / "i", embedder=letters) as corpus:
        assert corpus.embedder.name == "function:letters"
        assert np.linalg.norm(corpus.similarity("Lume", ["0_0"])) <= 1
    assert MemoryCorpus(documents, embedder=letters).search("Lume")[0].chunk.document_id == "0"
    with pytest.raises(ConfigError, match=r"indexed with function:letters, not with .*Remove --embedder, or pass"):
        ChromaCorpus.open(tmp_path / "i", embedder=Unregistered())


@pytest.mark.parametrize(
    ("embedder", "error", "message"),
    [
        (7, ConfigError, "must be an embedder, a spec such as 'minilm', or a function .* got int"),
        (Unregistered, ConfigError, r"the class Unregistered\. Pass an instance"),
        (lambda texts: [1.0, 2.0], EmbedderError, "must take a list of texts and return a vector for each"),
        (lambda texts: [[1.0] for _ in texts], DimensionError, r"--embedder SPEC \(in Python: embedder=\)"),
    ],
)
def test_what_is_no_embedder_is_refused_with_what_would_be(
    folder: Path, embedder: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ChromaCorpus.open(folder, collection="elsewhere", embedder=embedder)


@pytest.mark.parametrize("collection", ["elsewhere", "own-function"])
def test_without_an_embedder_the_error_names_both_ways(folder: Path, collection: str) -> None:
    with pytest.raises(UnknownEmbedderError, match=r"--embedder SPEC.*--embedder none"):
        ChromaCorpus.open(folder, collection=collection)


def test_words_alone_search_grep_and_read(folder: Path) -> None:
    with ChromaCorpus.open(folder, collection="elsewhere", embedder="none") as corpus, SearchAgent(corpus) as agent:
        (hit,) = corpus.search("Brasko")
        assert (hit.chunk.text, hit.dense) == (TEXTS[0], None)
        assert [hit.chunk.text for hit in corpus.grep("Corran|Ness")] == TEXTS[1:]
        assert np.isnan(corpus.similarity("Brasko", [hit.chunk.id])).all()
        chunks = [hit.chunk for hit in corpus.grep("a")]
        scores = corpus.rerank("Corran", chunks)
        assert chunks[int(np.argmax(scores))].text == TEXTS[2]
        with_unknown = corpus.rerank("Corran", [*chunks, replace(chunks[0], id="of another corpus")])
        np.testing.assert_array_equal(with_unknown, [*scores, np.nan])
        assert agent.search("What flows past Brasko?").documents[0].chunks[0].text == TEXTS[0]
        corpus.refresh()
        assert corpus.embedder.name == "none"


@pytest.mark.parametrize("collection", ["elsewhere", "own-function"])
def test_the_command_line_searches_by_words_with_a_note(
    folder: Path, collection: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["search", "What flows past Brasko?", "--path", str(folder), "--collection", collection]
    assert run(command) == 0
    output = capsys.readouterr()
    assert TEXTS[0] in output.out
    assert "--embedder SPEC" in output.err
    assert "searches use words alone, without its vectors" in output.err
    assert run([*command, "--embedder", "none"]) == 0
    assert capsys.readouterr().err == ""


def test_a_collection_without_texts_is_an_error_that_asks_for_their_key(tmp_path: Path) -> None:
    client: Any = chromadb.PersistentClient(str(tmp_path))
    collection = client.create_collection("vectors", embedding_function=None)
    collection.add(ids=["a"], embeddings=[[1.0, 0.0]], metadatas=[{"body": TEXTS[0]}])
    client.close()
    for key, place in ((None, "in Chroma's field for it"), ("text", "under the metadata key 'text'")):
        with pytest.raises(CorpusEmptyError, match=f"has a text {place}. Name the metadata key .* --text-key"):
            ChromaCorpus.open(tmp_path, embedder="none", text_key=key)
    with ChromaCorpus.open(tmp_path, embedder="none", text_key="body") as corpus:
        assert corpus.search("Lume")[0].chunk.text == TEXTS[0]


def test_a_collection_of_an_async_client_is_refused_with_what_works() -> None:
    class AsyncCollection:
        name = "elsewhere"

        async def get(self) -> None: ...

    with pytest.raises(ConfigError, match=r"without async; got AsyncCollection. Pass url= instead"):
        ChromaCorpus.open(collection=AsyncCollection())  # type: ignore[arg-type]


def test_words_alone_cannot_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.md").write_text(TEXTS[0], encoding="utf-8")
    assert run(["index", str(tmp_path / "a.md"), "--path", str(tmp_path / "i"), "--embedder", "none"]) == 2
    assert "Pass --embedder static" in capsys.readouterr().err


def test_an_embedder_that_fails_names_what_works_without(capsys: pytest.CaptureFixture[str]) -> None:
    assert _print_error(EmbedderError("http://host/v1 does not answer"), debug=False) == 1
    expected = "ctx1: http://host/v1 does not answer. To search by words alone, pass --embedder none.\n"
    assert capsys.readouterr().err == expected
