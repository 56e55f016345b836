"""Measure `ctx1 proxy` under load, and the time that it adds to a request which it does not prune.

    python benchmarks/proxy.py [--clients 64] [--seconds 60] [--requests 400] [--tokens 16000]
                               [-- options of ctx1 proxy]

The program starts a model server, which answers at once with a stream of three events, and `ctx1 proxy`. Each runs in a
process of its own. First, one client sends the same conversation, which fits in the budget, alternately to the server
and through the proxy. The difference is the time that the proxy adds to the first byte and to the whole answer. Then
`--clients` clients behave like agents for `--seconds`. Each sends growing conversations, which the proxy prunes, and
checks every answer.

The program prints:

- the medians, with a bound of 5 ms for the added time;
- the proxy's CPU time per request, which other work on the machine hardly changes;
- the number of answers, of errors (any status except 200, or any other content) and of lost requests (no complete
  answer). The bounds are no error and no lost request;
- the proxy's resident memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from serving import resident

CTX1 = str(Path(sys.executable).with_name("ctx1"))
PATH = "/v1/chat/completions"
BOUND = 0.005
STEPS = 12
"""The number of tool calls in a conversation under load."""
EVENTS = [b'data: {"choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n' % number for number in range(3)]
ANSWER = b"".join([*EVENTS, b"data: [DONE]\n\n"])


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection with `EVENTS`."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    try:
        while True:
            request = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(request.partition(b"content-length:")[2].partition(b"\r\n")[0]))
            writer.write(head)
            for event in [*EVENTS, b"data: [DONE]\n\n"]:
                writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def serve_model(listener: socket.socket) -> None:
    """Run the model server until the process ends."""

    async def run() -> None:
        await (await asyncio.start_server(answer, sock=listener, limit=1 << 20)).serve_forever()

    asyncio.run(run())


@contextmanager
def servers(options: list[str]) -> Iterator[tuple[str, str, int]]:
    """Yield the addresses of the model server and of the proxy, and the proxy's process id."""
    # asyncio turns Nagle's algorithm off only for sockets that name their protocol.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        model = multiprocessing.get_context("fork").Process(target=serve_model, args=(listener,), daemon=True)
        model.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    command = [CTX1, "proxy", "--upstream", url, "--port", "0", "--json", "--log-level", "error", *options]
    proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert proxy.stdout is not None
        yield url, json.loads(proxy.stdout.readline())["url"], proxy.pid
    finally:
        proxy.send_signal(signal.SIGTERM)
        proxy.wait(60)
        model.terminate()


