"""An evaluation of systems on benchmarks: prepare the data, run the questions, summarize the records.

    benchmarks = [prepare(load_benchmark("musique", data=DATA), cache=CACHE)]
    systems = find_systems(["hybrid", "agent"])
    records = evaluate(benchmarks, systems, EvalOptions(policy=BridgePolicy), folder=Path("runs/dev"))
    summary = summarize_run(Path("runs/dev"))

`context_agent.web.report.write_report` writes the summary and the pages.

The policy is passed as a module-level function, because every worker process opens its own. A program that calls
`evaluate` needs `if __name__ == "__main__":` for the same reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from context_agent._support.atomic_files import replace_file
from context_agent._support.worker_pool import Machines
from context_agent.budget import WINDOW, Budget
from context_agent.errors import DataError
from context_agent.eval.aggregate import summarize
from context_agent.eval.benchmarks.corpus_cache import ProgressCallback, cached_corpus
from context_agent.eval.benchmarks.loading import Benchmark
from context_agent.eval.data_checks import Leaks, MissingGold, leaks, missing_gold, with_similar_ids
from context_agent.eval.gold import questions_digest
from context_agent.eval.model_prices import Price
from context_agent.eval.records import (
    QUESTIONS_FILE,
    RUN_FILE,
    EvalRecord,
    RecordKey,
    TrajectoryStore,
    open_run,
    read_records,
    read_run,
)
from context_agent.eval.runner import RunProgress, WorkerSpec, plan_jobs, run_jobs, windows_and_seeds
from context_agent.eval.summary import EvalSummary
from context_agent.eval.systems import AnswerSettings, System, find_systems
from context_agent.harness.episode import Limits
from context_agent.harness.policy import Policy
from context_agent.harness.profile import Profile
from context_agent.policies.bridge import BridgePolicy, Effort
from context_agent.retrieval.corpus import Corpus
from context_agent.version import __version__

LISTED_PROBLEMS = 100
"""The maximum number of skipped rows that `run.json` lists. Further ones are only counted."""


@dataclass(frozen=True, slots=True)
class PreparedBenchmark:
    """A benchmark that is ready to run, with the results of the data checks.

    Attributes:
        benchmark: The questions, with their source and license.
        open: A function that opens the corpus. Every worker process calls it.
        corpus: The name of the corpus. For an indexed corpus, the name includes a digest of its chunks.
        chunks: The number of chunks in the corpus. It is 0 if the corpus cannot count them.
        missing: Gold that the corpus does not contain.
        leaks: Questions and ids that the train split and the test split share.
        retrievers: The names of the retrievers that search the corpus.
    """

    benchmark: Benchmark
    open: Callable[[], Corpus]
    corpus: str
    chunks: int
    missing: MissingGold
    leaks: Leaks
    retrievers: frozenset[str] = frozenset()

    @property
    def identity(self) -> dict[str, Any]:
        """The facts that must be equal for two runs to be comparable: the corpus, and the questions with their gold."""
        return {
            "split": self.benchmark.split,
            "questions": len(self.benchmark.questions),
            "questions_digest": questions_digest(self.benchmark.questions),
            "corpus": self.corpus,
        }

    @property
    def note(self) -> dict[str, Any]:
        """The facts about the data that the report shows."""
        benchmark = self.benchmark
        return {
            "about": benchmark.about,
            "license": benchmark.license,
            "source": benchmark.source,
            "split": benchmark.split,
            "questions": len(benchmark.questions),
            "chunks": self.chunks,
            "without_answer": sum(not question.answer for question in benchmark.questions),
            "not_scored": benchmark.ungraded,
            "ids": [question.id for question in benchmark.questions],
            "problems": list(benchmark.problems[:LISTED_PROBLEMS]),
            "problems_count": len(benchmark.problems),
            "missing_gold": str(self.missing) if self.missing else "",
            "missing_gold_ids": list(self.missing.ids),
            "leaks": str(self.leaks) if self.leaks else "",
        }


@dataclass(frozen=True, slots=True)
class EvalOptions:
    """Settings that determine how the questions are answered.

    Attributes:
        policy: A module-level function that returns the policy. Every worker process calls it.
        windows: The context windows of the agents, in tokens.
        seeds: The seeds of the agents.
        k: The number of documents in a ranking.
        profile: The harness profile, or its name.
        max_turns: The maximum number of turns in an episode. Defaults to the limit of the profile.
        time_limit: The time limit of an episode, in seconds.
        price: Prices per token, for the metric `money`.
        save: The folder for trajectories. Without it, no trajectories are kept.
        extra_settings: Further plain data that affects the results. It is part of the run's settings.

    Raises:
        ConfigError: If a window is impossible.
    """

    policy: Callable[[], Policy]
    windows: tuple[int, ...] = (WINDOW,)
    seeds: tuple[int, ...] = (0,)
    k: int = 10
    profile: Profile | str = "default"
    max_turns: int | None = None
    time_limit: float | None = None
    price: Price | None = None
    save: Path | None = None
    extra_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for window in self.windows:
            Budget(window)


def prepare(
    benchmark: Benchmark,
    open_corpus: Callable[[], Corpus] | None = None,
    *,
    cache: Path | None = None,
    embedder: str = "static",
    reranker: str | None = None,
    progress: ProgressCallback | None = None,
) -> PreparedBenchmark:
    """Open the benchmark's corpus and check its data.

    The function reports what the checks find, and refuses nothing. `require_sound_data` refuses unsound data.

    Args:
        benchmark: The benchmark to prepare.
        open_corpus: A function that opens the corpus. Without it, the documents of the benchmark are indexed in
            `cache`.
        cache: The folder for the index.
        embedder: The embedder of the index.
        reranker: The reranker of the index. Without it, nothing is reranked.
        progress: A function that is called while the index is built.

    Raises:
        CorpusError: If the corpus cannot be indexed or opened.
        ValueError: If neither `open_corpus` nor `cache` is given.
    """
    if open_corpus is None:
        if cache is None:
            raise ValueError("an evaluation needs a corpus. Pass open_corpus, or pass a folder for the index as cache.")
        open_corpus = cached_corpus(
            benchmark.documents, cache=cache, embedder=embedder, reranker=reranker, progress=progress
        )
    corpus = open_corpus()
    try:
        return PreparedBenchmark(
            benchmark,
            open_corpus,
            corpus.name,
            corpus.count() if hasattr(corpus, "count") else 0,
            with_similar_ids(missing_gold(corpus, benchmark.questions), corpus),
            leaks(benchmark.train, benchmark.questions),
            frozenset(retriever.name for retriever in getattr(corpus, "retrievers", ())),
        )
    finally:
        if hasattr(corpus, "close"):
            corpus.close()


def require_sound_data(
    benchmarks: Sequence[PreparedBenchmark], *, allow_missing_gold: bool = False, allow_leaks: bool = False
) -> None:
    """Raise an error if gold is missing from a corpus or if the train and test splits share questions.

    Raises:
        DataError: If a benchmark has one of these faults and the fault is not allowed.
    """
    problems = []
    for prepared in benchmarks:
        name = prepared.benchmark.name
        if prepared.missing and not allow_missing_gold:
            problems.append(
                f"{name}: {prepared.missing}. Write ids as `ctx1 search --quiet` prints them, index the complete "
                "corpus, or pass --allow-missing-gold to count these ids as not found."
            )
        if prepared.leaks and not allow_leaks:
            problems.append(f"{name}: {prepared.leaks}. Correct the splits, or pass --allow-leaks to run anyway.")
    if problems:
        raise DataError(" ".join(problems))


def evaluate(
    benchmarks: Sequence[PreparedBenchmark],
    systems: Sequence[System],
    options: EvalOptions,
    *,
    folder: Path,
    concurrency: int = 1,
    processes: int | None = None,
    machines: Machines | None = None,
    progress: RunProgress | None = None,
) -> list[EvalRecord]:
    """Run all questions that have no record in `folder` yet or that failed, and return all records.

    The records are in the order of the jobs.

    Args:
        benchmarks: The benchmarks, from `prepare`.
        systems: The systems to run.
        options: The settings that determine how the questions are answered.
        folder: The run's folder. An interrupted run resumes where it stopped.
        concurrency: The maximum number of questions that are answered at a time, in all processes together.
        processes: The maximum number of worker processes. Defaults to one for each core.
        machines: The machines that answer. Defaults to this machine.
        progress: A function that receives the number of answered questions and the number of all questions.

    Raises:
        ConfigError: If the folder has a run with other settings.
        CorpusLockedError: If another evaluation is writing to the folder.
    """
    jobs = plan_jobs(
        [prepared.benchmark for prepared in benchmarks], systems, windows=options.windows, seeds=options.seeds
    )
    store = None if options.save is None else TrajectoryStore(options.save, folder)
    limits = Limits(options.max_turns, options.time_limit)
    spec = WorkerSpec(
        {prepared.benchmark.name: prepared.open for prepared in benchmarks},
        options.policy,
        AnswerSettings(options.profile, limits, options.k, None if store is None else store.unfinished),
        options.price,
        store,
    )
    notes = {
        "benchmarks": {prepared.benchmark.name: prepared.note for prepared in benchmarks},
        "systems": {system.name: system.about for system in systems},
    }
    with open_run(folder, run_settings(benchmarks, systems, options), notes) as log, _cleared(store):
        questions = "".join(f"{json.dumps(row)}\n" for row in _question_rows(benchmarks))
        replace_file(folder / QUESTIONS_FILE, questions)
        return run_jobs(
            jobs,
            spec,
            log,
            concurrency=concurrency,
            processes=processes,
            machines=machines,
            time_limit=options.time_limit,
            progress=progress,
        )


def run_settings(
    benchmarks: Sequence[PreparedBenchmark], systems: Sequence[System], options: EvalOptions
) -> dict[str, Any]:
    """Return every setting that affects the results.

    The number of questions answered at a time does not affect them, so it is left out.
    """
    policy = options.policy() if any(system.keeps_context for system in systems) else None
    more = {"effort": _effort(policy), **options.extra_settings}
    return {
        "version": __version__,
        "benchmarks": {prepared.benchmark.name: prepared.identity for prepared in benchmarks},
        "systems": [system.name for system in systems],
        "windows": list(options.windows),
        "seeds": list(options.seeds),
        "k": options.k,
        "policy": "none" if policy is None else policy.name,
        "profile": options.profile if isinstance(options.profile, str) else options.profile.name,
        "max_turns": options.max_turns,
        "time_limit": options.time_limit,
        "price": None if options.price is None else options.price.model_dump(),
        **{name: value for name, value in more.items() if value is not None},
    }


def _effort(policy: Policy | None) -> dict[str, Any] | None:
    """Return the effort settings of the embedded policy that differ from the defaults.

    The policy's name does not show them.
    """
    if not isinstance(policy, BridgePolicy):
        return None
    default = asdict(Effort())
    return {name: value for name, value in asdict(policy.effort).items() if value != default[name]} or None


def _question_rows(benchmarks: Sequence[PreparedBenchmark]) -> Iterator[dict[str, Any]]:
    """Yield the questions as rows of a question file for `ctx1 view --gold`.

    The id of a row starts with the name of its benchmark.
    """
    for prepared in benchmarks:
        for question in prepared.benchmark.questions:
            yield {**asdict(question), "id": f"{prepared.benchmark.name}/{question.id}"}


@contextmanager
def _cleared(store: TrajectoryStore | None) -> Iterator[None]:
    """Delete unfinished trajectories before and after the block."""
    try:
        if store is not None:
            store.clear()
        yield
    finally:
        if store is not None:
            store.clear()


def summarize_run(folder: Path, *, reference: str | None = None) -> EvalSummary:
    """Return the summary of the records in a run's folder. It lists unanswered questions as missing.

    Args:
        folder: A folder that `evaluate` wrote. The run may be incomplete.
        reference: The system that the others are compared with. Defaults to the reference that `summarize` chooses.

    Raises:
        DataError: If the folder has no run.
        ConfigError: If the reference has no records.
    """
    run = read_run(folder)
    settings = {key: value for key, value in run["settings"].items() if value is not None}
    try:
        notes: Mapping[str, Mapping[str, Any]] = run["notes"]["benchmarks"]
        settings["benchmarks"] = {name: _description(note) for name, note in notes.items()}
        order, expected = tuple(settings["systems"]), _expected_keys(run)
        problems = [problem for name, note in notes.items() for problem in _data_problems(name, note)]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise DataError(
            f"{folder / RUN_FILE} is damaged ({type(error).__name__}: {error}). Restore the file from a backup, or "
            "choose another --out."
        ) from error
    return summarize(
        read_records(folder),
        settings=settings,
        order=order,
        reference=reference,
        expected=expected,
        problems=problems,
    )


def _data_problems(name: str, note: Mapping[str, Any]) -> list[str]:
    """Return the problems of a benchmark's data, from its note in `run.json`."""
    problems = [f"{name}: {problem}" for problem in note.get("problems", ())]
    if (more := note.get("problems_count", 0) - len(problems)) > 0:
        problems.append(f"{name}: {more} further rows were skipped")
    if note.get("not_scored"):
        problems.append(f"{name}: {note['not_scored']} questions have neither gold nor an answer and are left out")
    problems += [f"{name}: {note[key]}" for key in ("missing_gold", "leaks") if note.get(key)]
    return problems


