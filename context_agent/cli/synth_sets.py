"""The commands `ctx1 synth split`, `check`, `card` and `export`, which make folders of task sets split by document."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.load_report import note_load_report
from context_agent.cli.parameters import (
    DASH_VALUE,
    EXISTING_FILE,
    EXISTING_FOLDER,
    EXISTING_PATH,
    INPUT_FILE,
    OUTPUT_FOLDER,
    REQUIRED,
    TEXT,
    CommonOptions,
    SeedOption,
    options_in,
)
from context_agent.errors import ConfigError, DataError

if TYPE_CHECKING:
    from context_agent.synth_data.sets.card import CardDetails
    from context_agent.synth_data.task import Task
    from context_agent.types import Document


MANY_DROPPED = 0.1
"""Share of dropped tasks from which `ctx1 synth split` says how to keep more."""


SetFolder = Annotated[Path, EXISTING_FOLDER]


@options_in("Data card")
@dataclass(frozen=True, slots=True)
class CardOptions:
    """The facts that a data card states in addition to the counts."""

    stages: Annotated[tuple[Path, ...], EXISTING_FILE, Parameter(name="--stage", metavar="FILE.jsonl")] = ()
    """Output of an earlier stage whose counts the card reports; repeatable, in order."""
    license: Annotated[str, TEXT] = ""
    """License of the set."""
    about: Annotated[str, TEXT, DASH_VALUE] = ""
    """First sentence of the card."""

    def details(self) -> CardDetails:
        """Return the details, with the stages' counts read from their files."""
        from context_agent.synth_data.sets.card import CardDetails, stage_of

        return CardDetails(tuple(stage_of(file) for file in self.stages), self.license, self.about)


