"""The commands `ctx1 synth tasks` and `ctx1 synth world`, which make multi-hop tasks.

The tasks come from an index or from an invented world. With a language model, they are made in stages: `ctx1 synth
explore`, `write`, `verify`, `distract` and `extend`. `ctx1 synth tasks --model` runs all stages with `make_with_model`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter, Token

from context_agent.cli import options, output
from context_agent.cli.parameters import (
    COUNT,
    COUNT_OR_ZERO,
    EXISTING_FILE,
    EXISTING_FOLDER,
    FILE,
    FOLDER,
    NOT_NEGATIVE,
    OWN,
    POSITIVE,
    CommonOptions,
    essential,
    options_in,
)
from context_agent.errors import ConfigError
from context_agent.pruning.budget import WINDOW

if TYPE_CHECKING:
    from context_agent._support.worker_pool import CallParent
    from context_agent.retrieval.corpus import Corpus
    from context_agent.synth_data.links.tasks import LinkTaskSettings
    from context_agent.synth_data.llm_stages.context import StageContext
    from context_agent.synth_data.llm_stages.distractors import DistractorSettings
    from context_agent.synth_data.llm_stages.model import StructuredModel
    from context_agent.synth_data.llm_stages.pipeline import PipelinePlan
    from context_agent.synth_data.stages import StageFunction, StagePool, StageReport
    from context_agent.synth_data.task import Task


Rows = list[dict[str, Any]]
StageInput = Annotated[Path, EXISTING_FILE]


@options_in("Writing with a language model")
@dataclass(frozen=True, slots=True)
class WriterOptions:
    """The language model that writes tasks: its domain, prompts, spending limits and concurrency."""

    domain: Annotated[str, Parameter(metavar="NAME")] = "documents"
    """Domain of the corpus: its answer types and hints."""
    prompts: Annotated[Path | None, EXISTING_FOLDER] = None
    """Folder with prompt files (explore.md, write.md, ...) that replace those of the package."""
    price_in: Annotated[float, NOT_NEGATIVE] = 0.0
    """Price of a million input tokens."""
    price_out: Annotated[float, NOT_NEGATIVE] = 0.0
    """Price of a million output tokens."""
    max_cost: Annotated[float | None, POSITIVE] = None
    """Maximum cost of all calls, in the currency of the prices."""
    max_tokens_total: Annotated[int | None, COUNT] = None
    """Maximum number of tokens of all calls."""
    concurrency: Annotated[int, COUNT] = 8
    """Number of rows at the same time."""
    processes: options.ProcessesOption = None
    ray: options.RayOption = None
    max_turns: Annotated[int, COUNT] = 16
    """Maximum number of turns of an exploration."""
    window: Annotated[int, Parameter(metavar="N")] = WINDOW
    """Context window of an exploration in tokens."""


@options_in(OWN)
@dataclass(frozen=True, slots=True)
class StageOptions:
    """The options that every stage has."""

    out: Annotated[Path, FILE, Parameter(metavar="OUT.jsonl")]
    """File for the rows. Dropped rows and the journal for resuming are written next to it."""
    writer: WriterOptions = WriterOptions()
    language_model: options.ModelOptions = options.ModelOptions()
    index: options.CorpusOptions = options.CorpusOptions()
    replies: Annotated[Path | None, FILE, Parameter(metavar="FILE.jsonl", show_default="replies.jsonl next to OUT")] = (
        None
    )
    """Cache of the model's replies; stages may share one."""
    seed: options.SeedOption = 0
    common: CommonOptions = CommonOptions()


def explore(*, count: Annotated[int, COUNT] = 100, stage: StageOptions) -> int:
    """Gather the documents of tasks, starting from random ones.

    A language model explores the index from each start document.

    Args:
        count: Number of documents to start from.
    """
    from context_agent.synth_data.llm_stages import writing

    def rows(context: StageContext) -> Rows:
        return writing.draw_seeds(context.corpus, count, context.model.seed)

    return _run("explore", rows, writing.explore, stage)


