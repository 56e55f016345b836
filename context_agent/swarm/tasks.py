"""Which of the tasks that a policy named are started, and what it is told of the others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """The tasks to start, in order; what is said of the others, and the mistake's name, None where there are none."""

    tasks: tuple[str, ...]
    told: str = ""
    mistake: str | None = None


def plan(named: Iterable[str], breadth: int, started: frozenset[str] = frozenset()) -> Plan:
    """The first `breadth` tasks that are neither empty nor, apart from case and spaces, named before or `started`."""
    known = set(started)
    tasks: list[str] = []
    empty = repeated = over = 0
    for task in named:
        key = folded(task)
        if not key:
            empty += 1
        elif key in known:
            repeated += 1
        elif len(tasks) >= breadth:
            over += 1
        else:
            known.add(key)
            tasks.append(task.strip())
    parts = [
        f"{over:,} past the limit of {breadth} in one turn" if over else "",
        f"{repeated:,} given before" if repeated else "",
        f"{empty:,} empty" if empty else "",
    ]
    told = "; ".join(part for part in parts if part)
    mistake = "too_many_tasks" if over else "repeated_tasks" if repeated else "empty_tasks" if empty else None
    return Plan(tuple(tasks), f"Tasks not started: {told}." if told else "", mistake)


def folded(task: str) -> str:
    """A task as it is compared with others."""
    return " ".join(task.split()).casefold()
