"""Critical steps: how many actions of a nested episode had to wait for each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from context_agent.harness.trajectory import ActionTaken, ToolResult, Trajectory


def critical_steps(stages: Iterable[tuple[int, Sequence[int]]]) -> int:
    """The steps that had to wait for each other: the sum over stages of S_main + max_i S_sub,i (Kimi K2.5).

    A stage is the steps of the main agent and those of each agent that ran beside the others. One agent alone is one
    stage without others; n rollouts in parallel are one stage without a main agent.
    """
    return sum(main + max(others, default=0) for main, others in stages)


def stages(trajectory: Trajectory) -> Iterator[tuple[int, list[int]]]:
    """A stage for each action: 1, and the steps of each sub-agent that its calls started."""
    others: list[int] | None = None
    for event in trajectory.events:
        if isinstance(event, ActionTaken):
            if others is not None:
                yield 1, others
            others = []
        elif isinstance(event, ToolResult) and others is not None:
            others += [one.steps for one in event.delegated]
    if others is not None:
        yield 1, others


def steps(trajectory: Trajectory) -> int:
    """The critical steps of an episode with its sub-agents. Without any: its actions, the ranking included.

    It needs the main episode's trajectory alone: what its sub-agents took is recorded there.
    """
    return critical_steps(stages(trajectory))
