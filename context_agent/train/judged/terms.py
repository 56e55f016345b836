"""Verdicts as a term of the reward: which episodes have it, what is told of those that do not, and when it is enough.

A question of whose episodes one has no verdict has the term for none of them: an advantage compares the episodes of a
question, and must not compare one that was judged with one that was not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from context_agent.errors import ConfigError, PolicyError
from context_agent.eval.gold import judgeable
from context_agent.harness.trajectory import Trajectory
from context_agent.questions import Question
from context_agent.train.judged.judge import CAPPED, Judging, Ranking, Verdict, reasons
from context_agent.train.judged.settings import JudgeSettings

YES = 0.5
"""From this score on a judge says yes."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The term of each episode of a step, None for none; and its metrics."""

    scores: tuple[float | None, ...]
    metrics: dict[str, float] = field(default_factory=dict)
    why: str = ""
    """Why verdicts are absent, with the first detail; empty where none is."""


@dataclass(slots=True)
class Bench:
    """The judge of a run, with what it has failed at. `note` is told of absent verdicts, once a step."""

    judge: Judging
    note: Callable[[str], None] = print
    barren: int = 0
    """Steps in a row in which verdicts were asked for, and not one came."""

    def judged(self, episodes: Sequence[tuple[Question, Trajectory]]) -> Judged:
        """The term of each whole episode.

        Raises `PolicyError` when the judge has given no verdict for as many steps as the run has patience.
        """
        wanted = [has_term(self.judge.settings, question) for question, _ in episodes]
        asked = [ranking(*episode) for episode, wants in zip(episodes, wanted, strict=True) if wants]
        given = iter(self.judge.verdicts(asked) if asked else [])
        verdicts = [next(given) if wants else None for wants in wanted]
        why = self._told([one for one in verdicts if one is not None])
        scores = together([question.id for question, _ in episodes], verdicts)
        return Judged(tuple(scores), self._metrics([one for one in verdicts if one is not None]), why)

    def _told(self, verdicts: Sequence[Verdict]) -> str:
        absent = [one for one in verdicts if one.score is None]
        answered = any(one.score is not None and one.asked for one in verdicts)
        if not absent:
            self.barren = 0 if answered else self.barren
            return ""
        counts = ", ".join(f"{count} {reason}" for reason, count in reasons(absent).items())
        why = f"{len(absent)} of {len(verdicts)} episodes have no verdict of the judge: {counts} ({absent[0].detail})"
        self.note(f"{why}. They keep their other terms")
        # Past the cap no judge is missed: that is as it was ordered.
        capped = all(one.absent == CAPPED for one in absent)
        self.barren = 0 if answered or capped else self.barren + 1
        if self.barren >= self.judge.settings.patience:
            raise PolicyError(f"no verdict of the judge in {self.barren} steps in a row. The last of them: {why}")
        return why

    def _metrics(self, verdicts: Sequence[Verdict]) -> dict[str, float]:
        scores = [one.score for one in verdicts if one.score is not None]
        asked = [one.score for one in verdicts if one.score is not None and one.asked]
        found = {"judge/wanted": float(len(verdicts)), "judge/absent": float(len(verdicts) - len(scores))}
        found |= {"judge/score": fmean(scores)} if scores else {}
        found |= {"judge/yes": fmean(float(one >= YES) for one in asked)} if asked else {}
        return found | self.judge.metrics()


def has_term(settings: JudgeSettings, question: Question) -> bool:
    """Whether episodes of the question are judged."""
    return settings.questions == "all" or not golden(question)


def golden(question: Question) -> bool:
    """Whether there is gold to measure by."""
    return bool(question.gold or question.facts)


def ranking(question: Question, trajectory: Trajectory) -> Ranking:
    """What the judge is shown of an episode: nothing, where it did not end by a ranking of its own."""
    end = trajectory.end
    own = end is not None and end.stop_reason == "finished"
    return Ranking(question.question, end.documents if own and end is not None else (), question.answer)


def together(groups: Sequence[str], verdicts: Sequence[Verdict | None]) -> list[float | None]:
    """The scores, but for groups in which one is absent: there, none counts."""
    lacking = {group for group, one in zip(groups, verdicts, strict=True) if one is not None and one.score is None}
    return [None if one is None or group in lacking else one.score for group, one in zip(groups, verdicts, strict=True)]


def refuse_alone(settings: JudgeSettings, questions: Iterable[Question]) -> None:
    """Raises `ConfigError` where nothing but the judge could reward any of the questions, unless that is allowed."""
    asked = list(questions)
    if settings.alone or any(golden(one) or judgeable(one.answer) for one in asked):
        return
    raise ConfigError(
        f"none of {len(asked)} questions has gold or an answer, so the judge would be all that is learned from: add "
        "questions with gold, or set judge.alone = true"
    )
