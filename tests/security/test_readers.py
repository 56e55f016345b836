"""Readers never write: no process that opens and searches a local index changes Chroma's files."""

import hashlib
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import chromadb
import numpy as np
import pytest

from context_agent import Document
from context_agent.errors import CorpusCorruptError, CorpusError, CorpusNotFoundError
from context_agent.retrieval.chroma import private_copy
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.testing.documents import people
from context_agent.testing.embedders import HashEmbedder
from tests.support.forked_workers import ForkedProcess, start_fork

ROOT = Path(__file__).parents[2]
COUNT = 1_300
"""More records than Chroma collects before it saves its vector index (1,000)."""


def chromas_files(folder: Path) -> dict[str, tuple[str, int]]:
    """Hash and time of every file in the folder that is not ours."""
    return {
        name: (hashlib.sha256((folder / name).read_bytes()).hexdigest(), (folder / name).stat().st_mtime_ns)
        for name in chromas_names(folder)
    }


def chromas_names(folder: Path) -> list[str]:
    files = (file.relative_to(folder) for file in sorted(folder.rglob("*")) if file.is_file())
    return [str(file) for file in files if "ctx1" not in file.parts]


def run(program: str, *arguments: object, code: int = 0) -> str:
    """Run the program in another process, and return its output."""
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    child = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == code, child.stderr
    return child.stdout


def reopen(folder: Path, **options: object) -> ChromaCorpus:
    return ChromaCorpus.open(folder, embedder=HashEmbedder(), **options)  # type: ignore[arg-type]


def index(folder: Path, start: int = 0, count: int = COUNT) -> None:
    index_documents(people(count, start), folder, embedder=HashEmbedder())


def with_pending_writes(folder: Path) -> None:
    """An index whose vectors Chroma has not saved yet, though enough of them are waiting."""
    client = chromadb.PersistentClient(str(folder))
    settings = {"hnsw": {"space": "cosine", "sync_threshold": 50_000}}
    client.create_collection("documents", embedding_function=None, configuration=settings)  # type: ignore[arg-type]
    client.close()  # type: ignore[attr-defined]
    index(folder)
    with closing(sqlite3.connect(folder / "chroma.sqlite3")) as database:
        for column in ("schema_str", "config_json_str"):
            update = f"update collections set {column} = replace({column}, '50000', '1000')"
            database.execute(update)
        database.commit()


def ask_everything(corpus: ChromaCorpus) -> None:
    assert corpus.search(people(1, 42)[0].text)[0].chunk.id == "person-42_0"
    assert corpus.retrievers[0].search("Person 7 the weaver", 5)
    assert corpus.grep("Person 7 was", where={"trade": "weaver"})
    assert corpus.read("person-9")[0].metadata["century"] == 16
    assert not np.isnan(corpus.similarity("a chemist", ["person-3_0"])).any()
    assert len(list(corpus.walk())) == corpus.count()
    assert not corpus.stale()
    corpus.refresh()


