"""Short ways to make tasks in tests."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from context_agent.synth_data.task import Support, Task, task_of


def task(name: str, *gold: str, question: str = "", **fields: Any) -> Task:
    """Return a task about the gold documents. If no question is passed, make it from the task's name."""
    question_text = question or f"Question {name} about {' and '.join(gold) or 'nothing'}?"
    values = {"answer": f"Answer {name}", "type": "bridge", "hops": max(1, len(gold)), "origin": "links", **fields}
    supporting = values.pop("supporting", tuple(Support(item) for item in gold))
    return Task(name, question_text, gold=gold, supporting=supporting, **values)


def task_in(row: Mapping[str, Any]) -> Task:
    """Return the task of an exported row."""
    return task_of({**row, "labels": json.loads(row["labels"])}, f"row {row.get('id')!r}")


def chained(groups=40, size=5):
    """Groups of tasks. Within a group, each task shares a document with the next; groups share none."""
    return [
        task(f"{group}-{number}", f"g{group}-d{number}", f"g{group}-d{number + 1}")
        for group in range(groups)
        for number in range(size)
    ]


def tangled(count=2000, documents=1500, seed=0):
    """Return tasks that form one component: two documents a task, and some documents in many tasks."""
    draw = random.Random(seed)
    weights = [1 / (rank + 1) ** 0.6 for rank in range(documents)]
    pairs = [draw.choices(range(documents), weights, k=2) for _ in range(count)]
    return [
        task(str(number), *dict.fromkeys(f"d{document_id}" for document_id in pair))
        for number, pair in enumerate(pairs)
    ]


FULL = task(
    "a",
    "d1",
    "d2",
    facts=(("d1_0", "d1_1"), ("d2_0",)),
    level=1,
    clues="A river “north” of it.",
    truth_type="place",
    supporting=(Support("d1", ("d1_0",), ("a river",), ("the river",), True, ("Oder",)), Support("d2")),
    distractors=("d3",),
    bridge="d2",
    domain="documents",
    split="train",
    labels={"passes": {"solved": 1, "of": 2}},
)
