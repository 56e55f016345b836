"""Files of an index from a stranger: sizes, counts and nesting are checked before anything is read."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from context_agent.errors import ContextAgentError, CorpusCorruptError
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.index.bm25 import Bm25Index
from context_agent.retrieval.index.publication import published
from context_agent.retrieval.index.segments import SEGMENT_HEADER, SegmentSizes
from context_agent.retrieval.index.snapshot import load_snapshot
from context_agent.testing.documents import people
from context_agent.testing.embedders import HashEmbedder
from tests.support.bounded import bounded

TERABYTE = 1 << 40
COUNT = 60
FOREIGN = "notes"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "index"
    index_documents(people(COUNT), folder, embedder=HashEmbedder())
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "index"))


def ask(folder: Path) -> list[str]:
    """Open the index as every command does, and use each of its files."""
    with ChromaCorpus.open(folder, embedder=HashEmbedder()) as corpus:
        hits = corpus.search("Person 7 the weaver")
        corpus.grep("Person 7 was")
        corpus.read("person-7")
        assert len(list(corpus.walk())) == corpus.count() == COUNT
    return [hit.chunk.id for hit in hits]


def index(folder: Path) -> int:
    return index_documents(people(COUNT + 1), folder, embedder=HashEmbedder()).chunks


def file_in(folder: Path, pattern: str) -> Path:
    return next(path for path in folder.rglob(pattern) if path.is_file())


def make_sparse(file: Path, size: int = TERABYTE) -> None:
    """Give a file this length without writing it; its first bytes stay."""
    os.truncate(file, size)


SPARSE = [
    "chroma.sqlite3",
    "current.json",
    "segments.json",
    "segment-*.bin",
    "meta.json",
    ".managed.json",
    "*.store",
    "*.term",
    "*.idx",
    "*.fieldnorm",
    "vectors.json",
]


@pytest.mark.parametrize("pattern", SPARSE)
def test_a_sparse_file_of_a_terabyte_is_refused_at_once(folder: Path, pattern: str) -> None:
    make_sparse(file := file_in(folder, pattern))
    for use in (ask, index):
        error = bounded(use, folder).require(memory=100_000_000, seconds=5).error
        assert isinstance(error, CorpusCorruptError)
        assert f"{file} has {TERABYTE:,} bytes, but almost none of them are on the disk" in str(error)


@pytest.mark.parametrize("name", ["segment.removed", "segment.graph", "header.bin", "index_metadata.pickle"])
def test_a_sparse_file_that_a_stranger_adds_is_refused_at_once(folder: Path, name: str) -> None:
    segment = file_in(folder, "segment-*.bin")
    file = segment.with_suffix(Path(name).suffix)
    if name.startswith(("header", "index")):
        (folder / "vectors").mkdir()
        file = folder / "vectors" / name
    file.touch()
    make_sparse(file)
    for use in (ask, index):
        assert "almost none of them" in str(bounded(use, folder).require(memory=100_000_000, seconds=5).error)


MIDDLE = 60_000_000
"""Below the size from which holes are looked for."""


@pytest.mark.parametrize("pattern", ["current.json", "segments.json", "meta.json", ".managed.json", "vectors.json"])
def test_a_list_of_the_index_that_is_too_large_is_not_read(folder: Path, pattern: str) -> None:
    make_sparse(file_in(folder, pattern), MIDDLE)
    for use in (ask, index):
        bounded(use, folder).require(memory=300_000_000)


def test_removed_rows_beyond_the_rows_are_not_read(folder: Path) -> None:
    segment = file_in(folder, "segment-*.bin")
    file = segment.with_suffix(".removed")
    file.touch()
    make_sparse(file, MIDDLE)
    root = segment.parent
    assert load_snapshot(root.parent, root.name) is None
    assert ask(folder)


def rewrite(file: Path, change: Callable[[Any], Any]) -> None:
    file.write_text(json.dumps(change(json.loads(file.read_text()))))


CHANGES: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "a segment named 20,000 times": ("segments.json", lambda head: {**head, "segments": head["segments"] * 20_000}),
    "a segment named twice": ("segments.json", lambda head: {**head, "segments": head["segments"] * 2}),
    "documents beyond the rows": ("segments.json", lambda head: {**head, "documents": 10**30}),
    "a negative count": ("segments.json", lambda head: {**head, "documents": -1}),
    "an infinite count": ("segments.json", lambda head: {**head, "documents": float("inf")}),
    "an infinite dimension": ("segments.json", lambda head: {**head, "dimension": float("inf")}),
    "a huge dimension": ("segments.json", lambda head: {**head, "dimension": 10**18}),
    "names that are numbers": ("segments.json", lambda head: {**head, "segments": [1]}),
    "a segment of tantivy 20,000 times": ("meta.json", lambda meta: {**meta, "segments": meta["segments"] * 20_000}),
    "a segment of tantivy twice": ("meta.json", lambda meta: {**meta, "segments": meta["segments"] * 2}),
    "more documents in tantivy": (
        "meta.json",
        lambda meta: {**meta, "segments": [{**part, "max_doc": 2**31} for part in meta["segments"]]},
    ),
    "a state that is nested deep": ("current.json", lambda pointer: {**pointer, "state": "[" * 100_000}),
    "a state that is a list": ("current.json", lambda pointer: {**pointer, "state": "[]"}),
    "metadata of no use": (
        "current.json",
        lambda pointer: {**pointer, "collection": {**pointer["collection"], "metadata": 7, "dimension": []}},
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_counts_that_cannot_be_are_noticed_and_the_snapshot_is_made_again(folder: Path, name: str) -> None:
    pattern, change = CHANGES[name]
    rewrite(file_in(folder, pattern), change)
    assert bounded(ask, folder).require().value


@pytest.mark.parametrize("text", ["[" * 2_000_000, '{"a":' * 500_000, "[]," * 1_000_000, "9" * 1_000_000, "\0" * 1_000])
@pytest.mark.parametrize("pattern", ["current.json", "segments.json", "meta.json", ".managed.json", "vectors.json"])
def test_nesting_and_noise_raise_nothing_of_python(folder: Path, pattern: str, text: str) -> None:
    file_in(folder, pattern).write_text(text)
    assert ask(folder)


def segment_with(file: Path, column: str, change: Callable[[np.ndarray], None]) -> None:
    """Change a column of a segment in place."""
    data = bytearray(file.read_bytes())
    sizes = SegmentSizes(*SEGMENT_HEADER.unpack(data[: SEGMENT_HEADER.size])[2:])
    for name, dtype, offset, count in sizes.columns():
        if name == column:
            change(np.frombuffer(data, dtype, count, offset))
    file.write_bytes(data)


def overlap(starts: np.ndarray) -> None:
    starts[1:-1:2] = starts[-1] - 1


def backwards(starts: np.ndarray) -> None:
    starts[1:-1] = starts[1:-1][::-1].copy()


def outside(starts: np.ndarray) -> None:
    starts[-1] = 2**62


def all_equal(hashes: np.ndarray) -> None:
    hashes[:] = hashes[0]


def out_of_range(numbers: np.ndarray) -> None:
    numbers[:] = -5


@pytest.mark.parametrize(
    ("column", "change"),
    [
        *((column, change) for column in ("text_starts", "id_starts") for change in (overlap, backwards, outside)),
        ("metadata_starts", overlap),
        ("hashed_rows", out_of_range),
    ],
)
def test_rows_that_overlap_or_lead_out_of_a_segment_are_noticed(
    folder: Path, column: str, change: Callable[[np.ndarray], None]
) -> None:
    segment_with(file_in(folder, "segment-*.bin"), column, change)
    assert bounded(ask, folder).require().value


def test_a_table_of_equal_hashes_makes_no_look_up_read_everything(folder: Path) -> None:
    file = file_in(folder, "segment-*.bin")
    segment_with(file, "hashes", all_equal)
    snapshot = load_snapshot(file.parent.parent, file.parent.name)
    assert snapshot is not None
    key = int(snapshot.rows.segments[0].hashes[0])
    with pytest.raises(CorpusCorruptError, match="has wrong hashes"):
        list(snapshot.rows.segments[0].find("chunk", "nobody", key))


def test_a_publication_that_many_folders_link_to_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from context_agent.retrieval.index import publication

    pointer = file_in(folder, "current.json")
    for number in range(50):
        (folder / "ctx1" / f"copy{number}").mkdir()
        os.link(pointer, folder / "ctx1" / f"copy{number}" / "current.json")
    reads: list[Path] = []

    def counted(root: Path) -> Any:
        reads.append(root)
        return published(root)

    monkeypatch.setattr(publication, "published", counted)
    assert publication.published_collection(folder / "ctx1", "nobody") is None
    assert len(reads) == 1


DEFINITIONS = {
    "a view without end": (
        "create view collection_metadata as with recursive n(i) as (select 1 union all select i + 1 from n) "
        "select id as collection_id, 'k' || i as key, zeroblob(1000000) as str_value, null as int_value, "
        "null as float_value, null as bool_value from collections, n"
    ),
    "a view of large values": (
        "create view collection_metadata as select id as collection_id, 'ctx1' as key, "
        "cast(zeroblob(900000000) as text) as str_value, null as int_value, null as float_value, null as bool_value "
        "from collections"
    ),
    "a computed column": (
        "create table collection_metadata (collection_id text, key text, int_value int, float_value real, "
        "bool_value int, str_value text as (cast(zeroblob(900000000) as text)))"
    ),
}


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_database_that_computes_is_refused(folder: Path, name: str) -> None:
    with closing(sqlite3.connect(folder / "chroma.sqlite3")) as database:
        collection = database.execute("select id from collections").fetchone()[0]
        database.execute("drop table collection_metadata")
        database.execute(DEFINITIONS[name])
        if "table" in DEFINITIONS[name][:12]:
            database.execute("insert into collection_metadata (collection_id, key) values (?, 'ctx1')", (collection,))
        database.commit()
    for use in (ask, index):
        error = bounded(use, folder).require(memory=100_000_000, seconds=10).error
        assert isinstance(error, CorpusCorruptError)


@pytest.mark.parametrize(
    ("name", "forged"),
    [
        ("a view without end", "type = 'VIEW'"),
        ("a view without end", "type = cast('view' as blob)"),
        ("a computed column", "type = 'TABLE'"),
        ("a trigger", "type = 'Trigger'"),
    ],
)
def test_a_forged_schema_hides_nothing_that_computes(folder: Path, name: str, forged: str) -> None:
    trigger = "create trigger collection_metadata before insert on embeddings begin select 1; end"
    with closing(sqlite3.connect(folder / "chroma.sqlite3")) as database:
        if name in DEFINITIONS:
            database.execute("drop table collection_metadata")
        database.execute(DEFINITIONS.get(name, trigger))
        database.execute("pragma writable_schema = on")
        kind = "trigger" if name == "a trigger" else "collection_metadata"
        database.execute(f"update sqlite_master set {forged} where ? in (name, type)", (kind,))
        database.commit()
    for use in (ask, index):
        error = bounded(use, folder).require(memory=100_000_000, seconds=10).error
        assert isinstance(error, CorpusCorruptError)
        assert "which Chroma does not make" in str(error)


@pytest.mark.parametrize("value", ["x'ff81'", "sql || cast(x'2081' as text)", "cast(x'81' as text) || sql"])
def test_a_schema_that_is_not_utf8_is_refused(folder: Path, value: str) -> None:
    with closing(sqlite3.connect(folder / "chroma.sqlite3")) as database:
        database.execute("pragma writable_schema = on")
        database.execute(f"update sqlite_master set sql = {value} where name = 'collections'")
        database.commit()
    for use in (ask, index):
        with pytest.raises(CorpusCorruptError, match="cannot be read"):
            use(folder)


@pytest.mark.parametrize(
    "change",
    [
        "alter table collections drop column dimension",
        "alter table collections rename column name to title",
        "alter table collection_metadata rename column key to name",
        "update collections set dimension = 'many'",
        "alter table migrations rename column filename to name",
    ],
)
def test_tables_of_another_program_raise_nothing_of_python(folder: Path, change: str) -> None:
    """Chroma panics at some of them."""
    with closing(sqlite3.connect(folder / "chroma.sqlite3")) as database:
        database.execute(change)
        database.commit()
    refused = 0
    for use in (ask, index):
        try:
            use(folder)
        except CorpusCorruptError:
            refused += 1
    assert refused > 0


def link_pages(folder: Path, table: str, depth: int = 9) -> None:
    """Give a table of Chroma's database endless rows: each child of a page is the same next page, for some levels."""
    file = folder / "chroma.sqlite3"
    with closing(sqlite3.connect(file)) as database:
        (root,) = database.execute("select rootpage from sqlite_master where name = ?", (table,)).fetchone()
    data = file.read_bytes()
    size = int.from_bytes(data[16:18], "big")
    count, start = len(data) // size, (root - 1) * size

    def inner(child: int) -> bytes:
        cells = size // 8
        places = (size - 5 * number for number in range(1, cells + 1))
        head = struct.pack(f">BHHHBI{cells}H", 5, 0, cells, size - 5 * cells, 0, child, *places)
        return head.ljust(size - 5 * cells, b"\0") + struct.pack(">IB", child, 1) * cells

    pages = [*(inner(count + level + 2) for level in range(depth)), data[start : start + size]]
    data = data[:28] + struct.pack(">I", count + len(pages)) + data[32:]
    file.write_bytes(data[:start] + inner(count + 1) + data[start + size :] + b"".join(pages))


