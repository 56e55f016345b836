"""`ctx1 eval`: systems on benchmarks, into a folder that can be gone on from, and a report of it."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from context_agent.cli import console, options
from context_agent.errors import ConfigError

if TYPE_CHECKING:
    from context_agent.eval.benchmarks.registry import Benchmark
    from context_agent.eval.evaluation import Checked, Options
    from context_agent.eval.records import Record
    from context_agent.eval.scoring import Price
    from context_agent.eval.systems import System
    from context_agent.retrieval.protocol import Corpus


DATA = Path("../shared/data")
"""Where the folders `musique`, `2wiki` and `hotpotqa` are looked for unless said otherwise."""
MODEL_CONCURRENCY = 8
"""Questions at once where a server decides; the embedded policy gets one a core."""


@dataclass(frozen=True, slots=True)
class DataOptions:
    """What is evaluated on."""

    benchmarks: tuple[str, ...]
    split: str | None
    data: Path
    corpus: tuple[Path, ...]
    questions: Path | None
    train_questions: Path | None
    limit: int | None
    cache: Path | None
    allow_missing_gold: bool
    allow_leaks: bool


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What is run, and how."""

    systems: tuple[str, ...]
    windows: tuple[str, ...]
    seeds: tuple[str, ...]
    k: int
    reference: str | None
    prices: Path | None
    concurrency: int | None
    processes: int | None
    out: Path | None


def data(command: options.Command) -> options.Command:
    """The options that name questions and documents; the command gets them as `data: DataOptions`."""
    file = click.Path(path_type=Path, dir_okay=False)
    return options.together(
        options.gathered(command, "data", DataOptions),
        click.option(
            "--benchmarks",
            "--benchmark",
            multiple=True,
            metavar="NAME,…",
            help="Known sets (--list), NAME=FOLDER for downloaded files, or folders with corpus.jsonl and "
            "queries.<split>.jsonl.",
        ),
        click.option("--split", help="Which questions.  [default: the set's own for evaluating, dev where it has one]"),
        click.option(
            "--data",
            type=click.Path(path_type=Path, file_okay=False),
            envvar="CTX1_DATA",
            default=DATA,
            show_default=True,
            help="Folder of musique, 2wiki and hotpotqa; or $CTX1_DATA.",
        ),
        click.option(
            "--corpus",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Documents of your own, as `ctx1 index` reads them; may be repeated.",
        ),
        click.option(
            "--questions",
            type=file,
            metavar="FILE.jsonl",
            help="Questions of your own with gold, about --corpus, or about the index of --path or --url.",
        ),
        click.option(
            "--train-questions", type=file, metavar="FILE.jsonl", help="What they must not share questions or ids with."
        ),
        click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N questions of each set."),
        click.option(
            "--cache",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="FOLDER",
            help="Where indexed corpora are kept.  [default: the user's cache folder]",
        ),
        click.option(
            "--allow-missing-gold", is_flag=True, help="Go on where gold is not in the index: it counts as not found."
        ),
        click.option("--allow-leaks", is_flag=True, help="Go on where train and test share questions or ids."),
    )


def running(command: options.Command) -> options.Command:
    """The options that name systems; the command gets them as `running: RunOptions`."""
    return options.together(
        options.gathered(command, "running", RunOptions),
        click.option(
            "--systems",
            multiple=True,
            default=["hybrid,agent"],
            metavar="NAME,…",
            help="What is compared (--list); agent@4 is four rollouts.  [default: hybrid,agent]",
        ),
        click.option("--windows", multiple=True, default=["32768"], metavar="TOKENS,…", help="[default: 32768]"),
        click.option("--seeds", multiple=True, default=["0"], metavar="NUMBER,…", help="[default: 0]"),
        click.option("--k", type=click.IntRange(1), default=10, show_default=True, help="Documents of an answer."),
        click.option("--reference", metavar="SYSTEM", help="What the others are compared with.  [default: one-shot]"),
        click.option(
            "--prices",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE.toml",
            help="Prices of tokens by model, for the money in the report.",
        ),
        click.option(
            "--concurrency",
            type=click.IntRange(1),
            help=f"Questions at once.  [default: one a core; {MODEL_CONCURRENCY} for a language model]",
        ),
        click.option("--processes", type=click.IntRange(1), help="Processes they share.  [default: one a core]"),
        click.option(
            "--out", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER", help="Where the run is kept."
        ),
    )


