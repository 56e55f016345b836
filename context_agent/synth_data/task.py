"""A synthetic task: a question with a record of how it was made and verified.

In JSON, a task is one object. Its fields `id, question, answer, gold, type, hops, facts` are those of a question, so
every task file is a question file. The other fields have the names of the published format (Context-1, section 2:
level, clues, truth type, supporting items, distractors, bridging item).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from reprlib import repr as brief
from typing import Any, cast

from context_agent._support.question_files import Source, load_rows, question_of
from context_agent.errors import ConfigError, DataError
from context_agent.synth_data.json_files import write_rows
from context_agent.types import Question


@dataclass(frozen=True, slots=True)
class Support:
    """A supporting document with its quotes.

    Attributes:
        id: The document's id.
        chunks: The ids of the chunks that the task is about.
        clue_quotes: Quotes from the clues.
        item_quotes: Quotes from the document.
        contains_truth: True if the document contains the answer.
        truth_quotes: Quotes of the answer from the document.
    """

    id: str
    chunks: tuple[str, ...] = ()
    clue_quotes: tuple[str, ...] = ()
    item_quotes: tuple[str, ...] = ()
    contains_truth: bool = False
    truth_quotes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """A task.

    Attributes:
        id: The task's id.
        question: The question.
        answer: The answer.
        gold: The ids of the documents that prove the answer.
        type: The type of the question.
        hops: The number of documents that must be found one after another.
        facts: The facts that prove the answer. Each fact is a list of chunk ids. Any one of these chunks counts as
            finding the fact.
        level: The number of times that the task was extended.
        clues: The obfuscated hints that the question was written from.
        truth_type: The type of the answer.
        supporting: The supporting documents with their quotes.
        distractors: The ids of documents that look relevant and do not contain the answer.
        bridge: The id of the bridging document of the last extension.
        domain: The kind of corpus.
        origin: How the task was made: `links`, `world`, `model` or `feedback`.
        split: The split that the task belongs to.
        labels: The measurements of later stages.
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
    def as_question(self) -> Question:
        """The task as a `Question`."""
        return Question(self.id, self.question, self.answer, self.gold, self.type, self.hops, self.facts)

    @property
    def aliases(self) -> Sequence[str]:
        """Other ways to write the answer."""
        aliases = self.labels.get("aliases", ())
        return [str(alias) for alias in aliases] if isinstance(aliases, list | tuple) else []

    @property
    def named_documents(self) -> frozenset[str]:
        """The ids of the gold, supporting and bridging documents."""
        return frozenset({*self.gold, *(support.id for support in self.supporting), self.bridge} - {""})

    @property
    def documents(self) -> frozenset[str]:
        """The ids of all documents that prove the task, including the documents of the chunks in its facts."""
        return self.named_documents | {document_of_chunk(chunk) for fact in self.facts for chunk in fact}

    def to_json(self) -> dict[str, Any]:
        """Return the task as plain data, with keys in a fixed order. The data share the values of `labels`."""
        row = {name: getattr(self, name) for name in _FIELDS}
        return row | {"supporting": tuple(map(asdict, self.supporting)), "labels": dict(self.labels)}


_FIELDS = tuple(field.name for field in fields(Task))


def task_of(row: Mapping[str, Any], location: str, number: int = 0) -> Task:
    """Return the task that a decoded row describes. Unknown fields are ignored. A plain question is a valid task, too.

    Args:
        row: The decoded row.
        location: The place of the row, for error messages.
        number: The number of the row, for a missing id.

    Raises:
        DataError: If the row is not a valid task. The message names the location.
    """
    question = question_of(row, number, location)
    try:
        return Task(
            id=question.id,
            question=question.question,
            answer=question.answer,
            gold=question.gold,
            type=question.type,
            hops=question.hops,
            facts=question.facts,
            level=int(row.get("level") or 0),
            clues=str(row.get("clues") or ""),
            truth_type=str(row.get("truth_type") or ""),
            supporting=tuple(_support(item) for item in row.get("supporting") or ()),
            distractors=_texts(row, "distractors"),
            bridge=str(row.get("bridge") or ""),
            domain=str(row.get("domain") or ""),
            origin=str(row.get("origin") or ""),
            split=str(row.get("split") or ""),
            labels=dict(row.get("labels") or {}),
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise DataError(f"{location}: the row is not a task ({error}). Correct the row, or delete it.") from None


def _support(item: Mapping[str, Any]) -> Support:
    lists = {key: _texts(item, key) for key in ("chunks", "clue_quotes", "item_quotes", "truth_quotes")}
    return Support(id=str(item["id"]), contains_truth=bool(item.get("contains_truth")), **lists)


def _texts(row: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the texts of a field, which may be missing.

    Raises:
        TypeError: If the field is not a list.
    """
    value = row.get(name) or ()
    if not isinstance(value, list | tuple):
        raise TypeError(f"field {name} must be a list of texts; got {brief(value)}")
    return tuple(map(str, value))


def check_set_name(name: str) -> None:
    """Check the name of a set of tasks.

    Raises:
        ConfigError: If the name cannot be a part of ids.
    """
    if not re.fullmatch(r"[^\s/]{1,100}", name) or not name.isprintable():
        raise ConfigError(
            "--name becomes part of every id, so it must have from 1 to 100 characters, and no spaces, slashes or "
            f"control characters; got {brief(name)}"
        )


def document_of_chunk(chunk_id: str) -> str:
    """Return the id of the document that a chunk's id contains. An id of another form is returned unchanged."""
    document, _, index = chunk_id.rpartition("_")
    return document if document and index.isdigit() else chunk_id


def load_tasks(source: Source, *, problems: list[str] | None = None) -> list[Task]:
    """Return the tasks of a JSONL file in order.

    Args:
        source: A file (`.gz` or not), an open stream, or `-` for standard input.
        problems: If given, invalid rows are skipped and their errors are added to this list.

    Raises:
        DataError: If a row is invalid or an id repeats. The message has the number of the line.
    """
    return load_rows(source, _task_row, problems=problems)


def write_tasks(path: Path, tasks: Iterable[Task]) -> int:
    """Replace the file with these tasks, completely or not at all, and return the number of tasks.

    Equal tasks give equal bytes.
    """
    return write_rows(path, (task.to_json() for task in tasks))


def _task_row(row: object, number: int, location: str) -> Task:
    # `task_of` rejects a value that is not an object, with the message for question files.
    return task_of(cast("Mapping[str, Any]", row), location, number)
