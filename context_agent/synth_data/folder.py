"""A finished set as a folder: a question file a split, the corpus where it is given, and what the data card needs.

    corpus.jsonl.gz         {"id", "title", "text"} a line
    queries.<split>.jsonl   tasks, a line each
    dropped.jsonl           {"reason", "input"}: the tasks that no split could take
    split.json              how it was split: settings and counts; and what the card says beside them
    README.md               the data card

`ctx1 eval` takes such a folder for a benchmark.
"""

from __future__ import annotations

import gzip
import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import combinations
from pathlib import Path
from typing import Any

from context_agent.errors import DataError
from context_agent.eval.gold import leaks
from context_agent.synth_data.splits import Parts, named_by, verify
from context_agent.synth_data.task import Task
from context_agent.synth_data.task_file import encode, load_tasks, write_rows, write_tasks
from context_agent.types import Document
from context_agent.version import __version__

CORPUS, DROPPED, REPORT, CARD = "corpus.jsonl.gz", "dropped.jsonl", "split.json", "README.md"
ABSENT = "gold not in the corpus"


def queries(folder: Path, split: str) -> Path:
    """The question file of a split."""
    return folder / f"queries.{split}.jsonl"


def load_splits(folder: Path) -> dict[str, list[Task]]:
    """The tasks of a folder by split: train, dev and test first, others by name. Raises `DataError` where none is."""
    found = {path.name.split(".")[1]: path for path in sorted(folder.glob("queries.*.jsonl"))}
    if not found:
        raise DataError(f"{folder}: no queries.<split>.jsonl in it")
    usual = [name for name in ("train", "dev", "test") if name in found]
    return {name: load_tasks(found[name]) for name in [*usual, *sorted(set(found) - set(usual))]}


def write_folder(
    folder: Path, parts: Parts, settings: Mapping[str, Any], *, documents: Sequence[Document] = ()
) -> dict[str, Any]:
    """Writes the splits, reads them back and checks them, and returns the report that stands in split.json.

    Raises `DataError` where a split of an earlier run would stay beside these, and where what is on disk fails the
    checks.
    """
    stale = [path.name for path in folder.glob("queries.*.jsonl") if path.name.split(".")[1] not in parts.splits]
    if stale:
        raise DataError(
            f"{folder} holds {', '.join(sorted(stale))} of another split: remove it, or name another folder"
        )
    for split, tasks in parts.splits.items():
        write_tasks(queries(folder, split), tasks)
    write_rows(folder / DROPPED, ({"reason": reason, "input": task.to_json()} for task, reason in parts.dropped))
    if documents:
        write_corpus(folder / CORPUS, documents)
    check_folder(folder, twins_of(documents))
    report = _report(parts, settings, len(documents))
    write_json(folder / REPORT, report)
    return report


def check_folder(folder: Path, twins: Mapping[str, str] | None = None) -> dict[str, list[Task]]:
    """The splits of the folder, checked: no id, question or document in two of them. Raises `DataError`."""
    splits = load_splits(folder)
    verify(splits, twins=twins)
    asked = {name: [task.asked for task in tasks] for name, tasks in splits.items()}
    for (name, train), (other, test) in combinations(asked.items(), 2):
        if found := leaks(train, test):
            raise DataError(f"{folder}, {name} for train and {other} for test: {found}")
    return splits


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replaces the file by this object, all or nothing."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
    partial.replace(path)


def write_corpus(path: Path, documents: Iterable[Document]) -> None:
    """The documents as gzipped JSONL; equal documents give equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    # Neither a name nor a time in the gzip header, so that the bytes depend on the documents alone.
    with (
        partial.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as stream,
    ):
        for one in documents:
            stream.write(encode({**one.metadata, "id": one.id, "title": one.title, "text": one.text}) + "\n")
    partial.replace(path)


def twins_of(documents: Iterable[Document]) -> dict[str, str]:
    """For each document whose title and text an earlier one has, that one's id."""
    first: dict[bytes, str] = {}
    twins = {}
    for one in documents:
        digest = blake2b(f"{one.title}\0{one.text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if first.setdefault(digest, one.id) != one.id:
            twins[one.id] = first[digest]
    return twins


def present(tasks: Iterable[Task], documents: Iterable[Document]) -> tuple[list[Task], list[tuple[Task, str]]]:
    """The tasks all of whose gold, support and bridge is there, and the others with the reason."""
    known = {one.id for one in documents}
    kept: list[Task] = []
    lost: list[tuple[Task, str]] = []
    for task in tasks:
        if named_by(task) <= known:
            kept.append(task)
        else:
            lost.append((task, ABSENT))
    return kept, lost


def _report(parts: Parts, settings: Mapping[str, Any], documents: int) -> dict[str, Any]:
    return {
        **settings,
        "version": __version__,
        "tasks": {split: len(tasks) for split, tasks in parts.splits.items()},
        "dropped": dict(sorted(Counter(reason for _, reason in parts.dropped).items())),
        "documents": documents,
        "components": parts.components,
        "largest": parts.largest,
        "cut": parts.cut,
        "spread": {split: round(value, 4) for split, value in parts.spread.items()},
    }
