"""A synthetic task: a query row as everywhere else, and beside it how it was made and verified.

In JSON a task is one object whose fields `id, question, answer, gold, type, hops, facts` are those of a question, so
that every file of tasks is a file of questions. The other fields carry the names of the published format where it has
one (Context-1, section 2: level, clues, truth type, supporting items, distractors, bridging item).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from context_agent.errors import DataError
from context_agent.eval.checks import normalised
from context_agent.questions import Question, Source, load_rows, question_of


@dataclass(frozen=True, slots=True)
class Support:
    """A supporting document, with the quotes that prove it: from the clues, from itself, and of the answer."""

    id: str
    chunks: tuple[str, ...] = ()
    clue_quotes: tuple[str, ...] = ()
    item_quotes: tuple[str, ...] = ()
    contains_truth: bool = False
    truth_quotes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """One task. `level` counts extensions (0 for none), `hops` the documents that must be found one after another.

    `clues` are the obfuscated hints the question was written from. `distractors` are ids of documents that look
    relevant and do not contain the answer; `bridge` is the document by which the last extension was joined on.
    `origin` says what made it (`links`, `world`, `model`, `feedback`), `labels` holds what later stages measured.
    """

    id: str
    question: str
    answer: str
    gold: tuple[str, ...]
    type: str
    hops: int
    facts: tuple[tuple[str, ...], ...] = ()
    level: int = 0
    clues: str = ""
    truth_type: str = ""
    supporting: tuple[Support, ...] = ()
    distractors: tuple[str, ...] = ()
    bridge: str = ""
    domain: str = ""
    origin: str = ""
    split: str = ""
    labels: Mapping[str, Any] = field(default_factory=dict)

    @property
    def asked(self) -> Question:
        """The task as the question it is."""
        return Question(self.id, self.question, self.answer, self.gold, self.type, self.hops, self.facts)

    def to_json(self) -> dict[str, Any]:
        """Plain data, in a fixed order of keys."""
        return asdict(self)


def task_of(row: Mapping[str, Any], place: str, number: int = 0) -> Task:
    """The task of a decoded row; fields it does not know are passed over. Raises `DataError` naming the `place`.

    A plain query row is a task too, one that says nothing of its making.
    """
    asked = question_of(row, number, place)
    try:
        return Task(
            id=asked.id,
            question=asked.question,
            answer=asked.answer,
            gold=asked.gold,
            type=asked.type,
            hops=asked.hops,
            facts=asked.facts,
            level=int(row.get("level") or 0),
            clues=str(row.get("clues") or ""),
            truth_type=str(row.get("truth_type") or ""),
            supporting=tuple(_support(item) for item in row.get("supporting") or ()),
            distractors=tuple(str(item) for item in row.get("distractors") or ()),
            bridge=str(row.get("bridge") or ""),
            domain=str(row.get("domain") or ""),
            origin=str(row.get("origin") or ""),
            split=str(row.get("split") or ""),
            labels=dict(row.get("labels") or {}),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{place}: not a task ({error})") from None


def _support(item: Mapping[str, Any]) -> Support:
    lists = {key: tuple(item.get(key) or ()) for key in ("chunks", "clue_quotes", "item_quotes", "truth_quotes")}
    return Support(id=str(item["id"]), contains_truth=bool(item.get("contains_truth")), **lists)


def documents_of(task: Task) -> frozenset[str]:
    """Every document the task stands on: those it names, and those whose chunks its facts name."""
    return named_documents(task) | {_document_of(chunk) for fact in task.facts for chunk in fact}


def named_documents(task: Task) -> frozenset[str]:
    """The documents that the task names by their own ids: gold, support and bridge."""
    return frozenset({*task.gold, *(item.id for item in task.supporting), task.bridge} - {""})


def _document_of(chunk: str) -> str:
    """The document in a chunk's id; an id of another make counts as a document of its own."""
    document, _, index = chunk.rpartition("_")
    return document if document and index.isdigit() else chunk


def question_key(text: str) -> str:
    """The text's words as `normalised` has them; a text of signs alone as it stands."""
    return normalised(text) or text.strip()


def aliases(task: Task) -> Sequence[str]:
    """The other ways in which the task's answer may be written."""
    listed = task.labels.get("aliases", ())
    return [str(alias) for alias in listed] if isinstance(listed, list | tuple) else []


def load_tasks(source: Source, *, problems: list[str] | None = None) -> list[Task]:
    """The tasks of a JSONL file (`.gz` or not), an open stream, or standard input (`-`), in order.

    Raises `DataError`, with the line's number, for a row that is no task and for an id that was there before; where a
    list of `problems` is given, such rows are left out and what is wrong with them is added to it.
    """
    return load_rows(source, _task_row, problems=problems)


def write_tasks(path: Path, tasks: Iterable[Task]) -> int:
    """Replaces the file by these tasks, all or nothing, and returns how many. Equal tasks give equal bytes."""
    return write_rows(path, (task.to_json() for task in tasks))


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Replaces a JSONL file by these rows, all or nothing, and returns how many. Folders are made as needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    count = 0
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as stream:
            for row in rows:
                stream.write(encode_row(row) + "\n")
                count += 1
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replaces the file by this object, all or nothing."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
    partial.replace(path)


def encode_row(row: Mapping[str, Any]) -> str:
    """The row as one line of JSON. A text that UTF-8 cannot hold (a lone surrogate) is written with escapes."""
    line = json.dumps(row, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(row)
    return line


def _task_row(row: object, number: int, place: str) -> Task:
    # What is no object is refused by `task_of` itself, in the words of a question file.
    return task_of(cast("Mapping[str, Any]", row), place, number)
