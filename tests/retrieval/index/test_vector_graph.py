"""Approximate dense search: what it finds, when it is used, and that a damaged file is never followed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from context_agent.retrieval.chroma import indexing_run
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.index import vector_graph, writer
from context_agent.retrieval.index.dense import VectorPart, VectorTable
from context_agent.retrieval.index.vector_graph import VectorGraph, is_sound, write_graph
from context_agent.types import Document

pytest.importorskip("usearch", reason='pip install "context-agent[large]"')

ROWS, DIMENSION, NEAREST = 3_000, 24, 10
COLOURS = ("red", "green", "blue", "grey", "pink", "black", "white", "brown")


def vectors(rows: int = ROWS, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=(rows, DIMENSION)).astype(np.float32)


@pytest.fixture(scope="module")
def graph_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("graph") / "some.graph"
    write_graph(path, vectors())
    return path.read_bytes()


@pytest.fixture
def graph(graph_bytes: bytes, tmp_path: Path) -> Callable[[bytes | None], VectorGraph]:
    def open_graph(content: bytes | None = None) -> VectorGraph:
        path = tmp_path / "opened.graph"
        path.write_bytes(graph_bytes if content is None else content)
        return VectorGraph(path, ROWS, DIMENSION)

    return open_graph


def table(*parts: VectorPart) -> VectorTable:
    return VectorTable(parts, "cosine")


def part(content: NDArray[np.float32], graph: VectorGraph | None = None, removed: tuple[int, ...] = ()) -> VectorPart:
    return VectorPart(content, np.linalg.norm(content, axis=1), np.array(removed, dtype=np.int32), graph)


def ranking(of: VectorTable, query: NDArray[np.float32], k: int = NEAREST) -> list[int]:
    rows, scores = of.best(query, k)
    return rows[np.argsort(-scores)][:k].tolist()


def test_it_finds_nearly_all_that_an_exact_search_finds(graph: Callable[..., VectorGraph]) -> None:
    approximate, exact = table(part(vectors(), graph())), table(part(vectors()))
    shares = [
        len(set(ranking(approximate, query)) & set(ranking(exact, query))) / NEAREST for query in vectors(50, seed=1)
    ]
    assert np.mean(shares) > 0.95
    assert sum(share < 1 for share in shares) < len(shares) / 2


def test_scores_are_those_of_the_vectors_as_stored(graph: Callable[..., VectorGraph]) -> None:
    query = vectors(1, seed=2)[0]
    approximate = table(part(vectors(), graph()))
    rows, scores = approximate.best(query, NEAREST)
    assert scores == pytest.approx(approximate.scores(query)[rows], abs=1e-6)


def test_removed_rows_are_never_returned_and_others_take_their_place(graph: Callable[..., VectorGraph]) -> None:
    query = vectors(1, seed=3)[0]
    removed = tuple(sorted(ranking(table(part(vectors())), query, 25)))
    approximate, exact = table(part(vectors(), graph(), removed)), table(part(vectors(), None, removed))
    assert len(set(ranking(approximate, query)) & set(ranking(exact, query))) >= NEAREST - 1


def test_more_removed_rows_than_it_asks_for_make_the_search_exact(graph: Callable[..., VectorGraph]) -> None:
    query = vectors(1, seed=4)[0]
    removed = tuple(sorted(ranking(table(part(vectors())), query, 17 * NEAREST)))
    approximate, exact = table(part(vectors(), graph(), removed)), table(part(vectors(), None, removed))
    assert ranking(approximate, query) == ranking(exact, query)


def test_parts_with_and_without_a_graph_are_one_table(graph: Callable[..., VectorGraph]) -> None:
    small = vectors(50, seed=5)
    query = small[7]
    mixed = table(part(small, None, (0,)), part(vectors(), graph(), (3,)), part(vectors(20, seed=6)))
    exact = table(part(small, None, (0,)), part(vectors(), None, (3,)), part(vectors(20, seed=6)))
    assert ranking(mixed, query)[0] == 6
    assert len(set(ranking(mixed, query)) & set(ranking(exact, query))) >= NEAREST - 1


def test_equal_vectors_give_equal_files(graph_bytes: bytes, tmp_path: Path) -> None:
    write_graph(tmp_path / "again.graph", vectors())
    assert (tmp_path / "again.graph").read_bytes() == graph_bytes


def test_zero_and_damaged_vectors_do_no_harm(tmp_path: Path) -> None:
    content = vectors()
    content[5], content[6] = 0, np.nan
    write_graph(tmp_path / "odd.graph", content)
    odd = VectorGraph(tmp_path / "odd.graph", ROWS, DIMENSION)
    rows = odd.nearest(vectors(1, seed=7)[0], NEAREST)
    assert rows is not None
    assert len(rows) == NEAREST


def test_a_damaged_file_is_refused_or_harmless(graph_bytes: bytes, graph: Callable[..., VectorGraph]) -> None:
    """A search that followed a wrong number would end the process."""
    draw, refused = random.Random(0), 0
    start = 8 + ROWS * DIMENSION
    for _ in range(150):
        content = bytearray(graph_bytes)
        for _ in range(draw.choice((1, 1, 20))):
            content[draw.randrange(start, len(content))] = draw.randrange(256)
        damaged = graph(bytes(content))
        refused += damaged.nearest(vectors(1, seed=8)[0], NEAREST) is None
    assert refused > 50
    for size in (0, 7, start, start + 60, len(graph_bytes) - 1):
        assert not is_sound(memoryview(graph_bytes[:size]), ROWS, DIMENSION)
    assert not is_sound(memoryview(graph_bytes + b"0"), ROWS, DIMENSION)
    assert not is_sound(memoryview(graph_bytes), ROWS - 1, DIMENSION)
    assert is_sound(memoryview(graph_bytes), ROWS, DIMENSION)


def with_number(file: bytes, offset: int, number: int, size: int = 4) -> memoryview:
    return memoryview(file[:offset] + number.to_bytes(size, "little") + file[offset + size :])


def test_each_number_that_leads_out_of_the_file_is_noticed(graph_bytes: bytes) -> None:
    header = 8 + ROWS * DIMENSION
    levels = np.frombuffer(graph_bytes, "<i2", ROWS, header + 64 + 40)
    nodes = header + 64 + 40 + 2 * ROWS
    flat, tall = int(np.argmin(levels)), int(np.argmax(levels))
    sizes = 10 + 4 + 4 * 48 + levels.astype(int) * (4 + 4 * 24)
    tall_node = nodes + int(sizes[:tall].sum())
    upper = tall_node + 10 + 4 + 4 * 48
    assert is_sound(with_number(graph_bytes, header + 64 + 32, tall, 8), ROWS, DIMENSION)
    for file in (
        with_number(graph_bytes, header + 64 + 32, ROWS, 8),  # The entry is no row.
        with_number(graph_bytes, header + 64 + 32, flat, 8),  # The entry is not at the top.
        with_number(graph_bytes, tall_node + 10, 49),  # A list longer than its room.
        with_number(graph_bytes, tall_node + 14, ROWS),  # A neighbor that is no row.
        with_number(graph_bytes, tall_node, ROWS, 8),  # A key that is no row.
        with_number(graph_bytes, upper, 25),  # The same on an upper level.
        with_number(graph_bytes, upper + 4, flat),  # A neighbor that has no list on this level.
    ):
        assert not is_sound(file, ROWS, DIMENSION)


@pytest.fixture
def small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes of 150 chunks count as large."""
    for module in (writer, indexing_run):
        monkeypatch.setattr(module, "APPROXIMATE_FROM", 150)
    monkeypatch.setattr(writer, "MIN_GRAPH_ROWS", 100)


