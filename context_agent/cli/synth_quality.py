"""The commands that select tasks and divide them into sets.

`ctx1 synth filter` and `ctx1 synth review` select tasks by rules and by people's judgments. `ctx1 synth split`,
`check`, `card` and `export` make folders of task sets that are split by document.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from context_agent._support.small_files import parse_json
from context_agent.cli import options, output
from context_agent.cli.parameters import (
    COUNT,
    COUNT_OR_ZERO,
    DASH_VALUE,
    EXISTING_FILE,
    EXISTING_FOLDER,
    EXISTING_PATH,
    FILE,
    FOLDER,
    INPUT_FILE,
    POSITIVE_SHARE,
    REQUIRED,
    TEXT,
    CommonOptions,
    essential,
    options_in,
)
from context_agent.errors import ConfigError, DataError

if TYPE_CHECKING:
    from context_agent._support.worker_pool import CallParent
    from context_agent.retrieval.corpus import Corpus
    from context_agent.synth_data.attempts import Extreme, PassAtN
    from context_agent.synth_data.quality import TaskFilter
    from context_agent.synth_data.sets.card import CardDetails
    from context_agent.synth_data.task import Task
    from context_agent.types import Document


MANY_DROPPED = 0.1
"""Share of dropped tasks from which `ctx1 synth split` says how to keep more."""


@options_in("Attempts")
@dataclass(frozen=True, slots=True)
class AttemptOptions:
    """The number of attempts at each task, and the results for which a task is dropped."""

    passes: Annotated[int, COUNT_OR_ZERO] = 0
    """Number of attempts at each task; 0 for none."""
    vary: Annotated[
        Literal["seed", "effort", "window"] | None, Parameter(show_default="effort for the bridge policy, else seed")
    ] = None
    """What varies between attempts."""
    drop: Literal["both", "always", "never", "none"] = "both"
    """Tasks to drop: those that all attempts solve (always), those that none solves (never), both, or none."""
    k: Annotated[int, COUNT] = 10
    """Number of ranked documents that count."""
    recall: Annotated[float, POSITIVE_SHARE] = 1.0
    """Minimum recall of an attempt that solves the task."""

    @property
    def extremes(self) -> frozenset[Extreme]:
        """The results for which a task is dropped."""
        match self.drop:
            case "both":
                return frozenset({"always", "never"})
            case "none":
                return frozenset()
            case extreme:
                return frozenset({extreme})


@essential("out min_similarity keep_duplicates concurrency base_url model path url collection")
def filter_tasks(
    tasks: Annotated[Path, INPUT_FILE],
    /,
    *,
    out: Annotated[Path, FILE, Parameter(metavar="FILE.jsonl")],
    min_similarity: Annotated[float, POSITIVE_SHARE] = 0.7,
    keep_duplicates: bool = False,
    concurrency: Annotated[int, COUNT] = 8,
    processes: options.ProcessesOption = None,
    ray: options.RayOption = None,
    attempts: AttemptOptions = AttemptOptions(),
    agent: options.AgentOptions = options.AgentOptions(),
    index: options.CorpusOptions = options.CorpusOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Keep the tasks that are worth training on.

    A task is kept if its gold is in the index, if no other task is nearly the same, and if it is neither trivial nor
    unsolvable. With --passes N the policy attempts every task N times. The bridge policy is deterministic, so its
    attempts differ by effort: from one search up to all its searches. Each task that stays is labeled with its attempts
    and its difficulty. To resume an interrupted run, run the same command again. The exit code is 1 if a row could not
    be read or an attempt failed.

    Args:
        tasks: File of tasks, or - for standard input.
        out: File for the tasks that stay; dropped tasks go to FILE.jsonl.dropped.jsonl.
        min_similarity: Minimum Jaccard index at which two questions about the same documents are near-duplicates.
        keep_duplicates: Keep near-duplicates.
        concurrency: Number of tasks at the same time.
    """
    from context_agent.synth_data import quality
    from context_agent.synth_data.stages import StageWorker
    from context_agent.synth_data.task import load_tasks

    problems: list[str] = []
    task_list = load_tasks(str(tasks), problems=problems)
    output.note_problems(problems)
    with ExitStack() as stack:
        corpus = stack.enter_context(index.open())
        setup = StageWorker(partial(_open_filter, agent, attempts, index))
        pool = stack.enter_context(options.worker_pool(setup, processes, ray, concurrency=concurrency))
        measure = _pass_at_n(agent, corpus, attempts)
        if measure is not None:
            stack.callback(measure.close)
        advance = stack.enter_context(output.progress("Filtering", "tasks"))
        report = asyncio.run(
            quality.filter_tasks(
                task_list,
                corpus,
                out,
                pass_at_n=measure,
                min_similarity=None if keep_duplicates else min_similarity,
                concurrency=concurrency,
                pool=pool,
                advance=advance,
            )
        )
    unreadable = f", {len(problems):,} unreadable rows" if problems else ""
    output.result(
        {**report.to_json(), "unreadable": len(problems), "out": str(out)},
        f"{report.kept:,} of {report.inputs:,} tasks kept in {out}{unreadable}. "
        f"Dropped: {output.counts(report.dropped)}.",
        as_json=common.json,
    )
    failed = any(reason.startswith("failed") for reason in report.dropped)
    return 1 if problems or failed or report.halted else 0


