"""Measure how much time the chat policy adds to a turn, apart from the model's own time.

    python benchmarks/chat_overhead.py [--repeats N]

A view of 32k tokens grows from real searches over invented documents, three searches a turn. Some blocks are pruned
again. The program prints:

- the CPU time of building the messages (bound 10 ms);
- the CPU time of reading a reply;
- the wall time of a whole action (bound 10 ms): messages, JSON, HTTP in both directions, and reading.

The model is a scripted server in this process, which answers at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import statistics
import time
from collections.abc import Callable
from functools import partial

from context_agent import Action, Budget, Document, Episode, MemoryCorpus, ToolCall, View
from context_agent.harness.profile import default
from context_agent.policies.chat import ChatPolicy
from context_agent.policies.chat.messages import ToolFormat, messages
from context_agent.policies.chat.replies import read_reply
from context_agent.policies.chat.scripted_server import ScriptedServer, says
from context_agent.policies.chat.text_calls import parse_calls, written

SYLLABLES = ("ba", "co", "du", "fe", "gi", "ha", "lo", "mi", "nu", "pe", "ra", "so", "ti", "vu", "za")
WINDOW = 48_000
TARGET = 32_000


def words(draw: random.Random, count: int) -> str:
    """Return invented words."""
    return " ".join("".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(count))


async def grown(policy: ChatPolicy) -> View:
    """Return a view of `TARGET` tokens that grew from searches and reasoning. Every fourth block was pruned."""
    draw = random.Random(5)
    corpus = MemoryCorpus([Document(f"d{n}", words(draw, 120), words(draw, 3)) for n in range(600)], embedder="static")
    budget = Budget(WINDOW, soft=WINDOW - 2_000, hard=WINDOW - 1_000, per_call=2_000)
    episode = Episode("Which comet?", corpus, budget=budget, instructions=policy.instructions(default()))
    view = episode.open()
    while view.tokens < TARGET:
        calls = [ToolCall("search_corpus", {"query": words(draw, 5), "limit": 4}, f"call_{n}") for n in range(3)]
        calls += [ToolCall("prune_chunks", {"chunk_ids": [block.id for block in view.blocks[-12::4]] or ["none"]}, "p")]
        extra = {"reasoning_field": "reasoning"}
        view = await episode.step(Action(calls=tuple(calls), reasoning=words(draw, 60), extra=extra))
    return view


def milliseconds(work: Callable[[], object], repeats: int) -> list[float]:
    """Return the CPU time of each of `repeats` runs, in milliseconds."""
    taken = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        taken.append((time.process_time() - started) * 1e3)
    return taken


async def actions(policy: ChatPolicy, view: View, repeats: int) -> list[float]:
    """Return the wall time of each of `repeats` actions, in milliseconds.

    The connection is already open before the first one.
    """
    actor = policy.open(view.question, MemoryCorpus([Document("d", "d")], embedder="static"), profile=default())
    await actor.act(view)
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        await actor.act(view)
        taken.append((time.perf_counter() - started) * 1e3)
    return taken


def line(name: str, taken: list[float], bound: str = "") -> None:
    """Print one figure."""
    print(f"{name:<28} median {statistics.median(taken):6.2f} ms   slowest {max(taken):6.2f} ms   {bound}")


def main() -> None:
    """Print every figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50)
    repeats = parser.parse_args().repeats
    print(f"Python {platform.python_version()}, {platform.machine()}")
    reply = says(calls=[("search_corpus", {"query": "comets"})] * 3, reasoning="So. " * 200, usage={"prompt_tokens": 1})
    protocols: tuple[ToolFormat, ...] = ("native", "text")
    for protocol in protocols:
        with ScriptedServer([reply] * (repeats + 1)) as server:
            policy = ChatPolicy("scripted", base_url=server.url, tools=protocol)
            view = asyncio.run(grown(policy))
            print(
                f"\n{protocol}: a view of {view.tokens:,} tokens, {view.turn} turns, {len(view.blocks)} blocks in view"
            )
            line(
                "build the messages",
                milliseconds(partial(messages, view, default(), tool_format=protocol), repeats),
                "(bound 10)",
            )
            line(
                "a whole action", asyncio.run(actions(policy, view, repeats)), "(bound 10, wall, with the server's own)"
            )
    body = {"choices": [{"message": reply.message, "finish_reason": "tool_calls"}]}
    line("\nread a reply", milliseconds(lambda: read_reply([json.loads(json.dumps(body))]), repeats))
    text = "So. " * 200 + written(ToolCall("search_corpus", {"query": "comets"})) * 3
    line("read a reply in text", milliseconds(lambda: parse_calls(text), repeats))


if __name__ == "__main__":
    main()
