"""`kill -9` at any moment of indexing leaves an index that opens in its last complete state, and resumes."""

import errno
import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import chromadb
import httpx
import pytest

from context_agent.errors import ConfigError, CorpusCorruptError, CorpusEmptyError, DimensionError
from context_agent.retrieval.chroma import indexing_run, record_writer
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.chroma.indexing_report import IndexProgress
from context_agent.retrieval.chunker import chunk_document
from context_agent.retrieval.index import writer
from context_agent.testing.documents import people
from context_agent.testing.embedders import HashEmbedder
from context_agent.tokens import CharCounter
from context_agent.types import Document
from tests.support.bounded import LIMIT, bounded

MOMENTS: dict[str, tuple[Any, str]] = {
    "add": (record_writer.RecordWriter, "_store"),
    "finish": (writer.SnapshotWriter, "finish"),
    "manifest": (indexing_run, "write_manifest"),
    "delete": (indexing_run, "delete_records"),
    "publish": (indexing_run, "publish"),
    "clean": (indexing_run, "remove_others"),
}


def index_until(path: Path, moment: str, nth: int, changed: int) -> None:
    """Index in a process that kills itself before, during or after the nth call of a function."""
    owner, name = MOMENTS[moment.split("-")[1]]
    original, calls = getattr(owner, name), itertools.count(1)

    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def counted(*arguments: Any, **named: Any) -> Any:
        number = next(calls)
        if moment.startswith("before") and number == nth:
            kill()
        if moment.startswith("during") and number == nth:
            threading.Timer(0.015, kill).start()
        result = original(*arguments, **named)
        if moment.startswith("after") and number == nth:
            kill()
        return result

    setattr(owner, name, counted)
    run(path, changed_people(changed))


def index_and_kill(path: Path, moment: str, nth: int = 1, changed: int = 0) -> None:
    with pytest.raises(AssertionError, match=f"the process died: -{signal.SIGKILL:d}"):
        bounded(index_until, path, moment, nth, changed, seconds=120)


def changed_people(changed: int) -> list[Document]:
    """Four hundred documents, of which the first ones have changed."""
    return [
        replace(document, text=f"{document.text} Changed.") if number < changed else document
        for number, document in enumerate(people(400))
    ]


def run(path: Path, documents: list[Document]) -> tuple[int, int, int]:
    embedder = HashEmbedder()
    report = index_documents(documents, path, embedder=embedder, counter=CharCounter(), batch_size=50)
    return report.chunks, report.stored, embedder.embedded


