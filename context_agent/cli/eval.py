"""The command `ctx1 eval`, which runs systems on benchmarks and writes a report. An interrupted run can be resumed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.agent_options import AgentOptions, LimitOptions, PolicyOptions, SaveOption
from context_agent.cli.index_options import CorpusOptions
from context_agent.cli.invocation import is_set
from context_agent.cli.parameters import (
    COUNT,
    EXISTING_FILE,
    FOLDER,
    OUTPUT_FOLDER,
    CommonOptions,
    essential,
    options_in,
)
from context_agent.cli.worker_options import RayOption, worker_machines
from context_agent.errors import ConfigError

if TYPE_CHECKING:
    from context_agent.eval.benchmarks.loading import Benchmark
    from context_agent.eval.evaluation import EvalOptions, PreparedBenchmark
    from context_agent.eval.model_prices import Price
    from context_agent.eval.records import EvalRecord
    from context_agent.eval.systems import System

MOST_DIGITS = 18
"""Maximum number of characters of a window or a seed."""
MODEL_CONCURRENCY = 8
"""Number of questions at a time for a policy on a model server. The embedded policy gets one question per core."""


@options_in("Questions and documents")
@dataclass(frozen=True, slots=True)
class DataOptions:
    """The questions and documents to evaluate on."""

    benchmarks: Annotated[tuple[str, ...], Parameter(name=("--benchmarks", "--benchmark"), metavar="NAME,…")] = ()
    """Benchmarks: names from --list, NAME=FOLDER for downloaded files, folders with corpus.jsonl and
    queries.<split>.jsonl, or folders of BEIR or TREC."""
    split: Annotated[
        str | None,
        Parameter(metavar="NAME", show_default="the first of dev, validation, val and test that the set has"),
    ] = None
    """Split to evaluate."""
    data: Annotated[Path | None, FOLDER, Parameter(show_default="$CTX1_DATA", env_var="CTX1_DATA")] = None
    """Folder that contains musique/, 2wiki/ and hotpotqa/."""
    corpus: Annotated[tuple[Path, ...], Parameter(metavar="PATH")] = ()
    """Your own documents, as `ctx1 index` reads them; repeatable."""
    questions: Annotated[Path | None, EXISTING_FILE, Parameter(metavar="FILE.jsonl")] = None
    """Your own questions with gold documents, about --corpus or the index of --path or --url."""
    train_questions: Annotated[Path | None, EXISTING_FILE, Parameter(metavar="FILE.jsonl")] = None
    """Training questions; --questions must not share their texts or ids."""
    limit: Annotated[int | None, COUNT] = None
    """Use only the first N questions of each set."""
    cache: Annotated[Path | None, FOLDER, Parameter(show_default="the user's cache folder")] = None
    """Cache for indexed corpora."""
    allow_missing_gold: bool = False
    """Run even if gold documents are missing from the index; they count as not found."""
    allow_leaks: bool = False
    """Run even if training and test questions overlap."""


@options_in("Systems")
@dataclass(frozen=True, slots=True)
class SystemOptions:
    """The systems to run, and how to run them."""

    systems: Annotated[tuple[str, ...], Parameter(metavar="NAME,…")] = ("bm25,dense,hybrid,agent",)
    """Systems to compare, from --list; agent@4 has four rollouts."""
    windows: Annotated[tuple[str, ...], Parameter(metavar="TOKENS,…", show_default="the profile's")] = ()
    """Context windows."""
    seeds: Annotated[tuple[str, ...], Parameter(metavar="NUMBER,…")] = ("0",)
    """Random seeds."""
    k: Annotated[int, COUNT, Parameter(name=("--k", "--top-k", "-k"))] = 10
    """Number of documents per answer."""
    reference: Annotated[str | None, Parameter(metavar="SYSTEM", show_default="the first one-shot system")] = None
    """System that the others are compared with."""
    prices: Annotated[Path | None, EXISTING_FILE, Parameter(metavar="FILE.toml")] = None
    """Token prices by model, for the costs in the report."""
    concurrency: Annotated[
        int | None, COUNT, Parameter(show_default=f"one per core; {MODEL_CONCURRENCY} for a language model")
    ] = None
    """Number of questions at the same time."""
    processes: Annotated[int | None, COUNT, Parameter(show_default="one per core")] = None
    """Number of worker processes."""
    ray: RayOption = None


@essential("out report show_names benchmarks corpus questions limit systems k path")
def evaluate(
    *,
    out: Annotated[Path | None, OUTPUT_FOLDER] = None,
    report: Annotated[Path | None, FOLDER] = None,
    check_only: bool = False,
    show_names: Annotated[bool, Parameter(name="--list")] = False,
    data: DataOptions = DataOptions(),
    run: SystemOptions = SystemOptions(),
    policy: PolicyOptions = PolicyOptions(),
    limits: LimitOptions = LimitOptions(),
    save: SaveOption = None,
    index: CorpusOptions = CorpusOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Measure systems on questions with known documents.

    The folder --out gets run.json, records.jsonl, summary.json and report.html. The same command resumes an interrupted
    run. A question that fails counts as 0, and the exit code is then 1. The same command answers such questions again.

    Args:
        out: Folder of the run. The same command resumes it.
        report: Only rewrite the report of the run in this folder.
        check_only: Only check that all gold is in the index and that training questions do not overlap.
        show_names: List the names of benchmarks and systems.
    """
    from context_agent.eval.evaluation import require_sound_data

    if show_names:
        return _print_names(common.json)
    if report is not None:
        return _print_report(report, run.reference, common.json)
    if out is None and not check_only:
        raise ConfigError("there is no folder for the run. Pass --out FOLDER.")
    # Before indexing, which takes minutes, so that a misspelled name fails at once.
    systems = _systems(run, index)
    agent = AgentOptions(policy, limits, save=save)
    eval_options = _eval_options(run, agent, index, data)
    benchmarks = _prepare(data, index, own_index=is_set("path", "url") or not data.benchmarks)
    if check_only:
        return _print_checks(benchmarks, common.json)
    require_sound_data(benchmarks, allow_missing_gold=data.allow_missing_gold, allow_leaks=data.allow_leaks)
    if not is_set("systems"):
        systems = _with_vectors(systems, benchmarks)
    folder = out or Path()
    _run(benchmarks, systems, eval_options, run, folder, uses_model=policy.policy != "bridge")
    return _print_report(folder, run.reference, common.json)


