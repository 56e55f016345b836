"""The stages by which a language model makes tasks: `ctx1 synth explore`, `write`, `verify`, `distract` and `extend`.

`ctx1 synth tasks --model` runs all of them by `make_with_model`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from context_agent.cli import options, output
from context_agent.cli.command import (
    COUNT,
    COUNT_OR_ZERO,
    EXISTING_FILE,
    EXISTING_FOLDER,
    FILE,
    OWN,
    Argument,
    Json,
    NumberRange,
    Option,
    command,
    essential,
)
from context_agent.errors import ConfigError
from context_agent.pruning.budget import WINDOW

if TYPE_CHECKING:
    from context_agent.retrieval.corpus import Corpus
    from context_agent.synth_data.llm_stages.checking import DistractorSettings
    from context_agent.synth_data.llm_stages.model import StageContext, StructuredModel
    from context_agent.synth_data.llm_stages.pipeline import PipelinePlan
    from context_agent.synth_data.stages import RowFunction, StageReport

Rows = list[dict[str, Any]]
StageInput = Annotated[Path, Argument("IN.jsonl", EXISTING_FILE)]


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """The language model that writes tasks: its domain, prompts, spending limits and concurrency."""

    SECTION: ClassVar[str] = "Writing with a language model"

    domain: Annotated[str, Option("Domain of the corpus: its answer types and hints.", metavar="NAME")] = "documents"
    prompts: Annotated[
        Path | None,
        Option(
            "Folder with prompt files (explore.md, write.md, ...) that replace those of the package.", EXISTING_FOLDER
        ),
    ] = None
    price_in: Annotated[float, Option("Price of a million input tokens.", NumberRange(0))] = 0.0
    price_out: Annotated[float, Option("Price of a million output tokens.", NumberRange(0))] = 0.0
    max_cost: Annotated[
        float | None,
        Option("Maximum cost of all calls, in the currency of the prices.", NumberRange(0, min_open=True)),
    ] = None
    max_tokens_total: Annotated[int | None, Option("Maximum number of tokens of all calls.", COUNT)] = None
    concurrency: Annotated[int, Option("Number of rows at the same time.", COUNT)] = 8
    max_turns: Annotated[int, Option("Maximum number of turns of an exploration.", COUNT)] = 16
    window: Annotated[int, Option("Context window of an exploration in tokens.")] = WINDOW


@dataclass(frozen=True, slots=True)
class StageOptions:
    """What every stage takes."""

    SECTION: ClassVar[str] = OWN

    writer: WriterOptions
    language_model: options.ModelOptions
    index: options.CorpusOptions
    out: Annotated[
        Path,
        Option(
            "File for the rows. Dropped rows and the journal for resuming are written next to it.", FILE, "OUT.jsonl"
        ),
    ]
    replies: Annotated[
        Path | None,
        Option("Cache of the model's replies; stages may share one.", FILE, "FILE.jsonl", "replies.jsonl next to OUT"),
    ] = None
    seed: options.SeedOption = 0
    as_json: Json = False


@command
def explore(
    *, count: Annotated[int, Option("Number of documents to start from.", COUNT)] = 100, stage: StageOptions
) -> int:
    """Gather the documents of tasks, starting from random ones.

    A language model explores the index from each start document.
    """
    from context_agent.synth_data.llm_stages import writing

    def rows(context: StageContext) -> Rows:
        return writing.draw_seeds(context.corpus, count, context.model.seed)

    return _run("explore", rows, lambda context: lambda row: writing.explore(context, row), stage)


@command
def write(source: StageInput, *, stage: StageOptions) -> int:
    """Write questions and answers from gathered documents.

    IN.jsonl is the output of `ctx1 synth explore`.
    """
    from context_agent.synth_data.llm_stages import writing

    return _run("write", _source_rows(source), lambda context: lambda row: writing.write(context, row), stage)


@command
def verify(source: StageInput, *, stage: StageOptions) -> int:
    """Verify tasks by quotes from their documents.

    A language model extracts the quotes, and a rule looks for them in the documents.
    """
    from context_agent.synth_data.llm_stages import checking

    return _run("verify", _source_rows(source), lambda context: lambda row: checking.verify(context, row), stage)


@command
def extend(source: StageInput, *, stage: StageOptions) -> int:
    """Make verified tasks one hop longer.

    Verify the tasks again afterwards.
    """
    from context_agent.synth_data.llm_stages import writing

    return _run("extend", _source_rows(source), lambda context: lambda row: writing.extend(context, row), stage)


@essential("out distractors without_model base_url model domain path url collection")
@command
def distract(
    source: StageInput,
    *,
    without_model: Annotated[bool, Option("Search by the question and its clues, without a model.")],
    distractors: Annotated[int, Option("Maximum number of distractors of a task.", COUNT_OR_ZERO)] = 10,
    least_distractors: Annotated[int, Option("Drop tasks with fewer distractors.", COUNT_OR_ZERO)] = 1,
    check_distractors: Annotated[bool, Option("Let the model judge each distractor, in addition to the rule.")],
    stage: StageOptions,
) -> int:
    """Find distractors for tasks.

    Distractors are documents that look relevant and do not contain the answer.
    """
    from context_agent.synth_data.llm_stages import checking
    from context_agent.synth_data.llm_stages.pipeline import distractor_settings

    settings = checking.DistractorSettings(distractors, least_distractors, check_distractors)
    if without_model:
        if check_distractors:
            raise ConfigError("--check-distractors needs a model: remove it, or remove --without-model")
        return _distract_by_words(source, settings, stage)

    def work(context: StageContext) -> RowFunction:
        return lambda row: checking.distract(context, settings, row)

    return _run("distract", _source_rows(source), work, stage, settings=distractor_settings(settings))


def make_with_model(corpus: Corpus, plan: PipelinePlan, stage: StageOptions) -> int:
    """Runs all stages; returns the exit code: 1 if no task was made or the spending cap ended the run."""
    from context_agent.synth_data.llm_stages.pipeline import REPLIES_FILE, make_tasks, stages_folder

    with _model(stage, stages_folder(stage.out) / REPLIES_FILE) as model, ExitStack() as bars:

        def watch(name: str) -> Callable[[int, int | None], None]:
            bars.close()
            return bars.enter_context(output.progress(name, "rows"))

        reports = asyncio.run(make_tasks(_context(corpus, model, stage.writer), plan, stage.out, watch=watch))
    for report in reports:
        _show_report(report, as_json=stage.as_json)
    return 1 if reports[-1].halted or not reports[-1].kept else 0


def _run(
    name: str,
    rows: Callable[[StageContext], Rows],
    work: Callable[[StageContext], RowFunction],
    stage: StageOptions,
    *,
    settings: dict[str, Any] | None = None,
) -> int:
    from context_agent.synth_data.llm_stages.pipeline import REPLIES_FILE, run_llm_stage

    with (
        stage.index.open() as corpus,
        _model(stage, stage.replies or stage.out.with_name(REPLIES_FILE)) as model,
        output.progress(name, "rows") as advance,
    ):
        context = _context(corpus, model, stage.writer)
        run = run_llm_stage(
            context,
            name,
            rows(context),
            work(context),
            stage.out,
            concurrency=stage.writer.concurrency,
            settings=settings,
            advance=advance,
        )
        report = asyncio.run(run)
    return _show_report(report, as_json=stage.as_json)


def _distract_by_words(source: Path, settings: DistractorSettings, stage: StageOptions) -> int:
    from context_agent.synth_data.llm_stages.checking import distract_by_words
    from context_agent.synth_data.llm_stages.pipeline import distractor_settings
    from context_agent.synth_data.stages import run_stage

    with (
        stage.index.open() as corpus,
        output.progress("distract", "rows") as advance,
    ):
        run = run_stage(
            "distract",
            _load_rows(source),
            lambda row: distract_by_words(corpus, settings, row),
            stage.out,
            concurrency=stage.writer.concurrency,
            settings={"corpus": corpus.name, "model": None, **distractor_settings(settings)},
            advance=advance,
        )
        report = asyncio.run(run)
    return _show_report(report, as_json=stage.as_json)


def _show_report(report: StageReport, *, as_json: bool) -> int:
    """Prints the report, as JSON on stdout or as text on stderr; returns 1 if the stage halted or kept nothing."""
    if as_json:
        output.print_json(report.to_json())
    else:
        dropped = f"; dropped: {output.counts(report.dropped)}" if report.dropped else ""
        output.echo(f"{report.stage}: {report.kept} rows from {report.inputs} inputs{dropped}", err=True)
        if report.halted:
            output.note(f"{report.stage}: {report.halted}")
    return 1 if report.halted or (report.inputs and not report.kept) else 0


@contextmanager
def _model(stage: StageOptions, replies: Path) -> Iterator[StructuredModel]:
    from context_agent.synth_data.llm_stages.cached_model import SpendingCap, TokenPrices
    from context_agent.synth_data.llm_stages.model import StructuredModel, StructuredModelOptions

    writer = stage.writer
    model_options = StructuredModelOptions(
        chat_options=asdict(stage.language_model),
        prices=TokenPrices(writer.price_in, writer.price_out),
        cap=SpendingCap(writer.max_cost, writer.max_tokens_total),
        prompts=writer.prompts,
    )
    with StructuredModel(model_options, replies, concurrency=writer.concurrency, seed=stage.seed) as model:
        yield model


def _context(corpus: Corpus, model: StructuredModel, writer: WriterOptions) -> StageContext:
    from context_agent.synth_data.domains import load_domain
    from context_agent.synth_data.llm_stages.model import StageContext

    return StageContext(corpus, model, load_domain(writer.domain), writer.window, writer.max_turns)


def _source_rows(source: Path) -> Callable[[StageContext], Rows]:
    return lambda _: _load_rows(source)


def _load_rows(source: Path) -> Rows:
    """The rows of the file; unreadable lines are reported and skipped."""
    from context_agent.synth_data.llm_stages.pipeline import load_stage_rows

    problems: list[str] = []
    rows = load_stage_rows(source, problems=problems)
    output.note_problems(problems)
    return rows
