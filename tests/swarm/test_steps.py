"""Critical steps: of sub-agents that run side by side, the slowest counts."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from context_agent.budget import Budget
from context_agent.harness.trajectory import Header, Trajectory, critical_steps
from context_agent.pruning.view import ActionTaken, Event, SubAgentRecord, ToolResult
from context_agent.types import Action

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
STAGES = st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=6)


def nested(stages: list[list[int]], *, calls: int = 1) -> Trajectory:
    """A trajectory whose n-th action started sub-agents of these steps, in one call or in several."""
    events: list[Event] = []
    for turn, counts in enumerate(stages):
        events.append(ActionTaken(turn, Action(), "", 0))
        records = [
            SubAgentRecord(f"{turn}.{index}", "task", "finished", steps=count) for index, count in enumerate(counts)
        ]
        events += [
            ToolResult(turn, call, "spawn_searchers", {}, (), delegated=tuple(records[call::calls]))
            for call in range(calls)
        ]
    return Trajectory(Header("id", "question", {}, Budget()), tuple(events))


def test_critical_steps_take_the_slowest_of_those_that_ran_together() -> None:
    assert critical_steps([(5, ())]) == 5
    assert critical_steps([(0, (3, 7, 4))]) == 7
    assert critical_steps([(1, (3, 7)), (2, ()), (1, (2,))]) == 8 + 2 + 3


@PATIENT
@given(STAGES)
def test_an_episode_has_its_actions_and_the_longest_of_each_turn_s_sub_agents(stages: list[list[int]]) -> None:
    assert nested(stages).critical_steps == len(stages) + sum(max(counts, default=0) for counts in stages)


@PATIENT
@given(STAGES)
def test_sub_agents_of_several_calls_of_one_turn_run_side_by_side(stages: list[list[int]]) -> None:
    assert nested(stages, calls=3).critical_steps == nested(stages).critical_steps


def test_an_episode_that_has_not_begun_has_no_steps() -> None:
    assert nested([]).critical_steps == 0
