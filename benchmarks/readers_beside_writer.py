"""Check that readers beside a writer answer from exactly one complete state, and that the index survives.

    python benchmarks/readers_beside_writer.py [--runs 30] [--chunks 10000] [--readers 4] [--load 1]
                                               [--kill writer|readers|both]

One process after another indexes into the same folder. Each replaces all passages with those of the other of two sets.
At the same time, `--readers` processes open the index, search, filter and grep it, and follow its changes, and `--load`
processes keep the cores busy. No process may write a file of more than `--largest` MB.

`--kill writer` kills each run once or twice with SIGKILL at a random moment, and repeats it. `--kill readers` kills a
random reader again and again, and starts another one. `--kill both` does both.

A reader knows both sets. For each state that it opens, it checks that these belong to one and the same run: the marker
passage, the number of chunks, a filter, the texts of all hits, and the ids of dense search. It compares these ids with
a product with the known vectors. It also checks that the state is not older than the last complete run at the time of
opening, and that states never go back. At the end, Chroma's own client opens the folder. It must find every record with
its text and its vector.

The program prints the number of answers, of wrong answers, of errors, and of lost indexes. If anything is wrong or
lost, it exits with 1.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from typing import Any

import numpy as np
from corpus100k import corpus, data_folder
from numpy.typing import NDArray

from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.retrieval.embedders import load_embedder
from context_agent.types import Document

MARKER = "marker"
LONGEST = 400
"""The maximum number of characters in a passage, so that each is one chunk."""
TOP = 10
ATTEMPTS = 3
"""The number of times that a run may fail before the index counts as lost."""
COMPLETE, STARTED = 0, 1
ANSWERS, WRONG, ERRORS = 0, 1, 2
_CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Plan:
    """The facts that all processes share."""

    folder: Path
    sets: Path
    size: int
    largest: int


def passages(documents: Sequence[Document], run: int, size: int) -> list[Document]:
    """Return the passages of a run: those of one of the two sets, and a marker that names the run."""
    first = run % 2 * size
    part = [
        Document(f"set{run % 2}-{number}", document.text[:LONGEST], document.title, {"set": run % 2, "number": number})
        for number, document in enumerate(documents[first : first + size])
    ]
    return [Document(MARKER, f"This is the state of run {run}.", metadata={"run": run}), *part]


def documents_of(plan: Plan) -> list[Document]:
    """Return the stored passages of both sets, which are all different."""
    rows = np.load(plan.sets / "texts.npy")
    return [Document(str(number), str(text), str(title)) for number, (title, text) in enumerate(rows)]


def prepare(plan: Plan, data: str | None) -> None:
    """Store the passages and their vectors for all processes."""
    distinct = {
        document.text[:LONGEST]: document
        for document in corpus(data_folder(data), 3 * plan.size)
        if len(document.text) > 40
    }
    documents = list(distinct.values())[: 2 * plan.size]
    assert len(documents) == 2 * plan.size
    np.save(plan.sets / "texts.npy", np.array([(document.title, document.text[:LONGEST]) for document in documents]))
    embedder = load_embedder("static")
    vectors = embedder.embed_documents([f"{document.title}\n{document.text[:LONGEST]}" for document in documents])
    np.save(plan.sets / "vectors.npy", vectors)


def end_with_parent() -> None:
    """End this process when the process that started it ends for any reason."""
    if (parent := multiprocessing.parent_process()) is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def limit_files(plan: Plan) -> None:
    """Limit the size of the files that this process writes. Beyond it, writing fails and the disk does not fill up."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (plan.largest, plan.largest))


def write(plan: Plan, run: int) -> None:
    """Index the passages of one run."""
    end_with_parent()
    limit_files(plan)
    index_documents(
        passages(documents_of(plan), run, plan.size),
        plan.folder,
        embedder="static",
        remove_missing=True,
        calibration=False,
    )


class Wrong(Exception):
    """An answer that no complete state gives."""


