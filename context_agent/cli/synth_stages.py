"""The stages in which a language model makes tasks: `ctx1 synth explore`, `write`, `verify`, `distract`, `extend`.

`ctx1 synth tasks --model` runs all stages with `make_with_model`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from context_agent.budget import WINDOW
from context_agent.cli import output
from context_agent.cli.agent_options import ChatModelOptions
from context_agent.cli.index_options import CorpusOptions
from context_agent.cli.interrupts import run_interruptible
from context_agent.cli.parameters import (
    COUNT,
    COUNT_OR_ZERO,
    EXISTING_FILE,
    EXISTING_FOLDER,
    NOT_NEGATIVE,
    OUTPUT_FILE,
    OWN,
    POSITIVE,
    CommonOptions,
    SeedOption,
    essential,
    options_in,
)
from context_agent.cli.worker_options import ProcessesOption, RayOption, worker_pool
from context_agent.errors import ConfigError

if TYPE_CHECKING:
    from context_agent._support.worker_pool import CallParent
    from context_agent.retrieval.corpus import Corpus
    from context_agent.synth_data.llm_stages.context import StageContext
    from context_agent.synth_data.llm_stages.distractors import DistractorSettings
    from context_agent.synth_data.llm_stages.model import StructuredModel
    from context_agent.synth_data.llm_stages.pipeline import PipelinePlan
    from context_agent.synth_data.stages import StageFunction, StagePool, StageReport


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
    processes: ProcessesOption = None
    ray: RayOption = None
    max_turns: Annotated[int, COUNT] = 16
    """Maximum number of turns of an exploration."""
    window: Annotated[int, Parameter(metavar="N")] = WINDOW
    """Context window of an exploration in tokens."""


@options_in(OWN)
@dataclass(frozen=True, slots=True)
class StageOptions:
    """The options that every stage has."""

    out: Annotated[Path, OUTPUT_FILE, Parameter(metavar="OUT.jsonl")]
    """File for the rows. Dropped rows and the journal for resuming are written next to it."""
    writer: WriterOptions = WriterOptions()
    language_model: ChatModelOptions = ChatModelOptions()
    index: CorpusOptions = CorpusOptions()
    replies: Annotated[
        Path | None, OUTPUT_FILE, Parameter(metavar="FILE.jsonl", show_default="replies.jsonl next to OUT")
    ] = None
    """Cache of the model's replies; stages may share one."""
    seed: SeedOption = 0
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
        reports = run_interruptible(make_tasks(context, plan, stage.out, pool=pool, watch=watch))
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
        report = run_interruptible(run)
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
        report = run_interruptible(run)
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
        else:
            output.note_failure(report.failure)
    return 1 if report.halted or (report.inputs and not report.kept) else 0


def _pool(
    stage: StageOptions, open_context: Callable[[StageOptions, CallParent], Any], answer: CallParent | None = None
) -> AbstractContextManager[StagePool | None]:
    """Return the worker processes of a stage. If this process should do the work itself, return None."""
    from context_agent.synth_data.stages import StageWorker

    writer, setup = stage.writer, StageWorker(partial(open_context, stage))
    return worker_pool(setup, writer.processes, writer.ray, concurrency=writer.concurrency, answer=answer)


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