def _expected_keys(run: Mapping[str, Any]) -> list[RecordKey]:
    """Return the keys of the records that a complete run has, from its `run.json`.

    If a value is not a number or an id is not a text, raise `TypeError`. The report shows both.
    """
    settings, notes = run["settings"], run["notes"]
    _check_types("windows", settings["windows"], int)
    _check_types("seeds", settings["seeds"], int)
    keys = []
    for benchmark in settings["benchmarks"]:
        ids = notes["benchmarks"][benchmark]["ids"]
        _check_types("ids", ids, str)
        for system in find_systems(settings["systems"], reranker=True):
            for window, seed in windows_and_seeds(system, settings["windows"], settings["seeds"]):
                keys += [(benchmark, system.name, window, seed, question_id) for question_id in ids]
    return keys


def _check_types(name: str, values: Sequence[object], kind: type) -> None:
    if not all(isinstance(value, kind) for value in values):
        raise TypeError(f"{name} must have the type {kind.__name__}")


def _description(note: Mapping[str, Any]) -> str:
    """Describe a benchmark in one line: its split, size, license and source."""
    parts = [f"split {note['split']}" if note["split"] else "", f"{note['questions']:,} questions"]
    # Runs of versions before `license` have no such field.
    terms = f"license {note['license']}" if note.get("license") else ""
    parts += [f"{note['chunks']:,} chunks" if note["chunks"] else "", terms, note["source"]]
    return ", ".join(part for part in parts if part)
