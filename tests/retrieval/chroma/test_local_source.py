"""`index_documents` and `ChromaCorpus` over a local folder."""

import errno
import json
import os
import shutil
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import chromadb
import numpy as np
import pytest
from chromadb.config import Settings
from chromadb.errors import InternalError

from context_agent.agent import SearchAgent
from context_agent.errors import (
    ConfigError,
    CorpusCorruptError,
    CorpusEmptyError,
    CorpusError,
    CorpusLockedError,
    CorpusNotFoundError,
    DimensionError,
    PatternError,
)
from context_agent.retrieval.chroma import corpus as chroma_corpus
from context_agent.retrieval.chroma import private_copy, repair
from context_agent.retrieval.chroma.client import chroma_errors, is_writing, writing
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.chroma.indexing_report import IndexProgress, IndexReport
from context_agent.retrieval.chroma.location import Location
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.index.manifest import MANIFEST_SCHEMA
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.testing.documents import people
from context_agent.testing.embedders import HashEmbedder
from context_agent.tokens import CharCounter
from context_agent.types import Document


def index(path: Path, documents: list[Document], **options: object) -> IndexReport:
    settings = {"embedder": HashEmbedder(), "counter": CharCounter(), **options}
    return index_documents(documents, path, **settings)  # type: ignore[arg-type]


def reopen(path: Path, **options: object) -> ChromaCorpus:
    return ChromaCorpus.open(path, **{"embedder": HashEmbedder(), **options})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("local") / "index"
    index(path, people(600))
    return path


@pytest.fixture(scope="module")
def corpus(folder: Path) -> ChromaCorpus:
    return reopen(folder)


def test_is_a_corpus(corpus: ChromaCorpus) -> None:
    assert isinstance(corpus, Corpus)
    assert corpus.count() == 600
    assert corpus.name == "chroma:documents@1"


