"""Measure the cost of the harness itself: turns, concurrency and start-up. Each figure is printed beside its bound.

    python benchmarks/harness.py [--repeats N]

- `turns`: the CPU time of an episode of 64 turns, divided by that of an episode of 32 turns with the same kind of
  calls. The bound is 2.1, so the cost must be linear.
- `concurrency`: the wall time of 64 episodes at once, divided by that of one episode. An episode has 10 turns, and its
  policy takes 50 ms a turn. The bound is 1.3 over `MemoryCorpus`. A local Chroma folder has no bound.
- `start-up`: the wall time of `import context_agent` (bound 150 ms) and of `ctx1 --help` (bound 500 ms), each in a new
  process. The start of the interpreter is included, and is also printed alone.

No data is needed.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from context_agent import (
    Action,
    Budget,
    ChromaCorpus,
    Document,
    Limits,
    MemoryCorpus,
    ScriptedPolicy,
    SearchAgent,
    ToolCall,
    index_documents,
)
from context_agent.retrieval.corpus import Corpus

SYLLABLES = ("ba", "co", "du", "fe", "gi", "ha", "lo", "mi", "nu", "pe", "ra", "so", "ti", "vu", "za")


def words(draw: random.Random, count: int) -> str:
    """Return invented words. As in real text, short ones repeat and most long ones are rare."""
    return " ".join(
        "".join(draw.choice(SYLLABLES) for _ in range(1 + min(3, int(draw.expovariate(0.8))))) for _ in range(count)
    )


def documents(count: int) -> list[Document]:
    """Return invented paragraphs of 60 words."""
    draw = random.Random(7)
    return [Document(f"d{number}", words(draw, 60) + ".", words(draw, 3)) for number in range(count)]


def steps(turns: int) -> list[Action]:
    """Return one search for each turn, which shows two chunks."""
    draw = random.Random(8)
    queries = [words(draw, 5) for _ in range(turns)]
    return [Action(calls=(ToolCall("search_corpus", {"query": query, "limit": 2}),)) for query in queries]


def seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return how long the work takes, measured with `clock`."""
    started = clock()
    work()
    return clock() - started


def turns(repeats: int) -> None:
    """Print the CPU time of 32 and of 64 turns."""
    corpus = MemoryCorpus(documents(500), embedder="static")
    times: dict[int, list[float]] = {32: [], 64: []}
    for _ in range(repeats):
        for count, taken in times.items():
            agent = SearchAgent(corpus, ScriptedPolicy(steps(count)), budget=Budget(262_144), limits=Limits(turns=100))
            taken.append(seconds(lambda agent=agent: agent.search("which comet?"), time.process_time))  # type: ignore[misc]
    short, long = statistics.median(times[32]), statistics.median(times[64])
    print(f"turns        32: {short * 1e3:.1f} ms   64: {long * 1e3:.1f} ms   ratio {long / short:.2f} (bound 2.1)")


def concurrency(repeats: int) -> None:
    """Print the wall time of 64 episodes at once and of one episode."""
    with memory() as corpus:
        report("MemoryCorpus", corpus, repeats, "(bound 1.3)")
    with folder() as corpus:
        report("Chroma folder", corpus, repeats, "")


def report(label: str, corpus: Corpus, repeats: int, bound: str) -> None:
    """Print the line of one corpus."""
    with SearchAgent(corpus, ScriptedPolicy(steps(10), delay=0.05)) as agent:

        async def together(count: int) -> None:
            await asyncio.gather(*(agent.asearch(f"which comet, number {index}?") for index in range(count)))

        asyncio.run(together(4))
        alone = [seconds(lambda: asyncio.run(together(1)), time.perf_counter) for _ in range(repeats)]
        many = [seconds(lambda: asyncio.run(together(64)), time.perf_counter) for _ in range(repeats)]
    ratio = statistics.median(many) / statistics.median(alone)
    print(
        f"concurrency  {label}: one {statistics.median(alone):.3f} s   64 at once {statistics.median(many):.3f} s   "
        f"ratio {ratio:.2f} {bound}"
    )


@contextmanager
def memory() -> Iterator[Corpus]:
    """Yield a corpus of 1,000 chunks in memory."""
    yield MemoryCorpus(documents(1_000), embedder="static")


@contextmanager
def folder() -> Iterator[Corpus]:
    """Yield a local Chroma folder with the same chunks."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as path:
        index_documents(documents(1_000), path=Path(path), embedder="static")
        yield ChromaCorpus.open(path=Path(path))


def start_up(repeats: int) -> None:
    """Print the median wall time of commands in new processes."""
    command = str(Path(sys.executable).with_name("ctx1"))
    rows = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import context_agent (bound 150 ms)": [sys.executable, "-c", "import context_agent"],
        "ctx1 --help (bound 500 ms)": [command, "--help"],
    }
    for label, line in rows.items():
        taken = [
            seconds(lambda line=line: subprocess.run(line, check=True, capture_output=True), time.perf_counter)  # type: ignore[misc]
            for _ in range(max(5, repeats))
        ]
        print(f"start-up     {label}: {statistics.median(taken) * 1e3:.0f} ms")


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="repetitions; medians are printed")
    repeats = parser.parse_args().repeats
    print(f"machine      {platform.machine()}, Python {platform.python_version()}")
    turns(repeats)
    concurrency(repeats)
    start_up(repeats)


if __name__ == "__main__":
    main()
