"""A task set on disk: a folder with splits, a corpus and a data card.

    corpus.jsonl.gz         {"id", "title", "text"} on each line
    queries.<split>.jsonl   tasks, one per line
    dropped.jsonl           {"reason", "input"}: the tasks that no split could take
    split.json              settings and counts of the split, and the details of the data card
    README.md               the data card (`sets.card`)

`ctx1 eval --benchmark` takes such a folder.
"""

from __future__ import annotations

import gzip
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import combinations
from pathlib import Path
from typing import Any

from context_agent._support.atomic_files import replacing
from context_agent._support.question_files import split_of
from context_agent.errors import DataError
from context_agent.eval.data_checks import leaks
from context_agent.synth_data.json_files import encode_row, write_json, write_rows
from context_agent.synth_data.sets.splits import TaskSplits, check_splits
from context_agent.synth_data.task import Task, load_tasks, write_tasks
from context_agent.types import Document
from context_agent.version import __version__

CORPUS, DROPPED, REPORT, CARD = "corpus.jsonl.gz", "dropped.jsonl", "split.json", "README.md"


GOLD_ABSENT = "gold not in the corpus"


def queries_path(folder: Path, split: str) -> Path:
    """Return the question file of a split."""
    return folder / f"queries.{split}.jsonl"


def load_splits(folder: Path) -> dict[str, list[Task]]:
    """Return the tasks of a folder by split: train, dev and test first, then others by name.

    Raises:
        DataError: If the folder has no split.
    """
    paths = {split_of(path.name): path for path in sorted(folder.glob("queries.*.jsonl"))}
    if not paths:
        raise DataError(f"{folder} has no queries.<split>.jsonl. Pass a folder that `ctx1 synth split` wrote.")
    usual = [name for name in ("train", "dev", "test") if name in paths]
    return {name: load_tasks(paths[name]) for name in [*usual, *sorted(set(paths) - set(usual))]}


def write_folder(
    folder: Path, parts: TaskSplits, settings: Mapping[str, Any], *, documents: Sequence[Document] = ()
) -> dict[str, Any]:
    """Write the splits, read them back, and check them.

    Args:
        folder: The folder to write.
        parts: The splits and the dropped tasks.
        settings: The settings of the split, for the report.
        documents: The documents of the corpus. If there are none, no corpus is written.

    Returns:
        The report, which is also written to split.json.

    Raises:
        DataError: If the folder has a split of an earlier run that this run does not replace, or if a check fails.
    """
    stale = [path.name for path in folder.glob("queries.*.jsonl") if split_of(path.name) not in parts.splits]
    if stale:
        raise DataError(
            f"{folder} contains {', '.join(sorted(stale))} of another split. Delete it, or use another folder."
        )
    for split, tasks in parts.splits.items():
        write_tasks(queries_path(folder, split), tasks)
    write_rows(folder / DROPPED, ({"reason": reason, "input": task.to_json()} for task, reason in parts.dropped))
    if documents:
        write_corpus(folder / CORPUS, documents)
    check_folder(folder, duplicate_documents(documents))
    report = _report(parts, settings, len(documents))
    write_json(folder / REPORT, report)
    return report


def check_folder(folder: Path, duplicates: Mapping[str, str] | None = None) -> dict[str, list[Task]]:
    """Return the splits of the folder.

    Raises:
        DataError: If two splits share an id, a question or a document.
    """
    splits = load_splits(folder)
    check_splits(splits, duplicates=duplicates)
    questions = {first: [task.as_question for task in tasks] for first, tasks in splits.items()}
    for (first, train), (second, test) in combinations(questions.items(), 2):
        if shared := leaks(train, test):
            raise DataError(
                f"the splits {first} (as train) and {second} (as test) in {folder} overlap: {shared}. Split the tasks "
                "again."
            )
    return splits


def write_corpus(path: Path, documents: Iterable[Document]) -> None:
    """Write the documents as gzipped JSONL. Equal documents give equal bytes."""
    # The gzip header has neither a name nor a time, so that the bytes depend on the documents alone.
    with (
        replacing(path) as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as stream,
    ):
        for document in documents:
            stream.write(
                encode_row({**document.metadata, "id": document.id, "title": document.title, "text": document.text})
                + "\n"
            )


def duplicate_documents(documents: Iterable[Document]) -> dict[str, str]:
    """Return the id of each duplicate, with the id of the earlier document that has the same title and text."""
    first: dict[bytes, str] = {}
    duplicates = {}
    for document in documents:
        digest = blake2b(f"{document.title}\0{document.text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if first.setdefault(digest, document.id) != document.id:
            duplicates[document.id] = first[digest]
    return duplicates


def tasks_in_corpus(tasks: Sequence[Task], documents: Iterable[Document]) -> tuple[list[Task], list[tuple[Task, str]]]:
    """Return the tasks that have all their gold, supporting and bridging documents in the corpus.

    The second value has the other tasks, each with the reason.
    """
    document_ids = {document.id for document in documents}
    present = [task for task in tasks if task.named_documents <= document_ids]
    return present, [(task, GOLD_ABSENT) for task in tasks if not task.named_documents <= document_ids]


def _report(parts: TaskSplits, settings: Mapping[str, Any], documents: int) -> dict[str, Any]:
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
