"""`ctx1 eval`: runs systems on benchmarks in a folder that can be resumed, and writes a report."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from context_agent.cli import console, options
from context_agent.errors import ConfigError

if TYPE_CHECKING:
    from context_agent.eval.benchmarks.registry import Benchmark
    from context_agent.eval.evaluation import EvalOptions, PreparedBenchmark
    from context_agent.eval.records import EvalRecord
    from context_agent.eval.scoring import Price
    from context_agent.eval.systems import System
    from context_agent.retrieval.corpus import Corpus

MODEL_CONCURRENCY = 8
"""Questions at a time for a policy on a model server; the embedded policy gets one per core."""


@dataclass(frozen=True, slots=True)
class DataOptions:
    """The questions and documents to evaluate on."""

    benchmarks: tuple[str, ...]
    split: str | None
    data: Path | None
    corpus: tuple[Path, ...]
    questions: Path | None
    train_questions: Path | None
    limit: int | None
    cache: Path | None
    allow_missing_gold: bool
    allow_leaks: bool


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The systems to run, and how."""

    systems: tuple[str, ...]
    windows: tuple[str, ...]
    seeds: tuple[str, ...]
    k: int
    reference: str | None
    prices: Path | None
    concurrency: int | None
    processes: int | None
    out: Path | None


def data_options(command: options.Command) -> options.Command:
    """The options for questions and documents; the command receives them as `data: DataOptions`."""
    file = click.Path(path_type=Path, dir_okay=False)
    folder = click.Path(path_type=Path, file_okay=False)
    return options.together(
        options.gathered(command, "data", DataOptions),
        click.option(
            "--benchmarks",
            "--benchmark",
            multiple=True,
            metavar="NAME,…",
            help="Benchmarks: names from --list, NAME=FOLDER for downloaded files, or folders with corpus.jsonl and "
            "queries.<split>.jsonl.",
        ),
        click.option("--split", help="Split to evaluate.  [default: dev if the set has one, else its test split]"),
        click.option(
            "--data",
            type=folder,
            envvar="CTX1_DATA",
            metavar="FOLDER",
            help="Folder that contains musique/, 2wiki/ and hotpotqa/.  [default: $CTX1_DATA]",
        ),
        click.option(
            "--corpus",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Your own documents, as `ctx1 index` reads them; repeatable.",
        ),
        click.option(
            "--questions",
            type=file,
            metavar="FILE.jsonl",
            help="Your own questions with gold, about --corpus or the index of --path or --url.",
        ),
        click.option(
            "--train-questions",
            type=file,
            metavar="FILE.jsonl",
            help="Training questions; --questions must share none of their texts and ids.",
        ),
        click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N questions of each set."),
        click.option(
            "--cache", type=folder, metavar="FOLDER", help="Cache for indexed corpora.  [default: the user's cache]"
        ),
        click.option(
            "--allow-missing-gold", is_flag=True, help="Run even if the index lacks gold, which counts as not found."
        ),
        click.option("--allow-leaks", is_flag=True, help="Run even if train and test share questions or ids."),
    )


def run_options(command: options.Command) -> options.Command:
    """The options for systems; the command receives them as `run: RunOptions`."""
    return options.together(
        options.gathered(command, "run", RunOptions),
        click.option(
            "--systems",
            multiple=True,
            default=["hybrid,agent"],
            metavar="NAME,…",
            help="Systems to compare, from --list; agent@4 has four rollouts.  [default: hybrid,agent]",
        ),
        click.option(
            "--windows", multiple=True, default=["32768"], metavar="TOKENS,…", help="Context windows.  [default: 32768]"
        ),
        click.option("--seeds", multiple=True, default=["0"], metavar="NUMBER,…", help="Random seeds.  [default: 0]"),
        click.option("--k", type=click.IntRange(1), default=10, show_default=True, help="Documents per answer."),
        click.option(
            "--reference",
            metavar="SYSTEM",
            help="System that the others are compared with.  [default: the first without a context]",
        ),
        click.option(
            "--prices",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE.toml",
            help="Token prices by model, for costs in the report.",
        ),
        click.option(
            "--concurrency",
            type=click.IntRange(1),
            help=f"Questions at a time.  [default: one per core; {MODEL_CONCURRENCY} for a language model]",
        ),
        click.option("--processes", type=click.IntRange(1), help="Worker processes.  [default: one per core]"),
        click.option(
            "--out", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER", help="Folder of the run."
        ),
    )


