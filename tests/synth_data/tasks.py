"""Short ways to make tasks in tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from context_agent.synth_data.task import Support, Task, task_of


def task(name: str, *gold: str, question: str = "", **fields: Any) -> Task:
    """A task about the gold documents, with a question of its own."""
    asked = question or f"Question {name} about {' and '.join(gold) or 'nothing'}?"
    given = {"answer": f"Answer {name}", "type": "bridge", "hops": max(1, len(gold)), "origin": "links", **fields}
    supporting = given.pop("supporting", tuple(Support(item) for item in gold))
    return Task(name, asked, gold=gold, supporting=supporting, **given)


def task_in(row: Mapping[str, Any]) -> Task:
    """The task of a row that was exported."""
    return task_of({**row, "labels": json.loads(row["labels"])}, f"row {row.get('id')!r}")
