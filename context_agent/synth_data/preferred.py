"""Served episodes that people liked, to imitate: which of the judged trajectories `ctx1 train sft` should read.

A trajectory is measured by the verdicts on its question, as `from_feedback` settles them over all searches for it and
all judges: the documents of its ranking that are relevant (helpful), those that are irrelevant (bad), and the relevant
ones that it does not rank (missed). It is liked where something in it is helpful, or where its own ratings are good.
By these rules, in this order, a trajectory is dropped:

1. `unknown`: there is no file of it. `torn`, `unsound`: its file is cut, or does not replay.
2. `unfinished`: it did not end by a ranking of its own. `mistakes`: more wrong calls than `mistakes`.
3. `poor rating`: the mean of its ratings is below `rating`, where it has any.
4. `bad documents`: its ranking has more than `bad` documents that were judged irrelevant.
5. `nothing good`: no document of its ranking was judged relevant, and nobody rated it.
6. `changed`: the replay check found a difference; where that is asked for (`ctx1 synth from-feedback` asks).
7. `another is better`: of the question's trajectories that are left only the best `per_question` stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from context_agent.errors import ConfigError, TrajectoryError
from context_agent.harness.episode import StopReason
from context_agent.harness.trajectory import Trajectory
from context_agent.integrations.feedback import FeedbackLog, Judgement
from context_agent.retrieval.protocol import Corpus
from context_agent.synth_data.from_feedback import verdicts_of
from context_agent.synth_data.replay_check import Checked, Chosen, Terms, check_file, readable

RULES = (
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
"""What a judged trajectory can be dropped for, in the order of judgement."""


@dataclass(frozen=True, slots=True)
class Taste:
    """The rules' numbers; the module's docstring says what each does. `per_question` of 0 keeps all."""

    rating: float = 4.0
    bad: int = 0
    mistakes: int = 2
    per_question: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.rating <= 5 or min(self.bad, self.mistakes, self.per_question) < 0:
            raise ConfigError(
                f"rating must lie in 1..5, and bad, mistakes and per_question must not be negative; got {self}"
            )


@dataclass(frozen=True, slots=True)
class Standing:
    """What people made of a trajectory. Counts of documents; `rating` is the mean of its own, None for none."""

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
        """Smaller is better: more of the relevant handed back, fewer bad, rated higher; then the cheaper one."""
        relevant = self.helpful + self.missed
        recall = self.helpful / relevant if relevant else 0.0
        return (-recall, self.bad, -(self.rating or 0.0), self.missed, self.mistakes, self.tokens)

    def to_json(self) -> dict[str, Any]:
        """The line of an index, but for the file."""
        names = ("trajectory", "question", "helpful", "bad", "missed", "rating", "mistakes", "tokens")
        return {name: getattr(self, name) for name in names}


@dataclass(slots=True)
class Selection:
    """What becomes of the judged trajectories: those to imitate and the others, each with its row.

    `reasons` counts the dropped by rule; `checks` are those of the replay check, where it was asked for.
    """

    kept: list[Chosen] = field(default_factory=list)
    dropped: list[Chosen] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    checks: list[Checked] = field(default_factory=list)

    def drop(self, path: Path, standing: Standing, reason: str, **more: Any) -> None:
        """Counts one out."""
        self.reasons[reason] += 1
        self.dropped.append(Chosen(path, {"reason": reason, **standing.to_json(), **more}))

    def counts(self) -> dict[str, Any]:
        """How many were judged, kept, and dropped by which rule."""
        dropped = {rule: self.reasons[rule] for rule in RULES if self.reasons[rule]}
        return {"judged": len(self.kept) + len(self.dropped), "kept": len(self.kept), "dropped": dropped}


async def preferred(
    judgements: Sequence[Judgement],
    log: FeedbackLog,
    corpus: Corpus,
    taste: Taste | None = None,
    *,
    check: Terms | None = None,
) -> Selection:
    """Sorts the judged trajectories, in the order in which they were first judged.

    With `check` each that is liked is played again, and dropped where a view differs. Raises `CorpusError`.
    """
    taste, selection = taste or Taste(), Selection()
    by_question = verdicts_of(judgements, log, corpus)
    left: dict[str, list[tuple[Standing, Path]]] = {}
    for name, own in _by_trajectory(judgements).items():
        path = log.folder / f"{name}.jsonl"
        try:
            verdicts = by_question.of(log.header(name).question)
        except TrajectoryError:
            selection.drop(path, Standing(name), "unknown")
            continue
        standing, reason, said = _judged(path, name, verdicts, own, taste)
        if reason is None and check is not None:
            found = await check_file(path, corpus, check)
            selection.checks.append(found)
            if found.difference is not None:
                reason, said = "changed", f"{found.difference.cause}: {found.difference.detail}"
        if reason is not None:
            selection.drop(path, standing, reason, **({"detail": said} if said else {}))
        else:
            left.setdefault(by_question.key(standing.question), []).append((standing, path))
    for group in left.values():
        _best(group, taste, selection)
    return selection


def _best(group: list[tuple[Standing, Path]], taste: Taste, selection: Selection) -> None:
    """Keeps the best of a question; each of the others names the one that was preferred to it."""
    ordered = sorted(group, key=lambda one: (one[0].order, one[0].trajectory))
    most = taste.per_question or len(ordered)
    selection.kept += [Chosen(path, standing.to_json()) for standing, path in ordered[:most]]
    for standing, path in ordered[most:]:
        selection.drop(path, standing, "another is better", better=ordered[0][0].trajectory)


def _judged(
    path: Path, name: str, verdicts: Mapping[str, bool], own: Sequence[Judgement], taste: Taste
) -> tuple[Standing, str | None, str]:
    """The standing, and by which rule it is out, None for none; with what there is to say of it."""
    trajectory = readable(path)
    if isinstance(trajectory, str):
        return Standing(name), "unsound", trajectory
    standing = _standing(trajectory, name, verdicts, own)
    end = trajectory.end
    if end is None:
        return standing, "torn", ""
    broken = {
        "unfinished": end.stop_reason != StopReason.FINISHED,
        "mistakes": end.mistakes > taste.mistakes,
        "poor rating": standing.rating is not None and standing.rating < taste.rating,
        "bad documents": standing.bad > taste.bad,
        "nothing good": not standing.helpful and standing.rating is None,
    }
    return standing, next((rule for rule, out in broken.items() if out), None), ""


def _standing(trajectory: Trajectory, name: str, verdicts: Mapping[str, bool], own: Sequence[Judgement]) -> Standing:
    ranked = {one.id for one in trajectory.end.documents} if trajectory.end is not None else set()
    said = [verdicts[one] for one in ranked if one in verdicts]
    relevant = sum(verdicts.values())
    ratings = _ratings(own)
    return Standing(
        trajectory=name,
        question=trajectory.header.question,
        helpful=sum(said),
        bad=len(said) - sum(said),
        missed=relevant - sum(said),
        rating=fmean(ratings) if ratings else None,
        mistakes=0 if trajectory.end is None else trajectory.end.mistakes,
        tokens=0 if trajectory.end is None else trajectory.end.tokens,
    )


def _ratings(own: Iterable[Judgement]) -> list[int]:
    """What each judge last rated; one without a name is a judge of its own."""
    said = {one.user or f"judgement:{one.id}": one.rating for one in own if one.rating is not None}
    return list(said.values())


def _by_trajectory(judgements: Iterable[Judgement]) -> dict[str, list[Judgement]]:
    found: dict[str, list[Judgement]] = {}
    for one in judgements:
        found.setdefault(one.trajectory, []).append(one)
    return found
