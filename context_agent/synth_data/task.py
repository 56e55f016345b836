"""A synthetic task: a question, and how it was made and verified.

In JSON a task is one object. Its fields `id, question, answer, gold, type, hops, facts` are those of a question, so
every task file is a question file. The other fields have the names of the published format (Context-1, section 2:
level, clues, truth type, supporting items, distractors, bridging item).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from context_agent._support.question_files import Source, load_rows, question_of
from context_agent.errors import DataError
from context_agent.eval.gold import normalised
from context_agent.synth_data.row_files import write_rows
from context_agent.types import Question


@dataclass(frozen=True, slots=True)
class Support:
    """A supporting document with its quotes: from the clues, from the document, and of the answer."""

    id: str
    chunks: tuple[str, ...] = ()
    clue_quotes: tuple[str, ...] = ()
    item_quotes: tuple[str, ...] = ()
    contains_truth: bool = False
    truth_quotes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """One task. `level` counts the extensions, `hops` the documents that must be found one after another.

    `clues` are the obfuscated hints that the question was written from. `distractors` are ids of documents that look
    relevant and do not contain the answer. `bridge` is the document that connects the last extension. `origin` says
    how the task was made (`links`, `world`, `model`, `feedback`). `labels` holds what later stages measured.
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
        """The ids of gold, supporting and bridging documents."""
        return frozenset({*self.gold, *(support.id for support in self.supporting), self.bridge} - {""})

    @property
    def documents(self) -> frozenset[str]:
        """Every document that proves the task: the named ones, and those of the chunks in its facts."""
        return self.named_documents | {document_of_chunk(chunk) for fact in self.facts for chunk in fact}

    def to_json(self) -> dict[str, Any]:
        """Return the task as plain data, with its keys in a fixed order."""
        return asdict(self)


def task_of(row: Mapping[str, Any], location: str, number: int = 0) -> Task:
    """Return the task of a decoded row; unknown fields are ignored. Raises `DataError` that names the location.

    A plain question is a task, too.
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
            distractors=tuple(str(item) for item in row.get("distractors") or ()),
            bridge=str(row.get("bridge") or ""),
            domain=str(row.get("domain") or ""),
            origin=str(row.get("origin") or ""),
            split=str(row.get("split") or ""),
            labels=dict(row.get("labels") or {}),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{location}: not a task ({error})") from None


def _support(item: Mapping[str, Any]) -> Support:
    lists = {key: tuple(item.get(key) or ()) for key in ("chunks", "clue_quotes", "item_quotes", "truth_quotes")}
    return Support(id=str(item["id"]), contains_truth=bool(item.get("contains_truth")), **lists)


def document_of_chunk(chunk_id: str) -> str:
    """Return the document in a chunk's id; an id of another form counts as a document of its own."""
    document, _, index = chunk_id.rpartition("_")
    return document if document and index.isdigit() else chunk_id


def question_key(text: str) -> str:
    """Return what equal questions share: the normalized words; the text itself if it has no words."""
    return normalised(text) or text.strip()


def load_tasks(source: Source, *, problems: list[str] | None = None) -> list[Task]:
    """Return the tasks of a JSONL file (`.gz` or not), an open stream, or standard input (`-`), in order.

    Raises `DataError` with the line's number for an invalid row or a repeated id. With a list of `problems`, such rows
    are skipped and their errors are added to the list.
    """
    return load_rows(source, _task_row, problems=problems)


def write_tasks(path: Path, tasks: Iterable[Task]) -> int:
    """Replace the file by these tasks, all or nothing, and return how many. Equal tasks give equal bytes."""
    return write_rows(path, (task.to_json() for task in tasks))


def _task_row(row: object, number: int, location: str) -> Task:
    # `task_of` rejects a value that is not an object, with the message for question files.
    return task_of(cast("Mapping[str, Any]", row), location, number)
