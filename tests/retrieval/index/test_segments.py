"""Segments: a snapshot made of many states reads like one list of rows, and what is added decides what is written."""

from __future__ import annotations

import os
import random
import tempfile
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from context_agent.errors import CorpusCorruptError
from context_agent.retrieval.index.grep import Pattern
from context_agent.retrieval.index.segment_writer import write_file
from context_agent.retrieval.index.segments import (
    ID_KINDS,
    SEGMENT_HEADER,
    SegmentSizes,
    SnapshotRow,
    id_hash,
    load_segment,
)
from context_agent.retrieval.index.snapshot import Snapshot, load_snapshot, remove_others
from context_agent.retrieval.index.vector_graph import graph_file
from context_agent.retrieval.index.writer import SnapshotEntry, SnapshotWriter

DIMENSION = 4


def entry(number: int) -> SnapshotEntry:
    row = SnapshotRow(f"{number // 2}_{number % 2}~é", f"{number // 2}_{number % 2}", f"{number // 2}")
    return SnapshotEntry(row, "Title", f"Text number {number}, café.", {"number": number})


def vector(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=DIMENSION).astype(np.float32)


def next_snapshot(
    root: Path, base: Snapshot | None, numbers: Iterable[int], removed: Iterable[int] = (), *, vectors: bool = True
) -> Snapshot:
    """The snapshot that follows `base`: without `removed`, and with `numbers`."""
    writer = SnapshotWriter(root, base, dimension=DIMENSION if vectors else 0, space="cosine", language="en")
    if records := {entry(number).row.record for number in removed}:
        writer.remove(records)
    numbers = list(numbers)
    for number in numbers:
        writer.add(entry(number))
    if numbers and vectors:
        writer.put_vectors([entry(number).row.record for number in numbers], np.stack(list(map(vector, numbers))))
    writer.finish()
    snapshot = load_snapshot(root, writer.publish(1), lexical=not vectors)
    assert snapshot is not None
    return snapshot


def check(snapshot: Snapshot, numbers: list[int]) -> None:
    """The snapshot holds these rows, in this order, whichever way they are read."""
    rows, entries = snapshot.rows, [entry(number) for number in numbers]
    assert list(rows) == [rows[position] for position in range(len(rows))] == [item.row for item in entries]
    assert [rows.text(position) for position in range(len(rows))] == [item.text for item in entries]
    assert [item["number"] for item in rows.all_metadata()] == numbers
    assert [snapshot.row_of_chunk[item.row.chunk] for item in entries] == list(range(len(numbers)))
    assert dict(snapshot.chunk_of_record) == {item.row.record: item.row.chunk for item in entries}
    assert len(list(snapshot.documents())) == snapshot.document_count == len({number // 2 for number in numbers})
    assert list(rows.matching(Pattern("[13], caf"))) == [n for n, number in enumerate(numbers) if number % 10 in (1, 3)]
    query = np.ones(DIMENSION, dtype=np.float32)
    expected = [float(vector(number) @ query / np.linalg.norm(vector(number)) / 2) for number in numbers]
    assert snapshot.vectors is not None
    assert snapshot.vectors.scores(query) == pytest.approx(expected, abs=1e-5)
    assert snapshot.bm25.count() == len(numbers)


def test_a_history_of_additions_and_removals_reads_like_one_list(tmp_path: Path) -> None:
    draw, snapshot, numbers, total, most_segments = random.Random(0), None, list[int](), 0, 0
    for added in (40, 1, 1, 3, 0, 12, 1, 1):
        removed = {number for number in numbers if draw.random() < 0.05}
        fresh = list(range(total, total + added))
        snapshot, total = next_snapshot(tmp_path, snapshot, fresh, removed), total + added
        numbers = [number for number in numbers if number not in removed] + fresh
        check(snapshot, numbers)
        most_segments = max(most_segments, len(snapshot.rows.segments))
        remove_others(tmp_path, {snapshot.name}, unfinished=True)
    assert most_segments > 1, "else nothing was read across segments"


def test_segments_are_merged_before_they_are_many(tmp_path: Path) -> None:
    snapshot = next_snapshot(tmp_path, None, range(30))
    for number in range(30, 45):
        snapshot = next_snapshot(tmp_path, snapshot, [number])
        assert len(snapshot.rows.segments) <= 4
    check(snapshot, list(range(45)))
    emptied = next_snapshot(tmp_path, snapshot, [], range(45))
    assert (len(emptied.rows), emptied.document_count, emptied.rows.segments) == (0, 0, ())


@pytest.mark.parametrize(
    ("added", "segments"), [((8, 2), [8, 2]), ((7, 2), [9]), ((20, 4, 1), [20, 4, 1]), ((19, 4, 1), [24])]
)
def test_a_segment_is_merged_if_it_has_less_than_four_times_the_rows_that_follow(
    tmp_path: Path, added: tuple[int, ...], segments: list[int]
) -> None:
    snapshot, total = None, 0
    for count in added:
        snapshot, total = next_snapshot(tmp_path, snapshot, range(total, total + count)), total + count
    assert snapshot is not None
    assert [len(segment) for segment in snapshot.rows.segments] == segments


def test_vectors_may_come_in_another_order_than_their_rows(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path, None, dimension=DIMENSION, space="cosine", language="en")
    for number in range(3):
        writer.add(entry(number))
    for number in (2, 0, 1):
        writer.put_vectors([entry(number).row.record], vector(number)[None])
    check(writer.finish(), [0, 1, 2])


def test_a_segment_is_written_in_blocks_of_whole_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("context_agent.retrieval.index.segment_writer.BLOCK_BYTES", 50)
    snapshot = next_snapshot(tmp_path, next_snapshot(tmp_path, None, range(20)), range(20, 40), [7])
    assert len(snapshot.rows.segments) == 1
    check(snapshot, [number for number in range(40) if number != 7])


def test_added_rows_wait_beside_the_index_and_not_in_the_folder_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "full"))
    check(next_snapshot(tmp_path, None, range(3)), [0, 1, 2])


