"""Collections in the layouts of frameworks open without options: which collection, which documents, which titles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import chromadb
import pytest

from context_agent.cli.app import run
from context_agent.errors import CorpusNotFoundError
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.index.metadata_keys import Keys, usual_keys
from context_agent.testing.documents import people
from context_agent.testing.embedders import HashEmbedder

Metadata = dict[str, Any]
NAMESPACE = UUID(int=7)
PLACES = ("Lume", "Ness", "Corran", "Brasko", "Tarn", "Oster")


def langchain(place: str, chunk: int) -> Metadata:
    """PyPDFLoader and a splitter with `add_start_index`."""
    return {"source": f"/notes/{place}.pdf", "page": 2 - chunk, "page_label": str(3 - chunk), "start_index": 0}


def llamaindex(place: str, chunk: int) -> Metadata:
    """SimpleDirectoryReader: LlamaIndex makes a document of each page of a PDF."""
    document = str(uuid5(NAMESPACE, f"{place}/{chunk}"))
    return {
        "file_name": f"{place}.pdf",
        "file_path": f"/notes/{place}.pdf",
        "page_label": str(chunk + 1),
        "_node_content": '{"text": ""}',
        "_node_type": "TextNode",
        "document_id": document,
        "doc_id": document,
        "ref_doc_id": document,
    }


def llamaindex_texts(place: str, chunk: int) -> Metadata:
    """LlamaIndex's documents without files."""
    return {"_node_content": "{}", "title": place, "document_id": place, "doc_id": place, "ref_doc_id": place}


def haystack(place: str, chunk: int) -> Metadata:
    """DocumentSplitter after a converter, which keeps the name of the file only."""
    source = str(uuid5(NAMESPACE, place))
    return {"file_path": "README.md", "source_id": source, "split_id": 2 - chunk, "split_idx_start": 0}


def fill(path: Path, name: str, metadatas: Sequence[Metadata], texts: Sequence[str] | None = None) -> None:
    """Write a collection with Chroma: ids are UUIDs, as those of LangChain and LlamaIndex."""
    client: Any = chromadb.PersistentClient(str(path))
    client.create_collection(name, embedding_function=None).add(
        ids=[str(uuid5(NAMESPACE, f"{name}/{number}")) for number in range(len(metadatas))],
        documents=list(texts or (f"Text number {number}." for number in range(len(metadatas)))),
        metadatas=list(metadatas),
        embeddings=[[1.0, float(number)] for number in range(len(metadatas))],
    )
    client.close()


def chunks_of(layout: Callable[[str, int], Metadata]) -> tuple[list[Metadata], list[str]]:
    """Three chunks of each place."""
    pairs = [(place, chunk) for place in PLACES for chunk in range(3)]
    return [layout(*pair) for pair in pairs], [f"{place} has part {chunk}." for place, chunk in pairs]


@pytest.mark.parametrize("kind", ["folder", "client"])
@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (langchain, ("/notes/Ness.pdf", "/notes/Ness.pdf", [2, 1, 0])),
        (llamaindex, ("/notes/Ness.pdf", "Ness.pdf", [0, 1, 2])),
        (llamaindex_texts, ("Ness", "Ness", [0, 1, 2])),
        (haystack, (str(uuid5(NAMESPACE, "Ness")), "README.md", [2, 1, 0])),
    ],
)
def test_chunks_are_grouped_and_titled_by_the_framework_s_keys(
    tmp_path: Path, kind: str, layout: Callable[[str, int], Metadata], expected: tuple[str, str, list[int]]
) -> None:
    document, title, order = expected
    fill(tmp_path / "store", "theirs", *chunks_of(layout))
    client: Any = chromadb.PersistentClient(str(tmp_path / "store")) if kind == "client" else None
    source: Any = {"collection": client.get_collection("theirs")} if client else {"path": tmp_path / "store"}
    with ChromaCorpus.open(**source, embedder="none") as corpus:
        (hit, *_) = corpus.grep("Ness has part 1")
        assert (hit.chunk.document_id, hit.chunk.title) == (document, title)
        assert [chunk.text for chunk in corpus.read(document)] == [f"Ness has part {part}." for part in order]
        assert len({chunk.document_id for chunk in corpus.walk()}) == len(PLACES)
        assert any("--document-key" in notice and "title_key=" in notice for notice in corpus.notices)
        assert not corpus.stale()
        corpus.refresh()
        assert len(corpus.read(document)) == 3
    if client:
        client.close()


