"""Runs systems on benchmarks: which questions are asked, by how many at once, and what becomes of one that hangs.

Questions are answered by processes (`worker`), which costs a corpus in memory each and buys two things: the embedded
policy, which is all computing, gets a core each; and an episode that blocks for ever can be ended from outside. An
overdue episode's process is killed, its record is a failure, and what else that process was at is asked again.

The figures do not depend on how many work at once: an answer depends on its question, system, window and seed alone,
and whoever reads the records sorts them.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any

from context_agent.agent import SearchResult
from context_agent.errors import ConfigError, ContextAgentError
from context_agent.eval.benchmarks.registry import Benchmark
from context_agent.eval.gold import Gold, gold_of
from context_agent.eval.records import Journal, Record, Shelf, of_benchmark
from context_agent.eval.scoring import Price, broken, failure, score
from context_agent.eval.systems import Answerer, Settings, System
from context_agent.policies.protocol import Policy
from context_agent.questions import Question
from context_agent.retrieval.protocol import Corpus
from context_agent.tokens import HarmonyCounter

PATIENCE = 600.0
"""Seconds after which an episode without a limit of its own counts as hung."""
GRACE = 5.0
"""Seconds beyond its limit that an episode gets to end by itself, with the ranking it has."""
AHEAD = 2
"""Jobs that wait in a process beside those it is at, so that it need not wait for the next."""
TRIES = 2
"""Times a job is tried whose process dies under it."""
BEAT = 1.0
"""Seconds between looks at the clock while nothing comes in."""
NO_WINDOW = 0
"""The window of a system that keeps no context."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Progress = Callable[[int, int], None]


def plan(
    benchmarks: Sequence[Benchmark], systems: Sequence[System], *, windows: Sequence[int], seeds: Sequence[int]
) -> list[Job]:
    """Every question to ask, in order. A system that keeps no context is asked once, with no window, by the first seed.

    Raises `ConfigError` where nothing is asked for, or two benchmarks have one name.
    """
    for what, given in (("benchmark", benchmarks), ("system", systems), ("window", windows), ("seed", seeds)):
        if not given:
            raise ConfigError(f"no {what} is given")
    names = [one.name for one in benchmarks]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"two benchmarks are called {repeated!r}: give one another name, as NAME=FOLDER")
    return [
        Job(one.name, system, window, seed, question)
        for one in benchmarks
        for system in systems
        for window, seed in cells(system, windows, seeds)
        for question in one.questions
    ]


def cells(system: System, windows: Sequence[int], seeds: Sequence[int]) -> list[tuple[int, int]]:
    """The windows and seeds under which a system is run."""
    if not system.keeps_context:
        return [(NO_WINDOW, seeds[0])]
    return [(window, seed) for window in dict.fromkeys(windows) for seed in dict.fromkeys(seeds)]