def write(source: StageInput, /, *, stage: StageOptions) -> int:
    """Write questions and answers from gathered documents.

    Args:
        source: Output of `ctx1 synth explore`.
    """
    from context_agent.synth_data.llm_stages import writing

    return _run("write", _source_rows(source), writing.write, stage)


def verify(source: StageInput, /, *, stage: StageOptions) -> int:
    """Verify tasks by quotes from their documents.

    A language model extracts the quotes, and a rule looks for them in the documents.

    Args:
        source: Output of `ctx1 synth write`.
    """
    from context_agent.synth_data.llm_stages import verification

    return _run("verify", _source_rows(source), verification.verify, stage)


def extend(source: StageInput, /, *, stage: StageOptions) -> int:
    """Make verified tasks one hop longer.

    Verify the tasks again afterwards.

    Args:
        source: Output of `ctx1 synth verify`.
    """
    from context_agent.synth_data.llm_stages import writing

    return _run("extend", _source_rows(source), writing.extend, stage)


@essential("out distractors without_model base_url model domain path url collection")
def distract(
    source: StageInput,
    /,
    *,
    without_model: bool = False,
    distractors: Annotated[int, COUNT_OR_ZERO] = 10,
    min_distractors: Annotated[int, COUNT_OR_ZERO] = 1,
    check_distractors: bool = False,
    stage: StageOptions,
) -> int:
    """Find distractors for tasks.

    Distractors are documents that look relevant and do not contain the answer.

    Args:
        source: Rows with tasks.
        without_model: Search by the question and its clues, without a model.
        distractors: Maximum number of distractors of a task.
        min_distractors: Drop tasks with fewer distractors.
        check_distractors: Let the model judge each distractor, in addition to the rule.
    """
    from context_agent.synth_data.llm_stages import distractors as distractor_stage
    from context_agent.synth_data.llm_stages.pipeline import distractor_settings

    settings = distractor_stage.DistractorSettings(distractors, min_distractors, check_distractors)
    if without_model:
        if check_distractors:
            raise ConfigError(
                "--check-distractors needs a model. Remove --check-distractors, or remove --without-model."
            )
        return _distract_by_words(source, settings, stage)

    work = partial(distractor_stage.distract, settings=settings)
    return _run("distract", _source_rows(source), work, stage, settings=distractor_settings(settings))


def make_with_model(corpus: Corpus, plan: PipelinePlan, stage: StageOptions) -> int:
    """Run all stages, and return the exit code.

    The exit code is 1 if no task was made or if the spending cap ended the run.
    """
    from context_agent.synth_data.llm_stages.pipeline import REPLIES_FILE, make_tasks, stages_folder

    with (
        _model(stage, stages_folder(stage.out) / REPLIES_FILE) as model,
        _pool(stage, _open_context, model.answer) as pool,
        ExitStack() as bars,
    ):

        def watch(name: str) -> Callable[[int, int | None], None]:
            bars.close()
            return bars.enter_context(output.progress(name, "rows"))

        context = _context(corpus, model, stage.writer)
        reports = asyncio.run(make_tasks(context, plan, stage.out, pool=pool, watch=watch))
    for report in reports:
        _show_report(report, as_json=stage.common.json)
    return 1 if reports[-1].halted or not reports[-1].kept else 0


def _run(
    name: str,
    rows: Callable[[StageContext], Rows],
    work: StageFunction,
    stage: StageOptions,
    *,
    settings: dict[str, Any] | None = None,
) -> int:
    from context_agent.synth_data.llm_stages.pipeline import REPLIES_FILE, run_llm_stage

    with (
        stage.index.open() as corpus,
        _model(stage, stage.replies or stage.out.with_name(REPLIES_FILE)) as model,
        _pool(stage, _open_context, model.answer) as pool,
        output.progress(name, "rows") as advance,
    ):
        context = _context(corpus, model, stage.writer)
        run = run_llm_stage(
            context,
            name,
            rows(context),
            work,
            stage.out,
            concurrency=stage.writer.concurrency,
            pool=pool,
            settings=settings,
            advance=advance,
        )
        report = asyncio.run(run)
    return _show_report(report, as_json=stage.common.json)


