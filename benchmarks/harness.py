"""What the harness itself costs: turns, concurrency, start-up. Needs no data; prints each figure beside its bound.

    python benchmarks/harness.py [--repeats N]

- `turns`: CPU time of an episode of 64 turns over one of 32 turns of the same calls (bound 2.1: linear cost).
- `concurrency`: wall time of 64 episodes at once over that of one, 10 turns each, a policy that takes 50 ms a turn,
  over `MemoryCorpus` (bound 1.3) and over a local Chroma folder (no bound; printed beside it).
- `start-up`: `import context_agent` (bound 150 ms) and `ctx1 --help` (bound 500 ms), each a fresh process, less
  nothing: the interpreter's own start is printed beside them.
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
    """Invented words, a few common and most rare, as in real text."""
    return " ".join(
        "".join(draw.choice(SYLLABLES) for _ in range(1 + min(3, int(draw.expovariate(0.8))))) for _ in range(count)
    )


def documents(count: int) -> list[Document]:
    """Invented paragraphs of 60 words."""
    draw = random.Random(7)
    return [Document(f"d{number}", words(draw, 60) + ".", words(draw, 3)) for number in range(count)]


def steps(turns: int) -> list[Action]:
    """One search a turn, two chunks shown."""
    draw = random.Random(8)
    queries = [words(draw, 5) for _ in range(turns)]
    return [Action(calls=(ToolCall("search_corpus", {"query": query, "limit": 2}),)) for query in queries]


def seconds(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return what the work takes on that clock."""
    started = clock()
    work()
    return clock() - started


def turns(repeats: int) -> None:
    """CPU time against the number of turns."""
    corpus = MemoryCorpus(documents(500))
    times: dict[int, list[float]] = {32: [], 64: []}
    for _ in range(repeats):
        for count, taken in times.items():
            agent = SearchAgent(corpus, ScriptedPolicy(steps(count)), budget=Budget(262_144), limits=Limits(turns=100))
            taken.append(seconds(lambda agent=agent: agent.search("which comet?"), time.process_time))  # type: ignore[misc]
    short, long = statistics.median(times[32]), statistics.median(times[64])
    print(f"turns        32: {short * 1e3:.1f} ms   64: {long * 1e3:.1f} ms   ratio {long / short:.2f} (bound 2.1)")


def concurrency(repeats: int) -> None:
    """Wall time of 64 episodes at once against one."""
    with memory() as corpus:
        report("MemoryCorpus", corpus, repeats, "(bound 1.3)")
    with folder() as corpus:
        report("Chroma folder", corpus, repeats, "")


def report(label: str, corpus: Corpus, repeats: int, bound: str) -> None:
    """One line of the concurrency figure."""
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
    yield MemoryCorpus(documents(1_000))


@contextmanager
def folder() -> Iterator[Corpus]:
    """Yield the same chunks in a Chroma folder."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as path:
        index_documents(documents(1_000), path=Path(path))
        yield ChromaCorpus.open(path=Path(path))


def start_up(repeats: int) -> None:
    """Fresh processes, median wall time."""
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
    """Prints all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="repetitions; medians are printed")
    repeats = parser.parse_args().repeats
    print(f"machine      {platform.machine()}, Python {platform.python_version()}")
    turns(repeats)
    concurrency(repeats)
    start_up(repeats)


if __name__ == "__main__":
    main()