@click.command(name="eval")
@data_options
@run_options
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Only write the report of the run in FOLDER again.",
)
@click.option("--check-only", is_flag=True, help="Only check the data: all gold is in the index, train shares nothing.")
@click.option("--list", "show_names", is_flag=True, help="List the names of benchmarks and systems.")
@options.policy
@options.index
@options.opening
@options.common
def evaluate(
    *,
    data: DataOptions,
    run: RunOptions,
    report: Path | None,
    check_only: bool,
    show_names: bool,
    as_json: bool,
    deciding: options.PolicyOptions,
    index: options.IndexOptions,
    opening: options.OpenOptions,
) -> int:
    """Evaluate systems on questions with known documents.

    The folder --out gets run.json, records.jsonl, summary.json and report.html. The same command resumes a stopped run.
    The exit code is 1 if a question failed; it counts as 0 in the results.
    """
    from context_agent.eval.evaluation import require_sound_data

    if show_names:
        return _print_names(as_json)
    if report is not None:
        return _print_report(report, run.reference, as_json)
    if run.out is None and not check_only:
        raise click.UsageError("no folder for the run: pass --out FOLDER")
    # Before indexing, which takes minutes, so that a misspelt name fails at once.
    systems = _systems(run, opening)
    eval_options = _eval_options(run, deciding, opening, data)
    benchmarks = _prepare(data, index if _is_set("path", "url") or not data.benchmarks else None, opening)
    if check_only:
        return _print_checks(benchmarks, as_json)
    require_sound_data(benchmarks, allow_missing_gold=data.allow_missing_gold, allow_leaks=data.allow_leaks)
    _run(benchmarks, systems, eval_options, run, uses_model=deciding.policy != "bridge")
    return _print_report(run.out or Path(), run.reference, as_json)


def _prepare(
    data: DataOptions, index: options.IndexOptions | None, opening: options.OpenOptions
) -> list[PreparedBenchmark]:
    """The benchmarks, indexed and checked. `index` replaces the corpus of the benchmark."""
    from context_agent.eval.benchmarks.corpus_cache import default_cache_folder
    from context_agent.eval.evaluation import prepare

    benchmarks = [_limited(benchmark, data.limit) for benchmark in _benchmarks(data)]
    if index is not None and not data.corpus and len(benchmarks) > 1:
        raise ConfigError(
            f"--path or --url opens the index of one benchmark, not of {len(benchmarks)}: pass a single --benchmarks"
        )
    open_corpus = None if index is None or data.corpus else functools.partial(_open_index, index, opening)
    prepared = []
    for benchmark in benchmarks:
        with console.progress(f"Indexing {benchmark.name}", "chunks") as advance:
            prepared.append(
                prepare(
                    benchmark,
                    open_corpus,
                    cache=data.cache or default_cache_folder(),
                    embedder=opening.embedder or "static",
                    reranker=opening.reranker,
                    progress=advance,
                )
            )
    return prepared


def _systems(run: RunOptions, opening: options.OpenOptions) -> tuple[System, ...]:
    """The selected systems, including the reference."""
    from context_agent.eval.systems import find_systems

    names = [*_names(run.systems), *([run.reference] if run.reference else [])]
    return find_systems(names, reranker=opening.reranker is not None)


def _run(
    benchmarks: list[PreparedBenchmark],
    systems: tuple[System, ...],
    eval_options: EvalOptions,
    run: RunOptions,
    *,
    uses_model: bool,
) -> list[EvalRecord]:
    """Runs what the folder lacks. More questions can wait for a model server than there are cores."""
    from context_agent.eval.evaluation import evaluate
    from context_agent.eval.runner import available_cores

    assert run.out is not None
    waits_for_server = uses_model and any(system.keeps_context for system in systems)
    with console.progress("Evaluating", "questions") as advance:
        return evaluate(
            benchmarks,
            systems,
            eval_options,
            folder=run.out,
            concurrency=run.concurrency or (MODEL_CONCURRENCY if waits_for_server else available_cores()),
            processes=run.processes,
            progress=advance,
        )


def _benchmarks(data: DataOptions) -> list[Benchmark]:
    from context_agent.eval.benchmarks import registry

    if (data.questions is not None) == bool(data.benchmarks):
        raise click.UsageError("pass either --benchmarks, or --questions for your own set")
    if data.questions is None:
        if data.corpus:
            raise click.UsageError("--corpus needs --questions")
        return [registry.load_benchmark(name, split=data.split, data=data.data) for name in _names(data.benchmarks)]
    return [
        registry.load_own(
            list(data.corpus),
            data.questions,
            name=data.questions.stem,
            split=data.split or "",
            train=data.train_questions,
        )
    ]


