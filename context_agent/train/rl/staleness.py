"""Rows too old to learn from are left out and counted.

A row is as old as the updates made since its first token was sampled. Steps of the optimiser over the same rollouts
make them older one by one; a server that missed new weights makes them older than that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from context_agent.errors import PolicyError
from context_agent.train.batches import Weighted
from context_agent.train.rows import Row


class Rows(Protocol):
    """The rows of an optimiser step."""

    def rows(self, step: int) -> Sequence[Weighted]:
        """Those of this rank."""


class Fresh:
    """The rows of another source that are at most `bound` updates old. `dropped` hears how many were not."""

    def __init__(self, source: Rows, bound: int, dropped: Callable[[int], None]) -> None:
        self._source, self._bound, self._dropped = source, bound, dropped

    def rows(self, step: int) -> Sequence[Weighted]:
        """Raises `PolicyError` where not one row is fresh: then whatever samples no longer gets new weights."""
        every = self._source.rows(step)
        fresh = [item for item in every if age(item.row, step) <= self._bound]
        self._dropped(len(every) - len(fresh))
        if every and not fresh:
            oldest = max(age(item.row, step) for item in every)
            raise PolicyError(
                f"update {step}: all {len(every)} rows are more than {self._bound} updates old, up to {oldest}: "
                "the engine did not get new weights"
            )
        return fresh


def age(row: Row, step: int) -> int:
    """Updates since the row was sampled; 0 for a version that is no number of an update."""
    made = number(row.policy_version)
    return 0 if made is None else step - made


def number(version: str) -> int | None:
    """The update that a version is named by; None for another name."""
    return int(version) if version.isdecimal() else None