def _open_filter(
    agent: options.AgentOptions, attempts: AttemptOptions, index: options.CorpusOptions, call: CallParent
) -> TaskFilter:
    """Return the function that filters tasks in a worker process."""
    from context_agent.synth_data.quality import TaskFilter

    corpus = index.open()
    return TaskFilter(corpus, _pass_at_n(agent, corpus, attempts))


def _pass_at_n(agent: options.AgentOptions, corpus: Corpus, chosen: AttemptOptions) -> PassAtN | None:
    """Return the attempts at each task. If tasks are not attempted, return None."""
    if not chosen.passes:
        return None
    from context_agent.harness.profile import profile as named_profile
    from context_agent.synth_data.attempts import PassAtN, build_attempts, default_vary

    policy = agent.policy.load()
    vary = chosen.vary or default_vary(policy)
    attempts = build_attempts(
        corpus,
        policy,
        chosen.passes,
        vary,
        window=agent.window or agent.policy.window or named_profile(agent.policy.wire_format).window,
        profile=agent.policy.wire_format,
        limits=agent.limits.load(),
        rollouts=agent.rollouts,
        trajectories=agent.save,
    )
    return PassAtN(attempts, vary, k=chosen.k, threshold=chosen.recall, drop=chosen.extremes)


@options_in("Page")
@dataclass(frozen=True, slots=True)
class PageOptions:
    """The tasks that the page shows."""

    sample: Annotated[int, COUNT] = 100
    """Number of tasks on the page."""
    dropped: Annotated[tuple[Path, ...], EXISTING_FILE, Parameter(metavar="FILE.dropped.jsonl")] = ()
    """Tasks that the verification dropped, mixed in without a mark; repeatable."""
    dropped_sample: Annotated[int, COUNT] = 20
    """Number of dropped tasks on the page."""


@options_in("Judgments")
@dataclass(frozen=True, slots=True)
class JudgmentOptions:
    """The judgments, and the rules by which they drop tasks."""

    judgments: Annotated[tuple[Path, ...], EXISTING_FILE, Parameter(metavar="FILE.jsonl")] = ()
    """A judge's download from the page; repeatable, and further files may follow TASKS.jsonl."""
    reject_by: Literal["any", "majority"] = "any"
    """Drop a task after one rejection (any), or unless more than half accept it (majority)."""
    judged_only: bool = False
    """Keep only accepted tasks, and no tasks without a verdict."""


