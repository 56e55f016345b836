"""Compare today's index with the simplest store that could replace it: SQLite rows, tantivy words, a file of vectors.

    python benchmarks/simplest_store.py [--sizes 10000] [--data FOLDER] [--work FOLDER] [--adds 3]

The program indexes documents of `corpus100k` with `index_documents`, and copies the chunks and vectors into a
`SimplestStore`. Then it measures each store in new processes:

- **open**: CPU seconds with a loaded embedder.
- **search**: p50 in CPU milliseconds over 100 dev questions, with the same weights of the retrievers.
- **grep**: CPU milliseconds for a pattern without a match.
- **add**: CPU seconds to chunk, embed and store one more document, the median of `--adds`. For today's store, the calls
  of Chroma's client are left out, because both stores would make them.

It also prints the share of the first five hits that both stores return, and the lines of code that each needs. The
simplest store uses the package's BM25 and dense search.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import scale
from corpus100k import data_folder, paragraphs, questions
from numpy.typing import NDArray

from context_agent.retrieval import index
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chunker import chunk_document
from context_agent.retrieval.corpus import CANDIDATES
from context_agent.retrieval.embedders import Embedder, load_embedder
from context_agent.retrieval.embedders.query_vectors import query_vectors
from context_agent.retrieval.filters import Where, compile_where
from context_agent.retrieval.fusion import gather, hits_of
from context_agent.retrieval.index.bm25 import Bm25Entry, Bm25Index, Bm25Retriever
from context_agent.retrieval.index.dense import DenseRetriever, VectorPart, VectorTable
from context_agent.retrieval.index.grep import Pattern
from context_agent.tokens import HarmonyCounter
from context_agent.types import Chunk, Document, Hit

FIRST_HITS = 5
SCANNED = r"qq\d{9}"
"""A pattern without a match, so that grep reads all texts."""
GRAPH_FROM = 100_000
"""The number of rows from which dense search uses a graph."""
TODAY = (
    "publication",
    "reader",
    "rows",
    "segment_writer",
    "segments",
    "snapshot",
    "text_table",
    "vector_graph",
    "writer",
)
"""The modules of `retrieval.index` that the simplest store would replace."""
CLASSES = ("Graph", "SimplestStore", "packed", "unpacked")
"""The classes and functions of the simplest store."""
TABLES = """
create table state (dimension integer, vectors integer, language text, weights text);
create table chunks (position integer primary key, id text unique, document text, text text, rest text);
create index documents on chunks (document);
"""


class Graph:
    """A graph of near vectors. Open only a graph that this machine made, never one from a stranger."""

    def __init__(self, file: Path, dimension: int) -> None:
        from usearch.index import Index

        self._index = Index(ndim=dimension, metric="cos", dtype="i8")
        self._index.view(str(file))

    def nearest(self, query: NDArray[np.float32], k: int) -> NDArray[np.intp] | None:
        """Return about the `k` rows with the highest cosine to a query of shape (d,)."""
        return np.asarray(self._index.search(query, k, threads=1).keys, dtype=np.intp)


class SimplestStore:
    """A store with chunks in SQLite, words in tantivy, and vectors in a file that grows.

    A state is complete when SQLite commits. Its row says how many vectors belong to it. Hits by words without a row are
    dropped. Readers open everything read-only. A removed chunk loses its row, but its vector stays until the store is
    built again.
    """

    def __init__(self, folder: Path, embedder: Embedder) -> None:
        uri = f"{(folder / 'rows.sqlite3').absolute().as_uri()}?mode=ro"
        self._rows = sqlite3.connect(uri, uri=True, check_same_thread=False)
        dimension, count, language, weights = self._rows.execute("select * from state").fetchone()
        vectors = np.memmap(folder / "vectors.f32", np.float32, "r", shape=(count, dimension))
        lengths = np.memmap(folder / "lengths.f32", np.float32, "r", shape=(count,))
        graph = Graph(folder / "graph", dimension) if (folder / "graph").exists() else None
        table = VectorTable([VectorPart(vectors, lengths, np.zeros(0, np.int32), graph)], "cosine")
        words = Bm25Index(folder / "bm25", create=False, language=language, mixed=True)
        self._count, self._weights = count, json.loads(weights)
        self._id_of = lru_cache(1 << 14)(self._stored_id)
        self._retrievers = [
            DenseRetriever(table, query_vectors(embedder), self._id_of, self._mask),
            Bm25Retriever(words, self._matching),
        ]

    @classmethod
    def make(
        cls,
        folder: Path,
        chunks: Sequence[Chunk],
        vectors: NDArray[np.float32],
        weights: dict[str, float],
        language: str,
    ) -> None:
        """Write the first state."""
        folder.mkdir(parents=True)
        with sqlite3.connect(folder / "rows.sqlite3") as rows:
            rows.execute("pragma journal_mode = wal")
            rows.executescript(TABLES)
            rows.execute("insert into state values (?, 0, ?, ?)", (vectors.shape[1], language, json.dumps(weights)))
        cls.add(folder, chunks, vectors)
        if len(chunks) >= GRAPH_FROM:
            from usearch.index import Index

            graph = Index(ndim=vectors.shape[1], metric="cos", dtype="i8", connectivity=24, expansion_search=512)
            graph.add(np.arange(len(vectors)), vectors, threads=1)
            graph.save(str(folder / "graph"))

    @staticmethod
    def add(folder: Path, chunks: Sequence[Chunk], vectors: NDArray[np.float32]) -> None:
        """Add chunks. Data that an interrupted run wrote after the last state is overwritten."""
        rows = sqlite3.connect(folder / "rows.sqlite3", isolation_level=None)
        rows.execute("begin immediate")
        _, count, language, _ = rows.execute("select * from state").fetchone()
        for name, data in (("vectors", vectors), ("lengths", np.linalg.norm(vectors, axis=1))):
            raw = np.ascontiguousarray(data, dtype=np.float32)
            file = folder / f"{name}.f32"
            with file.open("r+b" if file.exists() else "w+b") as stream:
                stream.seek(count * raw.itemsize * (raw.size // len(raw)))
                stream.write(raw.tobytes())
                stream.truncate()
                os.fsync(stream.fileno())
        words = Bm25Index(folder / "bm25", language=language, mixed=True)
        words.add(Bm25Entry(chunk.id, chunk.title, chunk.text) for chunk in chunks)
        words.commit()
        stored = (
            (count + place, chunk.id, chunk.document_id, chunk.text, packed(chunk))
            for place, chunk in enumerate(chunks)
        )
        rows.executemany("insert into chunks values (?, ?, ?, ?, ?)", stored)
        rows.execute("update state set vectors = vectors + ?", (len(chunks),))
        rows.execute("commit")
        rows.close()

    def search(self, query: str, k: int = CANDIDATES) -> list[Hit]:
        """Return the `k` best hits."""
        candidates = gather(self._retrievers, self._weights, query, limit=k)
        ids = [candidate.id for candidate in candidates]
        marks = ",".join("?" * len(ids))
        found = self._rows.execute(f"select id, document, text, rest from chunks where id in ({marks})", ids)
        return hits_of(query, candidates, {row[0]: unpacked(*row) for row in found}, None, k)

    def grep(self, pattern: str, *, limit: int) -> list[Chunk]:
        """Return the first chunks whose text matches."""
        compiled = Pattern(pattern)
        rows = self._rows.execute("select id, document, text, rest from chunks order by position")
        return list(islice((unpacked(*row) for row in rows if compiled.matches(row[2].encode())), limit))

    @staticmethod
    def remove(folder: Path, ids: Sequence[str]) -> None:
        """Remove chunks."""
        with sqlite3.connect(folder / "rows.sqlite3") as rows:
            (language,) = rows.execute("select language from state").fetchone()
            rows.executemany("delete from chunks where id = ?", [(item,) for item in ids])
            words = Bm25Index(folder / "bm25", language=language, mixed=True)
            words.delete(ids)
            words.commit()

    def _stored_id(self, row: int) -> str:
        found = self._rows.execute("select id from chunks where position = ?", (row,)).fetchone()
        return str(found[0]) if found else ""

    def _passing(self, where: Where) -> list[tuple[int, str]]:
        """Return the position and the id of each chunk that a filter admits."""
        test = compile_where(where)
        rows = self._rows.execute("select position, id, rest from chunks")
        return [(position, item) for position, item, rest in rows if test(json.loads(rest)[-1])]

    def _mask(self, where: Where) -> NDArray[np.bool_]:
        mask = np.zeros(self._count, dtype=np.bool_)
        mask[[position for position, _ in self._passing(where)]] = True
        return mask

    def _matching(self, where: Where) -> frozenset[str]:
        return frozenset(item for _, item in self._passing(where))


def packed(chunk: Chunk) -> str:
    """Return the fields of a chunk as JSON, except its ids and its text."""
    return json.dumps([chunk.index, chunk.start, chunk.end, chunk.tokens, chunk.title, dict(chunk.metadata)])


def unpacked(item: str, document: str, text: str, rest: str) -> Chunk:
    """Return the chunk of a row."""
    number, *others = json.loads(rest)
    return Chunk(item, document, number, text, *others)


def main() -> None:
    """Print the figures of both stores, or measure one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000])
    parser.add_argument("--data", help="folder of the sets")
    parser.add_argument("--work", type=Path, help="where the indexes are made, and stay")
    parser.add_argument("--adds", type=int, default=3)
    parser.add_argument("--measure", choices=("today", "simplest", "add"), help=argparse.SUPPRESS)
    parser.add_argument("--index", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    data = data_folder(options.data)
    if options.measure:
        measures = {"today": today, "simplest": simplest, "add": add_one}
        print(json.dumps(measures[options.measure](options.index, data)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        for size in options.sizes:
            report(size, data, options.work or Path(temporary), options.adds)
    lines = sum(code_lines(Path(index.__file__).with_name(f"{name}.py")) for name in TODAY)
    print(f"\nlines of code: today {lines}, simplest {code_lines(Path(__file__), CLASSES)}")


def report(size: int, data: Path, work: Path, adds: int) -> None:
    """Make both stores for one size, and print their figures."""
    folder, small = work / str(size), work / f"{size}-simplest"
    if not folder.exists():
        scale.in_new_process(folder, data, "--size", str(size))
    if not small.exists():
        copy(folder, small)
    figures = {"today": measured("today", folder, data), "simplest": measured("simplest", small, data)}
    first = zip(figures["today"].pop("hits"), figures["simplest"].pop("hits"), strict=True)
    same = statistics.mean(len(set(a) & set(b)) / FIRST_HITS for a, b in first)
    ours = [scale.in_new_process(folder, data, "--measure", "add")["ours"] for _ in range(adds)]
    figures["today"]["add: s"] = statistics.median(ours)
    figures["simplest"]["add: s"] = statistics.median(measured("add", small, data)["add: s"] for _ in range(adds))
    print(f"\n{size:,} documents; of the first {FIRST_HITS} hits, {same:.3f} are the same")
    for name, value in figures["today"].items():
        other = figures["simplest"][name]
        print(f"  {name:<16} today {value:8.4f}   simplest {other:8.4f}   ratio {other / value:5.2f}", flush=True)


def measured(what: str, folder: Path, data: Path) -> dict[str, Any]:
    """Return the figures that a new process prints."""
    command = [sys.executable, __file__, "--measure", what, "--index", str(folder), "--data", str(data)]
    return dict(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def copy(folder: Path, target: Path) -> None:
    """Make a simplest store from an index."""
    with ChromaCorpus.open(folder) as corpus:
        chunks = list(corpus.walk())
        rows, row_of = corpus.snapshot.rows, corpus.snapshot.row_of_chunk
        vectors = np.stack([rows.vector(row_of[chunk.id]) for chunk in chunks])
        weights = dict(corpus.calibration.weights)
        SimplestStore.make(target, chunks, vectors, weights, corpus.snapshot.bm25.language)


def today(folder: Path, data: Path) -> dict[str, Any]:
    """Open and search today's store, and return the figures."""
    embedder = load_embedder("static")
    embedder.embed_query("warm")
    began = time.process_time()
    with ChromaCorpus.open(folder, embedder=embedder) as corpus:
        return {"open: s": time.process_time() - began, **searches(corpus, data)}


def simplest(folder: Path, data: Path) -> dict[str, Any]:
    """Open and search the simplest store, and return the figures."""
    embedder = load_embedder("static")
    embedder.embed_query("warm")
    began = time.process_time()
    store = SimplestStore(folder, embedder)
    return {"open: s": time.process_time() - began, **searches(store, data)}


def searches(store: SimplestStore | ChromaCorpus, data: Path) -> dict[str, Any]:
    """Search 100 questions and grep once. Return the times and the first hits."""
    store.search("a first question")
    times, hits = [], []
    for question in questions(data)[:100]:
        began = time.process_time()
        found = store.search(question)
        times.append((time.process_time() - began) * 1e3)
        hits.append([hit.chunk.id for hit in found[:FIRST_HITS]])
    began = time.process_time()
    store.grep(SCANNED, limit=FIRST_HITS)
    grep = (time.process_time() - began) * 1e3
    return {"search p50: ms": statistics.median(times), "grep of all: ms": grep, "hits": hits}


def add_one(folder: Path, data: Path) -> dict[str, Any]:
    """Add one new document, and return the CPU seconds."""
    embedder, number = load_embedder("static"), time.time_ns()
    embedder.embed_documents(["warm"])
    document = Document(f"added-{number}", f"{paragraphs(data)[0].text} Added as number {number}.", "Added")
    began = time.process_time()
    chunks = chunk_document(document, counter=HarmonyCounter())
    SimplestStore.add(folder, chunks, embedder.embed_documents([chunk.indexed_text for chunk in chunks]))
    return {"add: s": time.process_time() - began}


def code_lines(file: Path, names: Sequence[str] = ()) -> int:
    """Return the number of lines of a module, without docstrings, comments and blank lines.

    If there are `names`, only these classes and functions count.
    """
    source = file.read_text(encoding="utf-8")
    tree = ast.parse(source)
    nodes = [node for node in tree.body if not names or getattr(node, "name", "") in names]
    counted: set[int] = set()
    for node in nodes:
        counted.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            counted.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = source.splitlines()
    return sum(bool(lines[number - 1].strip()) and not lines[number - 1].strip().startswith("#") for number in counted)


if __name__ == "__main__":
    main()
