"""The goal of an agent. The pruner judges passages by it."""

from __future__ import annotations

from dataclasses import dataclass

COMPARED_STEPS = 3
"""The number of the agent's latest messages that passages are compared with, in addition to the task."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The task and the latest steps of an agent. Passages are judged against them.

    Attributes:
        task: The task of the agent.
        steps: The agent's latest messages, the latest first.
        room: The number of tokens that fit in addition to the passages in `staying`.
        staying: The indices of the passages that stay whatever their score.
    """

    task: str
    steps: tuple[str, ...] = ()
    room: int = 0
    staying: frozenset[int] = frozenset()
