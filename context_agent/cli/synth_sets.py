"""`ctx1 synth split`, `check`, `card` and `export`: task sets as folders, split by document, and their export."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import click

from context_agent.cli import options, output
from context_agent.cli.command import EXISTING_FILE, EXISTING_FOLDER, FOLDER, INPUT, Argument, Json, Option, command
from context_agent.errors import ConfigError, DataError

if TYPE_CHECKING:
    from context_agent.synth_data.sets.card import CardDetails
    from context_agent.synth_data.task import Task
    from context_agent.types import Document

SetFolder = Annotated[Path, Argument("FOLDER", EXISTING_FOLDER)]


@dataclass(frozen=True, slots=True)
class CardOptions:
    """What a data card says besides the counts."""

    SECTION: ClassVar[str] = "Data card"

    stages: Annotated[
        tuple[Path, ...],
        Option(
            "Output of an earlier stage whose counts the card reports; repeatable, in order.",
            EXISTING_FILE,
            "FILE.jsonl",
            flag="--stage",
        ),
    ] = ()
    licence: Annotated[str, Option("Licence of the set.")] = ""
    about: Annotated[str, Option("First sentence of the card.")] = ""

    def details(self) -> CardDetails:
        """The details, with the stages' counts read from their files."""
        from context_agent.synth_data.sets.card import CardDetails, stage_of

        return CardDetails(tuple(stage_of(file) for file in self.stages), self.licence, self.about)


@command
def split(
    tasks: Annotated[tuple[Path, ...], Argument("TASKS.jsonl...", INPUT)],
    *,
    out: Annotated[Path, Option("Folder for the set.", FOLDER)],
    name: Annotated[
        str | None, Option("Name of the set, the prefix of every id.", metavar="SET", default="the folder's name")
    ] = None,
    shares: Annotated[
        str, Option("The splits and their shares of the tasks, which sum to 1.", metavar="SPLIT=SHARE,…")
    ] = "train=.8,dev=.1,test=.1",
    giants: Annotated[
        Literal["cut", "keep"],
        Option(
            "Groups of tasks with shared documents that fit no split: cut them and drop some tasks, or keep them whole."
        ),
    ] = "cut",
    corpus: Annotated[
        tuple[str, ...],
        Option("Documents for the set, as `ctx1 index` reads them; repeatable.", metavar="SOURCE"),
    ] = (),
    seed: options.SeedOption = 0,
    card: CardOptions,
    as_json: Json,
) -> int:
    """Split tasks into training, dev and test sets.

    The splits share no documents: no document that proves a test task is used in training. With --corpus the folder is
    also a benchmark for `ctx1 eval`; identical documents count as one. A data card is written next to the splits. The
    exit code is 1 if a row could not be read.
    """
    from context_agent.synth_data.sets.card import write_card
    from context_agent.synth_data.sets.folder import duplicate_documents, tasks_in_corpus, write_folder
    from context_agent.synth_data.sets.splits import TaskSplits, split_tasks

    details = card.details()
    task_list, problems = _load_tasks(tasks)
    output.note_problems(problems)
    share_by_split = parse_shares(shares)
    documents = _documents(corpus)
    usable, absent = tasks_in_corpus(task_list, documents) if corpus else (task_list, [])
    set_name = name or out.resolve().name
    parts = split_tasks(
        usable, set_name, shares=share_by_split, seed=seed, giants=giants, twins=duplicate_documents(documents)
    )
    all_parts = TaskSplits(
        parts.splits, (*absent, *parts.dropped), parts.components, parts.largest, parts.cut, parts.spread
    )
    settings = {"set": set_name, "shares": share_by_split, "seed": seed, "giants": giants}
    report = write_folder(out, all_parts, settings, documents=documents)
    write_card(out, details)
    data = {**report, "unreadable": len(problems), "out": str(out)}
    output.result(data, _split_text(report, out), as_json=as_json)
    return 1 if problems else 0


@command
def card(folder: SetFolder, *, card: CardOptions, as_json: Json) -> int:
    """Rewrite the data card of a task set.

    FOLDER was made by `ctx1 synth split`, or has queries.<split>.jsonl. Details that the options omit stay unchanged.
    """
    from context_agent.synth_data.sets.card import write_card

    path = write_card(folder, card.details())
    output.result({"card": str(path)}, f"{path} written", as_json=as_json)
    return 0


