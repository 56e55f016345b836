"""The rubric by which a judge scores rankings.

A custom rubric is a TOML file:

    [[criteria]]
    name = "coverage"
    asks = "Do the passages hold all that is needed to answer the question?"
    high = 4
    weight = 2
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from hashlib import blake2b
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from context_agent._support.small_files import read_toml
from context_agent._support.validation import explain, validate_plain
from context_agent.errors import ConfigError, reason_of


@dataclass(frozen=True, slots=True)
class Criterion:
    """One criterion, which the judge scores by a number from `low` to `high`.

    Attributes:
        name: The name.
        asks: The question that the judge answers.
        low: Lowest score.
        high: Highest score.
        weight: Weight in the rubric's score.
    """

    name: str
    asks: str
    low: int = 0
    high: int = 3
    weight: float = 1.0

    def __post_init__(self) -> None:
        if not self.name or not self.asks or self.high <= self.low or not (isfinite(self.weight) and self.weight > 0):
            raise ConfigError(
                "a criterion must have a name, a question, a high value above its low value, and a positive weight; "
                f"got name = {self.name!r}, asks = {self.asks!r}, low = {self.low}, high = {self.high}, weight = "
                f"{self.weight}"
            )


@dataclass(frozen=True, slots=True)
class Rubric:
    """A list of criteria by which a judge scores rankings.

    Attributes:
        criteria: The criteria. Their names differ.
    """

    criteria: tuple[Criterion, ...]

    def __post_init__(self) -> None:
        names = [criterion.name.lower() for criterion in self.criteria]
        if not names:
            raise ConfigError("the rubric has no criteria. Add at least one.")
        if len(set(names)) < len(names):
            raise ConfigError(f"the criteria of a rubric must have different names; got {', '.join(names)}")

    def score(self, scores: Mapping[str, float]) -> float:
        """Return the weighted mean of the criteria's scores, each scaled from its range to [0, 1].

        `scores` must have a valid number for each criterion (see `problem`).
        """
        shares = [
            criterion.weight * (scores[criterion.name] - criterion.low) / (criterion.high - criterion.low)
            for criterion in self.criteria
        ]
        return sum(shares) / sum(criterion.weight for criterion in self.criteria)

    def problem(self, scores: Mapping[str, float]) -> tuple[str, str] | None:
        """Return the problem with a judge's scores, as a short reason and a message to the judge.

        If the scores are valid, return None.
        """
        for criterion in self.criteria:
            score = scores.get(criterion.name)
            if score is None:
                return "a score is missing", f"there is no score for {criterion.name!r}"
            if not criterion.low <= score <= criterion.high:
                return (
                    "a score is out of range",
                    f"the score of {criterion.name!r} must be from {criterion.low} to {criterion.high}; got {score}",
                )
        return None

    def words(self) -> str:
        """Return the criteria as text for the judge."""
        return "\n".join(
            f"- {criterion.name} ({criterion.low} to {criterion.high}): {criterion.asks}" for criterion in self.criteria
        )

    @property
    def digest(self) -> str:
        """Digest of all words and numbers of the rubric."""
        return blake2b(repr(self.criteria).encode(), digest_size=8).hexdigest()


DEFAULT_RUBRIC = Rubric(
    (
        Criterion("coverage", "Do the passages together hold what is needed to answer the question?", weight=2.0),
        Criterion("focus", "How many of the passages help to answer it, rather than stand beside it?"),
    )
)
"""The rubric that ships."""


def load_rubric(path: str | Path | None) -> Rubric:
    """Read a rubric from a TOML file.

    Args:
        path: The file. If it is None, the rubric that ships with the package is read.

    Returns:
        The rubric.

    Raises:
        ConfigError: If the file cannot be read, or a criterion is invalid. The message names the file.
    """
    if path is None:
        return DEFAULT_RUBRIC
    try:
        rows = read_toml(path).get("criteria", [])
        return Rubric(tuple(_criterion(row) for row in rows))
    except OSError as error:
        raise ConfigError(
            f"cannot read the rubric {path} ({reason_of(error)}). Set judge.rubric to a TOML file."
        ) from error
    except (ConfigError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"the rubric {path} cannot be used: {error}") from error


def _criterion(row: Mapping[str, Any]) -> Criterion:
    names = [field.name for field in fields(Criterion)]
    if unknown := [key for key in row if key not in names]:
        raise ConfigError(f"a criterion has the unknown key {unknown[0]!r}. Choose from {', '.join(names)}.")
    try:
        return validate_plain(TypeAdapter(Criterion), row)
    except ValidationError as error:
        raise ConfigError(f"a criterion cannot be read ({explain(error)})") from None
