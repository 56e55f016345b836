"""What an integration costs beside the search itself, and what pruning alone keeps and spares.

    python benchmarks/integrations.py [--calls N] [--data FOLDER] [--questions N]

Overhead: the median over N calls of each integration, less the median of `SearchAgent.search` on the same agent; the
calls take turns. In CPU time of all threads, as nothing in them waits and other programs should not count. A scripted
policy (one search, then the ranking) on 200 invented documents in memory. Bound: 3 ms. MCP is the SDK's client,
which checks every answer against the tool's schema, and the server in one event loop, in both forms of the protocol;
traced is the same search with spans that are recorded.

Pruning: with FOLDER (2wiki, hotpotqa, musique: corpus.jsonl.gz and queries.dev.jsonl), the first N dev questions of
each set: of 20 hits of a plain hybrid search, what pruning keeps of the gold documents among them, and of the tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("HAYSTACK_TELEMETRY_ENABLED", "false")

from mcp import Client
from opentelemetry.sdk.trace import TracerProvider

from context_agent import Action, Document, MemoryCorpus, ScriptedPolicy, SearchAgent, ToolCall
from context_agent._support.question_files import load_questions
from context_agent.integrations.dspy import ContextAgentRetriever as DspyRetriever
from context_agent.integrations.functions import SearchTool
from context_agent.integrations.haystack import ContextAgentRetriever as HaystackRetriever
from context_agent.integrations.langchain import ContextAgentRetriever as LangChainRetriever
from context_agent.integrations.llamaindex import ContextAgentRetriever as LlamaIndexRetriever
from context_agent.integrations.mcp import make_server
from context_agent.integrations.otel import Tracing
from context_agent.integrations.pruning import THRESHOLD, prune
from context_agent.retrieval.loaders import load

SYLLABLES = ("ba", "co", "du", "fe", "gi", "ha", "lo", "mi", "nu", "pe", "ra", "so", "ti", "vu", "za")
SETS = ("2wiki", "hotpotqa", "musique")
HITS = 20
THRESHOLDS = (0.0003, THRESHOLD, 0.003, 0.01, 0.05)
BOUND = 3.0
"""Milliseconds."""


def words(draw: random.Random, count: int) -> str:
    """Invented words."""
    return " ".join("".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(count))


def invented() -> MemoryCorpus:
    """200 documents of 60 words."""
    draw = random.Random(3)
    return MemoryCorpus([Document(f"d{n}", words(draw, 60), words(draw, 3), {"n": n}) for n in range(200)])


def overhead(calls: int) -> None:
    """Prints each integration's median over the direct call's."""
    search = Action(calls=(ToolCall("search_corpus", {"query": "bacodu feha", "limit": 10}),))
    corpus, policy = invented(), ScriptedPolicy([search])
    with (
        SearchAgent(corpus, policy) as agent,
        SearchAgent(corpus, policy, observers=[Tracing(provider=TracerProvider())]) as traced,
    ):
        ways = faces(agent) | {"SearchAgent.search, traced": lambda: len(traced.search("bacodu?").documents)}
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for name, call in ways.items():
            assert call() == 10, name
        for _ in range(calls):
            for name, call in ways.items():
                started = time.process_time()
                call()
                taken[name].append((time.process_time() - started) * 1e3)
        report("SearchAgent.search", taken)
        report("SearchAgent.asearch", asyncio.run(over_mcp(agent, calls)))


def report(direct: str, taken: dict[str, list[float]]) -> None:
    """Prints the medians, over that of the direct call."""
    least = statistics.median(taken.pop(direct))
    print(f"{direct:<29} median {least:6.2f} ms")
    for name, times in taken.items():
        over = statistics.median(times) - least
        print(f"{name:<29} median {least + over:6.2f} ms, over it {over:6.2f} ms   (bound {BOUND:g})")


async def over_mcp(agent: SearchAgent, calls: int) -> dict[str, list[float]]:
    """Times of MCP's calls and of direct ones, which take turns in one event loop."""
    async with Client(make_server(agent)) as client, Client(make_server(agent), mode="legacy") as older:

        async def retrieve(client: Client) -> int:
            answer = await client.call_tool("retrieve", {"question": "bacodu?", "k": 10})
            return len((answer.structured_content or {})["documents"])

        async def direct() -> int:
            return len((await agent.asearch("bacodu?")).documents)

        ways = {
            "SearchAgent.asearch": direct,
            "MCP retrieve": lambda: retrieve(client),
            "MCP retrieve, with handshake": lambda: retrieve(older),
        }
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for name, call in ways.items():
            assert await call() == 10, name
        for _ in range(calls):
            for name, call in ways.items():
                started = time.process_time()
                await call()
                taken[name].append((time.process_time() - started) * 1e3)
        return taken


def faces(agent: SearchAgent) -> dict[str, Callable[[], int]]:
    """Each way to ask, as a call that returns the number of documents it got."""
    langchain, llamaindex = LangChainRetriever(agent=agent), LlamaIndexRetriever(agent)
    haystack, dspy, tool = HaystackRetriever.of(agent), DspyRetriever(agent), SearchTool(agent, k=10)
    return {
        "SearchAgent.search": lambda: len(agent.search("bacodu?").documents),
        "LangChain invoke": lambda: len(langchain.invoke("bacodu?")),
        "LangChain ainvoke": lambda: len(asyncio.run(langchain.ainvoke("bacodu?"))),
        "LlamaIndex retrieve": lambda: len(llamaindex.retrieve("bacodu?")),
        "Haystack run": lambda: len(haystack.run("bacodu?")["documents"]),
        "DSPy call": lambda: len(dspy("bacodu?").passages),
        "function for a model": lambda: len(tool.conversation().run({"question": "bacodu?"}).passages),
    }


def pruning(folder: Path, count: int) -> None:
    """Prints, a set and a threshold, the gold kept of that found, and the tokens and passages left."""
    for name in SETS:
        corpus = MemoryCorpus(load([folder / name / "corpus.jsonl.gz"]))
        gold_found = 0
        totals = {threshold: [0, 0, 0] for threshold in THRESHOLDS}
        tokens = passages = 0
        taken = []
        for question in load_questions(folder / name / "queries.dev.jsonl")[:count]:
            hits = corpus.search(question.question, limit=HITS)
            gold = [hit.chunk.document_id in question.gold for hit in hits]
            gold_found += sum(gold)
            passages += len(hits)
            tokens += sum(hit.chunk.tokens for hit in hits)
            started = time.perf_counter()
            scored = prune(question.question, [(hit.chunk.title, hit.chunk.text) for hit in hits], threshold=0)
            taken.append((time.perf_counter() - started) * 1e3)
            for threshold, sums in totals.items():
                kept = [place for place, score in scored if score >= threshold]
                sums[0] += sum(gold[place] for place in kept)
                sums[1] += sum(hits[place].chunk.tokens for place in kept)
                sums[2] += len(kept)
        print(f"\n{name}: {count} dev questions, {HITS} hits each; median {statistics.median(taken):.0f} ms a pruning")
        for threshold, (kept_gold, kept_tokens, kept_passages) in totals.items():
            print(
                f"  threshold {threshold:<6g} keeps {kept_gold / gold_found:.3f} of the gold found, "
                f"{kept_passages / passages:.3f} of the passages, {kept_tokens / tokens:.3f} of the tokens"
            )


def main() -> None:
    """Prints every figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=500)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--questions", type=int, default=200)
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}")
    overhead(options.calls)
    if options.data is not None:
        pruning(options.data, options.questions)


if __name__ == "__main__":
    main()
