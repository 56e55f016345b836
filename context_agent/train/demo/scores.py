"""The measures of the demo's episodes, and means over them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from context_agent._support.atomic_files import replace_file
from context_agent._support.small_files import parse_json
from context_agent.errors import DataError
from context_agent.eval.gold import gold_of
from context_agent.eval.statistics import Figure
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.recorded_calls import SAMPLED_KEY, TokenCall
from context_agent.pruning.view import ActionTaken
from context_agent.retrieval.corpus import Corpus
from context_agent.train.outcome import measure_outcome
from context_agent.train.rewards import RewardConfig, compute_reward
from context_agent.types import Question

MEANS = ("reward", "recall", "seen", "precision", "turns", "searches", "calls", "mistakes", "placed")
"""Measures whose means are reported."""


@dataclass(frozen=True, slots=True)
class DemoScore:
    """The measures of one episode.

    Attributes:
        question: The id of the question.
        hops: Number of hops of the question.
        ending: How the episode ended.
        reward: The reward.
        recall: Recall of the ranking.
        seen: Recall over everything that was encountered.
        precision: Precision of the ranking.
        pruned: Number of pruned chunks.
        pruned_gold: Number of pruned chunks that are gold.
        turns: Number of turns.
        searches: Number of searches.
        calls: Number of tool calls.
        mistakes: Number of calls that could not run.
        placed: Number of tokens that the view would have had without any prune.
        violations: Number of times that the view and the sampled output together exceeded the window.
    """

    question: str
    hops: int
    ending: str
    reward: float
    recall: float
    seen: float
    precision: float
    pruned: int
    pruned_gold: int
    turns: int
    searches: int
    calls: int
    mistakes: int
    placed: int
    violations: int


def score_episode(trajectory: Trajectory, question: Question, corpus: Corpus, rewards: RewardConfig) -> DemoScore:
    """Return the measures of a whole episode.

    Args:
        trajectory: The record of the episode.
        question: The question.
        corpus: The corpus.
        rewards: The reward settings.

    Returns:
        The measures.

    Raises:
        DataError: If the episode was aborted.
    """
    outcome = measure_outcome(trajectory, question, gold_of(question, corpus))
    assert trajectory.end is not None
    return DemoScore(
        question=question.id,
        hops=question.hops or 1,
        ending=outcome.ending.value,
        reward=compute_reward(outcome, rewards).total,
        recall=outcome.recall,
        seen=outcome.seen,
        precision=outcome.precision,
        pruned=outcome.pruned,
        pruned_gold=outcome.pruned_gold,
        turns=outcome.turns,
        searches=len(outcome.queries),
        calls=sum(outcome.calls),
        mistakes=outcome.mistakes,
        placed=trajectory.end.tokens,
        violations=budget_violations(trajectory),
    )


def budget_violations(trajectory: Trajectory) -> int:
    """Replay an episode, and count how often its view and the sampled output together exceeded the window.

    If an action records its sampled ids, the lengths of its prompt and its output are taken from the record.
    """
    window, count, tokens = trajectory.header.budget.window, 0, 0
    for event, after in trajectory.replay():
        if isinstance(event, ActionTaken):
            has_token_call = SAMPLED_KEY in event.action.extra
            call = TokenCall.from_extra(event.action.extra) if has_token_call else None
            sampled = len(call.output) if call else 0 if has_token_call else event.tokens
            sent = call.reused + len(call.new) if call else 0
            count += max(tokens, sent) + sampled > window
        tokens = after.tokens
    return count + (tokens > window)


def summarize(scores: Sequence[DemoScore]) -> dict[str, Any]:
    """Return means with their 95% intervals over tasks, and counts over all episodes."""
    pruned = sum(score.pruned for score in scores)
    means: dict[str, Any] = {
        name: asdict(Figure.of([float(getattr(score, name)) for score in scores])) for name in MEANS
    }
    return means | {
        "episodes": len(scores),
        "median_placed": median(score.placed for score in scores),
        "pruning": fmean(score.pruned > 0 for score in scores),
        "prune_accuracy": 1 - sum(score.pruned_gold for score in scores) / pruned if pruned else None,
        "finished": fmean(score.ending == "finished" for score in scores),
        "violations": sum(score.violations for score in scores),
    }


def paired_gain(scores: Sequence[DemoScore], reference: Sequence[DemoScore]) -> Figure:
    """Return the mean paired difference in recall, with its interval. Raise `DataError` if the tasks differ."""
    return Figure.of(paired_differences(scores, reference))


def paired_differences(
    scores: Sequence[DemoScore], reference: Sequence[DemoScore], measure: str = "recall"
) -> list[float]:
    """Return the differences between the scores and the reference, task by task.

    Args:
        scores: The scores.
        reference: The scores to subtract, of the same tasks.
        measure: The measure that is compared.

    Returns:
        A difference for each task.

    Raises:
        DataError: If the tasks differ.
    """
    if [score.question for score in scores] != [score.question for score in reference] or not scores:
        raise DataError("two evaluations to compare must have the same questions, and at least one")
    return [float(getattr(a, measure)) - float(getattr(b, measure)) for a, b in zip(scores, reference, strict=True)]


def save_scores(path: Path, scores: Sequence[DemoScore], about: Mapping[str, Any]) -> None:
    """Write the scores of an evaluation, completely or not at all.

    Args:
        path: The file.
        scores: The scores.
        about: The settings of the evaluation.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"about": about}, *(asdict(score) for score in scores)]
    replace_file(path, "".join(json.dumps(line) + "\n" for line in lines))


def load_scores(path: Path, about: Mapping[str, Any] | None = None) -> list[DemoScore] | None:
    """Return the scores in a file.

    Args:
        path: The file.
        about: The settings of the evaluation. None accepts any.

    Returns:
        The scores. None if the file does not exist or belongs to another evaluation.

    Raises:
        DataError: If the file is damaged.
    """
    if not path.is_file():
        return None
    try:
        first, *rest = [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if about is not None and first["about"] != json.loads(json.dumps(about)):
            return None
        return [DemoScore(**row) for row in rest]
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{path} is not an evaluation ({error}). Delete it to repeat the evaluation.") from None