def test_a_small_folder_without_a_model_or_code_of_the_caller_answers_at_once(
    corpus: ChromaCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_documents(people(20), tmp_path / "index")
    with ChromaCorpus.open(tmp_path / "index") as small:
        assert not small.blocking
        for limit in ("QUICK_CHUNKS", "QUICK_BYTES"):
            with monkeypatch.context() as patch:
                patch.setattr(chroma_corpus, limit, 19)
                assert small.blocking
    with ChromaCorpus.open(tmp_path / "index", wrap=lambda retriever: retriever) as wrapped:
        assert wrapped.blocking
    assert corpus.blocking  # its embedder is the test's own


def test_a_search_is_the_same_in_one_thread_and_in_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index_documents(people(40), tmp_path / "index")
    with ChromaCorpus.open(tmp_path / "index") as small:
        hits = small.search("Person 7 lives in the town of")
    monkeypatch.setattr(chroma_corpus, "QUICK_CHUNKS", 19)
    before = set(threading.enumerate())
    with ChromaCorpus.open(tmp_path / "index") as large:
        assert large.search("Person 7 lives in the town of") == hits
        new_threads = set(threading.enumerate()) - before
        assert [thread.name.partition("_")[0] for thread in new_threads] == ["ctx1-search"]
    assert not new_threads & set(threading.enumerate()), "they end with the corpus"
    assert len(hits) > 10


def test_chunks_come_back_as_they_went_in(corpus: ChromaCorpus) -> None:
    (chunk,) = corpus.read("person-17")
    (document,) = people(1, start=17)
    assert (chunk.id, chunk.document_id, chunk.index) == ("person-17_0", "person-17", 0)
    assert (chunk.text, chunk.title, dict(chunk.metadata)) == (document.text, document.title, dict(document.metadata))
    assert (chunk.start, chunk.end, chunk.tokens) == (0, len(document.text), CharCounter().count(document.text))


def test_answers_as_the_corpus_in_memory_does(corpus: ChromaCorpus) -> None:
    memory = MemoryCorpus(people(600), embedder=HashEmbedder(), counter=CharCounter())
    for query in ("the ledger of Person 42", "a chemist from Osaka", "K7919"):
        stored_hits, memory_hits = corpus.search(query, k=10), memory.search(query, k=10)
        assert stored_hits[0].chunk == memory_hits[0].chunk
        assert stored_hits[0].sparse == pytest.approx(memory_hits[0].sparse)
        assert len({hit.chunk.id for hit in stored_hits} & {hit.chunk.id for hit in memory_hits}) >= 8
        ids = [hit.chunk.id for hit in memory_hits]
        assert corpus.similarity(query, ids) == pytest.approx(memory.similarity(query, ids), abs=1e-5)
    assert corpus.grep("from Quito, born in 15[0-9]3") == memory.grep("from Quito, born in 15[0-9]3")
    terms = ["printer", "Lisbon", "nowhere", "guild"]
    assert corpus.document_frequency(terms).tolist() == memory.document_frequency(terms).tolist()


def test_dense_scores_are_cosines(corpus: ChromaCorpus) -> None:
    hits = [hit for hit in corpus.search("a weaver from Perth") if hit.dense is not None]
    cosines = corpus.similarity("a weaver from Perth", [hit.chunk.id for hit in hits])
    assert [hit.dense for hit in hits] == pytest.approx(cosines.tolist(), abs=1e-4)


def test_seen_chunks_are_dropped_and_others_take_their_place(corpus: ChromaCorpus) -> None:
    seen_ids: set[str] = set()
    for _ in range(5):
        hits = corpus.search("a printer from Lisbon", exclude=seen_ids)
        assert len(hits) >= 25
        assert not seen_ids & {hit.chunk.id for hit in hits}
        seen_ids |= {hit.chunk.id for hit in hits}


def test_filters_hold(corpus: ChromaCorpus) -> None:
    where = {"$and": [{"century": 18}, {"trade": {"$ne": "weaver"}}]}
    for hits in (corpus.search("Lisbon weaver", where=where), corpus.grep("guild", where=where)):
        assert hits
        assert all(hit.chunk.metadata["century"] == 18 for hit in hits)
        assert all(hit.chunk.metadata["trade"] != "weaver" for hit in hits)


def test_a_malformed_filter_is_refused(corpus: ChromaCorpus) -> None:
    with pytest.raises(ConfigError, match="filter"):
        corpus.search("x", where={"a": {"$like": 1}})
    with pytest.raises(ConfigError, match="filter"):
        corpus.grep("x", where={"$and": []})


@pytest.mark.parametrize("query", ["", " \n", "?!", "\0", "the of and", "word " * 20_000, "x" * 100_000, "𝔘𝔫𝔦 \ud800"])
def test_any_query_is_answered(corpus: ChromaCorpus, query: str) -> None:
    assert isinstance(corpus.search(query), list)


def test_unknown_ids_and_patterns(corpus: ChromaCorpus) -> None:
    assert corpus.read("nobody") == []
    assert corpus.get(["nobody"]) == []
    assert [chunk.id for chunk in corpus.get(["person-5_0", "nobody", "person-3_0"])] == ["person-5_0", "person-3_0"]
    assert np.isnan(corpus.similarity("x", ["nobody"])).all()
    assert corpus.similarity("x", []).shape == (0,)
    with pytest.raises(PatternError):
        corpus.grep("(?=x)")


def test_eight_threads_read_what_one_reads(corpus: ChromaCorpus) -> None:
    queries = [f"Person {number} the chemist" for number in range(48)]
    sequential = [[hit.chunk.id for hit in corpus.search(query)] for query in queries]
    with ThreadPoolExecutor(8) as pool:
        parallel = [[hit.chunk.id for hit in hits] for hits in pool.map(corpus.search, queries)]
    assert parallel == sequential


def test_repeating_a_run_changes_nothing(tmp_path: Path) -> None:
    first = index(tmp_path / "a", people(50))
    embedder = HashEmbedder()
    second = index(tmp_path / "a", people(50), embedder=embedder)
    assert (first.added, first.stored, second.unchanged, second.stored) == (50, 50, 50, 0)
    assert embedder.embedded == 0
    assert second.revision == first.revision == 1


def test_changed_documents_are_replaced_and_missing_ones_stay_unless_asked(tmp_path: Path) -> None:
    path = tmp_path / "a"
    index(path, people(80))
    changed = [Document("person-3", "Person 3 turned out to be a zoologist.", "Person 3"), *people(40, start=60)]
    report = index(path, changed)
    assert (report.added, report.replaced, report.unchanged, report.removed) == (20, 1, 20, 0)
    assert (report.missing, report.missing_examples) == (59, ("person-0", "person-1", "person-2"))
    with reopen(path) as corpus:
        assert corpus.count() == 100
        assert corpus.search("zoologist")[0].chunk.document_id == "person-3"
        assert [hit.chunk.document_id for hit in corpus.grep("zoologist")] == ["person-3"]
        assert corpus.grep("ledger number K23757 ") == []
    report = index(path, changed, remove_missing=True)
    assert report.removed == 59
    with reopen(path) as corpus:
        assert corpus.count() == 41
        assert corpus.read("person-5") == []
        assert corpus.document_frequency(["zoologist", "guild"]).tolist() == [1, 40]


def test_an_index_whose_documents_are_all_gone_becomes_empty_on_request(tmp_path: Path) -> None:
    path = tmp_path / "a"
    index(path, people(5))
    reader = reopen(path)
    assert (index(path, []).missing, reader.count()) == (5, 5)
    report = index(path, [], remove_missing=True)
    assert (report.removed, report.chunks, index(path, [], remove_missing=True).revision) == (5, 0, report.revision)
    reader.refresh()
    with reader, reopen(path) as corpus:
        for empty in (reader, corpus):
            assert (empty.count(), empty.search("zoologist"), empty.grep("Person")) == (0, [], [])
            assert empty.read("person-1") == []
            assert SearchAgent(empty).search("Who is a zoologist?").documents == ()
    client = chromadb.PersistentClient(str(path))
    with ChromaCorpus.open(collection=client.get_collection("documents"), embedder=HashEmbedder()) as corpus:
        assert corpus.search("zoologist") == []
    client.close()  # type: ignore[attr-defined]
    shutil.rmtree(path / "ctx1")
    with reopen(path) as corpus:
        assert corpus.search("zoologist") == []
    index(path, people(5))
    assert index(path, [Document("blank", " ")], remove_missing=[f"person-{n}" for n in range(5)]).chunks == 0
    assert index(path, people(3)).chunks == 3
    with reopen(path) as corpus:
        assert corpus.read("person-1")


def test_an_index_is_not_emptied_by_blank_texts_alone(tmp_path: Path) -> None:
    index(tmp_path / "a", [Document("one", "Some text.")])
    with pytest.raises(CorpusEmptyError, match="no document has text"):
        index(tmp_path / "a", [Document("one", " ")])
    with reopen(tmp_path / "a") as corpus:
        assert [chunk.text for chunk in corpus.read("one")] == ["Some text."]


def test_a_document_may_return_to_an_earlier_text(tmp_path: Path) -> None:
    for text in ("first version", "second version", "first version"):
        report = index(tmp_path / "a", [Document("one", text), Document("two", "constant")])
        with reopen(tmp_path / "a") as corpus:
            assert [chunk.text for chunk in corpus.read("one")] == [text]
            assert corpus.count() == 2
    assert report.revision == 3


def test_an_open_reader_keeps_its_state_until_refreshed(tmp_path: Path) -> None:
    index(tmp_path / "a", people(30))
    corpus = reopen(tmp_path / "a")
    index(tmp_path / "a", people(60))
    assert {hit.chunk.id for hit in corpus.search("Person 45")} <= {f"person-{number}_0" for number in range(30)}
    corpus.refresh()
    assert corpus.search("Person 45")[0].chunk.id == "person-45_0"


def test_a_lost_or_damaged_snapshot_is_rebuilt(tmp_path: Path) -> None:
    index(tmp_path / "a", people(100))

    def file(pattern: str) -> Path:
        (pointer,) = (tmp_path / "a").glob("ctx1/*/current.json")
        (match,) = (pointer.parent / json.loads(pointer.read_text())["snapshot"]).glob(pattern)
        return match

    def newer_format(segment: Path) -> None:
        content = segment.read_bytes()
        segment.write_bytes(content[:7] + bytes([content[7] + 1]) + content[8:])

    with reopen(tmp_path / "a") as corpus:
        before = corpus.retrievers[1].search("chemist from Ghent", 12)
    for damage in (
        lambda: file("segment-*.bin").unlink(),
        lambda: file("segment-*.bin").write_bytes(b"x"),
        lambda: file("segment-*.bin").write_bytes(file("segment-*.bin").read_bytes()[:-1]),
        lambda: newer_format(file("segment-*.bin")),
        lambda: file("segment-*.bin").write_bytes(_garbled(file("segment-*.bin").read_bytes())),
        lambda: file("segments.json").write_text("[]"),
        lambda: file("segments.json").write_text(file("segments.json").read_text().replace("segment-", "../segment-")),
        lambda: file("segments.json").write_text(file("segments.json").read_text().replace("version", "format")),
    ):
        damage()
        with reopen(tmp_path / "a") as corpus:
            assert corpus.retrievers[1].search("chemist from Ghent", 12) == before
            assert [hit.chunk.id for hit in corpus.grep("Person 7 was")] == ["person-7_0"]


def test_runs_without_changes_make_a_snapshot_of_another_version_again_once(tmp_path: Path) -> None:
    path = tmp_path / "i"
    index(path, people(20))
    (head,) = path.glob("ctx1/*/snapshot-*/segments.json")
    head.write_text(json.dumps({**json.loads(head.read_text()), "version": "2.9"}))
    made = []
    for _ in range(3):
        assert index(path, people(20)).unchanged == 20
        made.append(sorted(path.glob("ctx1/*/snapshot-*")))
    assert made[0] == made[1] == made[2]
    assert len(made[0]) == 2
    with reopen(path) as corpus:
        assert corpus.snapshot.folder in made[0]
        assert corpus.search(people(1, 7)[0].text)[0].chunk.id == "person-7_0"


def test_bytes_that_were_damaged_in_place_are_an_error_that_says_what_to_delete(tmp_path: Path) -> None:
    index(tmp_path / "a", people(100))
    with reopen(tmp_path / "a") as corpus:
        before = {hit.chunk.id for hit in corpus.search("chemist from Ghent")}
        snapshot = corpus.snapshot.folder
    # The offsets of a segment are checked when it is opened, its texts when they are read.
    damages = {"segment-*.bin": _garbled_texts, "bm25/*.idx": _garbled, "bm25/*.store": _garbled}
    for pattern, garbled in damages.items():
        original = next(snapshot.glob(pattern))
        content = original.read_bytes()
        original.unlink()
        original.write_bytes(garbled(content))
        with pytest.raises(CorpusCorruptError, match="is damaged") as excinfo, reopen(tmp_path / "a") as corpus:
            corpus.search("chemist from Ghent")
        assert f"Delete the folder {snapshot}." in str(excinfo.value)
        original.write_bytes(content)
    shutil.rmtree(snapshot)
    with reopen(tmp_path / "a") as corpus:
        assert {hit.chunk.id for hit in corpus.search("chemist from Ghent")} == before


def _garbled_texts(content: bytes) -> bytes:
    return content[:64] + b"\xff" * 3_000 + content[3_064:]


def _garbled(content: bytes) -> bytes:
    """Bytes that are no UTF-8 and no numbers of any use, between a header and a footer that are intact."""
    return content[:64] + b"\xff" * (len(content) - 300) + content[-236:]


def test_progress_and_report_count(tmp_path: Path) -> None:
    steps: list[IndexProgress] = []
    blank = Document("blank", " \n")
    report = index(tmp_path / "a", [*people(300), blank], progress=steps.append, batch_size=64)
    assert (report.chunks, report.added, report.empty, report.stored) == (300, 300, 1, 300)
    assert steps[-1] == IndexProgress(documents=301, chunks=300, stored=300, kept=300, embedded=300)
    assert report.seconds > 0


def test_long_documents_keep_their_chunks_in_order(tmp_path: Path) -> None:
    text = " ".join(f"Sentence number {number} stands here." for number in range(400))
    index(tmp_path / "a", [Document("long", text)], chunk_size=64)
    with reopen(tmp_path / "a") as corpus:
        chunks = corpus.read("long")
    assert len(chunks) > 20
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert all(text[chunk.start : chunk.end] == chunk.text for chunk in chunks)


def test_only_one_writer(tmp_path: Path) -> None:
    path, entered, leave = tmp_path / "a", threading.Event(), threading.Event()

    def slowly() -> object:
        yield from people(5)
        entered.set()
        leave.wait(120)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(index, path, slowly())  # type: ignore[arg-type]
        assert entered.wait(120)
        with pytest.raises(CorpusLockedError, match="another process"):
            index(path, people(3))
        leave.set()
        assert running.result().added == 5


def test_duplicate_ids(tmp_path: Path) -> None:
    assert index(tmp_path / "a", people(3) + people(3)).chunks == 3
    with pytest.raises(CorpusError, match="'x' occurs twice"):
        index(tmp_path / "b", [Document("x", "one"), Document("x", "two")])


def test_what_cannot_be_indexed(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(CorpusEmptyError):
        index(tmp_path / "a", [])
    with pytest.raises(CorpusEmptyError, match="never completed"):
        reopen(tmp_path / "a")
    with pytest.raises(CorpusEmptyError):
        index(tmp_path / "b", [Document("blank", "  ")])
    with pytest.raises(DimensionError, match=r"64 numbers.*32"):
        index(folder, people(3), embedder=HashEmbedder(32))
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "notes.txt").write_text("mine")
    with pytest.raises(CorpusError, match="contains other files"):
        index(tmp_path / "c", people(3))
    with pytest.raises(ConfigError, match="either"):
        index_documents(people(3), tmp_path, url="http://localhost:1")


def test_what_cannot_be_opened(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(CorpusNotFoundError, match="does not exist"):
        reopen(tmp_path / "nowhere")
    with pytest.raises(CorpusNotFoundError, match=r"chroma\.sqlite3"):
        reopen(tmp_path)
    with pytest.raises(CorpusNotFoundError, match="Choose from documents"):
        reopen(folder, collection="notes")
    with pytest.raises(DimensionError, match=r"64 numbers.*32"):
        reopen(folder, embedder=HashEmbedder(32))
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CorpusError, match=r"Not a directory.*Name the folder of an index"):
        reopen(tmp_path / "file")


def test_an_index_of_another_version_names_it_and_how_to_replace_the_index(tmp_path: Path) -> None:
    index(tmp_path / "i", people(3))
    database = sqlite3.connect(tmp_path / "i" / "chroma.sqlite3")
    newer = "replace(str_value, '\"schema\": ', '\"schema\": 9')"
    database.execute(f"UPDATE collection_metadata SET str_value = {newer} WHERE key = 'ctx1'")
    database.commit()
    database.close()
    for command in (reopen, lambda path: index(path, people(4))):
        with pytest.raises(
            CorpusCorruptError, match=rf"schema 9\d+; this version reads {MANIFEST_SCHEMA}.*Delete the index, or"
        ):
            command(tmp_path / "i")


@pytest.mark.parametrize(
    "error",
    [
        InternalError("error returned from database: (code: 8) attempt to write a readonly database"),
        PermissionError(errno.EACCES, "Permission denied", "header.bin"),
        PermissionError(errno.EPERM, "Operation not permitted", "vectors.json"),
    ],
)
def test_a_folder_that_may_not_be_written_is_not_called_damaged(tmp_path: Path, error: Exception) -> None:
    refused = pytest.raises(CorpusError, match=r"read-only.*Allow this user to read and write")
    with refused as excinfo, chroma_errors(Location(tmp_path)):
        raise error
    assert not isinstance(excinfo.value, CorpusCorruptError)


def test_a_client_with_other_settings_must_be_closed_first(tmp_path: Path) -> None:
    client = chromadb.PersistentClient(str(tmp_path / "i"), settings=Settings(anonymized_telemetry=False))
    with pytest.raises(ConfigError, match=r"different settings.*close that client first"):
        index(tmp_path / "i", people(3))
    assert client.count_collections() == 0
    client.close()
    assert index(tmp_path / "i", people(3)).chunks == 3


def test_a_run_after_one_that_could_not_open_the_folder_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "i"
    index(path, people(3))
    database = (path / "chroma.sqlite3").read_bytes()
    with sqlite3.connect(path / "chroma.sqlite3") as connection:
        connection.execute("drop table migrations")
    connection.close()
    with pytest.raises(CorpusError):
        index(path, people(4))
    (path / "chroma.sqlite3").write_bytes(database)
    assert index(path, people(4)).chunks == 4


@pytest.mark.parametrize(("umask", "shared"), [(0o022, 0o044), (0o077, 0)])
def test_the_umask_says_who_may_read_an_index(tmp_path: Path, umask: int, shared: int) -> None:
    before = os.umask(umask)
    try:
        for count in (3, 4):
            index(tmp_path / "i", people(count))
    finally:
        os.umask(before)
    for path in (tmp_path / "i").rglob("*"):
        assert path.stat().st_mode & 0o044 == shared, path


def test_copies_of_a_read_only_index_do_not_pile_up(tmp_path: Path) -> None:
    path, cache = tmp_path / "i", tmp_path / "cache"
    for count in (3, 4, 5, 6):
        index(path, people(count))
        for killed in cache.glob("*"):
            (killed / "copy-x").mkdir()
        with reopen(path, cache=cache) as corpus:
            assert corpus.count() == count
    names = {child.name.split("-")[0] for child in cache.glob("*/*")}
    assert names == {"current.json", "snapshot", "snapshot.lock"}
    assert len(list(cache.glob("*/snapshot-*"))) == 2, "another process may be opening the last but one"


def test_a_damaged_copy_of_a_read_only_index_is_made_again(tmp_path: Path) -> None:
    path, cache = tmp_path / "i", tmp_path / "cache"
    index(path, people(3))
    with reopen(path, cache=cache):
        (copied,) = cache.glob("*/snapshot-*")
    (copied / "segments.json").unlink()
    (copied.parent / "current.json").unlink()
    with reopen(path, cache=cache) as corpus:
        assert corpus.count() == 3


def test_a_snapshot_that_a_reader_cannot_copy_is_made_from_the_collection(tmp_path: Path) -> None:
    path, cache = tmp_path / "i", tmp_path / "cache"
    index(path, people(3))
    (snapshot,) = path.glob("ctx1/*/snapshot-*")
    shutil.rmtree(snapshot / "bm25")
    with reopen(path, cache=cache) as corpus:
        assert corpus.count() == 3


def test_damaged_databases_are_named(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.mkdir()
    (garbage / "chroma.sqlite3").write_bytes(b"not a database" * 1_000)
    with pytest.raises(CorpusCorruptError, match="Restore it"):
        reopen(garbage)
    path = tmp_path / "manifest"
    index(path, people(3))
    with sqlite3.connect(path / "chroma.sqlite3") as database:
        database.execute("update collection_metadata set str_value = '{' where key = 'ctx1'")
    database.close()
    with pytest.raises(CorpusCorruptError, match="manifest"):
        reopen(path)
    path = tmp_path / "settings"
    index(path, people(3))
    with sqlite3.connect(path / "chroma.sqlite3") as database:
        database.execute("update collections set config_json_str = '{'")
    database.close()
    with pytest.raises(CorpusCorruptError, match=f"collection 'documents' in {path} cannot be read"):
        ChromaCorpus.open(path)


def test_a_damaged_database_may_be_deleted_to_index_again(tmp_path: Path) -> None:
    index(tmp_path, people(3))
    (former,) = (child for child in (tmp_path / "ctx1").iterdir() if child.is_dir())
    (tmp_path / "chroma.sqlite3").write_bytes(b"not a database" * 1_000)
    with pytest.raises(CorpusCorruptError, match="or delete it and index the documents again"):
        index(tmp_path, people(3))
    (tmp_path / "chroma.sqlite3").unlink()
    index(tmp_path, people(4))
    assert reopen(tmp_path).count() == 4
    assert not former.exists(), "no collection has this snapshot any more"


def test_the_snapshots_of_a_deleted_collection_are_deleted(tmp_path: Path) -> None:
    index(tmp_path, people(3))
    notes = tmp_path / "ctx1" / "notes"
    notes.mkdir()
    for _ in range(3):
        client = chromadb.PersistentClient(str(tmp_path))
        if len(client.list_collections()) > 1:
            client.delete_collection("foreign")
        foreign = client.create_collection("foreign", embedding_function=None)
        foreign.add(ids=["a", "b"], embeddings=[[1.0, 0.0], [0.0, 1.0]], documents=["one lighthouse", "two"])
        client.close()  # type: ignore[attr-defined]
        reopen(tmp_path, collection="foreign", embedder="none").close()
    assert len([child for child in (tmp_path / "ctx1").iterdir() if child.is_dir()]) == 3
    assert notes.exists()
    assert reopen(tmp_path).count() == 3


def index_with_vector_files(path: Path, documents: list[Document]) -> None:
    """Index into a collection whose vectors Chroma writes to files after 100 records, not after 1,000."""
    client = chromadb.PersistentClient(str(path))
    settings = {"hnsw": {"space": "cosine", "batch_size": 50, "sync_threshold": 100}}
    client.create_collection("documents", embedding_function=None, configuration=settings)  # type: ignore[arg-type]
    client.close()  # type: ignore[attr-defined]
    index(path, documents)


def test_damaged_vectors_do_not_stop_readers_and_the_next_run_mends_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a"
    index_with_vector_files(path, people(110))
    for name in ("data_level0.bin", "link_lists.bin", "header.bin", "index_metadata.pickle"):
        (file,) = path.glob(f"*/{name}")
        file.write_bytes(file.read_bytes()[:-7])
        with reopen(path) as corpus:
            assert corpus.search("the ledger of Person 42")[0].chunk.id == "person-42_0"
        embedder = HashEmbedder()
        caplog.clear()
        assert index(path, people(110), embedder=embedder).unchanged == 110
        assert embedder.embedded == 0, "the vectors come from the snapshot"
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "The vectors of its 110 records were restored." in caplog.text
    client = chromadb.PersistentClient(str(path))
    stored = client.get_collection("documents", embedding_function=None).get(include=["embeddings", "documents"])
    client.close()  # type: ignore[attr-defined]
    texts = {f"{document.id}_0": f"{document.title}\n{document.text}" for document in people(110)}
    expected = HashEmbedder().embed_documents([texts[record.partition("~")[0]] for record in stored["ids"]])
    assert len(stored["ids"]) == 110
    assert np.allclose(stored["embeddings"], expected)  # type: ignore[arg-type]


def test_vectors_that_are_older_than_the_database_are_mended_if_there_is_no_snapshot(tmp_path: Path) -> None:
    """As after a backup that copied the files of an index while it was written."""
    path, before = tmp_path / "i", tmp_path / "before"
    documents = people(2_300)  # Chroma saves the vectors of a thousand records at once.
    index(path, documents[:1_100], batch_size=500)
    (vectors,) = (child for child in path.iterdir() if child.is_dir() and child.name != "ctx1")
    shutil.copytree(vectors, before)
    index(path, documents, batch_size=500)
    shutil.rmtree(vectors)
    before.rename(vectors)
    shutil.rmtree(path / "ctx1")
    assert index(path, documents).unchanged == 2_300
    with reopen(path) as corpus:
        assert corpus.count() == 2_300


def test_vector_files_are_checked_again_once_they_are_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, checked = tmp_path / "a", list[Path]()
    index_with_vector_files(path, people(110))
    monkeypatch.setattr(repair, "vectors_are_intact", lambda files: checked.append(files) or True)
    index(path, people(110))
    assert not checked
    shutil.copytree(path, tmp_path / "copy")
    index(tmp_path / "copy", people(110))
    assert len(checked) == 1


@pytest.mark.parametrize(("changing", "attempts"), [(False, 5), (True, 8)])
def test_a_folder_that_no_program_changes_is_copied_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changing: bool, attempts: int
) -> None:
    targets: list[Path] = []

    def copied(folder: Path, collection: str, target: Path) -> bool:
        targets.append(target)
        if changing:
            (folder / "chroma.sqlite3").write_bytes(bytes(len(targets)))
        return False

    monkeypatch.setattr(private_copy, "_copied", copied)
    monkeypatch.setattr(private_copy.time, "sleep", lambda _: None)
    with pytest.raises(CorpusCorruptError, match="damaged"), private_copy.private_copy(tmp_path, "documents", tmp_path):
        pass
    assert len(targets) == attempts


def test_vectors_without_a_snapshot_are_embedded_again(tmp_path: Path) -> None:
    path, embedder = tmp_path / "a", HashEmbedder()
    index_with_vector_files(path, people(110))
    shutil.rmtree(path / "ctx1")
    (file,) = path.glob("*/data_level0.bin")
    file.unlink()
    with pytest.raises(CorpusCorruptError, match="vector index"):
        reopen(path)
    assert index(path, people(110), embedder=embedder).unchanged == 110
    assert embedder.embedded == 110
    with reopen(path) as corpus:
        assert corpus.search("the ledger of Person 42")[0].chunk.id == "person-42_0"


def test_the_index_is_an_ordinary_chroma_collection(folder: Path) -> None:
    client = chromadb.PersistentClient(str(folder))
    collection = client.get_collection("documents", embedding_function=None)
    # Chroma promises no order of the records.
    records = collection.get(where={"trade": "printer"}, include=["documents", "metadatas"])
    assert records["documents"] is not None
    assert records["metadatas"] is not None
    century = {
        str(text): metadata["century"]
        for text, metadata in zip(records["documents"], records["metadatas"], strict=True)
    }
    assert century[people(1)[0].text] == 16
    assert people(1, start=8)[0].text in century
    assert people(1, start=1)[0].text not in century
    client.close()  # type: ignore[attr-defined]


def test_a_cache_folder_that_cannot_be_made_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr(Path, "mkdir", refused)
    with pytest.raises(ConfigError, match=r"BM25 index needs the folder .*context-agent.*Set XDG_CACHE_HOME"):
        reopen(folder)


def test_without_a_home_folder_the_error_names_the_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chromadb.PersistentClient(tmp_path / "index").create_collection("documents", embedding_function=None).add(
        ids=["a"], documents=["The Lume flows past Brasko."], embeddings=[[1.0, 0.0]]
    )
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(ConfigError, match="Set XDG_CACHE_HOME or HOME to a folder"):
        reopen(tmp_path / "index", embedder="none")


def test_a_folder_that_is_written_is_recognized_under_any_path(tmp_path: Path) -> None:
    """A reader with its own SQLite would undo the locks of Chroma's in the same process."""
    folder, link = tmp_path / "index", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    with writing(Location(path=folder)):
        assert all(map(is_writing, (folder, link, tmp_path / "link" / ".." / "index")))
        assert not is_writing(tmp_path)
    assert not is_writing(link)
