"""`ctx1 synth split`, `check`, `card` and `export`: task sets as folders, split by document, and their export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import click

from context_agent.cli import console, options
from context_agent.cli.synth import report_problems, seed_option
from context_agent.errors import ConfigError, DataError

if TYPE_CHECKING:
    from context_agent.synth_data.sets.card import StageSummary
    from context_agent.synth_data.task import Task
    from context_agent.types import Document


def card_options(command: options.Command) -> options.Command:
    """The options for what a data card says besides the counts."""
    return options.together(
        command,
        click.option(
            "--stage",
            "stages",
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            multiple=True,
            metavar="FILE.jsonl",
            help="Output of an earlier stage whose counts the card reports; may be repeated, in order.",
        ),
        click.option("--licence", default="", metavar="TEXT", help="The set's licence.  [default: not stated]"),
        click.option("--about", default="", metavar="TEXT", help="First sentence of the card."),
    )


@click.command()
@click.argument(
    "tasks", type=click.Path(path_type=Path, allow_dash=True), nargs=-1, required=True, metavar="TASKS.jsonl…"
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="FOLDER",
    help="Folder for the set.",
)
@click.option("--name", metavar="SET", help="Name of the set, the prefix of every id.  [default: the folder's name]")
@click.option(
    "--shares",
    default="train=.8,dev=.1,test=.1",
    show_default=True,
    metavar="SPLIT=SHARE,…",
    help="The splits and their shares of the tasks, which sum to 1.",
)
@seed_option
@click.option(
    "--giants",
    type=click.Choice(["cut", "keep"]),
    default="cut",
    show_default=True,
    help="Groups of tasks with shared documents that fit no split: cut them and drop some tasks, or keep them whole.",
)
@click.option(
    "--corpus",
    multiple=True,
    metavar="SOURCE",
    help="Documents for the set, as `ctx1 index` reads them; may be repeated. Duplicates count as one document.",
)
@card_options
@options.common
def split(
    *,
    tasks: tuple[Path, ...],
    out: Path,
    name: str | None,
    shares: str,
    seed: int,
    giants: str,
    corpus: tuple[str, ...],
    stages: tuple[Path, ...],
    licence: str,
    about: str,
    as_json: bool,
) -> int:
    """Split tasks by document, so that no document that proves a test task is used in training; write a data card.

    With --corpus the folder is a benchmark for `ctx1 eval`. The exit code is 1 if a row could not be read.
    """
    from context_agent.synth_data.sets.card import CardDetails, write_card
    from context_agent.synth_data.sets.folder import duplicate_documents, tasks_in_corpus, write_folder
    from context_agent.synth_data.sets.splits import TaskSplits, split_tasks

    summaries = _stage_summaries(stages)
    task_list, problems = _load_tasks(tasks)
    share_by_split = parse_shares(shares)
    documents = _documents(corpus)
    usable, absent = tasks_in_corpus(task_list, documents) if corpus else (task_list, [])
    set_name = name or out.resolve().name
    parts = split_tasks(
        usable,
        set_name,
        shares=share_by_split,
        seed=seed,
        giants=cast("Literal['cut', 'keep']", giants),
        twins=duplicate_documents(documents),
    )
    all_parts = TaskSplits(
        parts.splits, (*absent, *parts.dropped), parts.components, parts.largest, parts.cut, parts.spread
    )
    settings = {"set": set_name, "shares": share_by_split, "seed": seed, "giants": giants}
    report = write_folder(out, all_parts, settings, documents=documents)
    write_card(out, CardDetails(summaries, licence, about))
    report_problems("split", problems)
    if as_json:
        console.print_json({**report, "unreadable": len(problems), "out": str(out)})
    else:
        _show_split(report, out)
    return 1 if problems else 0


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@card_options
@options.common
def card(*, folder: Path, stages: tuple[Path, ...], licence: str, about: str, as_json: bool) -> int:
    """Rewrite the data card of a folder made by `ctx1 synth split`, or of any folder with queries.<split>.jsonl.

    Details that the options leave out stay as they were.
    """
    from context_agent.synth_data.sets.card import CardDetails, write_card

    path = write_card(folder, CardDetails(_stage_summaries(stages), licence, about))
    if as_json:
        console.print_json({"card": str(path)})
    else:
        click.echo(f"{path} written")
    return 0


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@options.common
def check(*, folder: Path, as_json: bool) -> int:
    """Check a folder of splits: no shared id, question or document, and all gold in the corpus, if there is one.

    The exit code is 1 if a check fails.
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
    counts = {name: len(part) for name, part in splits.items()}
    if as_json:
        console.print_json({"tasks": counts, "documents": len(documents)})
    else:
        counted = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        click.echo(
            f"{counted}: nothing is shared" + (f", all gold is among {len(documents):,} documents" if documents else "")
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
    home: dict[str, Path] = {}
    tasks = []
    for file in files:
        for task in load_tasks(str(file), problems=problems):
            if task.id in home:
                raise DataError(f"{file}: id {task.id!r} is also in {home[task.id]}; ids must be unique")
            home[task.id] = file
            tasks.append(task)
    return tasks, problems


def _documents(sources: tuple[str, ...]) -> list[Document]:
    from context_agent.retrieval.loaders import LoadReport, load

    if not sources:
        return []
    read = LoadReport()
    documents = list(load(sources, report=read))
    report_problems("split", [str(notice) for notice in read.notices])
    if not documents:
        raise DataError(f"no document in {', '.join(sources)} (--corpus)")
    return documents


def _stage_summaries(files: tuple[Path, ...]) -> tuple[StageSummary, ...]:
    from context_agent.synth_data.sets.card import stage_of

    return tuple(stage_of(file) for file in files)


def _show_split(report: dict[str, Any], out: Path) -> None:
    counted = ", ".join(f"{name} {count:,}" for name, count in report["tasks"].items())
    lost = ", ".join(f"{count:,} {reason}" for reason, count in report["dropped"].items()) or "none"
    click.echo(console.printable(f"{counted} in {out}. Dropped: {lost}."))
    if report["cut"]:
        click.echo(
            f"{report['cut']:,} of {report['components']:,} groups of tasks that share documents were cut; "
            f"the largest had {report['largest']:,} tasks."
        )


@click.command()
@click.argument("tasks", type=click.Path(path_type=Path), metavar="FOLDER|TASKS.jsonl")
@click.option(
    "--to", type=click.Choice(["parquet", "datasets"]), default="parquet", show_default=True, help="Format to write."
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FOLDER", help="Folder for the export, new or empty.")
@click.option("--push", metavar="OWNER/SET", help="Upload to the Hugging Face hub under this name, private by default.")
@click.option("--public", is_flag=True, help="With --push: make the upload public.")
@options.common
def export(*, tasks: Path, to: str, out: Path | None, push: str | None, public: bool, as_json: bool) -> int:
    """Write tasks as parquet or as a `datasets` folder. Nothing leaves this machine without --push.

    A folder is exported split by split, as `ctx1 synth split` writes it. The tasks of a file go by their field `split`,
    and to train without one. An unreadable row is an error: correct the file first.
    """
    if out is None and push is None:
        raise click.UsageError("give --out FOLDER, or --push OWNER/SET, or both")
    if public and push is None:
        raise click.UsageError("--public needs --push")
    from context_agent.synth_data.sets import folder as exporting
    from context_agent.synth_data.sets.folder import CARD

    if not sys.stderr.isatty():
        exporting.disable_progress_bars()
    splits = _splits(tasks)
    counts = {name: len(part) for name, part in splits.items()}
    files: list[Path] = []
    if out is not None:
        files = exporting.export(splits, out, cast("Literal['parquet', 'datasets']", to))
    address = None
    if push is not None:
        card = tasks / CARD
        address = exporting.push(splits, push, public=public, card=card if card.is_file() else None)
    if as_json:
        console.print_json({"tasks": counts, "files": [str(file) for file in files], "pushed": address})
    else:
        counted = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        targets = " and ".join(str(target) for target in (out, address) if target)
        click.echo(console.printable(f"{counted} written to {targets}"))
    return 0


def _splits(path: Path) -> dict[str, list[Task]]:
    from context_agent.errors import DataError
    from context_agent.synth_data.sets.folder import load_splits
    from context_agent.synth_data.task import load_tasks

    if path.is_dir():
        return load_splits(path)
    splits: dict[str, list[Task]] = {}
    for task in load_tasks(path):
        splits.setdefault(task.split or "train", []).append(task)
    if not splits:
        raise DataError(f"{path} has no task")
    return splits
