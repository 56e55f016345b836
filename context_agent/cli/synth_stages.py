"""The stages by which a language model makes tasks, one command each: `ctx1 synth explore`, `write`, `verify` and so
on.

`ctx1 synth tasks --model` runs all of them by `make_with_model`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import console, options
from context_agent.cli.synth import seed_option
from context_agent.errors import ConfigError

if TYPE_CHECKING:
    from context_agent.retrieval.corpus import Corpus
    from context_agent.synth_data.llm_stages.context import StageContext
    from context_agent.synth_data.llm_stages.model import StructuredModel
    from context_agent.synth_data.llm_stages.pipeline import PipelinePlan
    from context_agent.synth_data.stages import RowFunction, StageReport


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """Domain, prompts, spending limits and concurrency of the language model, and the limits of an exploration."""

    domain: str
    prompts: Path | None
    price_in: float
    price_out: float
    max_cost: float | None
    max_tokens_total: int | None
    concurrency: int
    max_turns: int
    window: int


def writer_options(command: options.Command) -> options.Command:
    """The options of a language model that writes tasks; the command gets them as `writer: WriterOptions`."""
    return options.together(
        options.gathered(command, "writer", WriterOptions),
        click.option(
            "--domain", default="documents", show_default=True, help="Domain of the corpus: its answer types and hints."
        ),
        click.option(
            "--prompts",
            type=click.Path(path_type=Path, file_okay=False, exists=True),
            metavar="FOLDER",
            help="Folder with prompt files (explore.md, write.md …) that replace the shipped ones.",
        ),
        click.option("--price-in", type=click.FloatRange(0), default=0.0, help="Cost of a million input tokens."),
        click.option("--price-out", type=click.FloatRange(0), default=0.0, help="Cost of a million output tokens."),
        click.option("--max-cost", type=click.FloatRange(0, min_open=True), help="Most that all calls may cost."),
        click.option("--max-tokens-total", type=click.IntRange(1), help="Most tokens that all calls may use."),
        click.option("--concurrency", type=click.IntRange(1), default=8, show_default=True, help="Concurrent rows."),
        click.option(
            "--max-turns", type=click.IntRange(1), default=16, show_default=True, help="Most turns of an exploration."
        ),
        click.option(
            "--window", type=int, default=32_768, show_default=True, help="Context of an exploration in tokens."
        ),
    )


def distractor_options(command: options.Command) -> options.Command:
    """The options of distractors, as `distractors`, `least_distractors` and `check_distractors`."""
    return options.together(
        command,
        click.option(
            "--distractors", type=click.IntRange(0), default=10, show_default=True, help="Distractors of a task."
        ),
        click.option(
            "--least-distractors",
            type=click.IntRange(0),
            default=1,
            show_default=True,
            help="Drop tasks with fewer distractors.",
        ),
        click.option(
            "--check-distractors", is_flag=True, help="Let the model judge each distractor, in addition to the rule."
        ),
    )


def _stage_options(command: options.Command) -> options.Command:
    """The options of every stage."""
    return options.together(
        command,
        click.option(
            "--out",
            type=click.Path(path_type=Path, dir_okay=False),
            required=True,
            metavar="OUT.jsonl",
            help="File for the rows; dropped rows and the journal, from which a rerun resumes, are written beside it.",
        ),
        click.option(
            "--replies",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE.jsonl",
            help="Reply cache; stages may share one.  [default: replies.jsonl beside OUT]",
        ),
        seed_option,
        writer_options,
        options.model,
        options.index,
        options.opening,
        options.common,
    )


_SOURCE = click.argument(
    "source", type=click.Path(path_type=Path, dir_okay=False, exists=True), required=True, metavar="IN.jsonl"
)


@click.command()
@click.option("--count", type=click.IntRange(1), default=100, show_default=True, help="Documents to start from.")
@_stage_options
def explore(*, count: int, **options: Any) -> int:
    """Gather the documents of tasks: an explorer starts from random documents of the index."""
    from context_agent.synth_data.llm_stages import writing as stage

    def rows(context: StageContext) -> list[dict[str, Any]]:
        return stage.draw_seeds(context.corpus, count, context.model.seed)

    return _run("explore", rows, lambda context: lambda row: stage.explore(context, row), **options)


@click.command()
@_SOURCE
@_stage_options
def write(*, source: Path, **options: Any) -> int:
    """Write questions, clues and answers from the documents that `explore` gathered."""
    from context_agent.synth_data.llm_stages import writing as stage

    return _run("write", _source_rows(source), lambda context: lambda row: stage.write(context, row), **options)


@click.command()
@_SOURCE
@_stage_options
def verify(*, source: Path, **options: Any) -> int:
    """Verify tasks by quotes that a model extracts and a rule finds again."""
    from context_agent.synth_data.llm_stages import checking as stage

    return _run("verify", _source_rows(source), lambda context: lambda row: stage.verify(context, row), **options)


@click.command()
@_SOURCE
@_stage_options
def extend(*, source: Path, **options: Any) -> int:
    """Make verified tasks one hop longer; verify them again afterwards."""
    from context_agent.synth_data.llm_stages import writing as stage

    return _run("extend", _source_rows(source), lambda context: lambda row: stage.extend(context, row), **options)


@click.command()
@_SOURCE
@click.option("--without-model", is_flag=True, help="Search by the question and its clues, without a model.")
@distractor_options
@_stage_options
def distract(
    *,
    source: Path,
    without_model: bool,
    distractors: int,
    least_distractors: int,
    check_distractors: bool,
    **options: Any,
) -> int:
    """Find distractors for tasks: documents that look relevant and do not contain the answer."""
    from context_agent.synth_data.llm_stages import checking as stage
    from context_agent.synth_data.llm_stages.pipeline import distractor_settings

    settings = stage.DistractorSettings(distractors, least_distractors, check_distractors)
    if without_model:
        if check_distractors:
            raise ConfigError("--check-distractors needs a model: omit --without-model")
        return _distract_by_words(source, settings, **options)

    def work(context: StageContext) -> RowFunction:
        return lambda row: stage.distract(context, settings, row)

    return _run("distract", _source_rows(source), work, settings=distractor_settings(settings), **options)


def make_with_model(
    corpus: Corpus,
    plan: PipelinePlan,
    out: Path,
    *,
    writer: WriterOptions,
    language_model: options.ModelOptions,
    seed: int,
    as_json: bool,
) -> int:
    """Runs all stages; returns the exit code: 1 if no task was made or the spending cap ended the run."""
    from context_agent.synth_data.llm_stages.pipeline import REPLIES_FILE, make_tasks, stages_folder

    replies = stages_folder(out) / REPLIES_FILE
    with _model(writer, language_model, replies, seed) as model, ExitStack() as bars:

        def watch(stage: str) -> Callable[[int, int | None], None]:
            bars.close()
            return bars.enter_context(console.progress(stage, "rows"))

        reports = asyncio.run(make_tasks(_context(corpus, model, writer), plan, out, watch=watch))
    for report in reports:
        show_report(report, as_json=as_json)
    return 1 if reports[-1].halted or not reports[-1].kept else 0


def show_report(report: StageReport, *, as_json: bool) -> None:
    """Prints the report: a line of JSON on stdout, or text on stderr."""
    if as_json:
        console.print_json(report.to_json())
        return
    dropped = ", ".join(f"{reason} {count}" for reason, count in report.dropped.items())
    done = f"{report.stage}: {report.kept} rows from {report.inputs} inputs"
    console.note(f"{done}; dropped: {dropped}" if dropped else done)
    if report.halted:
        console.note(f"ctx1 synth {report.stage}: {report.halted}")


def _run(
    stage: str,
    rows: Callable[[StageContext], list[dict[str, Any]]],
    work: Callable[[StageContext], RowFunction],
    *,
    out: Path,
    replies: Path | None,
    seed: int,
    writer: WriterOptions,
    language_model: options.ModelOptions,
    index: options.IndexOptions,
    opening: options.OpenOptions,
    as_json: bool,
    settings: dict[str, Any] | None = None,
) -> int:
    from context_agent.synth_data.llm_stages.pipeline import REPLIES_FILE, run_llm_stage

    cache = replies or out.with_name(REPLIES_FILE)
    with (
        options.open_corpus(index, opening) as corpus,
        _model(writer, language_model, cache, seed) as model,
        console.progress(stage, "rows") as advance,
    ):
        context = _context(corpus, model, writer)
        inputs = rows(context)
        report = asyncio.run(
            run_llm_stage(
                context,
                stage,
                inputs,
                work(context),
                out,
                concurrency=writer.concurrency,
                settings=settings,
                advance=advance,
            )
        )
    show_report(report, as_json=as_json)
    return 1 if report.halted or (report.inputs and not report.kept) else 0


def _distract_by_words(
    source: Path,
    settings: Any,
    *,
    out: Path,
    index: options.IndexOptions,
    opening: options.OpenOptions,
    writer: WriterOptions,
    as_json: bool,
    **_: Any,
) -> int:
    from context_agent.synth_data.llm_stages.checking import distract_by_words
    from context_agent.synth_data.llm_stages.pipeline import distractor_settings
    from context_agent.synth_data.stages import run_stage

    with options.open_corpus(index, opening) as corpus, console.progress("distract", "rows") as advance:
        journal_settings = {"corpus": corpus.name, "model": None, **distractor_settings(settings)}
        work = run_stage(
            "distract",
            _load_rows(source),
            lambda row: distract_by_words(corpus, settings, row),
            out,
            concurrency=writer.concurrency,
            settings=journal_settings,
            advance=advance,
        )
        report = asyncio.run(work)
    show_report(report, as_json=as_json)
    return 1 if report.inputs and not report.kept else 0


@contextmanager
def _model(
    writer: WriterOptions, language_model: options.ModelOptions, replies: Path, seed: int
) -> Iterator[StructuredModel]:
    from context_agent.synth_data.llm_stages.cached_model import SpendingCap, TokenPrices
    from context_agent.synth_data.llm_stages.model import StructuredModel, StructuredModelOptions

    chosen = StructuredModelOptions(
        chat_options=asdict(language_model),
        prices=TokenPrices(writer.price_in, writer.price_out),
        cap=SpendingCap(writer.max_cost, writer.max_tokens_total),
        prompts=writer.prompts,
    )
    with StructuredModel(chosen, replies, concurrency=writer.concurrency, seed=seed) as model:
        yield model


def _context(corpus: Corpus, model: StructuredModel, writer: WriterOptions) -> StageContext:
    from context_agent.synth_data.domains import load_domain
    from context_agent.synth_data.llm_stages.context import StageContext

    return StageContext(corpus, model, load_domain(writer.domain), writer.window, writer.max_turns)


def _source_rows(source: Path) -> Callable[[StageContext], list[dict[str, Any]]]:
    return lambda _: _load_rows(source)


def _load_rows(source: Path) -> list[dict[str, Any]]:
    """The rows of the file; unreadable lines are reported and skipped."""
    from context_agent.synth_data.llm_stages.pipeline import load_stage_rows

    problems: list[str] = []
    rows = load_stage_rows(source, problems=problems)
    for problem in problems:
        console.note(problem)
    return rows
