"""Compare a swarm with one agent: the embedded policy, real questions, equal tokens. Needs no language model and no
GPU.

    python benchmarks/swarm.py --data FOLDER [--sets musique,hotpotqa] [--split dev] [--windows 4096,8192]
        [--breadth 4] [--tokens-of WINDOW] [--cache FOLDER] [--limit N] [--json]

For each set and window, one agent answers every question by itself. Then a swarm answers it. All agents of the swarm
together may use as many tokens as the one agent did for that question. Both have the same window. With `--tokens-of`,
the limit is what an agent with that window used instead.

The program prints recall@5 of both, the swarm's gain with its paired bootstrap 95% interval over questions, and the
tokens placed. It also prints the critical steps, which are the actions that had to wait for each other, including the
ranking. Their ratio should be at most .5 while recall is not lower.

A set is a folder with `corpus.jsonl.gz` (`id`, `title`, `text`) and `queries.SPLIT.jsonl` (`id`, `question`, `gold`).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from multihop import build, embedders, load_chunks, recall

from context_agent._support.question_files import load_questions
from context_agent.agent import SearchAgent, SearchResult
from context_agent.eval.statistics import Figure
from context_agent.harness.episode import Limits
from context_agent.policies.bridge import BridgePolicy
from context_agent.retrieval.corpus import Corpus
from context_agent.swarm import Swarm
from context_agent.types import Question


@dataclass(frozen=True)
class Answer:
    """The figures of one answer of one system."""

    recall: float
    seen: float
    tokens: int
    steps: int
    seconds: float

    @classmethod
    def of(cls, result: SearchResult, question: Question, seconds: float) -> Answer:
        """Return the figures of a result."""
        gold = set(question.gold)
        encountered = {
            document_id
            for trajectory in (*result.trajectories, *result.searchers)
            for document_id in trajectory.encountered
        }
        recall_at_5 = recall((document.id for document in result.documents), question.gold)
        return cls(recall_at_5, len(encountered & gold) / len(gold), result.tokens, result.critical_steps, seconds)


def alone(corpus: Corpus, policy: BridgePolicy, questions: Sequence[Question], window: int) -> list[Answer]:
    """Return the answers of one agent, limited by its window."""
    with SearchAgent(corpus, policy, budget=window) as agent:
        return [answer(agent, question) for question in questions]


def together(
    corpus: Corpus,
    policy: BridgePolicy,
    questions: Sequence[Question],
    *,
    window: int,
    swarm: Swarm,
    limits: Sequence[int],
) -> list[Answer]:
    """Return the answers of the swarm. Each question has its own limit on the tokens of all agents."""
    answers = []
    for question, limit in zip(questions, limits, strict=True):
        with SearchAgent(corpus, policy, budget=window, limits=Limits(tokens=limit), swarm=swarm) as agent:
            answers.append(answer(agent, question))
    return answers


def answer(agent: SearchAgent, question: Question) -> Answer:
    """Answer one question, and measure the time."""
    started = time.perf_counter()
    result = agent.search(question.question)
    return Answer.of(result, question, time.perf_counter() - started)


def compare(swarm: Sequence[Answer], agent: Sequence[Answer]) -> dict[str, object]:
    """Return the figures of the swarm and of the agent."""
    gain = Figure.of([a.recall - b.recall for a, b in zip(swarm, agent, strict=True)])
    steps = [_mean([answer.steps for answer in side]) for side in (agent, swarm)]
    return {
        "questions": len(swarm),
        **{f"recall_{name}": Figure.of([answer.recall for answer in side]).mean for name, side in _sides(swarm, agent)},
        "gain": [gain.mean, gain.low, gain.high],
        **{f"seen_{name}": _mean([answer.seen for answer in side]) for name, side in _sides(swarm, agent)},
        **{f"tokens_{name}": _mean([answer.tokens for answer in side]) for name, side in _sides(swarm, agent)},
        "steps_agent": steps[0],
        "steps_swarm": steps[1],
        "ratio": steps[1] / steps[0],
        **{f"ms_{name}": 1000 * _mean([answer.seconds for answer in side]) for name, side in _sides(swarm, agent)},
    }


def _sides(swarm: Sequence[Answer], agent: Sequence[Answer]) -> list[tuple[str, Sequence[Answer]]]:
    return [("agent", agent), ("swarm", swarm)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def main() -> int:
    """Print a line for each set and window."""
    options = _options()
    (embedder,) = embedders("static", options.cache)
    policy = BridgePolicy()
    swarm = Swarm(breadth=options.breadth)
    print(_HEAD if not options.json else "", end="", flush=True)
    for name in options.sets.split(","):
        corpus = build(load_chunks(options.data / name), embedder, shuffle=None, only=None)
        questions = load_questions(options.data / name / f"queries.{options.split}.jsonl")[: options.limit]
        for window in map(int, options.windows.split(",")):
            agent = alone(corpus, policy, questions, window)
            spent = agent if not options.tokens_of else alone(corpus, policy, questions, options.tokens_of)
            limits = [answer.tokens for answer in spent]
            swarm_answers = together(corpus, policy, questions, window=window, swarm=swarm, limits=limits)
            _show(
                {"set": name, "split": options.split, "window": window, **compare(swarm_answers, agent)}, options.json
            )
        embedder.save()
    return 0


_HEAD = (
    "set       window    n  recall@5: agent  swarm  gain                     tokens: agent  swarm"
    "  critical steps: agent swarm ratio\n"
)


def _show(row: dict[str, object], as_json: bool) -> None:
    if as_json:
        print(json.dumps(row), flush=True)
        return
    gain = Figure(*row["gain"])  # type: ignore[misc]
    print(
        f"{row['set']:9} {row['window']:6} {row['questions']:4} {row['recall_agent']:16.3f} {row['recall_swarm']:6.3f}"
        f"  {gain!s:24} {row['tokens_agent']:13,.0f} {row['tokens_swarm']:6,.0f} {row['steps_agent']:22.2f} "
        f"{row['steps_swarm']:5.2f} {row['ratio']:5.2f}",
        flush=True,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with a folder a set")
    parser.add_argument("--sets", default="musique,hotpotqa")
    parser.add_argument("--split", default="dev", choices=("train", "dev"))
    parser.add_argument("--windows", default="4096,8192", help="tokens, comma-separated")
    parser.add_argument("--tokens-of", type=int, metavar="WINDOW", help="limit by what an agent with this window spent")
    parser.add_argument("--breadth", type=int, default=4)
    parser.add_argument("--cache", type=Path, default=Path(".cache/multihop"), help="keeps vectors")
    parser.add_argument("--limit", type=int, help="questions a set at most")
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
