"""The jobs of an evaluation: one for each question, system, window and seed. Worker processes answer them.

If an episode hangs, or its process dies again and again, the question gets the record of a failure.

The results do not depend on the number of processes. An answer depends only on its question, system, window and seed,
and readers sort the records. `_support.worker_pool` has the processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, as_completed
from dataclasses import dataclass, replace
from functools import partial

from context_agent._support.worker_pool import CallParent, JobLost, Machines, ThisMachine, WorkerPool
from context_agent.agent import SearchResult
from context_agent.errors import ConfigError, ContextAgentError
from context_agent.eval.benchmarks.loading import Benchmark
from context_agent.eval.gold import Gold, gold_of
from context_agent.eval.model_prices import Price
from context_agent.eval.records import EvalRecord, RecordKey, RunLog, TrajectoryStore, benchmark_folder
from context_agent.eval.scoring import failure_reason, rollout_errors, score
from context_agent.eval.systems import Answerer, AnswerSettings, System
from context_agent.harness.policy import Policy
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import HarmonyCounter
from context_agent.types import Question

DEFAULT_TIMEOUT = 600.0
"""If the run has no time limit, an episode counts as hung after this many seconds."""
NO_WINDOW = 0
"""The window in the records of a system without a context."""

RunProgress = Callable[[int, int], None]
"""A function that receives the number of answered questions and the number of all questions."""


@dataclass(frozen=True, slots=True)
class Job:
    """One question to be answered by one system under one window and seed."""

    benchmark: str
    system: System
    window: int
    seed: int
    question: Question

    @property
    def key(self) -> RecordKey:
        """The key of the job's record."""
        return (self.benchmark, self.system.name, self.window, self.seed, self.question.id)


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """Everything that a worker process needs to answer jobs. All of it must be picklable.

    Attributes:
        corpora: For each benchmark, a function that opens its corpus. It is a module-level function or a callable value
            such as `CachedCorpus`.
        policy: A function that returns the policy.
        settings: Settings for all answers.
        price: Prices per token, for the metric `money`.
        store: The storage for trajectories. Without it, none are kept.
    """

    corpora: Mapping[str, Callable[[], Corpus]]
    policy: Callable[[], Policy]
    settings: AnswerSettings
    price: Price | None = None
    store: TrajectoryStore | None = None

    def open(self, call: CallParent) -> Callable[[Job], Callable[[], EvalRecord]]:
        """Return the function that prepares a job in this worker.

        The first job that needs a corpus or the policy opens it.
        """
        answerers = _Answerers(self)
        return lambda job: partial(self._answer, job, answerers.of(job.benchmark))

    def discard(self, job: Job) -> None:
        """Delete the trajectories of a job that will be repeated."""
        if self.store is not None:
            self.store.discard(job.key)

    def _answer(self, job: Job, answerer: Answerer) -> EvalRecord:
        record = answer_job(job, answerer, self.price)
        return record if self.store is None else replace(record, trajectories=self.store.keep(job.key))


def plan_jobs(
    benchmarks: Sequence[Benchmark], systems: Sequence[System], *, windows: Sequence[int], seeds: Sequence[int]
) -> list[Job]:
    """Return all jobs in order. A system without a context runs once, without a window and with the first seed.

    Raises:
        ConfigError: If one of the arguments is empty or if two benchmarks have the same name.
    """
    for option, values in (("benchmarks", benchmarks), ("systems", systems), ("windows", windows), ("seeds", seeds)):
        if not values:
            raise ConfigError(f"no {option} are selected. Choose some with --{option}.")
    names = [benchmark.name for benchmark in benchmarks]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"two benchmarks are called {repeated!r}. Rename one of them with --benchmarks NAME=FOLDER.")
    return [
        Job(benchmark.name, system, window, seed, question)
        for benchmark in benchmarks
        for system in systems
        for window, seed in windows_and_seeds(system, windows, seeds)
        for question in benchmark.questions
    ]


def windows_and_seeds(system: System, windows: Sequence[int], seeds: Sequence[int]) -> list[tuple[int, int]]:
    """Return the pairs of window and seed under which a system runs."""
    if not system.keeps_context:
        return [(NO_WINDOW, seeds[0])]
    return [(window, seed) for window in dict.fromkeys(windows) for seed in dict.fromkeys(seeds)]


