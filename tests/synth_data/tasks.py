"""Short ways to make tasks in tests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from context_agent.synth_data.task import Support, Task, task_of


def task(name: str, *gold: str, question: str = "", **fields: Any) -> Task:
    """A task about the gold documents. Its question is made from its name if none is passed."""
    question_text = question or f"Question {name} about {' and '.join(gold) or 'nothing'}?"
    values = {"answer": f"Answer {name}", "type": "bridge", "hops": max(1, len(gold)), "origin": "links", **fields}
    supporting = values.pop("supporting", tuple(Support(item) for item in gold))
    return Task(name, question_text, gold=gold, supporting=supporting, **values)


def task_in(row: Mapping[str, Any]) -> Task:
    """The task of an exported row."""
    return task_of({**row, "labels": json.loads(row["labels"])}, f"row {row.get('id')!r}")