def test_options_win_over_the_usual_keys(tmp_path: Path) -> None:
    fill(tmp_path, "theirs", *chunks_of(llamaindex))
    page = str(uuid5(NAMESPACE, "Ness/1"))
    with ChromaCorpus.open(tmp_path, embedder="none", document_key="ref_doc_id", title_key="page_label") as corpus:
        (chunk,) = corpus.read(page)
        assert (chunk.text, chunk.title) == ("Ness has part 1.", "2")
        assert not any("--document-key" in notice for notice in corpus.notices)
    with ChromaCorpus.open(tmp_path, embedder="none", document_key="", title_key="") as corpus:
        assert all(chunk.id == chunk.document_id and not chunk.title for chunk in corpus.walk())
        assert not any("--document-key" in notice for notice in corpus.notices)


@pytest.mark.parametrize(
    ("metadatas", "expected"),
    [
        ([], {}),
        ([{}, {}], {}),
        ([{"year": 1}], {}),
        ([{"source": "faq.csv", "row": n} for n in range(5)], {"title": "source"}),
        # The collection's source, and the titles of its articles.
        ([{"source": "wikipedia", "title": f"t{n // 2}"} for n in range(9)], {"title": "title"}),
        ([{"source": "wikipedia", "title": f"t{n}", "doc_id": n // 2} for n in range(9)], {"title": "title"}),
        ([{"source": "a", "title": "t"}] * 3, {"title": "title", "document": "source"}),
        # LlamaIndex's text for a missing document, and a key that only some records have.
        ([{"doc_id": "None", "document_id": "None"}] * 3, {}),
        ([{"source": "a"}, {"source": ""}, {"source": "b"}], {}),
        ([{"source": f"s{n}"} for n in range(19)] + [{}], {"title": "source", "document": "source"}),
    ],
)
def test_keys_that_do_not_name_documents_are_left_alone(metadatas: list[Metadata], expected: Metadata) -> None:
    assert usual_keys(metadatas) == expected


def test_a_record_without_the_usual_key_is_a_document_of_its_own(tmp_path: Path) -> None:
    metadatas = [{"source": f"s{number // 4}"} for number in range(36)] + [{"source": "None"}, {"year": 7}]
    fill(tmp_path, "theirs", metadatas)
    with ChromaCorpus.open(tmp_path, embedder="none") as corpus:
        assert len({chunk.document_id for chunk in corpus.walk()}) == 9 + 2
        assert len(corpus.read("s3")) == 4


def test_numbers_do_not_order_the_documents_that_a_caller_chose() -> None:
    usual = {"title": "source", "document": "source", "index": "page"}
    assert Keys().with_usual(usual) == Keys(title="source", document="source", index="page")
    assert Keys(document="mine").with_usual(usual) == Keys(title="source", document="mine")
    assert Keys(document="", title="mine").with_usual(usual) == Keys(title="mine")


def test_the_only_collection_opens_without_its_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    fill(tmp_path, "langchain", [{"year": 1}, {"year": 2}])
    with ChromaCorpus.open(tmp_path, embedder="none") as corpus:
        assert corpus.name == "chroma:langchain@s1"
        assert corpus.count() == 2
        assert "'langchain'" in corpus.notices[0]
        assert "'langchain'" in caplog.text
    with pytest.raises(CorpusNotFoundError, match="'documents'"):
        ChromaCorpus.open(tmp_path, collection="documents", embedder="none")
    fill(tmp_path, "second", [{"year": 1}])
    with pytest.raises(CorpusNotFoundError, match="langchain, second"):
        ChromaCorpus.open(tmp_path, embedder="none")


def test_the_default_collection_comes_before_others(tmp_path: Path) -> None:
    fill(tmp_path, "theirs", [{"year": 1}])
    index_documents(people(3), tmp_path, embedder=HashEmbedder())
    with ChromaCorpus.open(tmp_path, embedder=HashEmbedder()) as corpus:
        assert corpus.count() == 3
        assert corpus.notices == ()


def test_the_command_line_says_what_it_chose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path, "langchain", *chunks_of(langchain))
    search = ["search", "Which part has Ness?", "--path", str(tmp_path), "--embedder", "none"]
    assert run(search) == 0
    output = capsys.readouterr()
    assert "/notes/Ness.pdf" in output.out
    assert "'langchain'" in output.err
    assert "--document-key" in output.err
    assert run([*search, "--collection", "langchain", "--document-key", "source", "--title-key", "source"]) == 0
    assert capsys.readouterr().err == ""
    assert run([*search, "--collection", "documents"]) != 0
    assert "langchain" in capsys.readouterr().err