def run_jobs(
    jobs: Sequence[Job],
    spec: WorkerSpec,
    log: RunLog,
    *,
    concurrency: int = 1,
    processes: int | None = None,
    machines: Machines | None = None,
    time_limit: float | None = None,
    progress: RunProgress | None = None,
) -> list[EvalRecord]:
    """Answer the jobs that have no record or that failed, and return the records of all jobs in their order.

    After a `KeyboardInterrupt`, the log contains everything answered so far. If opening a corpus or the policy raises
    an error in a worker, the same error is raised here.

    Args:
        jobs: The jobs, from `plan_jobs`.
        spec: The description of the work, which the workers need.
        log: The log with the records so far. Each new record is added to it.
        concurrency: The maximum number of questions that are answered at a time, in all processes together.
        processes: The maximum number of worker processes. Defaults to one for each core.
        machines: The machines that answer. Defaults to this machine.
        time_limit: The time limit of an episode, in seconds. Defaults to `DEFAULT_TIMEOUT`, to detect hung episodes.
        progress: A function that is called before the first job and after each job.
    """
    answered = {key for key, record in log.records.items() if record.error is None}
    remaining = [job for job in jobs if job.key not in answered]
    done = len(jobs) - len(remaining)
    report = progress or (lambda done, total: None)
    report(done, len(jobs))
    if remaining:
        machines = machines or ThisMachine()
        pool = WorkerPool(
            spec,
            machines,
            processes=min(processes or machines.cores, len(remaining)),
            concurrency=concurrency,
            limit=time_limit or DEFAULT_TIMEOUT,
            before_repeat=spec.discard,
        )
        with pool:
            futures = {pool.submit(job): job for job in remaining}
            for future in as_completed(futures):
                job = futures[future]
                failed = log.records.get(job.key)
                log.add(_record_of(job, future, spec.store))
                if failed is not None and spec.store is not None:
                    spec.store.forget(failed)
                done += 1
                report(done, len(jobs))
    return [log.records[job.key] for job in jobs]


def _record_of(job: Job, future: Future[EvalRecord], store: TrajectoryStore | None) -> EvalRecord:
    """Return the record of a job that has ended. If the job was lost, keep the written part of its trajectory."""
    try:
        return future.result()
    except JobLost as lost:
        record = failed_record(job, str(lost), lost.seconds)
        return replace(record, trajectories=store.keep(job.key) if store else ())


class _Answerers:
    """The answerers of a worker, by benchmark.

    Each opens its corpus when it is first used, and all share one policy.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._policy: Policy | None = None
        self._answerers: dict[str, Answerer] = {}
        self._lock = threading.Lock()

    def of(self, benchmark: str) -> Answerer:
        with self._lock:
            if benchmark not in self._answerers:
                self._answerers[benchmark] = self._open(benchmark)
            return self._answerers[benchmark]

    def _open(self, benchmark: str) -> Answerer:
        if self._policy is None:
            self._policy = self._spec.policy()
            # Vocabularies load on first use. Loading must not count as time of the first question.
            (self._policy.counter or HarmonyCounter()).count("ready")
        settings, corpus = self._spec.settings, self._spec.corpora[benchmark]()
        if settings.trajectories is not None:
            settings = replace(settings, trajectories=benchmark_folder(settings.trajectories, benchmark))
        return Answerer(corpus, self._policy, settings)


def answer_job(job: Job, answerer: Answerer, price: Price | None = None) -> EvalRecord:
    """Answer a job and return its record.

    The function catches every error, because a bug in a policy must not affect the other questions.
    """
    started = time.perf_counter()
    try:
        gold = gold_of(job.question, answerer.corpus)
        result = answerer.answer(job.system, job.question, gold, window=job.window, seed=job.seed)
    except BaseException as error:  # noqa: BLE001 - see above; a cancellation would end the thread silently
        return failed_record(job, _reason(error), time.perf_counter() - started)
    seconds = time.perf_counter() - started
    try:
        return _scored_record(job, result, gold, price, seconds)
    except Exception as error:  # noqa: BLE001 - see above
        return failed_record(job, f"the result cannot be scored ({_reason(error)})", seconds)


def _scored_record(job: Job, result: SearchResult, gold: Gold, price: Price | None, seconds: float) -> EvalRecord:
    scores, curve = score(job.question, result, gold=gold, price=price, keeps_context=job.system.keeps_context)
    return EvalRecord(
        *job.key,
        type=job.question.type,
        hops=job.question.hops,
        scores=scores,
        stop_reason=result.stop_reason,
        error=failure_reason(result),
        broken=rollout_errors(result),
        seconds=seconds,
        curve=curve,
        ranking=tuple(document.id for document in result.documents),
    )


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, ContextAgentError) else f"unexpected {type(error).__name__}: {error}"


def failed_record(job: Job, error: str, seconds: float) -> EvalRecord:
    """Return the record of a job that was given up. The question counts as failed, and is never left out."""
    scores, curve = score(job.question, None, error=error or "failed", keeps_context=job.system.keeps_context)
    return EvalRecord(
        *job.key,
        type=job.question.type,
        hops=job.question.hops,
        scores=scores,
        stop_reason="error",
        error=error,
        seconds=seconds,
        curve=curve,
    )