def test_a_finished_snapshot_has_no_other_files_than_its_parts(tmp_path: Path) -> None:
    snapshot = next_snapshot(tmp_path, None, range(3))
    names = {path.name for path in snapshot.folder.iterdir()}
    assert names == {"bm25", "segments.json", *(segment.name for segment in snapshot.rows.segments)}


def test_a_file_of_a_snapshot_is_on_the_disk_before_anything_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes_when_synced, sync = [], os.fsync

    def noting(handle: int) -> None:
        sizes_when_synced.append(os.fstat(handle).st_size)
        sync(handle)

    monkeypatch.setattr(os, "fsync", noting)
    write_file(tmp_path / "file", [b"two ", b"blocks"])
    assert sizes_when_synced == [10]


def test_removed_rows_free_their_space_once_they_are_many(tmp_path: Path) -> None:
    snapshot = next_snapshot(tmp_path, None, range(40))
    marked = next_snapshot(tmp_path, snapshot, [], range(8))
    compacted = next_snapshot(tmp_path, marked, [], range(8, 10))
    assert [len(part.removed) for part in marked.rows.segments] == [8]
    assert [list(part.runs()) for part in marked.rows.segments] == [[(8, 40)]]
    assert [len(part.removed) for part in compacted.rows.segments] == [0]
    check(marked, list(range(8, 40)))
    check(compacted, list(range(10, 40)))


def test_a_record_may_be_removed_and_added_again_in_one_step(tmp_path: Path) -> None:
    snapshot = next_snapshot(tmp_path, next_snapshot(tmp_path, None, range(20)), [3], [3])
    check(snapshot, [number for number in range(20) if number != 3] + [3])


def test_a_lexical_snapshot_has_texts_and_words_alone(tmp_path: Path) -> None:
    snapshot = next_snapshot(tmp_path, None, range(3), vectors=False)
    for _ in range(2):
        assert (snapshot.vectors, snapshot.rows.text(2)) == (None, entry(2).text)
        assert len(snapshot.rows.segments) == 1
        assert load_snapshot(tmp_path, snapshot.name) is None
        snapshot = next_snapshot(tmp_path, snapshot, [len(snapshot.rows)], vectors=False)


def files(folder: Path) -> dict[int, int]:
    stats = [file.stat() for file in folder.rglob("*") if file.is_file()]
    return {stat.st_ino: stat.st_size for stat in stats}


def cost_of_one(root: Path, rows: int) -> tuple[int, int]:
    """The bytes written to add one row to an index of so many, and the memory that opening the result takes."""
    base = next_snapshot(root, None, range(rows))
    before = files(root)
    fresh = next_snapshot(root, base, [rows])
    bytes_written = sum(size for inode, size in files(root).items() if inode not in before)
    tracemalloc.start()
    try:
        assert load_snapshot(root, fresh.name) is not None
        return bytes_written, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_adding_and_opening_cost_as_much_in_a_large_index_as_in_a_small_one(tmp_path: Path) -> None:
    (bytes_small, memory_small), (bytes_large, memory_large) = (
        cost_of_one(tmp_path / str(rows), rows) for rows in (1_000, 4_000)
    )
    assert bytes_large < 1.2 * bytes_small
    assert memory_large < 1.2 * memory_small