def _prepare(data: DataOptions, index: CorpusOptions, *, own_index: bool) -> list[PreparedBenchmark]:
    """Return the benchmarks, indexed and checked. With `own_index`, `index` replaces the corpus of the benchmark."""
    from context_agent._support.cache_folder import cache_folder
    from context_agent.eval.evaluation import prepare

    benchmarks = [_limited(benchmark, data.limit) for benchmark in _benchmarks(data)]
    open_corpus = index.open if own_index and not data.corpus else None
    if open_corpus is not None and len(benchmarks) > 1:
        raise ConfigError(
            f"--path and --url open the index of one benchmark, not of {len(benchmarks)}. Name one with --benchmarks."
        )
    prepared = []
    for benchmark in benchmarks:
        with output.progress(f"Indexing {benchmark.name}", "chunks") as advance:
            prepared.append(
                prepare(
                    benchmark,
                    open_corpus,
                    cache=data.cache or cache_folder() / "eval",
                    embedder=index.opening.embedder or "static",
                    reranker=index.opening.reranker,
                    progress=advance,
                )
            )
    return prepared


def _systems(run: SystemOptions, index: CorpusOptions) -> tuple[System, ...]:
    """Return the selected systems, including the reference."""
    from context_agent.eval.systems import find_systems

    names = [*_names(run.systems), *([run.reference] if run.reference else [])]
    return find_systems(names, reranker=index.opening.reranker is not None)


def _with_vectors(systems: tuple[System, ...], benchmarks: list[PreparedBenchmark]) -> tuple[System, ...]:
    """Return the default systems without `dense` if an index has no vectors that can be searched."""
    from context_agent.retrieval.retriever import DENSE

    without = [prepared.benchmark.name for prepared in benchmarks if DENSE not in prepared.retrievers]
    if not without:
        return systems
    output.note(f"the index of {without[0]} is searched by words alone, so the system dense is left out")
    return tuple(system for system in systems if system.name != DENSE)


def _run(
    benchmarks: list[PreparedBenchmark],
    systems: tuple[System, ...],
    eval_options: EvalOptions,
    run: SystemOptions,
    folder: Path,
    *,
    uses_model: bool,
) -> list[EvalRecord]:
    """Run the questions that have no record in the folder yet.

    If they wait for a model server, run more of them at once than there are cores.
    """
    from context_agent.eval.evaluation import evaluate

    waits_for_server = uses_model and any(system.keeps_context for system in systems)
    with worker_machines(run.ray) as machines, output.progress("Evaluating", "questions") as advance:
        return evaluate(
            benchmarks,
            systems,
            eval_options,
            folder=folder,
            concurrency=run.concurrency or (MODEL_CONCURRENCY if waits_for_server else machines.cores),
            processes=run.processes,
            machines=machines,
            progress=advance,
        )


def _benchmarks(data: DataOptions) -> list[Benchmark]:
    from context_agent.eval.benchmarks import loading

    if data.questions is not None and data.benchmarks:
        raise ConfigError("--benchmarks and --questions cannot be combined. Pass --questions alone for your own set.")
    if data.questions is None and not data.benchmarks:
        raise ConfigError(
            "there are no questions. Pass --benchmarks NAME (names from --list), or --questions FILE.jsonl for your "
            "own set."
        )
    if data.questions is None:
        if data.corpus:
            raise ConfigError("--corpus needs questions about these documents. Pass --questions FILE.jsonl.")
        return [loading.load_benchmark(name, split=data.split, data=data.data) for name in _names(data.benchmarks)]
    return [
        loading.load_own(
            list(data.corpus),
            data.questions,
            name=data.questions.stem,
            split=data.split or "",
            train=data.train_questions,
        )
    ]


