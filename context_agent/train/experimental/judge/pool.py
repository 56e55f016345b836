"""The judge of a run. Its verdicts become a term of the reward.

An episode without a verdict keeps its other terms. Absent verdicts are counted and reported. If one episode of a
question has no verdict, the term counts for none of the question's episodes. Otherwise an advantage would compare an
episode that was judged with one that was not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from context_agent.errors import ConfigError, PolicyError
from context_agent.eval.gold import has_gold, is_checkable
from context_agent.harness.trajectory import Trajectory
from context_agent.train.config import JudgeConfig
from context_agent.train.experimental.judge.judge import (
    CAPPED,
    YES_SCORE,
    JudgedRanking,
    JudgeProtocol,
    JudgeVerdict,
    absence_reasons,
)
from context_agent.train.rl.scoring import JudgeTerms
from context_agent.types import Question


@dataclass(slots=True)
class JudgePool:
    """The judge of a run, with a count of its failed steps.

    Attributes:
        judge: The judge.
        note: A function that receives a message about absent verdicts, at most once per step.
        steps_without_verdict: Number of consecutive steps in which the judge received requests and gave no verdict.
    """

    judge: JudgeProtocol
    note: Callable[[str], None] = print
    steps_without_verdict: int = 0

    def judged(self, episodes: Sequence[tuple[Question, Trajectory]]) -> JudgeTerms:
        """Return the judge's term for each episode.

        Args:
            episodes: Complete episodes with their questions.

        Returns:
            The terms, with metrics.

        Raises:
            PolicyError: If the judge gave no verdict in `max_failed_steps` consecutive steps.
        """
        needs_verdict = [is_judged(self.judge.settings, question) for question, _ in episodes]
        rankings = [final_ranking(*episode) for episode, needed in zip(episodes, needs_verdict, strict=True) if needed]
        replies = iter(self.judge.verdicts(rankings) if rankings else [])
        verdicts = [next(replies) if needed else None for needed in needs_verdict]
        why = self._report_absent([verdict for verdict in verdicts if verdict is not None])
        scores = scores_by_group([question.id for question, _ in episodes], verdicts)
        return JudgeTerms(tuple(scores), self._metrics([verdict for verdict in verdicts if verdict is not None]), why)

    def _report_absent(self, verdicts: Sequence[JudgeVerdict]) -> str:
        absent = [verdict for verdict in verdicts if verdict.score is None]
        answered = any(verdict.score is not None and verdict.asked for verdict in verdicts)
        if not absent:
            self.steps_without_verdict = 0 if answered else self.steps_without_verdict
            return ""
        counts = ", ".join(f"{count} × {reason}" for reason, count in absence_reasons(absent).items())
        why = f"{len(absent)} of {len(verdicts)} episodes have no verdict of the judge ({counts}: {absent[0].detail})"
        self.note(f"{why}. Their rewards have only the other terms.")
        # Reaching the cap is expected and does not count as a failure of the judge.
        capped = all(verdict.absent == CAPPED for verdict in absent)
        self.steps_without_verdict = 0 if answered or capped else self.steps_without_verdict + 1
        if self.steps_without_verdict >= self.judge.settings.max_failed_steps:
            raise PolicyError(
                f"the judge gave no verdict in {self.steps_without_verdict} steps in a row. In the last one, {why}. "
                "Check the judge's server, or raise judge.max_failed_steps."
            )
        return why

    def _metrics(self, verdicts: Sequence[JudgeVerdict]) -> dict[str, float]:
        scores = [verdict.score for verdict in verdicts if verdict.score is not None]
        asked_scores = [verdict.score for verdict in verdicts if verdict.score is not None and verdict.asked]
        metrics = {"judge/wanted": float(len(verdicts)), "judge/absent": float(len(verdicts) - len(scores))}
        metrics |= {"judge/score": fmean(scores)} if scores else {}
        metrics |= {"judge/yes": fmean(float(item >= YES_SCORE) for item in asked_scores)} if asked_scores else {}
        return metrics | self.judge.metrics()


def is_judged(settings: JudgeConfig, question: Question) -> bool:
    """Return True if episodes of the question are judged."""
    return settings.questions == "all" or not has_gold(question)


def final_ranking(question: Question, trajectory: Trajectory) -> JudgedRanking:
    """Return the final ranking of an episode. If a limit or an invalid ranking ended the episode, return an empty
    ranking.
    """
    end = trajectory.end
    documents = end.documents if end is not None and end.stop_reason == "finished" else ()
    return JudgedRanking(question.question, documents, question.answer)


def scores_by_group(groups: Sequence[str], verdicts: Sequence[JudgeVerdict | None]) -> list[float | None]:
    """Return the score of each episode. If one verdict of a group is absent, all scores of the group are None."""
    lacking = {
        group for group, verdict in zip(groups, verdicts, strict=True) if verdict is not None and verdict.score is None
    }
    return [
        None if verdict is None or group in lacking else verdict.score
        for group, verdict in zip(groups, verdicts, strict=True)
    ]


def refuse_judge_alone(settings: JudgeConfig, questions: Iterable[Question]) -> None:
    """Raise `ConfigError` if only the judge could reward the questions, unless `judge.alone` allows it."""
    questions = list(questions)
    if settings.alone or any(has_gold(question) or is_checkable(question.answer) for question in questions):
        return
    raise ConfigError(
        f"none of {len(questions)} questions has gold or an answer, so the judge would be the only reward. Add "
        "questions with gold, or set judge.alone = true."
    )
