"""A task set on disk: a folder with splits, corpus and data card; export as parquet or `datasets`; upload to the hub.

    corpus.jsonl.gz         {"id", "title", "text"} a line
    queries.<split>.jsonl   tasks, one per line
    dropped.jsonl           {"reason", "input"}: the tasks that no split could take
    split.json              settings and counts of the split, and what the card adds
    README.md               the data card

`ctx1 eval --benchmark` takes such a folder. Exported columns have fixed types even if a list is empty in every row;
`labels` differ from set to set and are a column of JSON text.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from context_agent.errors import ConfigError, DataError, MissingExtraError
from context_agent.eval.gold import leaks
from context_agent.synth_data.sets.splits import TaskSplits, check_splits
from context_agent.synth_data.task import (
    Task,
    encode_row,
    load_tasks,
    write_json,
    write_rows,
    write_tasks,
)
from context_agent.types import Document
from context_agent.version import __version__

if TYPE_CHECKING:
    from datasets import DatasetDict, Features


CORPUS, DROPPED, REPORT, CARD = "corpus.jsonl.gz", "dropped.jsonl", "split.json", "README.md"
GOLD_ABSENT = "gold not in the corpus"


def queries_path(folder: Path, split: str) -> Path:
    """The question file of a split."""
    return folder / f"queries.{split}.jsonl"


def load_splits(folder: Path) -> dict[str, list[Task]]:
    """The tasks of a folder by split: train, dev and test first, others by name.

    Raises `DataError` if it has no split.
    """
    paths = {path.name.split(".")[1]: path for path in sorted(folder.glob("queries.*.jsonl"))}
    if not paths:
        raise DataError(f"{folder} has no queries.<split>.jsonl: pass a folder that `ctx1 synth split` wrote")
    usual = [name for name in ("train", "dev", "test") if name in paths]
    return {name: load_tasks(paths[name]) for name in [*usual, *sorted(set(paths) - set(usual))]}


def write_folder(
    folder: Path, parts: TaskSplits, settings: Mapping[str, Any], *, documents: Sequence[Document] = ()
) -> dict[str, Any]:
    """Writes the splits, reads them back, checks them, and returns the report in split.json.

    Raises `DataError` if the folder has splits of an earlier run that this one would leave behind, and if the written
    splits fail the checks.
    """
    stale = [path.name for path in folder.glob("queries.*.jsonl") if path.name.split(".")[1] not in parts.splits]
    if stale:
        raise DataError(f"{folder} holds {', '.join(sorted(stale))} of another split: delete it, or use another folder")
    for split, tasks in parts.splits.items():
        write_tasks(queries_path(folder, split), tasks)
    write_rows(folder / DROPPED, ({"reason": reason, "input": task.to_json()} for task, reason in parts.dropped))
    if documents:
        write_corpus(folder / CORPUS, documents)
    check_folder(folder, duplicate_documents(documents))
    report = _report(parts, settings, len(documents))
    write_json(folder / REPORT, report)
    return report


def check_folder(folder: Path, twins: Mapping[str, str] | None = None) -> dict[str, list[Task]]:
    """The splits of the folder. Raises `DataError` if two of them share an id, a question or a document."""
    splits = load_splits(folder)
    check_splits(splits, twins=twins)
    questions = {first: [task.as_question for task in tasks] for first, tasks in splits.items()}
    for (first, train), (second, test) in combinations(questions.items(), 2):
        if shared := leaks(train, test):
            raise DataError(f"{folder}, {first} for train and {second} for test: {shared}")
    return splits


def write_corpus(path: Path, documents: Iterable[Document]) -> None:
    """Writes the documents as gzipped JSONL; equal documents give equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    # Neither a name nor a time in the gzip header, so that the bytes depend on the documents alone.
    with (
        partial.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as stream,
    ):
        for document in documents:
            stream.write(
                encode_row({**document.metadata, "id": document.id, "title": document.title, "text": document.text})
                + "\n"
            )
    partial.replace(path)


