"""Which tasks are started, and what the message says about the others."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from context_agent.swarm import plan_tasks
from context_agent.text.normalization import comparison_key

TASKS = st.lists(st.sampled_from(["", "  ", "a", "A ", "b", "b  c", "B C", "d", "e"]), max_size=12)


def test_what_is_past_the_breadth_is_told_and_not_started() -> None:
    result = plan_tasks([f"task {number}" for number in range(1000)], 4)
    assert result.tasks == ("task 0", "task 1", "task 2", "task 3")
    assert result.message == "Tasks not started: 996 past the limit of 4 in one turn."
    assert result.mistake == "too_many_tasks"


def test_repeated_and_empty_tasks_are_told_and_not_started() -> None:
    result = plan_tasks(["Who?", " ", "who? ", "When?", "Where?"], 4, frozenset({"where?"}))
    assert result.tasks == ("Who?", "When?")
    assert result.message == "Tasks not started: 2 given before; 1 empty."
    assert result.mistake == "repeated_tasks"


def test_good_tasks_are_started_in_order_without_a_word() -> None:
    result = plan_tasks([" one", "two "], 2)
    assert (result.tasks, result.message, result.mistake) == (("one", "two"), "", None)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TASKS, st.integers(0, 5))
def test_every_task_is_started_once_or_accounted_for(tasks: list[str], breadth: int) -> None:
    result = plan_tasks(tasks, breadth)
    keys = [comparison_key(task) for task in result.tasks]
    assert len(keys) == len(set(keys)) <= breadth
    assert all(keys)
    left_out = sum(int(word) for word in result.message.split() if word.isdecimal()) if result.message else 0
    limit = breadth if "past the limit" in result.message else 0
    assert len(result.tasks) + left_out - limit == len(tasks)
    assert (result.mistake is None) == (len(result.tasks) == len(tasks))