class Checker:
    """A checker that compares answers with the possible states."""

    def __init__(self, plan: Plan, runs: Any) -> None:
        self.documents, self.size, self.runs = documents_of(plan), plan.size, runs
        self.vectors: NDArray[np.float32] = np.load(plan.sets / "vectors.npy", mmap_mode="r")
        self.newest = 0

    def state_of(self, opened: ChromaCorpus, complete: int) -> int:
        """Return the run that an open corpus shows.

        `complete` is the last run that was complete before the corpus was opened.
        """
        (marker,) = opened.read(MARKER)
        run = int(str(marker.metadata["run"]))
        _check(marker.text == f"This is the state of run {run}.", f"marker of run {run}: {marker.text!r}")
        _check(complete <= run <= self.runs[STARTED], f"run {run}, though {complete} was complete")
        _check(run >= self.newest, f"run {run} after run {self.newest}")
        _check(opened.count() == self.size + 1, f"{opened.count()} chunks in run {run}")
        self.newest = run
        return run

    def search(self, opened: ChromaCorpus, run: int, number: int) -> None:
        """Check that a search with a passage's own words finds this passage, and nothing of another run."""
        target = self._passage(run, number)
        hits = opened.search(f"{target.title} {target.text[:120]}")
        ids = [hit.chunk.document_id for hit in hits]
        _check(f"set{run % 2}-{number}" in ids, f"passage {number} of run {run} is not found")
        for hit in hits:
            self._check_chunk(run, hit.chunk)

    def dense(self, opened: ChromaCorpus, run: int, number: int) -> None:
        """Check that dense search returns the passages that a product with all vectors gives."""
        query = self._passage(run, number).text[:80]
        first = run % 2 * self.size
        scores = self.vectors[first : first + self.size] @ opened.embedder.embed_query(query)
        nearest = dict(opened.retrievers[0].search(query, TOP))
        cut = np.partition(scores, -TOP)[-TOP]
        for chunk_id, score in nearest.items():
            name, _, position = chunk_id.removesuffix("_0").partition("-")
            if name != MARKER:
                right = name == f"set{run % 2}" and abs(scores[int(position)] - score) < 1e-4 and score > cut - 1e-4
                _check(right, f"{chunk_id} with {score:.4f} in run {run}, cut at {cut:.4f}")
        _check(len(nearest) == TOP, f"{len(nearest)} nearest passages in run {run}")

    def grep(self, opened: ChromaCorpus, run: int, number: int) -> None:
        """Check that a filter admits one passage, and that grep finds its text."""
        hits = opened.grep(".", where={"$and": [{"number": number}, {"set": run % 2}]})
        _check(len(hits) == 1, f"{len(hits)} chunks of number {number} in run {run}")
        self._check_chunk(run, hits[0].chunk)
        _check(not opened.grep(".", where={"set": 1 - run % 2}), f"chunks of the other set in run {run}")

    def _passage(self, run: int, number: int) -> Document:
        return self.documents[run % 2 * self.size + number]

    def _check_chunk(self, run: int, chunk: Any) -> None:
        if chunk.document_id != MARKER:
            name, _, number = chunk.document_id.partition("-")
            same = name == f"set{run % 2}" and chunk.text == self._passage(run, int(number)).text.strip()
            _check(same, f"chunk {chunk.id} in run {run}: {chunk.text[:60]!r}")


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise Wrong(message)


def read(plan: Plan, runs: Any, counts: Any, seed: int) -> None:
    """Open the index and ask questions, until the process is killed."""
    end_with_parent()
    limit_files(plan)
    draw, checker = random.Random(seed), Checker(plan, runs)
    while True:
        try:
            complete = runs[COMPLETE]
            with ChromaCorpus.open(plan.folder, calibration=False) as opened:
                _ask(opened, checker, complete, counts, draw)
        except Wrong as error:
            counts[WRONG] += 1
            print(f"WRONG {error}", file=sys.stderr, flush=True)
        except Exception:  # noqa: BLE001 - whatever a reader meets is counted
            counts[ERRORS] += 1
            traceback.print_exc()
            time.sleep(0.5)


def _ask(opened: ChromaCorpus, checker: Checker, complete: int, counts: Any, draw: random.Random) -> None:
    """Ask one corpus some questions, and refresh it when the index changes."""
    run = checker.state_of(opened, complete)
    questions: list[Callable[[ChromaCorpus, int, int], None]] = [checker.search, checker.dense, checker.grep]
    for _ in range(draw.randrange(1, 60)):
        draw.choice(questions)(opened, run, draw.randrange(checker.size))
        counts[ANSWERS] += 1
        time.sleep(draw.random() * 0.2)
        complete = checker.runs[COMPLETE]
        if opened.stale():
            opened.refresh()
            run = checker.state_of(opened, complete)


def burn() -> None:
    """Keep a core busy."""
    end_with_parent()
    while True:
        sum(range(100_000))


class Crew:
    """The reader processes, some of which may be killed."""

    def __init__(self, plan: Plan, runs: Any, count: int, draw: random.Random) -> None:
        self._plan, self._runs, self._draw = plan, runs, draw
        self._slots = [RawArray("q", 3) for _ in range(count)]
        self._processes = [self._start(slot, seed) for seed, slot in enumerate(self._slots)]
        self.killed = 0

    def kill_some(self) -> None:
        """Kill a reader, and start another one."""
        number = self._draw.randrange(len(self._processes))
        self._processes[number].kill()
        self._processes[number].join()
        self.killed += 1
        self._processes[number] = self._start(self._slots[number], self._draw.randrange(1 << 30))

    def restart_ended(self) -> None:
        """Count each reader that has ended as an error, and start it again. No reader should end by itself."""
        for number, process in enumerate(self._processes):
            if not process.is_alive():
                self._slots[number][ERRORS] += 1
                self._processes[number] = self._start(self._slots[number], number)

    def totals(self) -> list[int]:
        """Return the numbers of answers, of wrong answers and of errors."""
        return [sum(column) for column in zip(*self._slots, strict=True)]

    def stop(self) -> None:
        """End all readers."""
        for process in self._processes:
            process.kill()
            process.join()

    def _start(self, slot: Any, seed: int) -> BaseProcess:
        process = _CONTEXT.Process(target=read, args=(self._plan, self._runs, slot, seed), daemon=True)
        process.start()
        return process