def check(path: Path, documents: list[Document]) -> None:
    """The index holds exactly these documents: stored, found by both retrievers, by grep and by id."""
    with ChromaCorpus.open(path, embedder=HashEmbedder()) as corpus:
        assert corpus.count() == len(documents)
        for document in (documents[0], documents[57], documents[-1]):
            assert [chunk.text for chunk in corpus.read(document.id)] == [document.text]
            for retriever in corpus.retrievers:
                chunk_ids = [chunk_id for chunk_id, _ in retriever.search(f"{document.title}\n{document.text}", 20)]
                assert f"{document.id}_0" in chunk_ids, retriever.name
        changed = [document for document in documents if document.text.endswith("Changed.")]
        hits = corpus.grep(r"Changed\.$", limit=1_000)
        assert sorted(hit.chunk.document_id for hit in hits) == sorted(document.id for document in changed)


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete index of the documents. Tests copy it."""
    path = tmp_path_factory.mktemp("complete") / "index"
    run(path, people(400))
    return path


@pytest.mark.parametrize(
    ("moment", "nth"), [("before-add", 1), ("during-add", 5), ("before-finish", 1), ("before-manifest", 1)]
)
def test_the_first_run(tmp_path: Path, moment: str, nth: int) -> None:
    path = tmp_path / "index"
    index_and_kill(path, moment, nth)
    with pytest.raises(CorpusEmptyError, match="never completed"):
        ChromaCorpus.open(path, embedder=HashEmbedder())
    chunks, stored, _ = run(path, people(400))
    assert chunks == 400
    assert stored < 400 or moment == "before-add"
    check(path, people(400))
    assert run(path, people(400)) == (400, 0, 0)


@pytest.mark.parametrize(
    ("moment", "nth", "committed"),
    [
        ("during-add", 2, False),
        ("after-finish", 1, False),
        ("before-manifest", 1, False),
        ("after-manifest", 1, True),
        ("before-publish", 1, True),
        ("after-publish", 1, True),
        ("before-clean", 1, True),
    ],
)
def test_a_later_run(complete: Path, tmp_path: Path, moment: str, nth: int, committed: bool) -> None:
    path, old = tmp_path / "index", people(400)
    shutil.copytree(complete, path)
    index_and_kill(path, moment, nth, changed=100)
    new = changed_people(100)
    check(path, new if committed else old)
    chunks, stored, _ = run(path, new)
    assert chunks == 400
    assert stored < 100 or moment == "during-add"
    check(path, new)


def test_what_an_interrupted_run_stored_is_dropped_when_the_next_one_is_about_something_else(
    complete: Path, tmp_path: Path
) -> None:
    path = tmp_path / "index"
    shutil.copytree(complete, path)
    index_and_kill(path, "after-add", 1, changed=100)
    assert run(path, people(400)) == (400, 0, 0)
    check(path, people(400))


def test_documents_that_an_interrupted_run_stored_are_not_chunked_again(tmp_path: Path) -> None:
    documents = [Document(f"d{n}", f"Sentence {n} of the first. " * 50 + f"\n\nSentence {n}. " * 50) for n in range(40)]
    counters = [CountedCharacters() for _ in range(3)]

    def interrupted(number: int) -> Iterator[Document]:
        yield from documents[:number]
        raise KeyboardInterrupt

    steps: list[IndexProgress] = []
    settings: dict[str, Any] = {"embedder": HashEmbedder(), "chunk_size": 200, "batch_size": 10}
    with pytest.raises(KeyboardInterrupt):
        index_documents(interrupted(30), tmp_path / "i", counter=counters[0], progress=steps.append, **settings)
    assert 5 < steps[-1].kept <= 30
    assert steps[-1].stored >= 2 * steps[-1].kept, "several chunks a document"
    report = index_documents(documents, tmp_path / "i", counter=counters[1], **settings)
    uninterrupted = index_documents(documents, tmp_path / "j", counter=counters[2], **settings)
    assert (report.resumed, report.chunks) == (steps[-1].stored, uninterrupted.chunks)
    assert counters[1].calls < counters[2].calls * (1 - (steps[-1].kept - 1) / len(documents))
    with ChromaCorpus.open(tmp_path / "i", embedder=HashEmbedder()) as corpus:
        for document in documents:
            expected = chunk_document(document, size=200, counter=CharCounter())
            assert [(c.text, c.start, c.tokens) for c in corpus.read(document.id)] == [
                (c.text, c.start, c.tokens) for c in expected
            ]


class CountedCharacters(CharCounter):
    calls = 0

    def count(self, text: str) -> int:
        self.calls += 1
        return super().count(text)


def index_many(path: Path, start: int, limit: int) -> None:
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    index_documents(people(3_000, start), path, embedder=HashEmbedder(), counter=CharCounter(), batch_size=300)


def index_with_limit(path: Path, start: int, limit: int = 0) -> str:
    """Index in a process whose files may not grow beyond the limit. Return its error."""
    error = bounded(index_many, path, start, limit, seconds=200).require(memory=LIMIT, seconds=200).error
    return f"{type(error).__name__} {error}" if error else ""


def check_full_disk(path: Path, message: str) -> None:
    """The message says what happened and what to do, and the last complete state is there."""
    assert message.startswith("CorpusError the disk is full"), message
    assert "run the same command again to resume" in message
    assert "delete" not in message
    check(path, people(400))


@pytest.mark.parametrize("limit", [2_000_000, 3_000_000])
def test_a_file_that_may_not_grow_is_reported_as_a_full_disk_and_the_run_resumes(
    complete: Path, tmp_path: Path, limit: int
) -> None:
    path = tmp_path / "index"
    shutil.copytree(complete, path)
    check_full_disk(path, index_with_limit(path, 5_000, limit))
    assert index_with_limit(path, 5_000) == ""
    check(path, people(400) + people(3_000, 5_000))


def test_a_full_disk(complete: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        path = disk / "index"
        shutil.copytree(complete, path)
        check_full_disk(path, index_with_limit(path, 5_000))
        subprocess.run(["mount", "-o", "remount,size=60m", str(disk)], check=True)
        assert index_with_limit(path, 5_000) == ""
        check(path, people(400) + people(3_000, 5_000))
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_adding_little_to_a_large_index_lists_no_records_and_keeps_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("this reads the whole index")

    run(tmp_path, people(100))
    monkeypatch.setattr(indexing_run, "MEASURED_BELOW", 100)
    monkeypatch.setattr(indexing_run.CollectionRecords, "ids", refuse)
    monkeypatch.setattr(indexing_run, "calibrate", refuse)
    assert run(tmp_path, people(1, start=100))[0] == 101
    with pytest.raises(AssertionError, match="whole index"):
        run(tmp_path, people(40, start=200))


@pytest.mark.parametrize("embedder", ["static", None])
def test_a_collection_that_another_program_emptied_is_indexed_again(tmp_path: Path, embedder: str | None) -> None:
    index_documents([Document("a", "The weir was built in 1901.")], tmp_path, embedder="static")
    client = chromadb.PersistentClient(str(tmp_path))
    collection = client.get_collection("documents")
    collection.delete(ids=collection.get()["ids"])
    with pytest.raises(DimensionError, match="was indexed with static"):
        index_documents([Document("b", "Das Wehr.")], tmp_path, embedder=HashEmbedder(8))
    report = index_documents([Document("b", "Das Wehr wurde 1901 gebaut.")], tmp_path, embedder=embedder)
    assert (report.added, report.chunks) == (1, 1)
    with ChromaCorpus.open(tmp_path) as corpus:
        assert [hit.chunk.document_id for hit in corpus.search("Wehr")] == ["b"]


@pytest.mark.parametrize("embedder", [None, "static", "minilm"])
def test_an_index_keeps_its_embedder(tmp_path: Path, embedder: str | None) -> None:
    index_documents([Document("1", "A heron waits.")], tmp_path / "index", embedder=embedder)
    assert index_documents([Document("2", "A heron waits by the water.")], tmp_path / "index").added == 1
    with ChromaCorpus.open(tmp_path / "index") as corpus:
        assert corpus.embedder.name.startswith(f"{embedder or 'static'}-")


def test_an_index_keeps_its_embedder_after_a_killed_transaction(tmp_path: Path) -> None:
    index_documents([Document("1", "A heron waits.")], tmp_path / "index", embedder="minilm")
    killed = (
        "import os, sqlite3, sys; database = sqlite3.connect(sys.argv[1]);"
        "database.execute('pragma cache_size = 1'); database.execute('begin immediate');"
        "database.execute('create table filler (x)');"
        "database.executemany('insert into filler values (?)', [('x' * 4000,)] * 100); os._exit(9)"
    )
    database = tmp_path / "index" / "chroma.sqlite3"
    assert subprocess.run([sys.executable, "-c", killed, database], check=False).returncode == 9
    assert database.with_name("chroma.sqlite3-journal").stat().st_size
    assert index_documents([Document("2", "A heron waits by the water.")], tmp_path / "index").added == 1
    with ChromaCorpus.open(tmp_path / "index") as corpus:
        assert corpus.embedder.name.startswith("minilm-")


def test_an_index_of_an_embedder_that_must_be_passed_says_so(tmp_path: Path) -> None:
    index_documents(people(3), tmp_path / "index", embedder=HashEmbedder())
    with pytest.raises(ConfigError, match="--embedder"):
        index_documents(people(4), tmp_path / "index")


def test_progress_moves_with_each_batch_that_a_model_embeds(tmp_path: Path) -> None:
    long = Document("long", "A sentence about lamps and oil. " * 1_600)
    steps: list[IndexProgress] = []
    settings: dict[str, Any] = {"embedder": HashEmbedder(), "counter": CharCounter(), "calibration": False}
    index_documents([long], tmp_path, chunk_size=64, progress=steps.append, **settings)
    embedded = [step.embedded for step in steps]
    chunks = embedded[-1]
    assert chunks > 128
    assert {64, 128} < set(embedded)
    assert embedded == sorted(embedded)


CALLERS_ERRORS = {
    "missing file": FileNotFoundError(errno.ENOENT, "No such file or directory", "a.md"),
    "unreadable file": PermissionError(errno.EACCES, "Permission denied", "a.md"),
    "full disk": OSError(errno.ENOSPC, "No space left on device", "a.md"),
    "other server": httpx.ConnectError("wiki.example.org does not answer"),
}


@pytest.mark.parametrize(
    ("source", "name"),
    [*(("documents", name) for name in CALLERS_ERRORS), ("progress", "full disk"), ("keep", "missing file")],
)
def test_an_error_of_the_callers_code_is_not_one_of_the_index(tmp_path: Path, source: str, name: str) -> None:
    path, error = tmp_path / "index", CALLERS_ERRORS[name]
    settings: dict[str, Any] = {"embedder": HashEmbedder(), "counter": CharCounter(), "remove_missing": True}
    index_documents(people(4), path, **settings)

    def fail(*_: object) -> Document:
        raise error

    broken = map(fail, people(3))
    functions: dict[str, Any] = {} if source == "documents" else {source: fail}
    with pytest.raises(type(error)) as caught:
        index_documents(people(3) if functions else broken, path, **functions, **settings)
    assert caught.value is error
    assert index_documents(people(4), path, **settings).chunks == 4


def test_a_damaged_snapshot_is_named_by_the_folder_whose_removal_repairs_it(complete: Path, tmp_path: Path) -> None:
    path = shutil.copytree(complete, tmp_path / "index")
    (ids,) = path.rglob("*.store")
    # Each id is followed by a digest in hexadecimal digits. Opening the index reads no ids.
    ids.write_bytes(ids.read_bytes().replace(b"_0~", b"_0z"))
    with pytest.raises(CorpusCorruptError, match="Delete the folder") as error:
        run(path, changed_people(3))
    snapshot = ids.parent.parent
    assert f"Delete the folder {snapshot}." in str(error.value)
    shutil.rmtree(snapshot)
    run(path, changed_people(3))
    check(path, changed_people(3))
