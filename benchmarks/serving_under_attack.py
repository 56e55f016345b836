"""Measure how long good clients wait for `ctx1 serve` during slow connections and hostile requests.

    python benchmarks/serving_under_attack.py [--data FOLDER] [--clients 64] [--seconds 60] [--slow 1100]
                                              [--chunks 10000] [--index FOLDER] [-- options of ctx1 serve]

The program runs the load of `serving.py` twice on one server, without and with an attack. The attackers run in a
separate process. `--slow` connections send part of a request's header, and then a byte every few seconds. They
reconnect one second after the server closes them. In addition, one hostile request is sent every 0.2 s: a filter of
12,000 conditions, JSON that is 100,000 levels deep, a list of 20,000 values, or a body beyond the limit. The good
clients start the second load with new connections. One more good client opens a connection for each of its requests.

The program prints the median and the 99th percentile of the waiting time of good clients in both loads, their errors,
the server's open file descriptors, and the answers to the hostile requests. Bounds: no error of a good client, p99 at
most 3 times the quiet p99, and 400 or 413 as the answer to each hostile request. All traffic stays on the loopback
interface.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parent))
from serving import Tally, load, options_parser, serving

RATIO = 3.0
TRICKLE, REOPEN, HOSTILE, PROBE = 3.0, 1.0, 0.2, 0.5
"""Seconds between the bytes of a slow connection, before it is opened again, between hostile requests, and between the
requests of the good client with new connections.
"""
REFUSALS = frozenset((400, 413))
HEADER = b"POST /v1/retrieve HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


def hostile_bodies() -> list[bytes]:
    """Return requests that are small enough to send often, and costly for a server without limits."""
    wide = {"$or": [{"year": number} for number in range(12_000)]}
    listed = {"year": {"$in": list(range(20_000))}}
    deep = b'{"question": "x", "where": ' + b'{"$and":[' * 100_000 + b"]}" * 100_000 + b"}"
    large = json.dumps({"question": "x" * 2_000_000}).encode()
    return [json.dumps({"question": "x", "where": where}).encode() for where in (wide, listed)] + [deep, large]


async def hold(host: str, port: int, ends: float, tally: Counter[str]) -> None:
    """Keep one slow connection, and open it again when the server closes it."""
    while time.monotonic() < ends:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(host, port)
            tally["opened"] += 1
            writer.write(HEADER)
            while time.monotonic() < ends and not reader.at_eof():
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1_024), TRICKLE)
                writer.write(b"x")
            writer.close()
        await asyncio.sleep(REOPEN)


async def assail(url: str, ends: float, tally: Counter[str]) -> None:
    """Send hostile requests at a limited rate, and count the statuses of the answers."""
    bodies, number = hostile_bodies(), 0
    headers = {"Content-Type": "application/json"}
    async with httpx.AsyncClient(timeout=60) as client:
        while time.monotonic() < ends:
            try:
                answer = await client.post(f"{url}/v1/retrieve", content=bodies[number % len(bodies)], headers=headers)
                tally[str(answer.status_code)] += 1
            except httpx.HTTPError:  # The server closes while a body that is too large is still being sent.
                tally["closed"] += 1
            number += 1
            await asyncio.sleep(HOSTILE)


def attack(url: str, slow: int, seconds: float, outcome: Any) -> None:
    """Run all attackers for `seconds`, and put the statuses that they got into the queue `outcome`."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    address, tally, ends = httpx.URL(url), Counter[str](), time.monotonic() + seconds
    assert address.port is not None
    port = address.port

    async def run_all() -> None:
        await asyncio.gather(assail(url, ends, tally), *(hold(address.host, port, ends, tally) for _ in range(slow)))

    asyncio.run(run_all())
    outcome.put(tally)


async def probe(url: str, server: int, seconds: float) -> tuple[int, int, int]:
    """Run a good client that opens a connection for each request.

    Return the number of its requests and of its errors, and the maximum of the server's open file descriptors.
    """
    requests = errors = files = 0
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        try:
            async with httpx.AsyncClient(timeout=30) as client:
                errors += (await client.get(f"{url}/health")).status_code != 200
        except httpx.HTTPError as error:
            print(f"lost: {type(error).__name__}: {error}", file=sys.stderr)
            errors += 1
        requests += 1
        files = max(files, open_files(server))
        await asyncio.sleep(PROBE)
    return requests, errors, files


def open_files(process: int) -> int:
    """Return the number of open file descriptors of a process."""
    return sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())


async def under_attack(
    url: str, server: int, question_texts: list[str], options: argparse.Namespace
) -> tuple[Tally, tuple[int, int, int]]:
    """Run the load together with the probe, and return the results of both."""
    (tally, _), probes = await asyncio.gather(
        load(url, server, question_texts, options), probe(url, server, options.seconds)
    )
    return tally, probes


def quantile(tally: Tally, share: float) -> float:
    """Return the number of seconds in which this share of the answers arrived."""
    ordered = sorted(tally.seconds)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def errors_of(tally: Tally) -> int:
    """Return the number of answers other than 200 and of requests without an answer."""
    return sum(tally.statuses.values()) - tally.statuses["200"] + tally.lost


def measure(url: str, server: int, question_texts: list[str], options: argparse.Namespace) -> bool:
    """Run both loads and print the measurements. If they are within the bounds, return True."""
    quiet, _ = asyncio.run(load(url, server, question_texts, options))
    context = multiprocessing.get_context("spawn")
    outcome = context.Queue()
    attacker = context.Process(target=attack, args=(url, options.slow, options.seconds + 5, outcome), daemon=True)
    attacker.start()
    time.sleep(3)
    options.warm = 0
    tally, (probes, probe_errors, files) = asyncio.run(under_attack(url, server, question_texts, options))
    answers: Counter[str] = outcome.get(timeout=120)
    attacker.join(30)
    statuses = {status: count for status, count in answers.items() if status != "opened"}
    ratio, errors = quantile(tally, 0.99) / quantile(quiet, 0.99), errors_of(quiet) + errors_of(tally) + probe_errors
    for label, load_tally in (("quiet", quiet), ("attack", tally)):
        quantiles = ", ".join(f"p{share * 100:g} {quantile(load_tally, share):.2f} s" for share in (0.5, 0.99))
        print(f"{label:7} answers {len(load_tally.seconds):,}, {quantiles}, errors {errors_of(load_tally)}")
    print(f"new connections of a good client: {probes}, errors {probe_errors}")
    print(f"slow connections {options.slow:,}, opened {answers['opened']:,} times; open files of the server {files:,}")
    print(f"hostile requests by status {statuses}")
    print(f"good clients' errors {errors}   (bound 0)")
    print(f"p99 under attack / quiet p99 {ratio:.2f}   (bound {RATIO:g})")
    refused = all(status == "closed" or int(status) in REFUSALS for status in statuses)
    return not errors and ratio <= RATIO and refused


def main() -> int:
    """Run both loads. If a bound is missed, return 1."""
    parser = options_parser(__doc__ or "")
    parser.add_argument("--slow", type=int, default=1_100)
    options = parser.parse_args()
    with serving(options, "error") as (url, server, question_texts):
        within_bounds = measure(url, server, question_texts, options)
    return 0 if within_bounds else 1


if __name__ == "__main__":
    sys.exit(main())