@command
def check(folder: SetFolder, *, as_json: Json) -> int:
    """Check that the splits of a task set share nothing.

    No id, question or document may be shared, and all gold must be in the corpus if there is one. The exit code is 1 if
    a check fails.
    """
    from context_agent.retrieval.loaders import load
    from context_agent.synth_data.sets.folder import CORPUS, check_folder, duplicate_documents, tasks_in_corpus

    corpus = folder / CORPUS
    documents = list(load(str(corpus))) if corpus.exists() else []
    splits = check_folder(folder, duplicate_documents(documents))
    missing = [
        task.id for part in splits.values() for task, _ in (tasks_in_corpus(part, documents)[1] if documents else ())
    ]
    if missing:
        raise DataError(f"{folder}: {CORPUS} lacks documents of {len(missing)} tasks, first {missing[0]!r}")
    numbers = {name: len(part) for name, part in splits.items()}
    gold = f", all gold is among {len(documents):,} documents" if documents else ""
    output.result(
        {"tasks": numbers, "documents": len(documents)}, f"{_sizes(numbers)}: nothing is shared{gold}", as_json=as_json
    )
    return 0


def parse_shares(text: str) -> dict[str, float]:
    """`train=.8,test=.2` as shares by split. Raises `ConfigError`; the sum is checked later."""
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, sign, share = (piece.strip() for piece in part.partition("="))
        try:
            shares[name] = float(share)
        except ValueError:
            sign = ""
        if not sign or not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"--shares has the form train=.8,dev=.1,test=.1; got {text!r}")
    return shares


def _load_tasks(files: tuple[Path, ...]) -> tuple[list[Task], list[str]]:
    """All tasks of the files. Raises `DataError` if two files have a task with the same id."""
    from context_agent.synth_data.task import load_tasks

    problems: list[str] = []
    origins: dict[str, Path] = {}
    tasks = []
    for file in files:
        for task in load_tasks(str(file), problems=problems):
            if task.id in origins:
                raise DataError(f"{file}: id {task.id!r} is also in {origins[task.id]}; ids must be unique")
            origins[task.id] = file
            tasks.append(task)
    return tasks, problems


def _documents(sources: tuple[str, ...]) -> list[Document]:
    from context_agent.retrieval.loaders import LoadReport, load

    if not sources:
        return []
    read = LoadReport()
    documents = list(load(sources, report=read))
    output.note_load_report(read)
    if not documents:
        raise DataError(f"no document in {', '.join(sources)}: pass --corpus a source with text")
    return documents


def _sizes(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in numbers.items())


def _split_text(report: dict[str, Any], out: Path) -> str:
    text = f"{_sizes(report['tasks'])} in {out}. Dropped: {output.counts(report['dropped'])}."
    if not report["cut"]:
        return text
    return (
        f"{text}\n{report['cut']:,} of {report['components']:,} groups of tasks that share documents were cut; "
        f"the largest had {report['largest']:,} tasks."
    )


@command
def export(
    tasks: Annotated[Path, Argument("FOLDER|TASKS.jsonl", click.Path(path_type=Path))],
    *,
    to: Annotated[Literal["parquet", "datasets"], Option("Format to write.")] = "parquet",
    out: Annotated[Path | None, Option("Folder for the export, new or empty.", FOLDER)] = None,
    push: Annotated[
        str | None, Option("Upload to the Hugging Face hub under this name, private by default.", metavar="OWNER/SET")
    ] = None,
    public: Annotated[bool, Option("With --push: make the upload public.")],
    as_json: Json,
) -> int:
    """Write tasks as parquet or for the datasets library.

    Nothing leaves this machine without --push. A folder of `ctx1 synth split` is exported split by split. The tasks of
    a file go to the split in their field `split`, and without one to train. An unreadable row is an error: correct the
    file first.
    """
    if out is None and push is None:
        raise click.UsageError("no target: pass --out FOLDER, or --push OWNER/SET, or both")
    if public and push is None:
        raise click.UsageError("--public needs --push OWNER/SET")
    from context_agent.synth_data.sets import folder as exporting
    from context_agent.synth_data.sets.folder import CARD

    if not sys.stderr.isatty():
        exporting.disable_progress_bars()
    splits = _splits(tasks)
    files = [] if out is None else exporting.export(splits, out, to)
    address = None
    if push is not None:
        card_file = tasks / CARD
        address = exporting.push(splits, push, public=public, card=card_file if card_file.is_file() else None)
    numbers = {name: len(part) for name, part in splits.items()}
    targets = " and ".join(str(target) for target in (out, address) if target)
    output.result(
        {"tasks": numbers, "files": [str(file) for file in files], "pushed": address},
        f"{_sizes(numbers)} written to {targets}",
        as_json=as_json,
    )
    return 0


def _splits(path: Path) -> dict[str, list[Task]]:
    from context_agent.synth_data.sets.folder import load_splits
    from context_agent.synth_data.task import load_tasks

    if path.is_dir():
        return load_splits(path)
    splits: dict[str, list[Task]] = {}
    for task in load_tasks(path):
        splits.setdefault(task.split or "train", []).append(task)
    if not splits:
        raise DataError(f"{path} has no task: pass a file of tasks, or a folder of `ctx1 synth split`")
    return splits