def complete_run(plan: Plan, run: int, kills: list[float], crew: Crew, interval: Callable[[], float]) -> int:
    """Run the writer until it succeeds, and return the number of failed attempts.

    The writer is first killed after each of the times in `kills`. A reader is killed after each `interval` in seconds.
    """
    failed, next_kill = 0, time.monotonic() + interval()
    while failed < ATTEMPTS:
        writer = _CONTEXT.Process(target=write, args=(plan, run))
        writer.start()
        deadline = time.monotonic() + kills.pop() if kills else float("inf")
        while writer.is_alive() and time.monotonic() < deadline:
            writer.join(min(0.5, max(0.01, deadline - time.monotonic())))
            crew.restart_ended()
            if time.monotonic() > next_kill:
                crew.kill_some()
                next_kill = time.monotonic() + interval()
        if writer.is_alive():
            writer.kill()
            writer.join()
            continue
        if writer.exitcode == 0:
            break
        failed += 1
        print(f"run {run} ended with {writer.exitcode}", file=sys.stderr)
    return failed


def whole(plan: Plan, run: int) -> bool:
    """Return True if Chroma's own client returns every record of the run, with its text and vector."""
    import chromadb

    client = chromadb.PersistentClient(str(plan.folder))
    try:
        collection = client.get_collection("documents", embedding_function=None)
        stored = collection.get(include=["documents", "embeddings"])
        expected = {document.id: document.text for document in passages(documents_of(plan), run, plan.size)}
        ids = [record.rpartition("~")[0].removesuffix("_0") for record in stored["ids"]]
        texts = all(expected[name].strip() == text for name, text in zip(ids, stored["documents"] or [], strict=True))
        vectors = np.load(plan.sets / "vectors.npy")[run % 2 * plan.size :][: plan.size]
        rows = [(int(name.partition("-")[2]), row) for row, name in enumerate(ids) if name != MARKER]
        numbers, positions = map(list, zip(*rows, strict=True))
        close = np.allclose(np.asarray(stored["embeddings"])[positions], vectors[numbers], atol=1e-4)
        nearest = collection.query(query_embeddings=[vectors[7]], n_results=3)["ids"][0]
        findings = {
            "texts": texts,
            "vectors": close,
            "records": len(ids) == len(set(ids)) == len(expected),
            "query": any("-7_0~" in record for record in nearest),
        }
        if not all(findings.values()):
            print(f"Chroma's client at the end: {findings}", file=sys.stderr)
        return all(findings.values())
    finally:
        client.close()  # type: ignore[attr-defined]


def main() -> None:
    """Run everything and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--load", type=int, default=1, help="processes that keep a core busy")
    parser.add_argument("--largest", type=int, default=1_000, help="MB that a file may have")
    parser.add_argument("--kill", choices=["writer", "readers", "both"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw, lost, errors, kills = random.Random(options.seed), 0, 0, 0
    with tempfile.TemporaryDirectory() as base, contextlib.ExitStack() as stack:
        plan = Plan(Path(base, "index"), Path(base), options.chunks, options.largest << 20)
        prepare(plan, options.data)
        runs = RawArray("q", 2)
        began = time.monotonic()
        write(plan, 0)
        typical = time.monotonic() - began
        for _ in range(options.load):
            burner = _CONTEXT.Process(target=burn, daemon=True)
            burner.start()
            stack.callback(burner.kill)
        crew = Crew(plan, runs, options.readers, draw)
        kill_reader = options.kill in ("readers", "both")
        interval = partial(draw.uniform, 2.0, 8.0) if kill_reader else partial(float, "inf")
        stack.callback(crew.stop)
        for run in range(1, options.runs + 1):
            began, runs[STARTED] = time.monotonic(), run
            count = draw.randrange(1, 3) if options.kill in ("writer", "both") else 0
            moments = [draw.uniform(0.05, 1.2) * typical for _ in range(count)]
            failed = complete_run(plan, run, list(moments), crew, interval)
            seconds = time.monotonic() - began
            typical = seconds / (1 + 0.6 * count)
            errors, kills, runs[COMPLETE] = errors + failed, kills + count, run
            lost += failed == ATTEMPTS
            answers, wrong, failures = crew.totals()
            print(f"run {run}: {seconds:.1f} s; {answers:,} answers, {wrong} wrong, {failures} errors", flush=True)
        crew.stop()
        if not whole(plan, options.runs):
            lost += 1
        answers, wrong, failures = crew.totals()
        sizes = [file.stat().st_size for file in plan.folder.rglob("*") if file.is_file()]
    print(
        f"{options.runs} runs of {options.chunks:,} chunks beside {options.readers} readers on {os.cpu_count()} cores, "
        f"{options.load} busy processes: {kills} times a writer and {crew.killed} times a reader killed; {answers:,} "
        f"answers, {wrong} wrong, {failures + errors} errors, {lost} indexes lost; {sum(sizes) / 1e6:.0f} MB, largest "
        f"file {max(sizes) / 1e6:.0f} MB"
    )
    sys.exit(1 if wrong or failures or errors or lost else 0)


if __name__ == "__main__":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    main()