def names(given: tuple[str, ...]) -> list[str]:
    """What an option lists, with commas or repeated."""
    return [one.strip() for part in given for one in part.split(",") if one.strip()]


def numbers(option: str, given: tuple[str, ...]) -> tuple[int, ...]:
    """The same as whole numbers. Raises `ConfigError`."""
    try:
        return tuple(int(one) for one in names(given))
    except ValueError as error:
        raise ConfigError(f"{option} takes whole numbers with commas between them: {error}") from None


@click.command(name="eval")
@data
@running
@click.option(
    "--report",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Only make the report of a run anew, from its records.",
)
@click.option("--check-only", is_flag=True, help="Only check the data: gold in the index, nothing shared with train.")
@click.option("--list", "listing", is_flag=True, help="List the benchmarks and systems that have a name.")
@options.policy
@options.index
@options.opening
@options.common
def evaluate(
    *,
    data: DataOptions,
    running: RunOptions,
    report: Path | None,
    check_only: bool,
    listing: bool,
    as_json: bool,
    deciding: options.PolicyOptions,
    index: options.IndexOptions,
    opening: options.OpenOptions,
) -> int:
    """Measure systems on questions whose documents are known.

    The run is kept in --out: run.json, records.jsonl, summary.json and report.html. The same command goes on with a run
    that was stopped. The exit code is 1 when a question failed; it counts as zero in the figures.
    """
    from context_agent.eval.evaluation import refuse

    if listing:
        return show_list(as_json)
    if report is not None:
        return show_report(report, running.reference, as_json)
    if running.out is None and not check_only:
        raise click.UsageError("say where the run is kept: --out FOLDER")
    # Before the corpora are indexed, which takes minutes: a misspelt name should not.
    systems = chosen_systems(running, opening)
    chosen = _options(running, deciding, opening, data)
    checked = prepared(data, index if _given("path", "url") or not data.benchmarks else None, opening)
    if check_only:
        return show_checks(checked, as_json)
    refuse(checked, missing=not data.allow_missing_gold, shared=not data.allow_leaks)
    run_all(checked, systems, chosen, running, model=deciding.policy != "bridge")
    return show_report(running.out or Path(), running.reference, as_json)


def prepared(data: DataOptions, index: options.IndexOptions | None, opening: options.OpenOptions) -> list[Checked]:
    """The benchmarks, indexed and checked. `index` takes the place of a corpus, where one is given."""
    from context_agent.eval.benchmarks.corpus_cache import default_cache
    from context_agent.eval.evaluation import check

    loaded = [_limited(one, data.limit) for one in _benchmarks(data, index)]
    if index is not None and not data.corpus and len(loaded) > 1:
        raise ConfigError(
            f"one index holds one benchmark's documents; got {len(loaded)} benchmarks with --path or --url"
        )
    opener = None if index is None or data.corpus else functools.partial(_open_index, index, opening)
    checked = []
    for one in loaded:
        with console.progress(f"Indexing {one.name}", "chunks") as advance:
            checked.append(
                check(
                    one,
                    opener,
                    cache=data.cache or default_cache(),
                    embedder=opening.embedder or "static",
                    reranker=opening.reranker,
                    report=advance,
                )
            )
    return checked


def chosen_systems(running: RunOptions, opening: options.OpenOptions) -> tuple[System, ...]:
    """The systems named, and the reference with them where that is not one."""
    from context_agent.eval.systems import asked

    named = [*names(running.systems), *([running.reference] if running.reference else [])]
    return asked(named, reranker=opening.reranker is not None)


def run_all(
    checked: list[Checked], systems: tuple[System, ...], chosen: Options, running: RunOptions, *, model: bool
) -> list[Record]:
    """Runs what the folder lacks. `model` says that a server decides: more can wait for it than there are cores."""
    from context_agent.eval.evaluation import evaluate as run
    from context_agent.eval.runner import cores

    assert running.out is not None
    waits = model and any(one.keeps_context for one in systems)
    with console.progress("Evaluating", "questions") as advance:
        return run(
            checked,
            systems,
            chosen,
            folder=running.out,
            concurrency=running.concurrency or (MODEL_CONCURRENCY if waits else cores()),
            processes=running.processes,
            progress=advance,
        )


