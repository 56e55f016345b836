"""Tasks on disk: JSONL, one object a line. Every file of tasks is a file of questions too."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from context_agent._support.files import open_private, private_folder
from context_agent.questions import Source, load_rows
from context_agent.synth_data.task import Task, task_of


def load_tasks(source: Source, *, problems: list[str] | None = None) -> list[Task]:
    """The tasks of a JSONL file (`.gz` or not), an open stream, or standard input (`-`), in order.

    Raises `DataError`, with the line's number, for a row that is no task and for an id that was there before; where a
    list of `problems` is given, such rows are left out and what is wrong with them is added to it.
    """
    return load_rows(source, _task, problems=problems)


def write_tasks(path: Path, tasks: Iterable[Task]) -> int:
    """Replaces the file by these tasks, all or nothing, and returns how many. Equal tasks give equal bytes."""
    return write_rows(path, (task.to_json() for task in tasks))


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Replaces a JSONL file by these rows, all or nothing, and returns how many. Folders are made as needed."""
    private_folder(path.parent)
    partial = path.with_name(f".{path.name}.partial")
    count = 0
    try:
        with open_private(partial, "w", encoding="utf-8", newline="\n") as stream:
            for row in rows:
                stream.write(encode(row) + "\n")
                count += 1
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count


def encode(row: Mapping[str, Any]) -> str:
    """The row as one line of JSON. A text that UTF-8 cannot hold (a lone surrogate) is written with escapes."""
    line = json.dumps(row, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(row)
    return line


def _task(row: object, number: int, place: str) -> Task:
    # What is no object is refused by `task_of` itself, in the words of a question file.
    return task_of(cast("Mapping[str, Any]", row), place, number)