def _eval_options(run: SystemOptions, agent: AgentOptions, index: CorpusOptions, data: DataOptions) -> EvalOptions:
    from context_agent.eval.evaluation import EvalOptions

    model = asdict(agent.policy.language_model)
    model_settings = {name: value for name, value in model.items() if value is not None and name != "api_key_env"}
    return EvalOptions(
        agent.policy.load,
        windows=_integers("--windows", run.windows) or (agent.policy.window or agent.policy.wire_format.window,),
        seeds=_integers("--seeds", run.seeds),
        k=run.k,
        profile=agent.policy.wire_format,
        max_turns=agent.limits.max_turns,
        time_limit=agent.limits.time_limit,
        price=_price(run.prices, agent.policy),
        save=agent.save,
        extra_settings={
            "language_model": model_settings or None,
            "embedder": index.opening.embedder,
            "reranker": index.opening.reranker,
            "limit": data.limit,
        },
    )


def _price(path: Path | None, policy: PolicyOptions) -> Price | None:
    if path is None:
        return None
    from context_agent.eval.model_prices import load_prices
    from context_agent.policies import from_environment

    model = str(policy.language_model.model or from_environment({}).get("model") or policy.policy)
    price = load_prices(path).of(model)
    if price is None:
        raise ConfigError(f'{path} has no price for {model!r}. Add [models.{model}], or [models."*"] for all models.')
    return price


def _limited(benchmark: Benchmark, limit: int | None) -> Benchmark:
    return benchmark if limit is None else replace(benchmark, questions=benchmark.questions[:limit])


def _names(values: tuple[str, ...]) -> list[str]:
    """Return the items of an option that accepts commas and can be repeated."""
    return [name.strip() for value in values for name in value.split(",") if name.strip()]


def _integers(option: str, values: tuple[str, ...]) -> tuple[int, ...]:
    """Return the items as integers.

    Raises:
        ConfigError: If an item is not an integer.
    """
    names = _names(values)
    for name in names:
        if not name.removeprefix("-").isdecimal() or len(name) > MOST_DIGITS:
            raise ConfigError(f"{option} must be integers separated by commas, as in 1,2; got {name!r}")
    return tuple(map(int, names))


def _print_report(folder: Path, reference: str | None, as_json: bool) -> int:
    """Write the report of a run, and print its tables. If a question failed, return 1."""
    from context_agent.web.report import write_report

    summary = write_report(folder, reference=reference)
    if as_json:
        output.print_json(summary.to_json())
    else:
        from context_agent.eval.summary_table import show

        show(output.stdout(), summary)
    again = ". To answer the failed questions again, run the same command." if summary.failures else ""
    output.note(f"the report is {folder / 'report.html'}{again}")
    return 1 if summary.failures else 0


def _print_checks(benchmarks: list[PreparedBenchmark], as_json: bool) -> int:
    """Print the results of the checks. If there is a problem, return 1."""
    for prepared in benchmarks:
        benchmark, note = prepared.benchmark, prepared.note
        del note["ids"]
        if as_json:
            output.print_json({"benchmark": benchmark.name, **note})
            continue
        output.echo(f"{benchmark.name}: {note['questions']} questions, {note['chunks']} chunks")
        problems = [*benchmark.problems, *(str(check) for check in (prepared.missing, prepared.leaks) if check)]
        for problem in problems or [
            "no problems: all gold is in the index, and none of the training questions is among these questions"
        ]:
            output.echo(f"  {problem}")
    return 1 if any(prepared.missing or prepared.leaks or prepared.benchmark.problems for prepared in benchmarks) else 0


def _print_names(as_json: bool) -> int:
    """Print the names for `--benchmarks` and `--systems`."""
    from context_agent.eval.benchmarks import registry
    from context_agent.eval.systems import SYSTEMS

    entries = {name: registry.find_benchmark(name) for name in registry.benchmark_names()}
    benchmarks = {
        name: {"about": entry.about, "license": entry.license, "source": entry.source}
        for name, entry in entries.items()
        if entry
    }
    if as_json:
        output.print_json({"benchmarks": benchmarks, "systems": {system.name: system.about for system in SYSTEMS}})
        return 0
    output.echo("benchmarks")
    for name, fields in benchmarks.items():
        output.echo(f"  {name:24} {fields['about']} ({fields['license']})")
    output.echo("systems")
    for system in SYSTEMS:
        output.echo(f"  {system.name:24} {system.about}")
    return 0