def _distract_by_words(source: Path, settings: DistractorSettings, stage: StageOptions) -> int:
    from context_agent.synth_data.llm_stages.distractors import distract_by_words
    from context_agent.synth_data.llm_stages.pipeline import distractor_settings
    from context_agent.synth_data.stages import row_function, run_stage

    with (
        stage.index.open() as corpus,
        _pool(stage, _open_corpus) as pool,
        output.progress("distract", "rows") as advance,
    ):
        run = run_stage(
            "distract",
            _load_rows(source),
            row_function(partial(distract_by_words, settings=settings), corpus, pool),
            stage.out,
            concurrency=stage.writer.concurrency if pool is None else pool.capacity,
            settings={"corpus": corpus.name, "model": None, **distractor_settings(settings)},
            advance=advance,
        )
        report = asyncio.run(run)
    return _show_report(report, as_json=stage.common.json)


def _show_report(report: StageReport, *, as_json: bool) -> int:
    """Print the report, as JSON on stdout or as text on stderr. If the stage halted or kept nothing, return 1."""
    if as_json:
        output.print_json(report.to_json())
    else:
        dropped = f"; dropped: {output.counts(report.dropped)}" if report.dropped else ""
        output.echo(f"{report.stage}: {report.kept} rows from {report.inputs} inputs{dropped}", err=True)
        if report.halted:
            output.note(f"{report.stage}: {report.halted}")
    return 1 if report.halted or (report.inputs and not report.kept) else 0


def _pool(
    stage: StageOptions, open_context: Callable[[StageOptions, CallParent], Any], answer: CallParent | None = None
) -> AbstractContextManager[StagePool | None]:
    """Return the worker processes of a stage. If this process should do the work itself, return None."""
    from context_agent.synth_data.stages import StageWorker

    writer, setup = stage.writer, StageWorker(partial(open_context, stage))
    return options.worker_pool(setup, writer.processes, writer.ray, concurrency=writer.concurrency, answer=answer)


def _open_corpus(stage: StageOptions, call: CallParent) -> Corpus:
    """Return the corpus of a worker process."""
    return stage.index.open()


def _open_context(stage: StageOptions, call: CallParent) -> StageContext:
    """Return the context of a worker process. The command's own process makes the model calls."""
    return _context(stage.index.open(), _model(stage, call), stage.writer)


def _model(stage: StageOptions, replies: Path | CallParent) -> StructuredModel:
    from context_agent.synth_data.llm_stages.ledger import SpendingCap, TokenPrices
    from context_agent.synth_data.llm_stages.model import StructuredModel, StructuredModelOptions

    writer = stage.writer
    model_options = StructuredModelOptions(
        chat_options=asdict(stage.language_model),
        prices=TokenPrices(writer.price_in, writer.price_out),
        cap=SpendingCap(writer.max_cost, writer.max_tokens_total),
        prompts=writer.prompts,
    )
    return StructuredModel(model_options, replies, concurrency=writer.concurrency, seed=stage.seed)


def _context(corpus: Corpus, model: StructuredModel, writer: WriterOptions) -> StageContext:
    from context_agent.synth_data.domains import load_domain
    from context_agent.synth_data.llm_stages.context import StageContext

    return StageContext(corpus, model, load_domain(writer.domain), writer.window, writer.max_turns)


def _source_rows(source: Path) -> Callable[[StageContext], Rows]:
    return lambda _: _load_rows(source)


def _load_rows(source: Path) -> Rows:
    """Return the rows of the file. Unreadable lines are reported and skipped."""
    from context_agent.synth_data.llm_stages.pipeline import load_stage_rows

    problems: list[str] = []
    rows = load_stage_rows(source, problems=problems)
    output.note_problems(problems)
    return rows


Hops = tuple[int, int]
"""The first and the last number of a range."""

DEFAULT_SEEDS = 100
"""The default number of documents from which a language model starts."""
DEFAULT_HOPS = (2, 4)
"""The default hops of the tasks."""
WORLD_HOPS = (1, 4)
"""The default hops of the questions about a world."""


def hop_range(_: Any, tokens: Sequence[Token]) -> Hops:
    """Return the first and the last number of hops from a text such as `3` or `2-4`.

    Raises:
        ValueError: If the text does not have this form.
    """
    text = tokens[0].value
    match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise ValueError(f"--hops must be a number or a range, such as 3 or 2-4; got {text!r}")
    return first, last


