"""The judge of a run: opened where the run's file names one, once it may be trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from context_agent.errors import ConfigError
from context_agent.questions import Question
from context_agent.train.config import Run
from context_agent.train.judged.calibration import vouched
from context_agent.train.judged.judge import Judge
from context_agent.train.judged.terms import Bench, golden, refuse_alone
from context_agent.train.recorded import Note

FOLDER = "judge"
"""In a run's folder: the judge's replies, a file for each rank."""


@contextmanager
def bench_of(
    run: Run, questions: Sequence[Question], note: Note, *, rank: int = 0, ranks: int = 1
) -> Iterator[Bench | None]:
    """The run's judge, None where it has none.

    Raises `ConfigError` for a judge that nothing vouches for, or that would be all there is to learn from.
    """
    if not run.judge.model:
        yield None
        return
    refuse_alone(run.judge, questions)
    with Judge(run.judge, Path(run.out) / FOLDER / f"replies-{rank}.jsonl", ranks=ranks) as judge:
        for warning in _trusted(judge):
            note(f"the judge: {warning}")
        yield Bench(judge, note)


def with_gold(questions: Sequence[Question]) -> list[Question]:
    """Those that can be measured."""
    return [one for one in questions if golden(one)]


def _trusted(judge: Judge) -> list[str]:
    """What should be known of the judge. Raises `ConfigError` where it is not to be trusted."""
    settings = judge.settings
    if settings.uncalibrated:
        return ["it was never compared with gold (judge.uncalibrated)"]
    if settings.calibration is None:
        raise ConfigError(
            "nothing says how far this judge can be trusted: run `ctx1 train judge-check`, and name its report in "
            "judge.calibration; or set judge.uncalibrated = true"
        )
    return vouched(settings.calibration, judge.identity)