def run(
    jobs: Sequence[Job],
    kit: Kit,
    journal: Journal,
    *,
    concurrency: int = 1,
    processes: int | None = None,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> list[Record]:
    """Answers the jobs that have no record yet, and gives the records of all, in the order of the jobs.

    `concurrency` questions are answered at once, by as many processes as there are cores, or by `processes`. Raises
    what a corpus or the policy raised when it was opened; `KeyboardInterrupt` leaves the journal as far as it got.
    """
    left = [job for job in jobs if job.key not in journal.records]
    done = len(jobs) - len(left)
    tell = progress or (lambda done, total: None)
    tell(done, len(jobs))
    if left:
        count = min(processes or cores(), concurrency, len(left))
        slots = -(-concurrency // count)
        crew = _Crew(kit, deque(left), slots, (time_limit or PATIENCE) + GRACE)
        for record in crew.answers(count):
            journal.add(record)
            done += 1
            tell(done, len(jobs))
    return [journal.records[job.key] for job in jobs]


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(slots=True)
class _Worker:
    """A process at work: its jobs by key, and when each of them is overdue (from when it is begun)."""

    process: BaseProcess
    pipe: Connection
    jobs: dict[tuple[object, ...], Job] = field(default_factory=dict)
    begun: dict[tuple[object, ...], float] = field(default_factory=dict)

    def end(self) -> None:
        """Ends the process by force: it may be beyond listening."""
        self.pipe.close()
        self.process.kill()
        self.process.join()


class _Crew:
    """The processes of a run, and the jobs that wait."""

    def __init__(self, kit: Kit, waiting: deque[Job], slots: int, limit: float) -> None:
        self._kit = kit
        self._waiting = waiting
        self._slots = slots
        self._limit = limit
        self._workers: list[_Worker] = []
        self._tries: dict[tuple[object, ...], int] = {}

    def answers(self, count: int) -> Iterator[Record]:
        """A record for every job, as they come."""
        try:
            while self._waiting or any(worker.jobs for worker in self._workers):
                self._staff(count)
                yield from self._heard()
                yield from self._overdue()
        finally:
            for worker in self._workers:
                worker.end()

    def _staff(self, count: int) -> None:
        """Sends waiting jobs to whoever has room, and starts processes while there are too few."""
        while len(self._workers) < count and self._waiting:
            self._workers.append(_start(self._kit, self._slots))
            self._hand_out(self._workers[-1])
        for worker in self._workers:
            self._hand_out(worker)

    def _hand_out(self, worker: _Worker) -> None:
        while self._waiting and self._has_room(worker):
            job = self._waiting.popleft()
            worker.jobs[job.key] = job
            try:
                worker.pipe.send(job)
            except OSError:  # it died; `_heard` finds out and asks for the job again
                return

    def _has_room(self, worker: _Worker) -> bool:
        """Whether the next job may go there. One that was at a death is alone with it: the next death is its own."""
        suspect = any(self._tries.get(key) for key in (self._waiting[0].key, *worker.jobs))
        return len(worker.jobs) < (1 if suspect else self._slots + AHEAD)

    def _heard(self) -> Iterator[Record]:
        """The records that have come in; where nothing comes, a look at the clock is due."""
        pipes = {worker.pipe: worker for worker in self._workers}
        for ready in wait(list(pipes), timeout=BEAT):
            worker = pipes[ready]  # type: ignore[index]  # only pipes are waited for
            try:
                said: Said = worker.pipe.recv()
            except (EOFError, OSError):
                yield from self._died(worker)
                continue
            if isinstance(said, Broken):
                raise said.error
            if isinstance(said, Begun):
                worker.begun[said.key] = time.monotonic()
            elif worker.jobs.pop(said.key, None) is not None:
                worker.begun.pop(said.key, None)
                yield said

    def _overdue(self) -> Iterator[Record]:
        """Gives up the episodes whose time is over, with the processes they hang in; their other jobs wait again."""
        now = time.monotonic()
        for worker in list(self._workers):
            late = [key for key, begun in worker.begun.items() if now - begun > self._limit]
            if late:
                self._dismiss(worker, [job for key, job in worker.jobs.items() if key not in late])
            for key in late:
                said = f"hung: no answer within {self._limit - GRACE:g} seconds; its process was ended"
                yield self._given_up(worker.jobs[key], said, now - worker.begun[key])

    def _died(self, worker: _Worker) -> Iterator[Record]:
        """A process that died by itself: its jobs are tried again, and given up where that keeps happening."""
        worker.process.join()
        again = []
        # Where none had begun, it died of what it opened for them: that must not go on for ever either.
        suspects = worker.begun or worker.jobs
        for key, job in worker.jobs.items():
            self._tries[key] = self._tries.get(key, 0) + (key in suspects)
            if self._tries[key] < TRIES:
                again.append(job)
            else:
                yield self._given_up(job, f"its process died ({ending(worker.process.exitcode)}), {TRIES} times")
        self._dismiss(worker, again)

    def _given_up(self, job: Job, error: str, seconds: float = 0.0) -> Record:
        """The record of a job whose process is gone, with the trajectory as far as it got."""
        shelf = self._kit.shelf
        return replace(unanswered(job, error, seconds), trajectories=shelf.keep(job.key) if shelf else ())

    def _dismiss(self, worker: _Worker, again: Sequence[Job]) -> None:
        worker.end()
        self._workers.remove(worker)
        self._waiting.extendleft(reversed(again))
        if self._kit.shelf is not None:
            for job in again:
                self._kit.shelf.drop(job.key)


def ending(code: int | None) -> str:
    """How a process ended, by its exit code: a negative one is the signal that ended it."""
    if code is None or code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    return f"{name}, as the system sends it where memory runs out" if name == "SIGKILL" else name


def _start(kit: Kit, slots: int) -> _Worker:
    """A process of its own, from scratch: a copy of this one would inherit locks that other threads hold."""
    context = get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=serve, args=(kit, theirs, slots), daemon=True, name="ctx1-eval")
    with _environment(dict.fromkeys(_THREADS, "1")):
        process.start()
    theirs.close()
    return _Worker(process, mine)


@contextmanager
def _environment(wanted: Mapping[str, str]) -> Iterator[None]:
    """These variables set for a process that is started.

    One thread for each: several processes that use all cores fight, and sums differ with the number of threads.
    """
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass(frozen=True, slots=True)
class Job:
    """One question for one system; `key` is that of the record to be."""

    benchmark: str
    system: System
    window: int
    seed: int
    question: Question

    @property
    def key(self) -> tuple[str, str, int, int, str]:
        """See `Record.key`."""
        return (self.benchmark, self.system.name, self.window, self.seed, self.question.id)


@dataclass(frozen=True, slots=True)
class Kit:
    """What a worker opens for itself: everything in it can be sent to another process.

    `corpora` and `policy` are functions of a module, or values that can be called, as `corpora.Snapshot` is.
    """

    corpora: Mapping[str, Callable[[], Corpus]]
    policy: Callable[[], Policy]
    settings: Settings
    price: Price | None = None
    shelf: Shelf | None = None


@dataclass(frozen=True, slots=True)
class Begun:
    """A job is under way: from here on its time counts."""

    key: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """The worker cannot work at all: a corpus or the policy cannot be opened."""

    error: Exception


Said = Begun | Broken | Record


def serve(kit: Kit, pipe: Connection, slots: int) -> None:
    """Answers the jobs that come through the pipe, `slots` at once, until it closes. The body of the process."""
    # Ctrl-C reaches every process of a terminal; the one that started this one decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    desk, waiting, lock = _Desk(kit), SimpleQueue[Job](), threading.Lock()

    def say(message: Said) -> None:
        with lock:
            pipe.send(message)

    def work() -> None:
        while True:
            job = waiting.get()
            try:
                answerer = desk.answerer(job.benchmark)
            except Exception as error:  # noqa: BLE001 - whatever it is, the process that asked must hear of it
                say(Broken(error if isinstance(error, ContextAgentError) else RuntimeError(repr(error))))
                return
            say(Begun(job.key))
            record = answered(job, answerer, kit.price)
            say(record if kit.shelf is None else replace(record, trajectories=kit.shelf.keep(job.key)))

    for _ in range(slots):
        threading.Thread(target=work, daemon=True).start()
    while True:
        try:
            waiting.put(pipe.recv())
        except (EOFError, OSError):
            # Not sys.exit: it would wait for threads, and one of them may never end.
            os._exit(0)


def answered(job: Job, answerer: Answerer, price: Price | None = None) -> Record:
    """The record of a job, whatever happens in it: a bug in one policy must not cost the other questions."""
    started = time.perf_counter()
    try:
        gold = gold_of(job.question, answerer.corpus)
        result = answerer.answer(job.system, job.question, gold, window=job.window, seed=job.seed)
    except BaseException as failed:  # noqa: BLE001 - see above; a cancellation would end the thread unheard
        return unanswered(job, _reason(failed), time.perf_counter() - started)
    seconds = time.perf_counter() - started
    try:
        return _scored(job, result, gold, price, seconds)
    except Exception as failed:  # noqa: BLE001 - see above
        return unanswered(job, f"its result cannot be scored: {_reason(failed)}", seconds)


def _scored(job: Job, result: SearchResult, gold: Gold, price: Price | None, seconds: float) -> Record:
    scores, curve = score(job.question, result, gold=gold, price=price, context=job.system.keeps_context)
    return Record(
        *job.key,
        type=job.question.type,
        hops=job.question.hops,
        scores=scores,
        stop_reason=result.stop_reason,
        error=failure(result),
        broken=broken(result),
        seconds=seconds,
        curve=curve,
        ranking=tuple(one.id for one in result.documents),
    )


def _reason(failed: BaseException) -> str:
    return str(failed) if isinstance(failed, ContextAgentError) else f"unexpected {type(failed).__name__}: {failed}"


def unanswered(job: Job, error: str, seconds: float) -> Record:
    """The record of a job that was given up: a failure, which counts as zero and is never left out."""
    scores, curve = score(job.question, None, error=error or "failed", context=job.system.keeps_context)
    return Record(
        *job.key,
        type=job.question.type,
        hops=job.question.hops,
        scores=scores,
        stop_reason="error",
        error=error,
        seconds=seconds,
        curve=curve,
    )


class _Desk:
    """What this worker has opened so far."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._policy: Policy | None = None
        self._answerers: dict[str, Answerer] = {}
        self._lock = threading.Lock()

    def answerer(self, benchmark: str) -> Answerer:
        """The one for a benchmark's corpus, opened at its first use."""
        with self._lock:
            return self._opened(benchmark)

    def _opened(self, benchmark: str) -> Answerer:
        if self._policy is None:
            self._policy = self._kit.policy()
            # Vocabularies are loaded at their first use; that must not count as time of the first question.
            (self._policy.counter or HarmonyCounter()).count("ready")
        if benchmark not in self._answerers:
            settings, corpus = self._kit.settings, self._kit.corpora[benchmark]()
            if settings.trajectories is not None:
                settings = replace(settings, trajectories=of_benchmark(settings.trajectories, benchmark))
            self._answerers[benchmark] = Answerer(corpus, self._policy, settings)
        return self._answerers[benchmark]
