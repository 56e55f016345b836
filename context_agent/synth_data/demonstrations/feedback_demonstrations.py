"""Demonstrations from user feedback: judged trajectories that are worth imitating.

A trajectory is scored by the verdicts on its question. `helpful` and `bad` count the relevant and irrelevant documents
of its ranking. `missed` counts the relevant documents that it does not rank. The first of these rules that applies
drops the trajectory:

1. `unknown`: its file does not exist. `torn`: the file is truncated. `unsound`: the file does not replay.
2. `unfinished`: it did not end with its own ranking. `mistakes`: it made more than `mistakes` mistakes.
3. `poor rating`: it was rated, and the mean of its ratings is below `rating`.
4. `bad documents`: its ranking has more than `bad` irrelevant documents.
5. `nothing good`: no document of its ranking was judged relevant, and nobody rated it.
6. `changed`: a replay check was requested, and it found a difference.
7. `another is better`: only the best `per_question` trajectories of each question stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from context_agent.errors import ConfigError, TrajectoryError
from context_agent.harness.episode import StopReason
from context_agent.harness.trajectory import Trajectory
from context_agent.integrations.feedback import FeedbackLog, Judgment
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.demonstrations.feedback_tasks import question_verdicts
from context_agent.synth_data.demonstrations.replayed_files import (
    ReplayResult,
    ReplaySettings,
    check_file,
    read_or_problem,
)
from context_agent.synth_data.demonstrations.selection import ReplayRow

FEEDBACK_RULES = (
    "unknown",
    "torn",
    "unsound",
    "unfinished",
    "mistakes",
    "poor rating",
    "bad documents",
    "nothing good",
    "changed",
    "another is better",
)
"""The rules that drop a judged trajectory, in the order in which they apply."""


@dataclass(frozen=True, slots=True)
class FeedbackFilters:
    """The limits of the rules, which the module's docstring describes.

    Attributes:
        rating: The smallest mean rating of a trajectory, from 1 to 5.
        bad: The largest number of irrelevant documents in a ranking.
        mistakes: The largest number of mistakes in an episode.
        per_question: The number of trajectories to keep for each question. 0 keeps all.
    """

    rating: float = 4.0
    bad: int = 0
    mistakes: int = 2
    per_question: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.rating <= 5 or min(self.bad, self.mistakes, self.per_question) < 0:
            raise ConfigError(
                f"rating must be from 1 to 5, and bad, mistakes and per_question must not be negative; got {self}"
            )


@dataclass(frozen=True, slots=True)
class FeedbackScores:
    """The feedback on a trajectory.

    Attributes:
        trajectory: The trajectory's id.
        question: The question.
        helpful: The number of relevant documents in the ranking.
        bad: The number of irrelevant documents in the ranking.
        missed: The number of relevant documents that the ranking lacks.
        rating: The mean of the ratings. None if nobody rated the trajectory.
        mistakes: The number of mistakes in the episode.
        tokens: The number of tokens that the episode placed in the context.
    """

    trajectory: str
    question: str = ""
    helpful: int = 0
    bad: int = 0
    missed: int = 0
    rating: float | None = None
    mistakes: int = 0
    tokens: int = 0

    @property
    def order(self) -> tuple[float, ...]:
        """A sort key that puts better trajectories first.

        It compares recall, bad documents, rating, missed documents, mistakes and tokens, in this order.
        """
        relevant = self.helpful + self.missed
        recall = self.helpful / relevant if relevant else 0.0
        return (-recall, self.bad, -(self.rating or 0.0), self.missed, self.mistakes, self.tokens)

    def to_json(self) -> dict[str, Any]:
        """Return the scores as a row of an index, without the file."""
        return asdict(self)


@dataclass(slots=True)
class FeedbackSelection:
    """The selected and the dropped trajectories.

    Attributes:
        kept: The selected trajectories with their rows.
        dropped: The dropped trajectories with their rows.
        reasons: The number of dropped trajectories by rule.
        checks: The results of the replay check. Empty if none was requested.
    """

    kept: list[ReplayRow] = field(default_factory=list)
    dropped: list[ReplayRow] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    checks: list[ReplayResult] = field(default_factory=list)

    def drop(self, path: Path, standing: FeedbackScores, reason: str, **more: Any) -> None:
        """Add a trajectory to the dropped trajectories, with the rule that dropped it."""
        self.reasons[reason] += 1
        self.dropped.append(ReplayRow(path, {"reason": reason, **standing.to_json(), **more}))

    def counts(self) -> dict[str, Any]:
        """Return how many trajectories were judged, how many were kept, and how many each rule dropped."""
        dropped = {rule: self.reasons[rule] for rule in FEEDBACK_RULES if self.reasons[rule]}
        return {"judged": len(self.kept) + len(self.dropped), "kept": len(self.kept), "dropped": dropped}


async def demonstrations_from_feedback(
    judgments: Sequence[Judgment],
    log: FeedbackLog,
    corpus: Corpus,
    filters: FeedbackFilters | None = None,
    *,
    check: ReplaySettings | None = None,
) -> FeedbackSelection:
    """Select the judged trajectories that are worth imitating, in the order in which they were first judged.

    Args:
        judgments: The judgments of users.
        log: The log that contains the trajectories.
        corpus: The corpus that the trajectories searched.
        filters: The limits of the rules.
        check: If given, each candidate is replayed with these settings. It is dropped if a view differs.

    Raises:
        CorpusError: If the corpus cannot be used.
    """
    filters, selection = filters or FeedbackFilters(), FeedbackSelection()
    verdicts_by_question = question_verdicts(judgments, log, corpus)
    candidates: dict[str, list[tuple[FeedbackScores, Path]]] = {}
    for name, ratings in _by_trajectory(judgments).items():
        path = log.folder / f"{name}.jsonl"
        try:
            verdicts = verdicts_by_question.of(log.header(name).question)
        except TrajectoryError:
            selection.drop(path, FeedbackScores(name), "unknown")
            continue
        scores, reason, detail = _score_and_rule(path, name, verdicts, ratings, filters)
        if reason is None and check is not None:
            replay = await check_file(path, corpus, check)
            selection.checks.append(replay)
            if replay.difference is not None:
                reason, detail = "changed", f"{replay.difference.cause}: {replay.difference.detail}"
        if reason is not None:
            selection.drop(path, scores, reason, **({"detail": detail} if detail else {}))
        else:
            candidates.setdefault(verdicts_by_question.key(scores.question), []).append((scores, path))
    for group in candidates.values():
        _keep_best(group, filters, selection)
    return selection


def _keep_best(
    group: list[tuple[FeedbackScores, Path]], filters: FeedbackFilters, selection: FeedbackSelection
) -> None:
    """Keep the best candidates of a question. The row of each other candidate names the best one."""
    ordered = sorted(group, key=lambda candidate: (candidate[0].order, candidate[0].trajectory))
    most = filters.per_question or len(ordered)
    selection.kept += [ReplayRow(path, scores.to_json()) for scores, path in ordered[:most]]
    for scores, path in ordered[most:]:
        selection.drop(path, scores, "another is better", better=ordered[0][0].trajectory)


def _score_and_rule(
    path: Path, name: str, verdicts: Mapping[str, bool], judgments: Sequence[Judgment], filters: FeedbackFilters
) -> tuple[FeedbackScores, str | None, str]:
    """Return the scores, the rule that drops the trajectory, and a detail.

    If no rule drops the trajectory, the rule is None.
    """
    trajectory = read_or_problem(path)
    if isinstance(trajectory, str):
        return FeedbackScores(name), "unsound", trajectory
    scores = _feedback_scores(trajectory, name, verdicts, judgments)
    end = trajectory.end
    if end is None:
        return scores, "torn", ""
    broken = {
        "unfinished": end.stop_reason != StopReason.FINISHED,
        "mistakes": end.mistakes > filters.mistakes,
        "poor rating": scores.rating is not None and scores.rating < filters.rating,
        "bad documents": scores.bad > filters.bad,
        "nothing good": not scores.helpful and scores.rating is None,
    }
    return scores, next((rule for rule, out in broken.items() if out), None), ""


def _feedback_scores(
    trajectory: Trajectory, name: str, verdicts: Mapping[str, bool], judgments: Sequence[Judgment]
) -> FeedbackScores:
    ranked = {document.id for document in trajectory.end.documents} if trajectory.end is not None else set()
    votes = [verdicts[document] for document in ranked if document in verdicts]
    relevant = sum(verdicts.values())
    ratings = _ratings(judgments)
    return FeedbackScores(
        trajectory=name,
        question=trajectory.header.question,
        helpful=sum(votes),
        bad=len(votes) - sum(votes),
        missed=relevant - sum(votes),
        rating=fmean(ratings) if ratings else None,
        mistakes=0 if trajectory.end is None else trajectory.end.mistakes,
        tokens=0 if trajectory.end is None else trajectory.end.tokens,
    )


def _ratings(judgments: Iterable[Judgment]) -> list[int]:
    """Return the last rating of each judge. Each judgment without a user counts as a separate judge."""
    ratings = {
        judgment.user or f"judgment:{judgment.id}": judgment.rating
        for judgment in judgments
        if judgment.rating is not None
    }
    return list(ratings.values())


def _by_trajectory(judgments: Iterable[Judgment]) -> dict[str, list[Judgment]]:
    by_trajectory: dict[str, list[Judgment]] = {}
    for judgment in judgments:
        by_trajectory.setdefault(judgment.trajectory, []).append(judgment)
    return by_trajectory