def documents(first: int, end: int) -> list[Document]:
    draw = random.Random(first)
    return [
        Document(f"{n}", f"Note {n} is about {draw.choice(COLOURS)} and {draw.choice(COLOURS)} things.", f"Note {n}")
        for n in range(first, end)
    ]


def graphs(folder: Path) -> dict[int, Path]:
    return {file.stat().st_ino: file for file in folder.rglob("*.graph")}


def dense_ids(folder: Path, where: dict[str, str] | None = None) -> list[str]:
    with ChromaCorpus.open(folder) as corpus:
        return [hit.chunk.id for hit in corpus.search("red things", k=12, where=where)]


@pytest.mark.usefixtures("small_graphs")
def test_a_large_index_gets_a_graph_that_later_states_share(tmp_path: Path) -> None:
    index_documents(documents(0, 149), tmp_path)
    assert not graphs(tmp_path)
    index_documents(documents(149, 600), tmp_path)
    first = graphs(tmp_path)
    assert len(first) == 1
    index_documents(documents(600, 601), tmp_path)
    assert graphs(tmp_path).keys() == first.keys()
    index_documents(documents(100, 601), tmp_path, remove_missing=True)
    assert not {hit.split("_")[0] for hit in dense_ids(tmp_path)} & {str(number) for number in range(100)}


@pytest.mark.usefixtures("small_graphs")
def test_without_the_package_a_run_names_it_and_the_next_one_with_it_makes_the_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for module in (writer, indexing_run, vector_graph):
            patch.setattr(module, "graphs_available", lambda: False)
        report = index_documents(documents(0, 300), tmp_path)
        assert 'pip install "context-agent[large]"' in report.warning
    assert not graphs(tmp_path)
    progress: list[int] = []
    report = index_documents(documents(0, 301), tmp_path, progress=lambda state: progress.append(state.graph))
    assert (report.warning, max(progress), len(graphs(tmp_path))) == ("", 300, 1)
    approximate = dense_ids(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(vector_graph, "graphs_available", lambda: False)
        assert dense_ids(tmp_path) == approximate


@pytest.mark.usefixtures("small_graphs")
def test_a_damaged_graph_beside_an_index_changes_nothing_but_the_time(tmp_path: Path) -> None:
    index_documents(documents(0, 300), tmp_path)
    expected = dense_ids(tmp_path)
    (file,) = graphs(tmp_path).values()
    for content in (b"", b"usearch", file.read_bytes()[:-1], bytes(file.stat().st_size)):
        file.unlink()
        file.write_bytes(content)
        assert dense_ids(tmp_path) == expected
