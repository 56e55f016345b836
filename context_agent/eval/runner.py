"""Runs systems on benchmarks: plans the jobs, answers them in worker processes, and ends episodes that hang.

Workers are processes of this machine, or of the machines of a Ray cluster (`ray_machines`). They cost a copy of the
corpora each and have two advantages. The embedded policy, which only computes, gets
one core per process. An episode that blocks forever can be ended from outside: its process is killed, its record is a
failure, and the other jobs of that process are repeated.

The results do not depend on the number of processes: an answer depends on its question, system, window and seed alone,
and readers sort the records.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Protocol

from context_agent._support.processes import THREAD_VARIABLES, available_cores, environment, exit_reason
from context_agent._support.question_files import Question
from context_agent.agent import SearchResult
from context_agent.errors import ConfigError, ContextAgentError
from context_agent.eval.benchmarks.registry import Benchmark
from context_agent.eval.gold import Gold, gold_of
from context_agent.eval.records import EvalRecord, RecordKey, RunLog, TrajectoryStore, benchmark_folder
from context_agent.eval.scoring import Price, failure, rollout_errors, score
from context_agent.eval.systems import Answerer, AnswerSettings, System
from context_agent.harness.policy import Policy
from context_agent.retrieval.corpus import Corpus
from context_agent.tokens import HarmonyCounter

DEFAULT_TIMEOUT = 600.0
"""Seconds after which an episode without a time limit counts as hung."""
GRACE_PERIOD = 5.0
"""Seconds beyond its limit in which an episode may end by itself, with the ranking that it has."""
PREFETCH = 2
"""Jobs that wait in a process besides those in progress, so that it is never idle."""
MAX_ATTEMPTS = 2
"""Attempts at a job whose process dies."""
POLL_INTERVAL = 1.0
"""Seconds between checks for overdue episodes while no message arrives."""
NO_WINDOW = 0
"""The window of a system without a context."""
ONE_THREAD = dict.fromkeys(THREAD_VARIABLES, "1")
"""The environment of a worker: several processes on all cores slow each other down, and sums depend on the number of
threads."""

RunProgress = Callable[[int, int], None]
"""(questions answered, questions in total)."""


@dataclass(frozen=True, slots=True)
class Job:
    """One question for one system."""

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
    """What a worker needs. It is sent to another process, so everything in it must be picklable.

    `corpora` and `policy` are module-level functions or callable values such as `CachedCorpus`; each worker calls them.
    """

    corpora: Mapping[str, Callable[[], Corpus]]
    policy: Callable[[], Policy]
    settings: AnswerSettings
    price: Price | None = None
    store: TrajectoryStore | None = None


def plan_jobs(
    benchmarks: Sequence[Benchmark], systems: Sequence[System], *, windows: Sequence[int], seeds: Sequence[int]
) -> list[Job]:
    """All jobs in order. A system without a context runs once, without a window and with the first seed.

    Raises `ConfigError` if one of the arguments is empty or two benchmarks have the same name.
    """
    for option, values in (("benchmarks", benchmarks), ("systems", systems), ("windows", windows), ("seeds", seeds)):
        if not values:
            raise ConfigError(f"no {option} are selected: pass --{option}")
    names = [benchmark.name for benchmark in benchmarks]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"two benchmarks are called {repeated!r}: rename one of them with --benchmarks NAME=FOLDER")
    return [
        Job(benchmark.name, system, window, seed, question)
        for benchmark in benchmarks
        for system in systems
        for window, seed in windows_and_seeds(system, windows, seeds)
        for question in benchmark.questions
    ]


def windows_and_seeds(system: System, windows: Sequence[int], seeds: Sequence[int]) -> list[tuple[int, int]]:
    """The pairs of window and seed under which a system runs."""
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
    """Answers the jobs without a record, and returns the records of all jobs in their order.

    Answers `concurrency` questions at a time in `processes` processes, by default one per core, on this machine or on
    other `machines`. Raises what a corpus or the policy raised when it was opened. After `KeyboardInterrupt` the log
    has everything answered so far.
    """
    remaining = [job for job in jobs if job.key not in log.records]
    done = len(jobs) - len(remaining)
    report = progress or (lambda done, total: None)
    report(done, len(jobs))
    if remaining:
        machines = machines or ThisMachine()
        count = min(processes or machines.cores, concurrency, len(remaining))
        slots = -(-concurrency // count)
        limit = (time_limit or DEFAULT_TIMEOUT) + GRACE_PERIOD
        pool = WorkerPool(machines, spec, deque(remaining), slots, limit)
        for record in pool.run(count):
            log.add(record)
            done += 1
            report(done, len(jobs))
    return [log.records[job.key] for job in jobs]


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A worker has started the job; its time counts from here."""

    key: RecordKey


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """A worker cannot work at all: a corpus or the policy cannot be opened."""

    error: Exception