def _benchmarks(data: DataOptions, index: options.IndexOptions | None) -> list[Benchmark]:
    from context_agent.eval.benchmarks import registry

    own = data.questions is not None
    if own == bool(data.benchmarks):
        raise click.UsageError("name benchmarks with --benchmarks, or your own set with --questions")
    if data.corpus and not own:
        raise click.UsageError("--corpus goes with --questions")
    if data.questions is None:
        return [registry.load_benchmark(one, split=data.split, data=data.data) for one in names(data.benchmarks)]
    return [
        registry.own(
            list(data.corpus),
            data.questions,
            name=data.questions.stem,
            split=data.split or "",
            train=data.train_questions,
        )
    ]


def _options(
    running: RunOptions, deciding: options.PolicyOptions, opening: options.OpenOptions, data: DataOptions
) -> Options:
    from context_agent.eval.evaluation import Options
    from context_agent.policies.factory import load_policy

    model = asdict(deciding.language_model)
    asked = {name: value for name, value in model.items() if value is not None and name != "api_key_env"}
    return Options(
        functools.partial(load_policy, deciding.policy, weights=deciding.weights, **model),
        windows=numbers("--windows", running.windows),
        seeds=numbers("--seeds", running.seeds),
        k=running.k,
        profile=deciding.profile,
        max_turns=deciding.max_turns,
        time_limit=deciding.time_limit,
        price=_price(running.prices, deciding),
        save=deciding.save,
        named={
            "language_model": asked or None,
            "embedder": opening.embedder,
            "reranker": opening.reranker,
            "limit": data.limit,
        },
    )


def _price(path: Path | None, deciding: options.PolicyOptions) -> Price | None:
    if path is None:
        return None
    from context_agent.eval.scoring import load_prices
    from context_agent.policies.factory import from_environment

    model = deciding.language_model.model or from_environment({}).get("model") or deciding.policy
    found = load_prices(path).of(str(model))
    if found is None:
        raise ConfigError(f'{path} has no price for {str(model)!r}: add [models.{model}], or [models."*"] for all')
    return found


def _open_index(index: options.IndexOptions, opening: options.OpenOptions) -> Corpus:
    """A function of this module, so that it can be sent to another process."""
    return options.open_corpus(index, opening)


def _limited(benchmark: Benchmark, limit: int | None) -> Benchmark:
    from dataclasses import replace

    return benchmark if limit is None else replace(benchmark, questions=benchmark.questions[:limit])


def _given(*names: str) -> bool:
    """Whether one of these options was set, on the command line or in a config file."""
    context: Any = click.get_current_context()
    return any(context.get_parameter_source(name) not in (None, ParameterSource.DEFAULT) for name in names)


def show_report(folder: Path, reference: str | None, as_json: bool) -> int:
    """Writes the summary and the page of a run, prints the table; returns 1 where a question failed."""
    from context_agent.eval.evaluation import publish

    summary = publish(folder, reference=reference)
    if as_json:
        console.print_json(summary.to_json())
    else:
        from context_agent.eval.report.table import show

        show(console.stdout(), summary)
    console.note(f"ctx1 eval: the report is {folder / 'report.html'}")
    return 1 if summary.failures else 0


def show_checks(checked: list[Checked], as_json: bool) -> int:
    """Prints what the checks found; returns 1 where they found something."""
    for one in checked:
        note = one.note
        del note["ids"]
        if as_json:
            console.print_json({"benchmark": one.benchmark.name, **note})
            continue
        click.echo(console.printable(f"{one.benchmark.name}: {note['questions']} questions, {note['chunks']} chunks"))
        problems = [*one.benchmark.problems, *(str(found) for found in (one.missing, one.leaks) if found)]
        for problem in problems or ["all gold is in the index; nothing is shared with the training questions"]:
            click.echo(console.printable(f"  {problem}"))
    return 1 if any(one.missing or one.leaks or one.benchmark.problems for one in checked) else 0


def show_list(as_json: bool) -> int:
    """Prints what `--benchmarks` and `--systems` know by name."""
    from context_agent.eval.benchmarks import registry
    from context_agent.eval.systems import SYSTEMS

    sets = {name: registry.about(name) for name in registry.names()}
    benchmarks = {n: {"about": e.about, "licence": e.licence, "source": e.source} for n, e in sets.items() if e}
    if as_json:
        console.print_json({"benchmarks": benchmarks, "systems": {one.name: one.about for one in SYSTEMS}})
        return 0
    click.echo("benchmarks")
    for name, entry in benchmarks.items():
        click.echo(f"  {name:24} {entry['about']} ({entry['licence']})")
    click.echo("systems")
    for one in SYSTEMS:
        click.echo(f"  {one.name:24} {one.about}")
    return 0