def test_a_reader_changes_no_file_of_chroma(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    with_pending_writes(folder)
    before = chromas_files(folder)
    with reopen(folder) as corpus:
        ask_everything(corpus)
    with reopen(folder, rebuild=True) as corpus:
        ask_everything(corpus)
    shutil.rmtree(folder / "ctx1")
    with reopen(folder) as corpus:
        ask_everything(corpus)
    assert chromas_files(folder) == before
    client = chromadb.PersistentClient(str(folder))
    client.get_collection("documents", embedding_function=None).query(
        query_embeddings=[HashEmbedder().embed_query("x y")], n_results=1
    )
    client.close()  # type: ignore[attr-defined]
    assert chromas_files(folder) != before, "Chroma's own client writes when it reads: else this test shows nothing"


def test_reading_needs_no_chroma(tmp_path: Path) -> None:
    index_documents(people(80), tmp_path / "index")
    program = """
        import sys
        from context_agent import ChromaCorpus
        with ChromaCorpus.open(sys.argv[1]) as corpus:
            corpus.search("Person 3"), corpus.grep("Person", where={"century": 16}), corpus.stale()
        print("chromadb" in sys.modules)
    """
    assert run(program, tmp_path / "index").strip() == "False"


def write(folder: Path, signals: Path) -> None:
    """Replace an index. Midway, wait for the signal to go on."""

    def documents() -> Iterator[Document]:
        yield from people(1_300, 5_000)
        (signals / "midway").touch()
        while not (signals / "go").exists():
            time.sleep(0.02)
        yield from people(200, 9_000)

    index_documents(documents(), folder, embedder=HashEmbedder(), batch_size=300, remove_missing=True)


Start = Callable[[Path, Path], ForkedProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a writer, and return it once it has stored 1,300 new chunks and waits. End it with the test."""
    with ExitStack() as stack:

        def start_writer(folder: Path, signals: Path) -> ForkedProcess:
            signals.mkdir()
            writer = start_fork(write, folder, signals)
            stack.callback(writer.join)
            stack.callback(writer.kill)
            deadline = time.monotonic() + 100
            while not (signals / "midway").exists():
                assert writer.exitcode is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            return writer

        yield start_writer


def test_readers_answer_from_the_last_complete_state_while_a_run_lasts(tmp_path: Path, start: Start) -> None:
    folder, signals = tmp_path / "index", tmp_path / "signals"
    index(folder)
    early_reader = reopen(folder)
    writer = start(folder, signals)
    before = set(chromas_names(folder))
    with reopen(folder) as corpus:
        for reader in (early_reader, corpus):
            ask_everything(reader)
            assert reader.count() == COUNT
            assert reader.grep("Person 5001 was") == []
        # The readers have made no file; the writer may still be storing its last batches, with a journal.
        assert set(chromas_names(folder)) - {"chroma.sqlite3-journal"} == before - {"chroma.sqlite3-journal"}
        (signals / "go").touch()
        writer.join(100)
        assert writer.exitcode == 0
        assert corpus.count() == COUNT
        assert corpus.search(people(1, 42)[0].text)[0].chunk.id == "person-42_0"
        assert corpus.stale()
        corpus.refresh()
        assert corpus.count() == 1_500
        assert corpus.search(people(1, 9001)[0].text)[0].chunk.id == "person-9001_0"
    early_reader.close()


def test_a_killed_writer_disturbs_no_reader_and_the_next_run_resumes(tmp_path: Path, start: Start) -> None:
    folder, signals = tmp_path / "index", tmp_path / "signals"
    index(folder)
    writer = start(folder, signals)
    writer.kill()
    writer.join()
    with reopen(folder) as corpus:
        ask_everything(corpus)
        assert corpus.count() == COUNT
    embedder = HashEmbedder()
    documents = people(1_300, 5_000) + people(200, 9_000)
    report = index_documents(documents, folder, embedder=embedder, remove_missing=True)
    assert (report.chunks, report.removed) == (1_500, COUNT)
    assert embedder.embedded < 1_000
    with reopen(folder) as corpus:
        assert corpus.search(people(1, 9001)[0].text)[0].chunk.id == "person-9001_0"


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """An index whose database a writer holds locked."""
    folder = tmp_path / "index"
    index(folder, count=100)
    with closing(sqlite3.connect(folder / "chroma.sqlite3")) as database:
        database.execute("begin exclusive")
        yield folder


def test_a_locked_database_stops_no_reader(locked: Path) -> None:
    with reopen(locked) as corpus:
        ask_everything(corpus)


def interrupt_a_transaction(folder: Path) -> None:
    """A process killed amid a transaction leaves a journal, which only a writer may play back."""
    program = """
        import os, signal, sqlite3, sys
        database = sqlite3.connect(sys.argv[1] + "/chroma.sqlite3")
        database.execute("pragma cache_size = 2")
        database.execute("begin immediate")
        database.execute("update embedding_metadata set string_value = 'lost'")
        database.execute("update collections set name = 'gone'")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    run(program, folder, code=-signal.SIGKILL)
    assert (folder / "chroma.sqlite3-journal").stat().st_size > 0


def test_an_interrupted_transaction_is_left_to_the_next_writer(tmp_path: Path) -> None:
    own_folder, foreign_folder = tmp_path / "ours", tmp_path / "foreign"
    index(own_folder, count=500)
    foreign_collection(foreign_folder, 500)
    for folder, name in ((own_folder, "documents"), (foreign_folder, "notes")):
        interrupt_a_transaction(folder)
        before = chromas_files(folder)
        with reopen(folder, collection=name) as corpus:
            assert corpus.count() == 500
            assert corpus.grep("Person 42 was")
            assert not corpus.stale()
        assert chromas_files(folder) == before
    index(own_folder, count=501)
    with reopen(own_folder) as corpus:
        assert corpus.count() == 501


def test_a_deleted_collection_is_not_served_from_what_it_left(tmp_path: Path) -> None:
    index(tmp_path, count=100)
    corpus = reopen(tmp_path)
    client = chromadb.PersistentClient(str(tmp_path))
    client.delete_collection("documents")
    with pytest.raises(CorpusNotFoundError, match="There are none"):
        reopen(tmp_path)
    with pytest.raises(CorpusNotFoundError):
        corpus.stale()
    client.close()  # type: ignore[attr-defined]


def foreign_collection(folder: Path, count: int) -> None:
    client = chromadb.PersistentClient(str(folder))
    collection = client.create_collection("notes", embedding_function=None)
    documents = people(count)
    for start in range(0, count, 500):
        part = documents[start : start + 500]
        vectors = HashEmbedder().embed_documents([item.text for item in part])
        collection.add(ids=[item.id for item in part], documents=[item.text for item in part], embeddings=list(vectors))
    client.close()  # type: ignore[attr-defined]


def test_a_collection_of_someone_else_is_read_from_a_copy_that_does_not_stay(tmp_path: Path) -> None:
    foreign_collection(tmp_path, COUNT)
    before = chromas_files(tmp_path)
    with reopen(tmp_path, collection="notes") as corpus:
        assert corpus.count() == COUNT
        assert corpus.search(people(1, 42)[0].text)[0].chunk.id == "person-42"
    assert chromas_files(tmp_path) == before
    assert not list(tmp_path.rglob("copy-*"))


def add_to_notes(folder: Path) -> None:
    collection = chromadb.PersistentClient(str(folder)).get_collection("notes", embedding_function=None)
    for start in range(500, 2_500, 100):
        part = people(100, start)
        vectors = HashEmbedder().embed_documents([one.text for one in part])
        collection.add(ids=[one.id for one in part], documents=[one.text for one in part], embeddings=list(vectors))


def test_a_collection_that_its_owner_writes_meanwhile(tmp_path: Path) -> None:
    """Each opened state is one that the owner's program left after a call, with the vectors of its texts."""
    foreign_collection(tmp_path, 500)
    owner = start_fork(add_to_notes, tmp_path)
    counts = []
    while owner.exitcode is None or not counts:
        with reopen(tmp_path, collection="notes", calibration=False) as corpus:
            counts.append(corpus.count())
            texts = {chunk.id: chunk.text for chunk in corpus.walk()}
            rows = corpus.snapshot.rows
            expected = HashEmbedder().embed_documents([texts[row.record] for row in rows])
            assert np.allclose([rows.vector(position) for position in range(len(rows))], expected, atol=1e-5)
    assert owner.exitcode == 0
    assert counts == sorted(counts)
    assert all(count % 100 == 0 for count in counts)
    with reopen(tmp_path, collection="notes") as corpus:
        assert corpus.count() == 2_500


def make_read_only(mounted: Path) -> None:
    """Remount read-only, as soon as no thread of Chroma or tantivy is still closing a file."""
    deadline = time.monotonic() + 120
    while subprocess.run(["mount", "-o", "remount,ro", mounted], capture_output=True, check=False).returncode:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_read_only_folder(tmp_path: Path) -> None:
    folder, cache = tmp_path / "disk", tmp_path / "cache"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        index(folder / "index", count=200)
        make_read_only(folder)
        assert not os.access(folder / "index", os.W_OK)
        for _ in range(2):
            with reopen(folder / "index", cache=cache) as corpus:
                ask_everything(corpus)
        (pointer,) = cache.glob("*/current.json")
        (original,) = folder.glob("index/ctx1/*/current.json")
        assert json.loads(pointer.read_text()) == json.loads(original.read_text()), "taken over, not made again"
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_folder_without_room_for_a_copy_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign_collection(tmp_path, 500)
    usage = shutil.disk_usage(tmp_path)._replace(free=1_000)
    monkeypatch.setattr(private_copy.shutil, "disk_usage", lambda _: usage)
    with pytest.raises(Exception, match=r"takes a copy of .* Free some space"):
        reopen(tmp_path, collection="notes")


@pytest.mark.parametrize("kept", [20, 150])
def test_a_damaged_database_with_a_write_ahead_log_is_refused_by_name(tmp_path: Path, kept: int) -> None:
    foreign_collection(tmp_path, 5)
    file = tmp_path / "chroma.sqlite3"
    data = file.read_bytes()
    file.write_bytes(data[:18] + b"\2\2" + data[20:kept] + bytes(1_000))
    with pytest.raises(CorpusCorruptError, match="cannot be read"):
        reopen(tmp_path, collection="notes")


def test_a_full_disk_is_no_damage_of_a_database_with_a_write_ahead_log(tmp_path: Path) -> None:
    """Reading such a database writes its log into the copy, which then needs more room."""
    folder, copies = tmp_path / "index", tmp_path / "copies"
    copies.mkdir()
    foreign_collection(folder, 5)
    with closing(sqlite3.connect(folder / "chroma.sqlite3")) as database:
        database.execute("pragma journal_mode = wal")
        database.execute("create table notes (note text)")
        database.executemany("insert into notes values (?)", [("rain " * 200,)] * 50)
        database.commit()
        longest = max(file.stat().st_size for file in folder.iterdir() if file.is_file())
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (longest, limits[1]))
        try:
            with (
                pytest.raises(CorpusError, match="Free some space"),
                private_copy.private_copy(folder, "notes", copies),
            ):
                pass
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_publication_cannot_name_a_folder_outside_the_index(tmp_path: Path) -> None:
    """`current.json` describes the collection when the database cannot be read in place, and its id names a folder."""
    index(tmp_path / "index", count=50)
    (pointer,) = (tmp_path / "index").glob("ctx1/*/current.json")
    publication = json.loads(pointer.read_text())
    publication["collection"]["id"] = "../../outside"
    pointer.write_text(json.dumps(publication))
    with (tmp_path / "index" / "chroma.sqlite3").open("r+b") as database:
        database.seek(18)
        database.write(b"\2\2")  # a write-ahead log: such a database is never opened in place
    with reopen(tmp_path / "index") as corpus:
        assert corpus.count() == 50
    assert not (tmp_path / "outside").exists()