WorkerMessage = JobStarted | WorkerFailed | EvalRecord


class WorkerProcess(Protocol):
    """The process of a worker, here or on another machine."""

    @property
    def exitcode(self) -> int | None:
        """How it ended; None if that is not known."""
        ...

    def kill(self) -> None:
        """Ends it."""
        ...

    def join(self) -> None:
        """Waits for its end."""
        ...


@dataclass(slots=True)
class Worker:
    """A running process: its jobs by key, and when each of them started."""

    process: WorkerProcess
    pipe: Connection
    jobs: dict[RecordKey, Job] = field(default_factory=dict)
    started: dict[RecordKey, float] = field(default_factory=dict)

    def kill(self) -> None:
        """Kills the process, which may no longer react to messages."""
        self.pipe.close()
        self.process.kill()
        self.process.join()


class Machines(Protocol):
    """Where workers run."""

    cores: int

    def start(self, spec: WorkerSpec, slots: int) -> Worker | None:
        """A new worker; None if there is no free processor."""
        ...


class ThisMachine:
    """Processes of this machine."""

    def __init__(self) -> None:
        self.cores = available_cores()

    def start(self, spec: WorkerSpec, slots: int) -> Worker:
        """Starts a worker with the spawn method: a fork would inherit locks that other threads hold."""
        context = get_context("spawn")
        pipe, worker_pipe = context.Pipe()
        process = context.Process(target=run_worker, args=(spec, worker_pipe, slots), daemon=True, name="ctx1-eval")
        with environment(ONE_THREAD):
            process.start()
        worker_pipe.close()
        return Worker(process, pipe)


class WorkerPool:
    """The workers of a run, and the jobs that wait for them."""

    def __init__(self, machines: Machines, spec: WorkerSpec, waiting: deque[Job], slots: int, limit: float) -> None:
        self._machines = machines
        self._spec = spec
        self._waiting = waiting
        self._slots = slots
        self._limit = limit
        self._workers: list[Worker] = []
        self._attempts: dict[RecordKey, int] = {}

    def run(self, count: int) -> Iterator[EvalRecord]:
        """Answers every job with `count` processes and yields the records as they arrive."""
        try:
            while self._waiting or any(worker.jobs for worker in self._workers):
                self._assign(count)
                yield from self._received()
                yield from self._overdue()
        finally:
            for worker in self._workers:
                worker.kill()

    def _assign(self, count: int) -> None:
        """Sends waiting jobs to workers with room, and starts processes while there are too few."""
        while len(self._workers) < count and self._waiting:
            worker = self._machines.start(self._spec, self._slots)
            if worker is None:
                break
            self._workers.append(worker)
            self._send_jobs(worker)
        if not self._workers:
            raise ConfigError("no machine has a free processor for a worker: end other work there, or try again later")
        for worker in self._workers:
            self._send_jobs(worker)

    def _send_jobs(self, worker: Worker) -> None:
        while self._waiting and self._has_room(worker):
            job = self._waiting.popleft()
            worker.jobs[job.key] = job
            try:
                worker.pipe.send(job)
            except OSError:  # the process died; `_received` notices and repeats the job
                return

    def _has_room(self, worker: Worker) -> bool:
        """Whether the next job may go there. A job whose process died runs alone: another death is then its own."""
        suspect = any(self._attempts.get(key) for key in (self._waiting[0].key, *worker.jobs))
        return len(worker.jobs) < (1 if suspect else self._slots + PREFETCH)

    def _received(self) -> Iterator[EvalRecord]:
        """The records that have arrived; returns after `POLL_INTERVAL` without messages."""
        workers = {worker.pipe: worker for worker in self._workers}
        for ready in wait(list(workers), timeout=POLL_INTERVAL):
            worker = workers[ready]  # type: ignore[index]  # it waits for pipes only
            try:
                message: WorkerMessage = worker.pipe.recv()
            except (EOFError, OSError):
                yield from self._handle_death(worker)
                continue
            if isinstance(message, WorkerFailed):
                raise message.error
            if isinstance(message, JobStarted):
                worker.started[message.key] = time.monotonic()
            elif worker.jobs.pop(message.key, None) is not None:
                worker.started.pop(message.key, None)
                yield message

    def _overdue(self) -> Iterator[EvalRecord]:
        """Gives up overdue episodes and kills their processes, whose other jobs are repeated."""
        now = time.monotonic()
        for worker in list(self._workers):
            overdue = [key for key, started in worker.started.items() if now - started > self._limit]
            if overdue:
                self._remove(worker, [job for key, job in worker.jobs.items() if key not in overdue])
            for key in overdue:
                error = f"hung: no answer within {self._limit - GRACE_PERIOD:g} seconds; its process was killed"
                yield self._given_up(worker.jobs[key], error, now - worker.started[key])

    def _handle_death(self, worker: Worker) -> Iterator[EvalRecord]:
        """Repeats the jobs of a process that died, or gives them up after `MAX_ATTEMPTS` deaths."""
        worker.process.join()
        repeated = []
        # If no job had started, the process died while opening what they need; that must not repeat forever either.
        suspects = worker.started or worker.jobs
        for key, job in worker.jobs.items():
            self._attempts[key] = self._attempts.get(key, 0) + (key in suspects)
            if self._attempts[key] < MAX_ATTEMPTS:
                repeated.append(job)
            else:
                reason = exit_reason(worker.process.exitcode)
                yield self._given_up(job, f"its process died ({reason}), {MAX_ATTEMPTS} times")
        self._remove(worker, repeated)

    def _given_up(self, job: Job, error: str, seconds: float = 0.0) -> EvalRecord:
        """The record of a job whose process is gone, with the trajectory as far as it was written."""
        store = self._spec.store
        return replace(failed_record(job, error, seconds), trajectories=store.keep(job.key) if store else ())

    def _remove(self, worker: Worker, repeated: Sequence[Job]) -> None:
        worker.kill()
        self._workers.remove(worker)
        self._waiting.extendleft(reversed(repeated))
        if self._spec.store is not None:
            for job in repeated:
                self._spec.store.discard(job.key)