def test_a_segment_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    snapshot = next_snapshot(tmp_path, None, range(3))
    (segment,) = snapshot.rows.segments
    folder = snapshot.folder
    content = (folder / segment.name).read_bytes()
    cases = {
        "is truncated": content[:-64],
        "not a segment": b"x" * 200,
        "has format 2.*Install a newer version": content[:7] + b"\2" + content[8:],
    }
    for message, damaged in cases.items():
        (tmp_path / "damaged.bin").write_bytes(damaged)
        with pytest.raises(CorpusCorruptError, match=message):
            load_segment(tmp_path, "damaged.bin", DIMENSION)
    with pytest.raises(CorpusCorruptError, match="another index"):
        load_segment(folder, segment.name, DIMENSION + 1)
    (tmp_path / "damaged.bin").write_bytes(content.replace(b'["0_0', b'[["0_'))
    with pytest.raises(CorpusCorruptError, match=r"damaged.bin is damaged.*Delete the folder"):
        load_segment(tmp_path, "damaged.bin", DIMENSION).row(0)
    (tmp_path / "damaged.bin").write_bytes(content)
    for removed in ([3], [1, 1], [-1]):
        (tmp_path / "damaged.removed").write_bytes(np.array(removed, dtype="<i4").tobytes())
        with pytest.raises(CorpusCorruptError, match="does not belong"):
            load_segment(tmp_path, "damaged.bin", DIMENSION)


def column_of(content: bytearray, column: str) -> np.ndarray:
    """A column of a segment, which can be changed in place."""
    sizes = SegmentSizes(*SEGMENT_HEADER.unpack(content[: SEGMENT_HEADER.size])[2:])
    return next(
        np.frombuffer(content, dtype, count, offset) for name, dtype, offset, count in sizes.columns() if name == column
    )


def test_rows_that_overlap_are_noticed_wherever_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("context_agent.retrieval.index.segments.BLOCK_BYTES", 2)
    snapshot = next_snapshot(tmp_path, None, range(6))
    (segment,) = snapshot.rows.segments
    content = segment.path.read_bytes()
    for row, other in [*pairwise(range(6)), *((row, row - 1) for row in range(6, 0, -1))]:
        damaged = bytearray(content)
        starts = column_of(damaged, "text_starts")
        starts[other] = starts[row]
        (tmp_path / "damaged.bin").write_bytes(damaged)
        with pytest.raises(CorpusCorruptError, match="do not cover the column texts"):
            load_segment(tmp_path, "damaged.bin", DIMENSION)


@pytest.mark.parametrize(
    ("column", "position", "change"), [("id_starts", 0, 1), ("id_starts", -1, -1), ("hashed_rows", 0, -9)]
)
def test_a_segment_with_one_wrong_number_is_refused(tmp_path: Path, column: str, position: int, change: int) -> None:
    (segment,) = next_snapshot(tmp_path, None, range(6)).rows.segments
    damaged = bytearray(segment.path.read_bytes())
    column_of(damaged, column)[position] += change
    (tmp_path / "damaged.bin").write_bytes(damaged)
    with pytest.raises(CorpusCorruptError, match="is damaged"):
        load_segment(tmp_path, "damaged.bin", DIMENSION)


def test_a_row_that_follows_the_last_one_is_refused(tmp_path: Path) -> None:
    (segment,) = next_snapshot(tmp_path, None, range(6)).rows.segments
    damaged = bytearray(segment.path.read_bytes())
    numbers = column_of(damaged, "hashed_rows")
    numbers[numbers == 5] = 6
    (tmp_path / "damaged.bin").write_bytes(damaged)
    with pytest.raises(CorpusCorruptError, match="rows that the segment does not have"):
        load_segment(tmp_path, "damaged.bin", DIMENSION)


def test_a_segment_has_a_graph_if_there_is_a_file_for_it(tmp_path: Path) -> None:
    snapshot = next_snapshot(tmp_path, None, range(3))
    (segment,) = snapshot.rows.segments
    assert segment.graph is None
    graph_file(segment.path).touch()
    assert load_segment(snapshot.folder, segment.name, DIMENSION).graph is not None


def test_an_id_has_the_hash_that_stored_segments_have() -> None:
    hashes = [id_hash(kind, "1_0") for kind in ID_KINDS]
    assert hashes == [2045124245895924948, 5034284037615436764, 5282262412586577717]


def test_a_look_up_reads_past_sixteen_other_ids_with_the_same_hash_and_no_more(tmp_path: Path) -> None:
    (segment,) = next_snapshot(tmp_path, None, range(20)).rows.segments
    hashes = np.full(60, 2**64 - 1, dtype="<u8")
    hashes[:16] = 7
    assert list(replace(segment, hashes=hashes.data).find("chunk", "nobody", 7)) == []
    hashes[16] = 7
    with pytest.raises(CorpusCorruptError, match="wrong hashes"):
        list(replace(segment, hashes=hashes.data).find("chunk", "nobody", 7))
