"""Measure `ctx1 serve` under load: many clients on the loopback interface, each of which asks without a pause.

    python benchmarks/serving.py [--data FOLDER] [--clients 64] [--seconds 60] [--chunks 10000] [--index FOLDER]
                                 [--workers N] [-- options of ctx1 serve]

The program indexes the first documents of `corpus100k.py` in a local folder, and starts `ctx1 serve` with the embedded
policy in its own process. The clients ask the dev questions over persistent connections. Before the measurement, every
client gets `--warm` answers, which fill the caches of passages and vectors.

It prints the number of answers, of errors (any status except 200) and of lost requests (no answer). It also prints
quantiles of the time that a client waits, including the queue, and the server's resident memory at second 10 and at the
end. Bounds: no error, no lost request, p99 at most 10 times p50, memory growth below 5%.

With `--workers N`, one process and then N processes serve the same index. The program prints the answers per second of
both, and the memory at the end. A page that several processes share counts once. The clients use part of the same
cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parent))
from corpus100k import corpus, data_folder, questions

from context_agent import index_documents

CTX1 = str(Path(sys.executable).with_name("ctx1"))
SETTLED = 10.0
"""The second at which the memory is measured first."""
RATIO, GROWTH = 10.0, 0.05
QUANTILES = (0.5, 0.9, 0.99, 1.0)


@dataclass
class Tally:
    """Counts of the answers that the clients got."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    empty: int = 0


async def ask(client: httpx.AsyncClient, url: str, question: str, tally: Tally) -> None:
    """Ask one question, and count the answer."""
    started = time.perf_counter()
    try:
        answer = await client.post(f"{url}/v1/retrieve", json={"question": question})
    except httpx.HTTPError as error:
        tally.lost += 1
        print(f"lost: {type(error).__name__}: {error}", file=sys.stderr)
        return
    tally.seconds.append(time.perf_counter() - started)
    tally.statuses[str(answer.status_code)] += 1
    tally.empty += answer.status_code == 200 and not answer.json()["documents"]


async def load(
    url: str, server: int, question_texts: list[str], options: argparse.Namespace
) -> tuple[Tally, list[float]]:
    """Run all clients. Return the tally of their answers, and the server's memory in MB at each second."""
    warming, tally, memory = Tally(), Tally(), []
    limits = httpx.Limits(max_connections=options.clients, max_keepalive_connections=options.clients)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:

        async def warm(number: int) -> None:
            for turn in range(options.warm):
                await ask(client, url, question_texts[(number + turn * options.clients) % len(question_texts)], warming)

        await asyncio.gather(*(warm(number) for number in range(options.clients)))
        ends = time.perf_counter() + options.seconds

        async def keep_asking(number: int) -> None:
            turn = number
            while time.perf_counter() < ends:
                await ask(client, url, question_texts[turn % len(question_texts)], tally)
                turn += options.clients

        async def watch() -> None:
            while time.perf_counter() < ends:
                memory.append(resident(server))
                await asyncio.sleep(1)

        await asyncio.gather(watch(), *(keep_asking(number) for number in range(options.clients)))
    return tally, memory


def resident(process: int) -> float:
    """Return the resident memory of a process in MB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def report(tally: Tally, memory: list[float], options: argparse.Namespace) -> bool:
    """Print the measurements. If they are within the bounds, return True."""
    if not tally.seconds:
        print("no answers")
        return False
    ordered = sorted(tally.seconds)
    at = {share: ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] for share in QUANTILES}
    errors = sum(tally.statuses.values()) - tally.statuses["200"]
    settled = memory[min(int(SETTLED), len(memory) - 1)]
    growth = memory[-1] / settled - 1
    print(f"{options.clients} clients, {options.seconds:g} s, {options.chunks:,} chunks, {os.cpu_count()} cores")
    print(f"answers {len(ordered):,} ({len(ordered) / options.seconds:.1f} a second), without documents {tally.empty}")
    print(f"errors {errors}, lost {tally.lost}   (bounds 0 and 0)   by status {dict(tally.statuses)}")
    print("seconds " + ", ".join(f"p{share * 100:g} {value:.2f}" for share, value in at.items()))
    print(f"p99 / p50 {at[0.99] / at[0.5]:.2f}   (bound {RATIO:g})")
    growth_text = f"{growth:+.1%}   (bound {GROWTH:+.0%})"
    print(f"resident memory {settled:.0f} MB at second {SETTLED:g}, {memory[-1]:.0f} MB at the end: {growth_text}")
    return not errors and not tally.lost and at[0.99] <= RATIO * at[0.5] and growth < GROWTH


def proportional(server: int) -> float:
    """Return the memory of a process and its children in MB. If n processes share a page, each counts 1/n of it."""
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    rollups = [Path(f"/proc/{process}/smaps_rollup").read_text() for process in (server, *children)]
    return sum(int(line.split()[1]) for text in rollups for line in text.splitlines() if line.startswith("Pss:")) / 1024


def compare(options: argparse.Namespace) -> int:
    """Print the throughput of several workers and of one. If an answer is missing, return 1."""
    rates: list[float] = []
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        index = options.index or Path(scratch) / "index"
        for workers in (1, options.workers):
            serve = [*options.serve, "--workers", str(workers)]
            settings = argparse.Namespace(**{**vars(options), "index": index, "serve": serve})
            with serving(settings, "warning") as (url, server, question_texts):
                tally, _ = asyncio.run(load(url, server, question_texts, settings))
                memory = proportional(server)
            rates.append(len(tally.seconds) / options.seconds)
            failures += tally.lost + sum(tally.statuses.values()) - tally.statuses["200"]
            statuses = dict(tally.statuses)
            print(f"workers {workers}: {rates[-1]:.1f} answers a second, {memory:.0f} MB, by status {statuses}")
    ratio = rates[1] / rates[0]
    print(f"{options.workers} workers / 1: {ratio:.2f}   ({os.cpu_count()} cores, {options.clients} clients)")
    return 1 if failures else 0


def options_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that the serving benchmarks share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--warm", type=int, default=4)
    parser.add_argument("--index", type=Path, help="keep the index in this folder, and reuse it if it exists")
    parser.add_argument("serve", nargs="*", help="options of ctx1 serve, after --")
    return parser


@contextmanager
def serving(options: argparse.Namespace, log_level: str) -> Iterator[tuple[str, int, list[str]]]:
    """Run `ctx1 serve` on an index of the corpus. Yield its address, its process id, and the questions to ask."""
    data = data_folder(options.data)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.index or Path(scratch) / "index"
        if not folder.exists():
            index_documents(corpus(data, options.chunks), path=folder, embedder="static")
        command = [CTX1, "serve", "--json", "--port", "0", "--path", str(folder), "--log-level", log_level]
        with subprocess.Popen([*command, *options.serve], stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                yield json.loads(server.stdout.readline())["url"], server.pid, questions(data)
            finally:
                server.send_signal(signal.SIGTERM)
                server.wait(60)


def main() -> int:
    """Run the load. If a bound is missed, return 1."""
    parser = options_parser(__doc__ or "")
    parser.add_argument("--workers", type=int, default=1, help="compare this number of processes with one")
    options = parser.parse_args()
    if options.workers > 1:
        return compare(options)
    with serving(options, "warning") as (url, server, question_texts):
        tally, memory = asyncio.run(load(url, server, question_texts, options))
    return 0 if report(tally, memory, options) else 1


if __name__ == "__main__":
    sys.exit(main())