def split(
    *tasks: Annotated[Path, INPUT_FILE, REQUIRED],
    out: Annotated[Path, OUTPUT_FOLDER],
    name: Annotated[str | None, Parameter(metavar="SET", show_default="the folder's name")] = None,
    shares: Annotated[str, Parameter(metavar="SPLIT=SHARE,…")] = "train=.8,dev=.1,test=.1",
    oversized: Literal["cut", "keep"] = "cut",
    corpus: Annotated[tuple[str, ...], Parameter(metavar="SOURCE")] = (),
    seed: SeedOption = 0,
    card: CardOptions = CardOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Split tasks into training, dev and test sets.

    The splits share no documents, so no document that proves a test task is used in training. With --corpus, the folder
    is also a benchmark for `ctx1 eval`. Identical documents count as one. A data card is written next to the splits.
    The exit code is 1 if a row could not be read.

    Args:
        tasks: Files of tasks, or - for standard input.
        out: Folder for the set.
        name: Name of the set, the prefix of every id.
        shares: The splits and their shares of the tasks, which sum to 1.
        oversized: How to treat a group of tasks that share documents and fit no split: cut it and drop some tasks, or
            keep it whole.
        corpus: Documents for the set, as `ctx1 index` reads them; repeatable.
    """
    from context_agent.synth_data.sets.card import write_card
    from context_agent.synth_data.sets.folder import duplicate_documents, tasks_in_corpus, write_folder
    from context_agent.synth_data.sets.splits import CROSSING, TaskSplits, split_tasks

    details = card.details()
    task_list, problems = _load_tasks(tasks)
    output.note_problems(problems)
    share_by_split = parse_shares(shares)
    documents = _documents(corpus)
    usable, absent = tasks_in_corpus(task_list, documents) if corpus else (task_list, [])
    set_name = name or out.resolve().name
    parts = split_tasks(
        usable,
        set_name,
        shares=share_by_split,
        seed=seed,
        oversized=oversized,
        duplicates=duplicate_documents(documents),
    )
    all_parts = TaskSplits(
        parts.splits, (*absent, *parts.dropped), parts.components, parts.largest, parts.cut, parts.spread
    )
    settings = {"set": set_name, "shares": share_by_split, "seed": seed, "oversized": oversized}
    report = write_folder(out, all_parts, settings, documents=documents)
    write_card(out, details)
    _note_many_dropped(report["dropped"].get(CROSSING, 0), len(task_list))
    data = {**report, "unreadable": len(problems), "out": str(out)}
    output.result(data, _split_text(report, out), as_json=common.json)
    return 1 if problems else 0


def card(folder: SetFolder, /, *, card: CardOptions = CardOptions(), common: CommonOptions = CommonOptions()) -> int:
    """Rewrite the data card of a task set.

    Details that the options omit stay unchanged.

    Args:
        folder: Folder of `ctx1 synth split`, or another with queries.<split>.jsonl.
    """
    from context_agent.synth_data.sets.card import write_card

    path = write_card(folder, card.details())
    output.result({"card": str(path)}, f"{path} written", as_json=common.json)
    return 0


def check(folder: SetFolder, /, *, common: CommonOptions = CommonOptions()) -> int:
    """Check that the splits of a task set share nothing.

    No id, question or document may be shared, and all gold must be in the corpus if there is one. The exit code is 1 if
    a check fails.

    Args:
        folder: Folder of `ctx1 synth split`, or another with queries.<split>.jsonl.
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
        raise DataError(
            f"{CORPUS} in {folder} lacks documents of {len(missing)} tasks, such as task {missing[0]!r}. Split the "
            "tasks again."
        )
    numbers = {name: len(part) for name, part in splits.items()}
    gold = f", all gold is among {len(documents):,} documents" if documents else ""
    output.result(
        {"tasks": numbers, "documents": len(documents)},
        f"{_sizes(numbers)}: nothing is shared{gold}",
        as_json=common.json,
    )
    return 0


def parse_shares(text: str) -> dict[str, float]:
    """Return the shares by split from a text such as `train=.8,test=.2`. The caller checks the sum.

    Raises:
        ConfigError: If the text does not have this form.
    """
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, sign, share = (piece.strip() for piece in part.partition("="))
        try:
            shares[name] = float(share)
        except ValueError:
            sign = ""
        if not sign or not name.replace("-", "").replace("_", "").isalnum():
            raise ConfigError(f"--shares must have the form train=.8,dev=.1,test=.1; got {text!r}")
    # Splits become files, and some file systems ignore the case of their names.
    if len({name.casefold() for name in shares}) <= text.count(","):
        raise ConfigError(f"--shares must name each split once, in any case of letters; got {text!r}")
    return shares


def _load_tasks(files: tuple[Path, ...]) -> tuple[list[Task], list[str]]:
    """Return all tasks of the files.

    Raises:
        DataError: If two files have a task with the same id.
    """
    from context_agent.synth_data.task import load_tasks

    problems: list[str] = []
    origins: dict[str, Path] = {}
    tasks = []
    for file in files:
        for task in load_tasks(str(file), problems=problems):
            if task.id in origins:
                raise DataError(f"the id {task.id!r} is in {file} and in {origins[task.id]}. Make the ids unique.")
            origins[task.id] = file
            tasks.append(task)
    return tasks, problems


def _documents(sources: tuple[str, ...]) -> list[Document]:
    from context_agent.retrieval.loaders import LoadReport, load

    if not sources:
        return []
    read = LoadReport()
    documents = list(load(sources, report=read))
    note_load_report(read)
    if not documents:
        raise DataError(f"there is no document in {', '.join(sources)}. Pass a source with text to --corpus.")
    return documents


def _sizes(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in numbers.items())


def _note_many_dropped(crossing: int, tasks: int) -> None:
    """If the split costs many tasks, print a note that says how to keep more of them."""
    if crossing <= MANY_DROPPED * tasks:
        return
    output.note(
        f"{crossing:,} of {tasks:,} tasks ({crossing / tasks:.0%}) were dropped, because documents link them to two "
        "splits. To keep more, add documents, or make the held-out splits smaller or fewer (--shares "
        "train=.95,test=.05)."
    )


def _split_text(report: dict[str, Any], out: Path) -> str:
    text = f"{_sizes(report['tasks'])} in {out}. Dropped: {output.counts(report['dropped'])}."
    if not report["cut"]:
        return text
    return (
        f"{text}\n{report['cut']:,} of {report['components']:,} groups of tasks that share documents were cut; "
        f"the largest had {report['largest']:,} tasks."
    )


def export(
    tasks: Annotated[Path, EXISTING_PATH],
    /,
    *,
    to: Literal["parquet", "datasets"] = "parquet",
    out: Annotated[Path | None, OUTPUT_FOLDER] = None,
    push: Annotated[str | None, Parameter(metavar="OWNER/SET")] = None,
    public: bool = False,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Write tasks as parquet or for the datasets library.

    Nothing leaves this machine without --push. A folder of `ctx1 synth split` is exported split by split. The tasks of
    a file go to the split in their field `split`, and without one to train. An unreadable row is an error: correct the
    file first.

    Args:
        tasks: File of tasks, or a folder of `ctx1 synth split`.
        to: Format to write.
        out: Folder for the export, new or empty.
        push: Upload to the Hugging Face hub under this name, private by default.
        public: With --push: make the upload public.
    """
    if out is None and push is None:
        raise ConfigError("there is no target. Pass --out FOLDER, or --push OWNER/SET, or both.")
    if public and push is None:
        raise ConfigError("--public needs a set to publish. Pass --push OWNER/SET.")
    from context_agent.synth_data.sets.export import check_hub_name, disable_progress_bars, export_splits, push_splits
    from context_agent.synth_data.sets.folder import CARD

    if push is not None:
        check_hub_name(push)
    if not sys.stderr.isatty():
        disable_progress_bars()
    splits = _splits(tasks)
    files = [] if out is None else export_splits(splits, out, to)
    address = None
    if push is not None:
        card_file = tasks / CARD
        address = push_splits(splits, push, public=public, card=card_file if card_file.is_file() else None)
    numbers = {name: len(part) for name, part in splits.items()}
    targets = " and ".join(str(target) for target in (out, address) if target)
    output.result(
        {"tasks": numbers, "files": [str(file) for file in files], "pushed": address},
        f"{_sizes(numbers)} written to {targets}",
        as_json=common.json,
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
        raise DataError(f"{path} has no tasks. Pass a file of tasks, or a folder that `ctx1 synth split` wrote.")
    return splits