@options_in("Tasks from links")
@dataclass(frozen=True, slots=True)
class LinkOptions:
    """The options that only tasks from links have."""

    types: Annotated[str, Parameter(metavar="LIST")] = "bridge,comparison,intersection"
    """Types of questions, separated by commas."""
    name: Annotated[str, Parameter(metavar="NAME")] = "links"
    """Prefix of the ids."""
    report: Annotated[Path | None, FILE, Parameter(metavar="FILE.json")] = None
    """File for the counts of kept and dropped drafts."""


def tasks(
    *,
    out: Annotated[Path, FILE, Parameter(metavar="FILE.jsonl")],
    count: Annotated[int | None, COUNT, Parameter(show_default=f"all that pass; with --model {DEFAULT_SEEDS}")] = None,
    hops: Annotated[
        Hops | None,
        Parameter(converter=hop_range, n_tokens=1, metavar="RANGE", show_default="2-4, or up to the domain's maximum"),
    ] = None,
    distractors: Annotated[int, COUNT_OR_ZERO] = 10,
    seed: options.SeedOption = 0,
    links: LinkOptions = LinkOptions(),
    writer: WriterOptions = WriterOptions(),
    language_model: options.ModelOptions = options.ModelOptions(),
    index: options.CorpusOptions = options.CorpusOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Make multi-hop tasks from an index.

    Tasks come from links, or with --model from a language model. A document that names another document links to it. A
    question describes the other document instead of naming it, so both must be found. The command checks that the
    quotes of a task are in its documents, and that its answer is in the last document and in no distractor. The same
    index and options give the same tasks. To resume an interrupted run, run the same command again.

    Args:
        out: File for the tasks, one per line; replaced once all are made.
        count: Maximum number of tasks; with --model, the number of documents to start from.
        hops: Number of documents that a question needs, or a range.
        distractors: Maximum number of distractors of a task.
    """
    if language_model.model is None and language_model.base_url is not None:
        raise ConfigError(
            "--base-url needs --model, the model that writes the tasks. To make tasks from links, omit both."
        )
    stage = StageOptions(out, writer, language_model, index, None, seed, common)
    if language_model.model is None and (writer.processes or writer.ray is not None):
        raise ConfigError("--processes and --ray are for the stages of a language model. Pass --model, or remove them.")
    if language_model.model is None:
        return _link_tasks(stage, links, count, hops or DEFAULT_HOPS, distractors)
    if links.report is not None:
        raise ConfigError(
            "--report counts drafts from links and cannot be combined with --model. Use --json, which counts stages."
        )
    return _model_tasks(stage, count or DEFAULT_SEEDS, hops, distractors)


def _model_tasks(stage: StageOptions, count: int, hops: Hops | None, distractors: int) -> int:
    from context_agent.synth_data.domains import load_domain
    from context_agent.synth_data.llm_stages.distractors import DistractorSettings
    from context_agent.synth_data.llm_stages.pipeline import PipelinePlan

    longest = min(DEFAULT_HOPS[1], load_domain(stage.writer.domain).max_hops)
    hops = hops or (min(DEFAULT_HOPS[0], longest), longest)
    settings = DistractorSettings(distractors, min(1, distractors))
    plan = PipelinePlan(count, hops, settings, stage.writer.concurrency)
    with stage.index.open() as corpus:
        return make_with_model(corpus, plan, stage)


def _link_tasks(stage: StageOptions, links: LinkOptions, count: int | None, hops: Hops, distractors: int) -> int:
    from context_agent.synth_data.domains import load_domain
    from context_agent.synth_data.links.tasks import LinkTaskSettings

    settings = LinkTaskSettings(
        count=count,
        types=tuple(name.strip() for name in links.types.split(",") if name.strip()),
        hops=hops,
        seed=stage.seed,
        distractors=distractors,
        name=links.name,
        domain=load_domain(stage.writer.domain).name,
    )
    settings.check()
    with stage.index.open() as corpus:
        tally, shortcomings = _write_link_tasks(corpus, settings, stage.out)
    if links.report is not None:
        links.report.parent.mkdir(parents=True, exist_ok=True)
        links.report.write_text(json.dumps(tally, indent=2) + "\n", encoding="utf-8")
    output.result({"out": str(stage.out), **tally}, _tally_text(tally, stage.out), as_json=stage.common.json)
    if not tally["tasks"]:
        _note_shortcomings(shortcomings)
    return 0 if tally["tasks"] else 1


def _note_shortcomings(shortcomings: Sequence[str]) -> None:
    output.note(
        "no task was made, because a question needs a document that another one names, and a fact about it. What was "
        "found:"
    )
    for line in shortcomings:
        output.note(f"  {line}")
    output.note("Add such sentences to the documents. To let a language model write the questions, pass --model.")


def _write_link_tasks(corpus: Corpus, settings: LinkTaskSettings, out: Path) -> tuple[dict[str, Any], list[str]]:
    """Write the tasks from the links of a corpus.

    Return the counts of drafts, and the reasons why drafts did not become tasks.
    """
    from context_agent.synth_data.links.tasks import LinkTasks
    from context_agent.synth_data.task import write_tasks

    with output.progress("Reading", "documents") as advance:
        link_tasks = LinkTasks(corpus.walk(), settings, advance)
    with output.progress("Building", "tasks") as advance:

        def counted(tasks: Iterable[Task]) -> Iterator[Task]:
            for number, task in enumerate(tasks, 1):
                advance(number, settings.count)
                yield task

        write_tasks(out, counted(link_tasks.tasks()))
    tally = link_tasks.counts.to_json()
    return tally, [] if tally["tasks"] else link_tasks.shortcomings()


def _tally_text(tally: dict[str, Any], out: Path) -> str:
    first = (
        f"{output.count(tally['tasks'], 'task')} from {output.count(tally['links'], 'link')} between "
        f"{output.count(tally['documents'], 'document')} in {out}"
    )
    drafts = [
        f"  {title} {number:6}  {reason}" for title in ("kept", "dropped") for reason, number in tally[title].items()
    ]
    return "\n".join([first, *drafts])


def world(
    *,
    entities: Annotated[int, Parameter(metavar="N")],
    out: Annotated[Path, FOLDER],
    tasks: Annotated[int | None, Parameter(metavar="N", show_default="two for each entity")] = None,
    hops: Annotated[Hops, Parameter(converter=hop_range, n_tokens=1, metavar="RANGE", show_default="1-4")] = WORLD_HOPS,
    distractors: Annotated[int, COUNT_OR_ZERO] = 5,
    vocabulary: Literal["full", "small"] = "full",
    force: bool = False,
    seed: options.SeedOption = 0,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Invent a corpus and questions about it.

    The answers to the questions, of 1 to 4 hops, follow from the documents alone. FOLDER gets corpus.jsonl.gz (for
    `ctx1 index`), queries.train.jsonl, queries.dev.jsonl and queries.test.jsonl, which share no documents, world.json
    with settings and counts, and a data card.

    Args:
        entities: Number of entities and documents, at least 50.
        out: Folder for the corpus and the questions.
        tasks: Number of questions in all splits.
        hops: Number of documents that a question needs, or a range.
        distractors: Maximum number of distractors of a task.
        vocabulary: small: about 240 words and documents of one sentence, for tiny models; up to about 800 entities.
        force: Replace the world in FOLDER.
    """
    from context_agent.synth_data.world.closed_world import make_world
    from context_agent.synth_data.world.files import write_world

    invented = make_world(
        entities=entities, seed=seed, tasks=tasks, hops=hops, distractors=distractors, vocabulary=vocabulary
    )
    with output.progress("Inventing", "tasks") as advance:
        about = write_world(invented, out, force=force, report=advance)
    splits = ", ".join(f"{numbers['all']} {split}" for split, numbers in about["tasks"].items())
    text = f"{about['documents']} documents and {splits} tasks in {out}\nNext: ctx1 index {out / 'corpus.jsonl.gz'}"
    output.result({"folder": str(out), **about}, text, as_json=common.json)
    return 0
