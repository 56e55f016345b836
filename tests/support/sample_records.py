"""Generated records of a run: two benchmarks, a one-shot system, an agent with and without pruning, two seeds."""

from __future__ import annotations

import random
from collections.abc import Iterator

from context_agent.eval.metrics import METRICS, MetricKind
from context_agent.eval.records import EvalRecord, TurnState

WINDOWS = (2048, 8192)
SKILL = {"bm25": 0.4, "agent": 0.75, "agent-unpruned": 0.65}
ORDER = tuple(SKILL)


def made_records(questions: int = 24, seeds: int = 2) -> list[EvalRecord]:
    """Make the records. Every call returns the same ones."""
    return [
        record
        for benchmark in ("hotpotqa", "musique")
        for system in ORDER
        for window in ((0,) if system == "bm25" else WINDOWS)
        for record in _cell(benchmark, system, window, questions, 1 if system == "bm25" else seeds)
    ]


def _cell(benchmark: str, system: str, window: int, questions: int, seeds: int) -> Iterator[EvalRecord]:
    for number in range(questions):
        for seed in range(seeds):
            draw = random.Random(f"{benchmark}{system}{window}{number}{seed}")
            failed = system != "bm25" and number % 11 == 5 and seed == 0
            yield _record(benchmark, system, window, number, seed, draw=draw, failed=failed)


def _record(
    benchmark: str, system: str, window: int, number: int, seed: int, *, draw: random.Random, failed: bool
) -> EvalRecord:
    one_shot = system == "bm25"
    shift = {"hotpotqa": 0.1, "musique": -0.1}[benchmark] + (0.1 if window == WINDOWS[1] else 0)
    recall = 0.0 if failed else sum(draw.random() < SKILL[system] + shift for _ in range(4)) / 4
    curve = () if one_shot or failed else _curve(draw, recall, prunes=system == "agent")
    return EvalRecord(
        benchmark=benchmark,
        system=system,
        window=window,
        seed=seed,
        question=f"q{number:03d}",
        type=("bridge", "comparison")[number % 2],
        hops=2 + number % 3,
        scores=_scores(recall, curve, one_shot, failed, answered=number % 6 != 0),
        stop_reason="" if failed else "finished",
        error="the server is down" if failed else None,
        seconds=0.01 + draw.random() / 10,
        curve=curve,
        ranking=tuple(f"d{rank}" for rank in range(5)),
    )


def _curve(draw: random.Random, recall: float, *, prunes: bool) -> tuple[TurnState, ...]:
    tokens, pruned, gold, turns = 300, 0, 0, []
    last_turn = draw.randint(2, 7)
    for turn in range(1, last_turn + 1):
        tokens += draw.randint(300, 1500)
        if prunes and turn > 1:
            batch = draw.randint(0, 4)
            pruned, gold = pruned + batch, gold + (batch > 0 and draw.random() < 0.3)
        seen_recall = round(min(1.0, recall + 0.1) * turn / last_turn, 6)
        turns.append(
            TurnState(
                turn, tokens, tokens - 150 * pruned, seen_recall, max(0.0, seen_recall - 0.1 * gold), pruned, gold
            )
        )
    return tuple(turns)


def _scores(
    recall: float, curve: tuple[TurnState, ...], one_shot: bool, failed: bool, *, answered: bool
) -> dict[str, float | None]:
    scores: dict[str, float | None] = {}
    for metric in METRICS.values():
        if metric.name == "seconds":
            continue
        of_context = metric.kind is not MetricKind.QUALITY or metric.name in ("trajectory_recall", "held_recall")
        if (one_shot and of_context) or (failed and metric.kind is not MetricKind.QUALITY):
            scores[metric.name] = None
        elif metric.kind is MetricKind.QUALITY:
            scores[metric.name] = recall
        else:
            scores[metric.name] = float(len(curve))
    if not answered:
        scores["answer_found"] = None
    if curve:
        last_turn = curve[-1]
        scores["trajectory_recall"], scores["held_recall"] = last_turn.seen, last_turn.held
        scores["tokens"] = float(last_turn.tokens)
        scores["prune_accuracy"] = 1 - last_turn.pruned_gold / last_turn.pruned if last_turn.pruned else None
        scores["money"] = None
    return scores
