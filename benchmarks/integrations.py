"""Measure the overhead of each integration, and the share of gold and tokens that pruning alone keeps.

    python benchmarks/integrations.py [--calls N] [--data FOLDER] [--questions N]

Overhead is the median over N calls of an integration, minus the median of `SearchAgent.search` on the same agent. The
calls alternate. They are measured in CPU time of all threads, because calls do not wait, and because other programs
should not count. A scripted policy (one search, then the ranking) runs over 200 random documents in memory. The bound
is 3 ms. For MCP, the SDK's client and the server run in one event loop, with both versions of the protocol. The client
validates every answer. "Traced" is the same search with recorded spans.

Pruning needs `--data`, a folder with the sets 2wiki, hotpotqa and musique (corpus.jsonl.gz and queries.dev.jsonl). For
each of the first N dev questions of a set, a hybrid search returns 20 hits. The program prints the share of the gold
documents and of the tokens that pruning keeps.
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
from context_agent.integrations.mcp.server import make_server
from context_agent.integrations.otel import Tracing
from context_agent.integrations.passage_pruning import THRESHOLD, prune
from context_agent.retrieval.loaders import load

SYLLABLES = ("ba", "co", "du", "fe", "gi", "ha", "lo", "mi", "nu", "pe", "ra", "so", "ti", "vu", "za")
SETS = ("2wiki", "hotpotqa", "musique")
HITS = 20
THRESHOLDS = (0.001, 0.003, THRESHOLD, 0.03, 0.1)
BOUND = 3.0
"""The maximum overhead, in milliseconds."""


def words(draw: random.Random, count: int) -> str:
    """Return random words."""
    return " ".join("".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(count))


def random_corpus() -> MemoryCorpus:
    """Return a corpus of 200 documents of 60 words."""
    draw = random.Random(3)
    return MemoryCorpus(
        [Document(f"d{n}", words(draw, 60), words(draw, 3), {"n": n}) for n in range(200)], embedder="static"
    )


def overhead(calls: int) -> None:
    """Print the median of each integration and of the direct call."""
    search = Action(calls=(ToolCall("search_corpus", {"query": "bacodu feha", "limit": 10}),))
    corpus, policy = random_corpus(), ScriptedPolicy([search])
    with (
        SearchAgent(corpus, policy) as agent,
        SearchAgent(corpus, policy, observers=[Tracing(provider=TracerProvider())]) as traced,
    ):
        calls_by_name = framework_calls(agent) | {
            "SearchAgent.search, traced": lambda: len(traced.search("bacodu?").documents)
        }
        times: dict[str, list[float]] = {name: [] for name in calls_by_name}
        for name, call in calls_by_name.items():
            assert call() == 10, name
        for _ in range(calls):
            for name, call in calls_by_name.items():
                started = time.process_time()
                call()
                times[name].append((time.process_time() - started) * 1e3)
        report("SearchAgent.search", times)
        report("SearchAgent.asearch", asyncio.run(over_mcp(agent, calls)))


def report(direct: str, times_by_call: dict[str, list[float]]) -> None:
    """Print the medians, and their differences from the median of the direct call."""
    direct_median = statistics.median(times_by_call.pop(direct))
    print(f"{direct:<29} median {direct_median:6.2f} ms")
    for name, times in times_by_call.items():
        over = statistics.median(times) - direct_median
        print(f"{name:<29} median {direct_median + over:6.2f} ms, overhead {over:6.2f} ms   (bound {BOUND:g})")


async def over_mcp(agent: SearchAgent, calls: int) -> dict[str, list[float]]:
    """Return the times of MCP calls and of direct calls, which alternate in one event loop."""
    async with Client(make_server(agent)) as client, Client(make_server(agent), mode="legacy") as legacy:

        async def retrieve(client: Client) -> int:
            answer = await client.call_tool("retrieve", {"question": "bacodu?", "k": 10, "detail": "full"})
            return len((answer.structured_content or {})["documents"])

        async def direct() -> int:
            return len((await agent.asearch("bacodu?")).documents)

        calls_by_name = {
            "SearchAgent.asearch": direct,
            "MCP retrieve": lambda: retrieve(client),
            "MCP retrieve, with handshake": lambda: retrieve(legacy),
        }
        times: dict[str, list[float]] = {name: [] for name in calls_by_name}
        for name, call in calls_by_name.items():
            assert await call() == 10, name
        for _ in range(calls):
            for name, call in calls_by_name.items():
                started = time.process_time()
                await call()
                times[name].append((time.process_time() - started) * 1e3)
        return times


def framework_calls(agent: SearchAgent) -> dict[str, Callable[[], int]]:
    """Return a function for each framework that makes one call and returns the number of documents it got."""
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
    """Print the shares of gold, passages and tokens that pruning keeps, for each set and threshold."""
    for name in SETS:
        corpus = MemoryCorpus(load([folder / name / "corpus.jsonl.gz"]), embedder="static")
        gold_found = 0
        totals = {threshold: [0, 0, 0] for threshold in THRESHOLDS}
        tokens = passages = 0
        times = []
        for question in load_questions(folder / name / "queries.dev.jsonl")[:count]:
            hits = corpus.search(question.question, k=HITS)
            gold = [hit.chunk.document_id in question.gold for hit in hits]
            gold_found += sum(gold)
            passages += len(hits)
            tokens += sum(hit.chunk.tokens for hit in hits)
            started = time.perf_counter()
            scored = prune(question.question, [(hit.chunk.title, hit.chunk.text) for hit in hits], threshold=0)
            times.append((time.perf_counter() - started) * 1e3)
            for threshold, sums in totals.items():
                kept_indices = [index for index, score in scored if score >= threshold]
                sums[0] += sum(gold[index] for index in kept_indices)
                sums[1] += sum(hits[index].chunk.tokens for index in kept_indices)
                sums[2] += len(kept_indices)
        print(f"\n{name}: {count} dev questions, {HITS} hits each; median {statistics.median(times):.0f} ms a pruning")
        for threshold, (kept_gold, kept_tokens, kept_passages) in totals.items():
            print(
                f"  threshold {threshold:<6g} keeps {kept_gold / gold_found:.3f} of the gold found, "
                f"{kept_passages / passages:.3f} of the passages, {kept_tokens / tokens:.3f} of the tokens"
            )


def main() -> None:
    """Print every figure."""
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
