"""Measure how much evidence pruning keeps in results of real tools, with each strategy at the same share of tokens.

    python benchmarks/prune_tools.py [--data benchmarks/data/tool-results/test] [--kinds grep,app-log]
        [--limit 10] [--strategies thorough,careful,fast,age,bm25,embedding,random,oracle,clear,headroom,
        careful@headroom,claw,careful@claw] [--shares 0.25,0.1]
        [--seed 0] [--json FILE]

A labeled result is a tool result, a task that somebody gave an agent, and the lines that the agent needs for it. Each
conversation has one labeled result with evidence among 3 to 11 other results, about half of them of the same kind. A
short unrelated call ends it, because the last turn always stays. The draw depends on the seed and the labeled result
alone.

Evidence kept is the share of the labeled lines that are still in the conversation, with a bootstrap 95% interval over
conversations. `tokens` is the share of the tool results' tokens that remains, stubs included. `ms` is the median CPU
time of one prune. The last lines pool all kinds; the figures of single kinds are rough, because a kind has few
conversations.

`clear`, `headroom` and `claw` are the pruners of `prune_rivals.py`, if they are installed. The last two choose their
size themselves. `careful@headroom` is `careful` with as many tokens as headroom left, and the program prints its margin
over headroom. Another pruner also keeps a line if it writes the values of a JSON record on one line.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prune_any import ALWAYS, pruner_of
from prune_conversations import COUNTER, Message
from prune_rivals import RIVALS, results_of, says, tokens_left

from context_agent.eval.statistics import Figure
from context_agent.pruning import ContextPruner

DATA = Path(__file__).parent / "data" / "tool-results" / "test"
STRATEGIES = ("thorough", "careful", "fast", "age", "bm25", "embedding", "random", "oracle")
OTHERS = (3, 11)
"""Minimum and maximum number of other results of a conversation."""
MOST_TOKENS = 16_000
"""No further result is added to a conversation that has as many tokens."""


@dataclass(frozen=True, slots=True)
class LabeledResult:
    """A tool result with one of its tasks.

    Attributes:
        id: The id of the result, with the number of the task.
        kind: The kind of tool.
        tool: The name of the tool.
        arguments: The arguments of the call.
        result: The text of the result.
        task: The task of the agent.
        step: The agent's own words when it made the call.
        evidence: The parts of the result that the task needs.
    """

    id: str
    kind: str
    tool: str
    arguments: dict[str, Any]
    result: str
    task: str
    step: str
    evidence: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ToolConversation:
    """A conversation with one labeled result.

    Attributes:
        labeled: The labeled result.
        messages: The messages, in OpenAI's chat format.
        index: The number of the labeled result among the results.
    """

    labeled: LabeledResult
    messages: list[Message]
    index: int


def load_results(folders: Sequence[Path]) -> list[LabeledResult]:
    """Return all labeled results of the folders."""
    results = []
    for file in sorted(file for folder in folders for file in folder.glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            results += [
                LabeledResult(
                    f"{row['id']}/{number}", row["kind"], row["tool"], row["arguments"], row["result"],
                    task["task"], task["step"], tuple(task["evidence"]),
                )
                for number, task in enumerate(row["tasks"])
            ]  # fmt: skip
    return results


class ToolConversations:
    """Conversations that are composed from labeled results.

    Args:
        results: The labeled results.
        seed: The seed of the draw.
    """

    def __init__(self, results: Sequence[LabeledResult], seed: int = 0) -> None:
        self.labeled = [result for result in results if result.evidence]
        self._seed = seed
        self._by_kind: dict[str, dict[str, LabeledResult]] = {}
        for result in results:
            self._by_kind.setdefault(result.kind, {})[result.result] = result
        self._all = [result for same in self._by_kind.values() for result in same.values()]

    def conversation(self, labeled: LabeledResult) -> ToolConversation:
        """Return the conversation of one labeled result."""
        draw = random.Random(f"{self._seed}:{labeled.id}")
        same = [*self._by_kind[labeled.kind].values()]
        chosen: list[LabeledResult] = [labeled]
        tokens = COUNTER.count(labeled.result)
        for _ in range(draw.randint(*OTHERS)):
            other = draw.choice(same if draw.random() < 0.5 else self._all)
            if tokens < MOST_TOKENS and all(other.result != it.result for it in chosen):
                chosen.append(other)
                tokens += COUNTER.count(other.result)
        draw.shuffle(chosen)
        messages: list[Message] = [
            {"role": "system", "content": "You are a careful agent. Use the tools, then answer."},
            {"role": "user", "content": labeled.task},
        ]
        for number, result in enumerate(chosen):
            # The words of an agent with another task would not be in this conversation.
            words = (result.step or None) if result is labeled else None
            messages += _called(number, result.tool, result.arguments, result.result, words)
        messages += _called(len(chosen), "note", {"text": "Next I will write the answer."}, "saved", None)
        return ToolConversation(labeled, messages, chosen.index(labeled))


def _called(number: int, tool: str, arguments: dict[str, Any], result: str, words: str | None) -> list[Message]:
    function = {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False)}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": words, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": result},
    ]


@dataclass(frozen=True, slots=True)
class Kept:
    """What a strategy kept in one conversation."""

    kind: str
    evidence: float
    tokens: float
    seconds: float


def measure(conversation: ToolConversation, strategy: str, share: float) -> Kept | None:
    """Prune a conversation, and return the shares of the evidence and of the tokens that stayed.

    If the package of another pruner is missing, return None.
    """
    before = conversation.messages
    total = sum(map(COUNTER.count, results_of(before)))
    strategy_run, _, rival = strategy.partition("@")
    budget = max(1, int(share * total))
    if rival:
        as_many = tokens_left(rival, before, budget)
        if as_many is None:
            return None
        budget = as_many
    pruner = None if strategy_run in RIVALS else pruner_of(strategy_run, budget, conversation.labeled.evidence)
    started = time.process_time()
    messages = RIVALS[strategy_run](before, budget) if pruner is None else pruner.prune(before).messages
    seconds = time.process_time() - started
    if messages is None:
        return None
    # Only the labeled result counts: the same line in another result says something else.
    left = results_of(messages)[conversation.index]
    holds = is_kept if pruner is not None else lambda text, part: is_kept(text, part) or says(text, part)
    evidence = statistics.mean(holds(left, part) for part in conversation.labeled.evidence)
    tokens = sum(map(COUNTER.count, results_of(messages))) / total
    return Kept(conversation.labeled.kind, evidence, tokens, seconds)


def is_kept(text: str, part: str) -> bool:
    """Return True if each line of the part is still in the text."""
    return all(line.strip() in text for line in part.split("\n"))


def conversations(options: argparse.Namespace) -> Iterator[ToolConversation]:
    """Yield the first conversations of each kind. A result has a second one only after each result has one."""
    composed = ToolConversations(load_results(options.data), options.seed)
    kinds = options.kinds.split(",") if options.kinds else sorted({result.kind for result in composed.labeled})
    for kind in kinds:
        own = [result for result in composed.labeled if result.kind == kind]
        own.sort(key=lambda result: result.id.rpartition("/")[2])
        yield from map(composed.conversation, own[: options.limit])


def show(share: float, rows: dict[str, list[Kept]]) -> dict[str, Any]:
    """Print the table of one share, and return it as data."""
    strategies = [*rows]
    kinds = sorted({row.kind for row in rows[strategies[0]]})
    number = len(rows[strategies[0]])
    widths = [max(10, len(it) + 2) for it in strategies]
    header = "".join(f"{it:>{width}}" for it, width in zip(strategies, widths, strict=True))
    print(f"\n{share:.0%} of the tokens: {number} conversations\n{'':22}{header}")
    for kind in kinds:
        means = [statistics.mean(row.evidence for row in rows[it] if row.kind == kind) for it in strategies]
        print(f"{kind:22}" + "".join(f"{mean:{width}.3f}" for mean, width in zip(means, widths, strict=True)))
    data: dict[str, Any] = {}
    for strategy in strategies:
        figure = Figure.of([row.evidence for row in rows[strategy]])
        tokens = statistics.mean(row.tokens for row in rows[strategy])
        milliseconds = 1e3 * statistics.median(row.seconds for row in rows[strategy])
        print(f"{strategy:22}{figure!s:24} tokens {tokens:.3f}, {milliseconds:,.0f} ms")
        data[strategy] = {"evidence": asdict(figure), "tokens": tokens, "milliseconds": milliseconds}
    for strategy, rival in ((name, name.partition("@")[2]) for name in strategies):
        if rival in rows:
            gains = [own.evidence - other.evidence for own, other in zip(rows[strategy], rows[rival], strict=True)]
            print(f"{strategy} less {rival}: {Figure.of(gains)}")
    return data


def main() -> None:
    """Print a table for each share of the tokens."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", default=[DATA], help="folders of labeled results")
    parser.add_argument("--kinds", default="", help="kinds of results; all by default")
    parser.add_argument("--limit", type=int, default=10, help="conversations of a kind")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--shares", default="0.25,0.1", help="shares of the tokens that may remain")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    composed = [*conversations(options)]
    # The first prune loads the models.
    ContextPruner(1, prices=ALWAYS).prune(composed[0].messages)
    data = {}
    for share in map(float, options.shares.split(",")):
        rows = {}
        for strategy in options.strategies.split(","):
            kept = [measure(conversation, strategy, share) for conversation in composed]
            # All are None if the package of another pruner is missing.
            rows[strategy] = [row for row in kept if row is not None]
        data[share] = show(share, {strategy: kept for strategy, kept in rows.items() if kept})
    if options.json:
        options.json.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
