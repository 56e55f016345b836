"""The check that admits a judge to training only if a calibration shows that it can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from context_agent._support.small_files import read_json
from context_agent._support.suggest import differing_settings
from context_agent.errors import ConfigError, reason_of
from context_agent.train.config import JudgeConfig
from context_agent.train.experimental.judge.judge import RankingJudge
from context_agent.train.experimental.judge.pool import JudgePool, refuse_judge_alone
from context_agent.types import Question

REPORT_SCHEMA = 1
"""Version of the report's format."""


def check_calibration(path: str | Path, identity: Mapping[str, Any]) -> list[str]:
    """Check that a calibration report vouches for a judge.

    Args:
        path: The report.
        identity: The identity of the judge.

    Returns:
        The warnings of the report.

    Raises:
        ConfigError: If the file is not a report, belongs to another judge, or says that the judge cannot be trusted.
    """
    try:
        result = read_json(path)
        if result["schema"] > REPORT_SCHEMA:
            raise ConfigError(
                f"{path} has schema {result['schema']}, but this version reads up to {REPORT_SCHEMA}. Update "
                "context-agent."
            )
        was, problems, warnings = dict(result["identity"]), list(result["problems"]), list(result["warnings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{path} is not a report of `ctx1 train judge-check` ({reason_of(error)}). Run the command again."
        ) from None
    if differences := differing_settings({key: was.get(key) for key in identity}, identity):
        raise ConfigError(
            f"{path} is the report of another judge ({', '.join(differences)}). Run `ctx1 train judge-check` again."
        )
    if problems:
        raise ConfigError(
            f"{path} says not to trust this judge: {'; '.join(map(str, problems))}. Use another model or rubric, or "
            "set judge.uncalibrated = true."
        )
    return [str(warning) for warning in warnings]


REPLIES_FOLDER = "judge"
"""The folder of the judge's replies in a run's folder. It has one file per rank."""


@contextmanager
def open_judge(
    settings: JudgeConfig,
    folder: str | Path,
    questions: Sequence[Question],
    note: Callable[[str], None],
    *,
    rank: int = 0,
    ranks: int = 1,
) -> Iterator[JudgePool]:
    """Open the judge of a run.

    Args:
        settings: The settings of the judge.
        folder: The folder of the run.
        questions: The questions of the run.
        note: A function that receives the warnings about the judge.
        rank: The number of this rank.
        ranks: The number of ranks, which share the spending cap.

    Yields:
        The judge.

    Raises:
        ConfigError: If no calibration vouches for the judge, or it would be the only reward.
    """
    refuse_judge_alone(settings, questions)
    with RankingJudge(settings, Path(folder) / REPLIES_FOLDER / f"replies-{rank}.jsonl", ranks=ranks) as judge:
        for warning in _gate_warnings(judge):
            note(f"the judge: {warning}")
        yield JudgePool(judge, note)


def _gate_warnings(judge: RankingJudge) -> list[str]:
    """Return the warnings about the judge. Raise `ConfigError` if it cannot be trusted."""
    settings = judge.settings
    if settings.uncalibrated:
        return ["it was never compared with gold (judge.uncalibrated)"]
    if settings.calibration is None:
        raise ConfigError(
            "this judge is not calibrated. Run `ctx1 train judge-check` and set judge.calibration to its report, or "
            "set judge.uncalibrated = true."
        )
    return check_calibration(settings.calibration, judge.identity)
