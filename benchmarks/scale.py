"""Measure the cost of an index as it grows: adding one document, opening, memory of a reader, disk, search and grep.

    python benchmarks/scale.py [--sizes 10000 50000] [--data FOLDER] [--work FOLDER] [--adds 5] [--trigrams]

For each size, the program indexes this many documents of `corpus100k` once (about as many chunks). `--work` keeps the
index in the folder `WORK/SIZE`. Then it measures in new processes, as `ctx1 index` and `ctx1 search` are. Times are CPU
times of all threads together, which other programs hardly change. They do not include waiting for the disk. A search is
also measured in wall time, because both of its retrievers run at the same time in a large index.

- **adding one document**: the seconds of `index_documents`, the part inside Chroma's client (its start and end, `add`,
  `get`, `count`, `modify`, `delete`), the rest, and the bytes of the files that this package wrote. Each is the median
  of `--adds` runs, and each run adds another document.
- **opening**: the seconds of `ChromaCorpus.open` with a loaded embedder.
- **memory**: the memory that the reader does not share with other readers of the index, after the searches. It is the
  kernel's `Anonymous` of the process, also without the amount before the index was opened.
- **search**: p50 and p95 over 100 dev questions, each new. The program also prints p50 of the dense part and of an
  exact dense search, and the share of the 10 nearest passages that the dense part finds.
- **grep**: the slowest of the 20 patterns of `search_latency`.
- **disk**: the bytes of this package's files, and of Chroma's, for each byte of text.

`--trigrams` also measures a prefilter for grep. It is a tantivy index of all trigrams of the texts, which selects
candidates by the literal of a pattern. The program prints the cost of this index, and the times of the patterns that
have a literal, with it and without it.

The first line of a size is its indexing in a process of its own: the wall time and the peak of its memory. The memory
includes Chroma's vector index, but no mapped files. The last lines are the ratio of each figure between the largest and
the smallest size.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from corpus100k import corpus, data_folder, paragraphs, questions
from search_latency import PATTERNS

from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.corpus import GREP_LIMIT
from context_agent.retrieval.embedders import load_embedder
from context_agent.retrieval.index.dense import VectorTable
from context_agent.retrieval.index.grep import Pattern, required_literal
from context_agent.types import Document

ADDED = "added"
NEAREST = 10
EQUAL = 1e-6
"""The largest difference of scores that count as equal. Variants of a passage can have the same vector."""
CHROMA_CALLS = ("add", "get", "count", "modify", "delete")


def main() -> None:
    """Measure every size. With the internal options, build one index or make one measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 50_000])
    parser.add_argument("--data")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--adds", type=int, default=5)
    parser.add_argument("--trigrams", action="store_true")
    parser.add_argument("--measure", choices=tuple(MEASURES), help=argparse.SUPPRESS)
    parser.add_argument("--index", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    data = data_folder(options.data)
    if options.size:
        print(json.dumps(build(options.index, data, options.size)))
        return
    if options.measure:
        print(json.dumps(MEASURES[options.measure](options.index, data)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        work = options.work or Path(scratch)
        rows = {size: measure(size, data, work, options.adds, trigrams=options.trigrams) for size in options.sizes}
    small, large = rows[min(rows)], rows[max(rows)]
    print(f"\n{max(rows):,} chunks / {min(rows):,} chunks")
    for name, value in large.items():
        print(f"  {name:<46}{value / small[name] if small[name] else float('nan'):10.2f}")


def measure(size: int, data: Path, work: Path, adds: int, *, trigrams: bool) -> dict[str, float]:
    """Print the figures of one size, and return them."""
    folder = work / str(size)
    print(f"\n{size:,} documents", flush=True)
    if not folder.exists():
        built = in_new_process(folder, data, "--size", str(size))
        print(
            f"  indexed in {built['seconds']:.0f} s: {built['chunks']:,.0f} chunks, peak {built['peak']:,.0f} MB",
            flush=True,
        )
    text = sum(len(document.text.encode()) for document in corpus(data, size))
    figures: dict[str, float] = {}
    runs = [in_new_process(folder, data, "--measure", "add") for _ in range(adds)]
    for name in runs[0]:
        figures[f"add one: {name}"] = statistics.median(run[name] for run in runs)
    figures |= in_new_process(folder, data, "--measure", "read")
    if trigrams:
        figures |= in_new_process(folder, data, "--measure", "trigrams")
    own = disk(folder / "ctx1")
    figures |= {"disk, ours: bytes per byte of text": own / text}
    figures |= {"disk, Chroma's: bytes per byte of text": (disk(folder) - own) / text}
    for name, value in figures.items():
        print(f"  {name:<46}{value:10,.3f}", flush=True)
    return figures


def in_new_process(folder: Path, data: Path, *action: str) -> dict[str, float]:
    """Return the figures that a new process prints."""
    command = [sys.executable, __file__, *action, "--index", str(folder), "--data", str(data)]
    figures: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return figures


def build(folder: Path, data: Path, size: int) -> dict[str, float]:
    """Index `size` documents, and return the cost."""
    peak = [0.0]

    def watch() -> None:
        while True:
            peak[0] = max(peak[0], anonymous())
            time.sleep(0.5)

    threading.Thread(target=watch, daemon=True).start()
    report = index_documents(corpus(data, size), folder, embedder="static")
    return {"seconds": report.seconds, "chunks": report.chunks, "peak": peak[0]}


def add_one(folder: Path, data: Path) -> dict[str, float]:
    """Add one new document, and return the cost."""
    embedder, before = load_embedder("static"), files(folder / "ctx1")
    embedder.embed_documents(["warm"])
    number = time.time_ns()
    document = Document(f"{ADDED}-{number}", f"{paragraphs(data)[0].text} Added as number {number}.", "Added")
    chroma = time_chroma()
    began = time.process_time()
    index_documents([document], folder, embedder="static")
    seconds = time.process_time() - began
    after = files(folder / "ctx1")
    written = sum(size for inode, size in after.items() if inode not in before)
    return {"seconds": seconds, "of them in Chroma": chroma[0], "ours": seconds - chroma[0], "our bytes": written}


def time_chroma() -> list[float]:
    """Measure the calls of Chroma's client from now on. Return a list whose only item is their total in seconds."""
    import chromadb
    from chromadb.api.client import Client
    from chromadb.api.models.Collection import Collection

    total = [0.0]

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            began = time.process_time()
            try:
                return function(*arguments, **options)
            finally:
                total[0] += time.process_time() - began

        return call

    chromadb.PersistentClient = timed(chromadb.PersistentClient)
    Client.close = timed(Client.close)
    for name in CHROMA_CALLS:
        setattr(Collection, name, timed(getattr(Collection, name)))
    return total


def read(folder: Path, data: Path) -> dict[str, float]:
    """Open the index, search it, and return the figures."""
    embedder = load_embedder("static")
    embedder.embed_query("warm")
    before, began = anonymous(), time.process_time()
    with ChromaCorpus.open(folder, embedder=embedder) as opened:
        seconds = time.process_time() - began
        opened.search("a first question")
        waits, times = [], []
        for question in questions(data)[:100]:
            began = time.perf_counter()
            times.append(milliseconds(lambda question=question: opened.search(question)))
            waits.append((time.perf_counter() - began) * 1e3)
        memory = anonymous()
        greps = [milliseconds(lambda pattern=pattern: opened.grep(pattern)) for pattern in PATTERNS]
        vectors = [np.asarray(embedder.embed_query(question), dtype=np.float32) for question in questions(data)[:100]]
        table = opened.snapshot.vectors
        exact_table = VectorTable([part._replace(approximate=None) for part in table.parts], table.space)
        dense, exact = [], []
        shares = []
        for vector in vectors:
            dense.append(milliseconds(lambda vector=vector: table.best(vector, NEAREST)))
            exact.append(milliseconds(lambda vector=vector: exact_table.best(vector, NEAREST)))
            least = np.sort(exact_table.best(vector, NEAREST)[1])[-NEAREST]
            shares.append(np.count_nonzero(table.best(vector, NEAREST)[1] >= least - EQUAL) / NEAREST)
    return {
        "open: seconds": seconds,
        "memory of its own after searching: MB": memory,
        "memory of its own because of the index: MB": memory - before,
        "search p50, by the clock: ms": statistics.median(waits),
        "search p95, by the clock: ms": statistics.quantiles(waits, n=20)[-1],
        "search p50: ms": statistics.median(times),
        "search p95: ms": statistics.quantiles(times, n=20)[-1],
        "its dense part p50: ms": statistics.median(dense),
        "an exact dense search p50: ms": statistics.median(exact),
        f"of the {NEAREST} nearest, those that it finds": statistics.mean(shares),
        "grep, slowest pattern: ms": max(greps),
    }


def trigrams(folder: Path, data: Path) -> dict[str, float]:
    """Build an index of trigrams in a temporary folder, and return the times of grep with it and without it."""
    import tantivy

    schema = tantivy.SchemaBuilder().add_integer_field("row", stored=True)
    schema = schema.add_text_field("text", tokenizer_name="trigrams", index_option="basic").build()
    analyzer = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.ngram(3, 3, False)).filter(tantivy.Filter.lowercase())
    analyzer = analyzer.build()
    with tempfile.TemporaryDirectory() as scratch, ChromaCorpus.open(folder, embedder="none") as opened:
        rows = opened.snapshot.rows
        index = tantivy.Index(schema, path=scratch)
        index.register_tokenizer("trigrams", analyzer)
        began = time.process_time()
        writer = index.writer(64_000_000, 1)
        for row in range(len(rows)):
            writer.add_document(tantivy.Document(row=row, text=rows.text(row)))
        writer.commit()
        writer.wait_merging_threads()
        seconds = time.process_time() - began
        index.reload()
        searcher = index.searcher()

        def filtered(pattern: str) -> list[int]:
            terms = set(analyzer.analyze(required_literal(pattern)))
            musts = [(tantivy.Occur.Must, tantivy.Query.term_query(schema, "text", term, "basic")) for term in terms]
            hits = searcher.search(tantivy.Query.boolean_query(musts), len(rows), count=False).hits
            compiled = Pattern(pattern)
            candidates = sorted(searcher.doc(address)["row"][0] for _, address in hits)
            matching = (row for row in candidates if compiled.matches(rows.raw_text(row)))
            return list(islice(matching, GREP_LIMIT))

        selective = [pattern for pattern in PATTERNS if required_literal(pattern)]
        with_index = [milliseconds(lambda pattern=pattern: filtered(pattern)) for pattern in selective]
        without = [milliseconds(lambda pattern=pattern: opened.grep(pattern)) for pattern in selective]
        text = sum(len(rows.raw_text(row)) for row in range(len(rows)))
        return {
            "trigrams: seconds to build": seconds,
            "trigrams: bytes per byte of text": disk(Path(scratch)) / text,
            f"trigrams: p50 of {len(selective)} patterns with a literal: ms": statistics.median(with_index),
            "trigrams: p50 without: ms": statistics.median(without),
            "trigrams: slowest: ms": max(with_index),
            "trigrams: slowest without: ms": max(without),
        }


MEASURES: dict[str, Callable[[Path, Path], dict[str, float]]] = {"add": add_one, "read": read, "trigrams": trigrams}


def milliseconds(action: Callable[[], object]) -> float:
    """Return the CPU time of one call, in milliseconds."""
    began = time.process_time()
    action()
    return (time.process_time() - began) * 1e3


def anonymous() -> float:
    """Return the megabytes of this process that are not mapped from a file."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1e3


def files(folder: Path) -> dict[int, int]:
    """Return the inode and the size of every file below a folder. A file with several names counts once."""
    stats = (file.stat() for file in folder.rglob("*") if file.is_file())
    return {stat.st_ino: stat.st_size for stat in stats}


def disk(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(files(folder).values())


if __name__ == "__main__":
    main()