def run_worker(spec: WorkerSpec, pipe: Connection, slots: int) -> None:
    """The main function of a worker: answers the jobs from the pipe, `slots` at a time, until the pipe closes.

    Jobs run in threads, so a policy that blocks its thread does not stop the jobs in the other threads. The parent
    process keeps the time and kills this one when a job is overdue.
    """
    # Ctrl-C reaches every process of a terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answerers, waiting, lock = _Answerers(spec), SimpleQueue[Job](), threading.Lock()

    def send(message: WorkerMessage) -> None:
        with lock:
            pipe.send(message)

    def work() -> None:
        while True:
            job = waiting.get()
            try:
                answerer = answerers.of(job.benchmark)
            except Exception as error:  # noqa: BLE001 - the parent must learn of every error
                send(WorkerFailed(error if isinstance(error, ContextAgentError) else RuntimeError(repr(error))))
                return
            send(JobStarted(job.key))
            record = answer_job(job, answerer, spec.price)
            send(record if spec.store is None else replace(record, trajectories=spec.store.keep(job.key)))

    for _ in range(slots):
        threading.Thread(target=work, daemon=True).start()
    while True:
        try:
            waiting.put(pipe.recv())
        except (EOFError, OSError):
            # Not sys.exit: it would wait for threads, and some may never end.
            os._exit(0)


class _Answerers:
    """The answerers of a worker by benchmark. Each opens its corpus at its first use; they share one policy."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._policy: Policy | None = None
        self._answerers: dict[str, Answerer] = {}
        self._lock = threading.Lock()

    def of(self, benchmark: str) -> Answerer:
        """The answerer for a benchmark's corpus."""
        with self._lock:
            if benchmark not in self._answerers:
                self._answerers[benchmark] = self._open(benchmark)
            return self._answerers[benchmark]

    def _open(self, benchmark: str) -> Answerer:
        if self._policy is None:
            self._policy = self._spec.policy()
            # Vocabularies load at their first use; that must not count as time of the first question.
            (self._policy.counter or HarmonyCounter()).count("ready")
        settings, corpus = self._spec.settings, self._spec.corpora[benchmark]()
        if settings.trajectories is not None:
            settings = replace(settings, trajectories=benchmark_folder(settings.trajectories, benchmark))
        return Answerer(corpus, self._policy, settings)


def answer_job(job: Job, answerer: Answerer, price: Price | None = None) -> EvalRecord:
    """The record of a job. It catches every error: a bug in a policy must not affect the other questions."""
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
        return failed_record(job, f"its result cannot be scored: {_reason(error)}", seconds)


def _scored_record(job: Job, result: SearchResult, gold: Gold, price: Price | None, seconds: float) -> EvalRecord:
    scores, curve = score(job.question, result, gold=gold, price=price, keeps_context=job.system.keeps_context)
    return EvalRecord(
        *job.key,
        type=job.question.type,
        hops=job.question.hops,
        scores=scores,
        stop_reason=result.stop_reason,
        error=failure(result),
        broken=rollout_errors(result),
        seconds=seconds,
        curve=curve,
        ranking=tuple(document.id for document in result.documents),
    )


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, ContextAgentError) else f"unexpected {type(error).__name__}: {error}"


def failed_record(job: Job, error: str, seconds: float) -> EvalRecord:
    """The record of a job that was given up: a failure, which counts as zero and is never left out."""
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