def duplicate_documents(documents: Iterable[Document]) -> dict[str, str]:
    """Maps each document with the title and text of an earlier one to the earlier one's id."""
    first: dict[bytes, str] = {}
    twins = {}
    for document in documents:
        digest = blake2b(f"{document.title}\0{document.text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if first.setdefault(digest, document.id) != document.id:
            twins[document.id] = first[digest]
    return twins


def tasks_in_corpus(tasks: Sequence[Task], documents: Iterable[Document]) -> tuple[list[Task], list[tuple[Task, str]]]:
    """The tasks whose gold, supporting and bridging documents are all in the corpus, and the others with the reason."""
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


ExportFormat = Literal["parquet", "datasets"]


def export(splits: Mapping[str, Sequence[Task]], out: Path, to: ExportFormat) -> list[Path]:
    """Writes `<out>/<split>.parquet` for each split, or `out` for `datasets.load_from_disk`; returns the files.

    The folder appears whole or not at all. Raises `ConfigError` if it exists and is not empty, so that no old split
    stays.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and is not empty: use another folder")
    tables = dataset(splits)
    partial = out.resolve().with_name(f".{out.resolve().name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    files = _write_parquet(tables, partial) if to == "parquet" else _write_datasets(tables, partial)
    partial.replace(out.resolve())
    return [out / path.relative_to(partial) for path in files]


def _write_parquet(tables: DatasetDict, folder: Path) -> list[Path]:
    for name, part in tables.items():
        part.to_parquet(str(folder / f"{name}.parquet"))
    return [folder / f"{name}.parquet" for name in tables]


def _write_datasets(tables: DatasetDict, folder: Path) -> list[Path]:
    tables.save_to_disk(str(folder))
    return sorted(path for path in folder.rglob("*") if path.is_file())


def dataset(splits: Mapping[str, Sequence[Task]]) -> DatasetDict:
    """The splits in memory. Raises `ConfigError` for text that UTF-8 cannot encode."""
    datasets = _datasets()
    columns = features()
    try:
        return datasets.DatasetDict(
            {
                name: datasets.Dataset.from_list(
                    [table_row(task) for task in tasks], features=columns, split=datasets.NamedSplit(name)
                )
                for name, tasks in splits.items()
            }
        )
    except UnicodeEncodeError as error:
        raise ConfigError(f"a text cannot be encoded as UTF-8: {error}") from error


def features() -> Features:
    """The columns of a task."""
    datasets = _datasets()
    text, number = datasets.Value("string"), datasets.Value("int64")
    texts = datasets.List(text)
    support = {
        "id": text,
        "chunks": texts,
        "clue_quotes": texts,
        "item_quotes": texts,
        "contains_truth": datasets.Value("bool"),
        "truth_quotes": texts,
    }
    columns = {"id": text, "question": text, "answer": text, "gold": texts, "type": text, "hops": number}
    columns |= {"facts": datasets.List(texts), "level": number, "clues": text, "truth_type": text}
    columns |= {"supporting": datasets.List(support), "distractors": texts, "bridge": text, "domain": text}
    columns |= {"origin": text, "split": text, "labels": text}
    return datasets.Features(columns)


def table_row(task: Task) -> dict[str, Any]:
    """The task as a row of the table."""
    return {**task.to_json(), "labels": json.dumps(task.labels, sort_keys=True)}


def push(splits: Mapping[str, Sequence[Task]], name: str, *, public: bool = False, card: Path | None = None) -> str:
    """Uploads the splits to the hub as `owner/set`, private by default, and returns the address.

    The token is the one that `hf auth login` stored, or HF_TOKEN. Raises `ConfigError` if the hub refuses the name or
    the token, `DataError` if it cannot be reached.
    """
    tables = dataset(splits)
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

    hint = "log in with `hf auth login`, or set HF_TOKEN to a token that may write"
    try:
        tables.push_to_hub(name, private=not public)
        if card is not None:
            _push_card(name, card)
    except LocalTokenNotFoundError as error:
        raise ConfigError(f"no token for the hub: {hint}") from error
    except HFValidationError as error:
        raise ConfigError(f"{name!r} is not a valid name for the hub: use the form owner/set") from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        advice = f": {hint}" if status in {401, 403} else ""
        raise ConfigError(f"the hub refused {name} (status {status}){advice}") from error
    except Exception as error:
        # The client's own errors of connection: which library they are of changes with its versions.
        raise DataError(f"{name} was not uploaded to the hub: {_first_line(error)}") from error
    return f"{HfApi().endpoint}/datasets/{name}"


def disable_progress_bars() -> None:
    """Disables the progress bars of `datasets` in this process."""
    _datasets().disable_progress_bars()


def _push_card(name: str, card: Path) -> None:
    """Uploads the card's text below the front matter of the push; that of the folder names other files."""
    from huggingface_hub import DatasetCard

    local = DatasetCard(card.read_text(encoding="utf-8"))
    pushed = DatasetCard.load(name)
    pushed.text = local.text
    for key in ("license", "license_name"):
        if (value := getattr(local.data, key, None)) is not None:
            setattr(pushed.data, key, value)
    pushed.push_to_hub(name, repo_type="dataset")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("datasets", "datasets") from error
    return datasets