def conversation(seed: int, steps: int, tokens: int) -> dict[str, Any]:
    """Return a request with `steps` tool calls, whose results have about `tokens` tokens together."""
    chance = random.Random(seed)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 9))) for _ in range(400)]
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"What is known about {' '.join(words[:4])}?"}]
    for step in range(steps):
        function = {"name": "search", "arguments": json.dumps({"query": words[step]})}
        call = {"id": f"call_{step}", "type": "function", "function": function}
        text = "\n\n".join(" ".join(chance.choices(words, k=40)) for _ in range(max(1, tokens // steps // 90)))
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"call_{step}", "content": text})
    return {"model": "m", "stream": True, "messages": messages}


def timed(client: httpx.Client, url: str, body: bytes) -> tuple[float, float]:
    """Return the seconds until the first byte of the answer, and until the last."""
    started = time.perf_counter()
    with client.stream("POST", url + PATH, content=body, headers={"Content-Type": "application/json"}) as response:
        chunks = response.iter_raw()
        next(chunks)
        first = time.perf_counter() - started
        for _ in chunks:
            pass
    return first, time.perf_counter() - started


def processor_seconds(process: int) -> float:
    """Return the CPU time that a process has used, in seconds."""
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def overhead(model: str, proxy: str, process: int, options: argparse.Namespace) -> bool:
    """Print the time that the proxy adds. If the median is within the bound, return True."""
    body = json.dumps(conversation(0, 8, options.tokens)).encode()
    seconds: dict[str, list[tuple[float, float]]] = {model: [], proxy: []}
    used = 0.0
    with httpx.Client(timeout=60) as client:
        for number in range(options.requests + 10):
            used = processor_seconds(process) if number == 10 else used
            for url, measured in seconds.items():
                pair = timed(client, url, body)
                if number >= 10:
                    measured.append(pair)
    medians = {
        url: [statistics.median(values) for values in zip(*pairs, strict=True)] for url, pairs in seconds.items()
    }
    print(f"{options.requests} requests of {len(body):,} bytes, one at a time, {os.cpu_count()} cores")
    for name, index in (("first byte", 0), ("whole answer", 1)):
        direct, relayed = medians[model][index], medians[proxy][index]
        added = statistics.median(b[index] - a[index] for a, b in zip(seconds[model], seconds[proxy], strict=True))
        print(
            f"{name}: direct {direct * 1e3:.2f} ms, through the proxy {relayed * 1e3:.2f} ms; "
            f"added, median {added * 1e3:.2f} ms   (bound {BOUND * 1e3:g} ms)"
        )
    used = (processor_seconds(process) - used) / options.requests
    print(f"processor time of the proxy: {used * 1e3:.2f} ms a request")
    return medians[proxy][1] - medians[model][1] <= BOUND


@dataclass
class Tally:
    """Counts of the answers that the clients got."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    wrong: int = 0
    lost: int = 0


async def play(client: httpx.AsyncClient, url: str, seed: int, ends: float, tally: Tally) -> None:
    """Send growing conversations until the time is over."""
    while time.perf_counter() < ends:
        seed += 1_000
        body = conversation(seed, STEPS, 12_000)
        messages = body["messages"]
        for step in range(1, STEPS + 1):
            started = time.perf_counter()
            try:
                response = await client.post(url + PATH, json={**body, "messages": messages[: 1 + 2 * step]})
            except httpx.HTTPError as error:
                tally.lost += 1
                print(f"lost: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            tally.seconds.append(time.perf_counter() - started)
            tally.statuses[str(response.status_code)] += 1
            tally.wrong += response.status_code == 200 and response.content != ANSWER
            tally.outcomes[json.loads(response.headers.get("x-context-pruned", "{}")).get("outcome", "none")] += 1
            if time.perf_counter() >= ends:
                return


async def load(url: str, options: argparse.Namespace) -> Tally:
    """Run all clients, and return the tally of their answers."""
    tally, ends = Tally(), time.perf_counter() + options.seconds
    limits = httpx.Limits(max_connections=options.clients, max_keepalive_connections=options.clients)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:
        await asyncio.gather(*(play(client, url, number, ends, tally) for number in range(options.clients)))
    return tally


def report(tally: Tally, options: argparse.Namespace) -> bool:
    """Print the measurements of the load. If they are within the bounds, return True."""
    errors = sum(tally.statuses.values()) - tally.statuses["200"] + tally.wrong
    ordered = sorted(tally.seconds)
    print(
        f"{options.clients} clients, {options.seconds:g} s: {len(ordered):,} answers, outcomes {dict(tally.outcomes)}"
    )
    print(f"errors {errors}, lost {tally.lost}   (bounds 0 and 0)   by status {dict(tally.statuses)}")
    if ordered:
        print(f"seconds p50 {statistics.median(ordered):.3f}, p99 {ordered[int(len(ordered) * 0.99)]:.3f}")
    return bool(ordered) and not errors and not tally.lost


def main() -> int:
    """Run the benchmark. If a bound is missed, return 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--tokens", type=int, default=16_000, help="size of the conversation within the budget")
    parser.add_argument("proxy", nargs="*", help="options of ctx1 proxy, after --")
    options = parser.parse_args()
    with servers(["--budget", "100000", *options.proxy]) as (model, proxy, process):
        fast = overhead(model, proxy, process, options)
    with servers(options.proxy) as (_, proxy, process):
        before = resident(process)
        sound = report(asyncio.run(load(proxy, options)), options)
        print(f"resident memory {before:.0f} MB before, {resident(process):.0f} MB after")
    return 0 if fast and sound else 1


if __name__ == "__main__":
    sys.exit(main())