@pytest.mark.parametrize(("table", "use"), [("collections", ask), ("collections", index), ("segments", index)])
def test_a_database_of_endless_rows_is_refused(folder: Path, table: str, use: Callable[[Path], object]) -> None:
    link_pages(folder, table)
    error = bounded(use, folder).require(memory=100_000_000, seconds=10).error
    assert isinstance(error, CorpusCorruptError)


MAGIC = bytes.fromhex("d9d505f920a163d7")


def interrupt_a_transaction(folder: Path, super_journal: Path) -> None:
    """Leave a journal that restores the first page of the database, and that names a super-journal."""
    data = (folder / "chroma.sqlite3").read_bytes()
    size = int.from_bytes(data[16:18], "big")
    nonce, page, name = 7, data[:size], str(super_journal).encode()
    header = MAGIC + struct.pack(">5I", 1, nonce, len(data) // size, 512, size)
    record = struct.pack(">I", 1) + page + struct.pack(">I", nonce + sum(page[size - 200 : 0 : -200]))
    lock_page = (1 << 30) // size + 1
    end = struct.pack(">I", lock_page) + name + struct.pack(">2I", len(name), sum(name)) + MAGIC
    (folder / "chroma.sqlite3-journal").write_bytes(header.ljust(512, b"\0") + record + end)


@pytest.mark.parametrize("use", [ask, index])
def test_a_journal_that_names_another_file_deletes_nothing(
    folder: Path, tmp_path: Path, use: Callable[[Path], object]
) -> None:
    shutil.rmtree(folder / "ctx1")  # a reader then reads the database itself
    victim = tmp_path / "victim"
    victim.write_text("precious")
    interrupt_a_transaction(folder, victim)
    with pytest.raises(CorpusCorruptError, match=f"{folder}/chroma.sqlite3-journal names another file"):
        use(folder)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("use", [ask, index])
@pytest.mark.parametrize("name", ["{victim}", "../../../../../victim"])
def test_a_list_that_names_a_file_outside_the_index_deletes_nothing(
    folder: Path, tmp_path: Path, name: str, use: Callable[[Path], object]
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    listed = file_in(folder, ".managed.json")
    assert (listed.parent / "../../../../../victim").resolve() == victim
    listed.write_text(json.dumps([*json.loads(listed.read_bytes()), name.format(victim=victim)]))
    with pytest.raises(CorpusCorruptError, match=r"\.managed\.json names a file outside the folder"):
        Bm25Index(listed.parent)
    use(folder)  # the snapshot is made again
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", ["chroma.sqlite3", "vectors", "vectors/length.bin", "ctx1/{}/vectors.json"])
def test_an_index_is_not_written_through_a_link(folder: Path, tmp_path: Path, name: str) -> None:
    path = folder / name.format(next((folder / "ctx1").glob("*-*")).name)
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(tmp_path / "victim")
    (tmp_path / "victim").touch()
    with pytest.raises(CorpusCorruptError, match=f"{path} is a link"):
        index(folder)
    assert (tmp_path / "victim").read_bytes() == b""


@pytest.mark.parametrize("name", ["ctx1", "ctx1/writer.lock", "ctx1/*/snapshot.lock"])
def test_a_link_in_place_of_a_lock_leads_nowhere(folder: Path, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    link = next(folder.glob(name))
    if name == "ctx1":
        victim.mkdir()
        shutil.move(link, tmp_path / "aside")
    else:
        victim.write_text("precious")
        link.unlink()
    link.symlink_to(victim)
    with pytest.raises(ContextAgentError, match=r"is a (symbolic )?link"):
        index(folder)
    assert list(victim.iterdir()) == [] if victim.is_dir() else victim.read_text() == "precious"