def _eval_options(
    run: RunOptions, deciding: options.PolicyOptions, opening: options.OpenOptions, data: DataOptions
) -> EvalOptions:
    from context_agent.eval.evaluation import EvalOptions
    from context_agent.policies.registry import load_policy

    model = asdict(deciding.language_model)
    model_settings = {name: value for name, value in model.items() if value is not None and name != "api_key_env"}
    return EvalOptions(
        functools.partial(load_policy, deciding.policy, weights=deciding.weights, **model),
        windows=_integers("--windows", run.windows),
        seeds=_integers("--seeds", run.seeds),
        k=run.k,
        profile=deciding.profile,
        max_turns=deciding.max_turns,
        time_limit=deciding.time_limit,
        price=_price(run.prices, deciding),
        save=deciding.save,
        extra_settings={
            "language_model": model_settings or None,
            "embedder": opening.embedder,
            "reranker": opening.reranker,
            "limit": data.limit,
        },
    )


def _price(path: Path | None, deciding: options.PolicyOptions) -> Price | None:
    if path is None:
        return None
    from context_agent.eval.scoring import load_prices
    from context_agent.policies.registry import from_environment

    model = str(deciding.language_model.model or from_environment({}).get("model") or deciding.policy)
    price = load_prices(path).of(model)
    if price is None:
        raise ConfigError(f'{path} has no price for {model!r}: add [models.{model}], or [models."*"] for all models')
    return price


def _open_index(index: options.IndexOptions, opening: options.OpenOptions) -> Corpus:
    """At module level, so that it can be sent to another process."""
    return options.open_corpus(index, opening)


def _limited(benchmark: Benchmark, limit: int | None) -> Benchmark:
    return benchmark if limit is None else replace(benchmark, questions=benchmark.questions[:limit])


def _is_set(*names: str) -> bool:
    """Whether one of these options was set, on the command line or in a config file."""
    context: Any = click.get_current_context()
    return any(context.get_parameter_source(name) not in (None, ParameterSource.DEFAULT) for name in names)


def _names(values: tuple[str, ...]) -> list[str]:
    """The items of an option that takes commas and can be repeated."""
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def _integers(option: str, values: tuple[str, ...]) -> tuple[int, ...]:
    """The items as integers. Raises `ConfigError`."""
    try:
        return tuple(int(name) for name in _names(values))
    except ValueError as error:
        raise ConfigError(f"{option} takes integers separated by commas: {error}") from None


def _print_report(folder: Path, reference: str | None, as_json: bool) -> int:
    """Writes the report of a run and prints its tables; returns 1 if a question failed."""
    from context_agent.eval.evaluation import write_report

    summary = write_report(folder, reference=reference)
    if as_json:
        console.print_json(summary.to_json())
    else:
        from context_agent.eval.report.table import show

        show(console.stdout(), summary)
    console.note(f"ctx1 eval: the report is {folder / 'report.html'}")
    return 1 if summary.failures else 0


def _print_checks(benchmarks: list[PreparedBenchmark], as_json: bool) -> int:
    """Prints the results of the checks; returns 1 if there is a problem."""
    for prepared in benchmarks:
        benchmark, note = prepared.benchmark, prepared.note
        del note["ids"]
        if as_json:
            console.print_json({"benchmark": benchmark.name, **note})
            continue
        click.echo(console.printable(f"{benchmark.name}: {note['questions']} questions, {note['chunks']} chunks"))
        problems = [*benchmark.problems, *(str(check) for check in (prepared.missing, prepared.leaks) if check)]
        for problem in problems or [
            "no problems: all gold is in the index, and train shares nothing with these questions"
        ]:
            click.echo(console.printable(f"  {problem}"))
    return 1 if any(prepared.missing or prepared.leaks or prepared.benchmark.problems for prepared in benchmarks) else 0


def _print_names(as_json: bool) -> int:
    """Prints the names for `--benchmarks` and `--systems`."""
    from context_agent.eval.benchmarks import registry
    from context_agent.eval.systems import SYSTEMS

    entries = {name: registry.find_benchmark(name) for name in registry.benchmark_names()}
    benchmarks = {
        name: {"about": entry.about, "licence": entry.licence, "source": entry.source}
        for name, entry in entries.items()
        if entry
    }
    if as_json:
        console.print_json({"benchmarks": benchmarks, "systems": {system.name: system.about for system in SYSTEMS}})
        return 0
    click.echo("benchmarks")
    for name, fields in benchmarks.items():
        click.echo(f"  {name:24} {fields['about']} ({fields['licence']})")
    click.echo("systems")
    for system in SYSTEMS:
        click.echo(f"  {system.name:24} {system.about}")
    return 0