def review(
    tasks: Annotated[Path, INPUT_FILE],
    /,
    *more: Annotated[Path, EXISTING_FILE],
    out: Annotated[Path, FILE],
    seed: options.SeedOption = 0,
    index: options.CorpusOptions = options.CorpusOptions(),
    page: PageOptions = PageOptions(),
    verdicts: JudgmentOptions = JudgmentOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Let people judge a sample of tasks on a web page.

      ctx1 synth review tasks.jsonl --out review.html
      ctx1 synth review tasks.jsonl --judgments ann.jsonl --out kept.jsonl

    The first command writes the page, which needs no server. The second drops the tasks that the judges reject, and
    reports the agreement between judges (equal verdicts, Cohen's kappa, Krippendorff's alpha) and with the automatic
    verification. Every task of the file passed this verification. To measure both kinds of error, add tasks that it
    dropped with --dropped.

    Args:
        tasks: File of tasks, or - for standard input.
        more: Further files of judgments.
        out: File for the page or, with --judgments, for the tasks that stay.
    """
    from context_agent.synth_data.task import load_tasks

    if more and not verdicts.judgments:
        raise ConfigError(
            f"{more[0]} follows the file of tasks. If {more[0]} contains judgments, write --judgments before it."
        )
    problems: list[str] = []
    task_list = load_tasks(str(tasks), problems=problems)
    dropped_tasks = _dropped_tasks(page.dropped, {task.id for task in task_list}, problems)
    if verdicts.judgments:
        files = (*verdicts.judgments, *more)
        report = _apply_judgments(task_list, dropped_tasks, files, out, verdicts, seed=seed)
        problems += report.pop("problems")
        text = _agreement_text(report)
    else:
        from context_agent.synth_data.review import draw_sample, tasks_on_page
        from context_agent.web.review import review_page

        drawn = [*draw_sample(task_list, page.sample, seed), *draw_sample(dropped_tasks, page.dropped_sample, seed)]
        drawn = draw_sample(drawn, None, seed)
        with index.open() as corpus:
            html = review_page(tasks_on_page(drawn, corpus), f"Review of {tasks.name}")
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(html, encoding="utf-8")
        report = {"page": str(out), "tasks": len(drawn)}
        text = f"{len(drawn):,} tasks to judge in {out}; open it in a browser"
    output.note_problems(problems)
    output.result(report, text, as_json=common.json)
    return 1 if problems else 0


def _dropped_tasks(files: tuple[Path, ...], known_ids: set[str], problems: list[str]) -> list[Task]:
    """Return the tasks among the rows that stages dropped. Other rows are reported and skipped."""
    from context_agent.errors import DataError
    from context_agent.synth_data.task import task_of

    tasks: dict[str, Task] = {}
    for file in files:
        # Not `splitlines`, which also splits at separators that texts may contain.
        for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), start=1):
            if not line:
                continue
            location = f"{file}:{number}"
            try:
                task = task_of(parse_json(line)["input"], location)
            except (DataError, ValueError, KeyError, TypeError) as error:
                problems.append(f"{location}: not a dropped task ({error})")
                continue
            if task.id in known_ids or task.id in tasks:
                problems.append(f"{location}: id {task.id!r} is also the id of another task")
                continue
            tasks[task.id] = task
    return list(tasks.values())


def _apply_judgments(
    task_list: list[Task],
    dropped_tasks: list[Task],
    files: tuple[Path, ...],
    out: Path,
    verdicts: JudgmentOptions,
    *,
    seed: int,
) -> dict[str, Any]:
    """Write the tasks that stay, and report the agreement of the judges."""
    from context_agent.synth_data.agreement import measure_agreement
    from context_agent.synth_data.judgments import REVIEW_LABEL, apply_judgments, load_judgments
    from context_agent.synth_data.task import write_tasks

    verified = {**{task.id: True for task in task_list}, **{task.id: False for task in dropped_tasks}}
    judgments = load_judgments(files, verified)
    remaining, rejected = apply_judgments(task_list, judgments, verdicts.reject_by)
    if verdicts.judged_only:
        remaining = [task for task in remaining if task.labels.get(REVIEW_LABEL, {}).get("accepted")]
    write_tasks(out, remaining)
    return {
        "out": str(out),
        "kept": len(remaining),
        "rejected": [task.id for task in rejected],
        "lines": {kind: judgments.counts[kind] for kind in ("unknown", "changed", "undecided", "bad")},
        "agreement": asdict(measure_agreement(judgments.verdicts, verified, seed=seed)),
        "problems": judgments.problems,
    }


def _agreement_text(report: dict[str, Any]) -> str:
    """Return the counts, each judge's agreement with the verification, and the agreement between judges."""
    from context_agent.synth_data.agreement import IntervalEstimate

    def estimate(figures: dict[str, Any]) -> str:
        return str(IntervalEstimate(**figures))

    agreement = report["agreement"]
    lines = [f"{report['kept']:,} tasks kept in {report['out']}, {len(report['rejected']):,} rejected"]
    for name, judge in agreement["judges"].items():
        rate = f"{judge['accepted']} of {judge['judged']} accepted, {estimate(judge['accept_rate'])}"
        lines.append(f"{name}: {rate}; agrees with the verification {estimate(judge['verification'])}")
        if judge["kappa"]["value"] is not None:
            lines.append(f"{name}: kappa with the verification {estimate(judge['kappa'])}")
    for pair, equal in agreement["equal"].items():
        lines.append(f"{pair}: equal {estimate(equal)}, kappa {estimate(agreement['kappa'][pair])}")
    if len(agreement["judges"]) > 1:
        lines.append(f"Krippendorff's alpha over all: {estimate(agreement['alpha'])}")
    return "\n".join(lines)


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
    out: Annotated[Path, FOLDER],
    name: Annotated[str | None, Parameter(metavar="SET", show_default="the folder's name")] = None,
    shares: Annotated[str, Parameter(metavar="SPLIT=SHARE,…")] = "train=.8,dev=.1,test=.1",
    oversized: Literal["cut", "keep"] = "cut",
    corpus: Annotated[tuple[str, ...], Parameter(metavar="SOURCE")] = (),
    seed: options.SeedOption = 0,
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
    output.note_load_report(read)
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
    out: Annotated[Path | None, FOLDER] = None,
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
    from context_agent.synth_data.sets.export import disable_progress_bars, export_splits, push_splits
    from context_agent.synth_data.sets.folder import CARD

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
