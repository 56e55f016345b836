"""Worker processes that run jobs, on this machine or on those of a Ray cluster (`ray_machines`).

A process costs a copy of what its jobs need and has two advantages. Work that only computes gets one core per process.
A job that blocks forever can be ended from outside: its process is killed, and the other jobs of that process are
repeated. The same holds for a process that dies.

A job may send requests to the process that has the pool. That process keeps what exists once, such as a log of paid
replies, so a job that is repeated finds the replies to its first requests there.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from typing import Any, Generic, Protocol, Self, TypeVar

from context_agent._support.processes import THREAD_VARIABLES, available_cores, environment, exit_reason
from context_agent.errors import ConfigError, ContextAgentError

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")
JobT_contra = TypeVar("JobT_contra", contravariant=True)
ResultT_co = TypeVar("ResultT_co", covariant=True)

GRACE_PERIOD = 5.0
"""Seconds beyond its limit in which a job may end by itself."""
PREFETCH = 2
"""Jobs that wait in a process besides those in progress, so that it is never idle."""
MAX_ATTEMPTS = 2
"""Attempts at a job whose process dies."""
POLL_INTERVAL = 1.0
"""Seconds between checks for overdue jobs while no message arrives."""
ONE_THREAD = dict.fromkeys(THREAD_VARIABLES, "1")
"""The environment of a worker: several processes on all cores slow each other down, and sums depend on the number of
threads."""

CallParent = Callable[[Any], "Future[Any]"]
"""Sends a request to the process that has the pool; the future gets the answer."""


class WorkerSetup(Protocol[JobT_contra, ResultT_co]):
    """What a worker opens. It is sent to another process, so everything in it must be picklable."""

    def open(self, call: CallParent) -> Callable[[JobT_contra], Callable[[], ResultT_co]]:
        """Open what all jobs need. Returns a function that prepares a job; what that returns runs the job.

        An error of either ends the pool; the time of a job counts from its run.
        """
        ...


class JobLost(Exception):
    """A job hung, or its process died; `seconds` is how long it ran, 0 if that is not known."""

    def __init__(self, reason: str, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class JobSent:
    """A job for a worker."""

    number: int
    job: Any


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A worker has started the job; its time counts from here."""

    number: int


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The result of a job, or its error."""

    number: int
    result: Any
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class WorkerFailed:
    """A worker cannot work at all: what its jobs need cannot be opened."""

    error: Exception


@dataclass(frozen=True, slots=True)
class ParentRequest:
    """A request of a job to the process that has the pool."""

    number: int
    request: Any


@dataclass(frozen=True, slots=True)
class ParentReply:
    """The answer to a request, or its error."""

    number: int
    answer: Any
    error: BaseException | None = None


class WorkerProcess(Protocol):
    """The process of a worker, here or on another machine."""

    @property
    def exitcode(self) -> int | None:
        """How it ended; None if that is not known."""
        ...

    def kill(self) -> None:
        """End the process."""
        ...

    def join(self) -> None:
        """Wait until the process has ended."""
        ...


@dataclass(slots=True)
class PooledJob:
    """A job that has no result yet. `started` is when its current attempt began to run."""

    number: int
    job: Any
    future: Future[Any]
    attempts: int = 0
    started: float | None = None


@dataclass(slots=True)
class Worker:
    """A running process and its jobs by number."""

    process: WorkerProcess
    pipe: Connection
    jobs: dict[int, PooledJob] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, message: JobSent | ParentReply) -> None:
        """Send a message. If the process has died, the pool notices when it reads."""
        with self._lock, suppress(OSError):
            self.pipe.send(message)

    def kill(self) -> None:
        """Kill the process, which may no longer react to messages. A message that waits for it to read is given up."""
        self.process.kill()
        with self._lock:
            self.pipe.close()
        self.process.join()


class Machines(Protocol):
    """Where workers run."""

    cores: int

    def start(self, setup: WorkerSetup[Any, Any], slots: int) -> Worker | None:
        """Return a new worker; None if there is no free processor."""
        ...


class ThisMachine:
    """Processes of this machine."""

    def __init__(self) -> None:
        self.cores = available_cores()

    def start(self, setup: WorkerSetup[Any, Any], slots: int) -> Worker:
        """Start a worker with the spawn method: a fork would inherit locks that other threads hold."""
        context = get_context("spawn")
        pipe, worker_pipe = context.Pipe()
        process = context.Process(target=run_worker, args=(setup, worker_pipe, slots), daemon=True, name="ctx1-worker")
        with environment(ONE_THREAD):
            process.start()
        worker_pipe.close()
        return Worker(process, pipe)


class WorkerPool(Generic[JobT, ResultT]):
    """Workers, and the jobs that wait for them. A context manager; a thread of this process runs it."""

    def __init__(
        self,
        setup: WorkerSetup[JobT, ResultT],
        machines: Machines,
        *,
        processes: int,
        concurrency: int,
        limit: float = math.inf,
        answer: CallParent | None = None,
        before_repeat: Callable[[JobT], None] | None = None,
    ) -> None:
        """Run `concurrency` jobs at a time in at most `processes` processes; none starts before the first job.

        A job that takes longer than `limit` seconds is lost. `answer` takes the requests of jobs. `before_repeat` is
        called with a job whose process has ended and that is about to be repeated.
        """
        self._setup, self._machines = setup, machines
        self._processes = min(processes, concurrency)
        self._slots = -(-concurrency // self._processes)
        self._limit, self._answer, self._before_repeat = limit, answer, before_repeat
        self._numbers = itertools.count()
        self._waiting: deque[PooledJob] = deque()
        self._workers: list[Worker] = []
        self._answers: set[Future[Any]] = set()
        self._lock = threading.Lock()
        self._end: BaseException | None = None
        """Why no job is accepted any more."""
        self._woken = False
        self._alarm, self._wake_pipe = Pipe(duplex=False)
        self._thread = threading.Thread(target=self._run, daemon=True, name="ctx1-pool")

    @property
    def capacity(self) -> int:
        """Jobs that keep all processes busy."""
        return self._processes * (self._slots + PREFETCH)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the workers; jobs without a result are lost. Raises why the workers could not work, if that was so."""
        with self._lock:
            failure = self._end
            self._end = failure or JobLost("the workers were ended")
            self._wake()
        # Where a machine is just being asked for a worker, the thread may take longer; it ends by itself.
        self._thread.join(GRACE_PERIOD)
        if failure is not None and kind is None:
            raise failure

    def submit(self, job: JobT) -> Future[ResultT]:
        """Return the result of the job, which may be an exception: that of the job, `JobLost`, or why there are no
        workers.
        """
        pooled = PooledJob(next(self._numbers), job, Future())
        pooled.future.set_running_or_notify_cancel()  # it cannot be cancelled
        with self._lock:
            if self._end is not None:
                pooled.future.set_exception(self._end)
            else:
                self._waiting.append(pooled)
                self._wake()
        return pooled.future

    async def run(self, job: JobT) -> ResultT:
        """Return the result of the job, for coroutines. Raises what `submit` describes."""
        return await asyncio.wrap_future(self.submit(job))

    def _wake(self) -> None:
        """Has the thread look for jobs now. Call it with the lock."""
        if not self._woken:
            self._woken = True
            self._wake_pipe.send_bytes(b"w")

    def _run(self) -> None:
        try:
            while self._end is None:
                self._assign()
                self._receive()
                self._end_overdue()
        except BaseException as error:  # noqa: BLE001 - every job that waits must learn of it
            with self._lock:
                self._end = error
        finally:
            for answer in list(self._answers):
                answer.cancel()
            for worker in self._workers:
                worker.kill()
            with self._lock:
                lost = [*self._waiting, *(pooled for worker in self._workers for pooled in worker.jobs.values())]
            for pooled in lost:
                pooled.future.set_exception(JobLost("the workers were ended") if self._end is None else self._end)

    def _assign(self) -> None:
        """Send waiting jobs to workers with room, and start processes while there are too few."""
        while len(self._workers) < self._processes and self._waiting:
            worker = self._machines.start(self._setup, self._slots)
            if worker is None:
                break
            self._workers.append(worker)
            self._distribute()
        if self._waiting and not self._workers:
            raise ConfigError("no machine has a free processor for a worker: end other work there, or try again later")
        self._distribute()

    def _distribute(self) -> None:
        while self._waiting:
            free = [worker for worker in self._workers if self._has_room(worker)]
            if not free:
                return
            worker, pooled = min(free, key=lambda worker: len(worker.jobs)), self._waiting.popleft()
            worker.jobs[pooled.number] = pooled
            worker.send(JobSent(pooled.number, pooled.job))

    def _has_room(self, worker: Worker) -> bool:
        """Return whether the next job may go there. A job whose process died runs alone: another death is then its
        own.
        """
        if self._waiting[0].attempts or any(pooled.attempts for pooled in worker.jobs.values()):
            return not worker.jobs
        ahead = PREFETCH if len(self._workers) == self._processes else 0
        return len(worker.jobs) < self._slots + ahead

    def _receive(self) -> None:
        """Handle the messages that have arrived; return after `POLL_INTERVAL` without any."""
        workers = {worker.pipe: worker for worker in self._workers}
        for ready in wait([self._alarm, *workers], timeout=POLL_INTERVAL):
            if ready is self._alarm:
                with self._lock:
                    self._alarm.recv_bytes()
                    self._woken = False
                continue
            worker = workers[ready]  # type: ignore[index]  # it waits for pipes only
            try:
                message = worker.pipe.recv()
            except (EOFError, OSError):
                self._handle_death(worker)
            else:
                self._handle(worker, message)

    def _handle(self, worker: Worker, message: JobStarted | JobEnded | WorkerFailed | ParentRequest) -> None:
        if isinstance(message, WorkerFailed):
            raise message.error
        if isinstance(message, ParentRequest):
            self._pass_on(worker, message)
        elif isinstance(message, JobStarted):
            worker.jobs[message.number].started = time.monotonic()
        elif message.error is not None:
            worker.jobs.pop(message.number).future.set_exception(message.error)
        else:
            worker.jobs.pop(message.number).future.set_result(message.result)

    def _pass_on(self, worker: Worker, message: ParentRequest) -> None:
        """Has a request answered, and sends the answer back when it is there."""
        assert self._answer is not None

        def reply(answer: Future[Any]) -> None:
            self._answers.discard(answer)
            if not answer.cancelled():
                error = answer.exception()
                answered = None if error is not None else answer.result()
                worker.send(ParentReply(message.number, answered, error and portable(error)))

        answer = self._answer(message.request)
        self._answers.add(answer)
        answer.add_done_callback(reply)

    def _end_overdue(self) -> None:
        """Give up overdue jobs and kill their processes, whose other jobs are repeated."""
        now = time.monotonic()
        for worker in list(self._workers):
            overdue = [
                pooled
                for pooled in worker.jobs.values()
                if pooled.started is not None and now - pooled.started > self._limit + GRACE_PERIOD
            ]
            if overdue:
                self._remove(worker, [pooled for pooled in worker.jobs.values() if pooled not in overdue])
            for pooled in overdue:
                reason = f"hung: no answer within {self._limit:g} seconds; its process was killed"
                pooled.future.set_exception(JobLost(reason, now - (pooled.started or now)))

    def _handle_death(self, worker: Worker) -> None:
        """Repeat the jobs of a process that died, or give them up after `MAX_ATTEMPTS` deaths."""
        worker.process.join()
        jobs = list(worker.jobs.values())
        # If no job had started, the process died while opening what they need; that must not repeat forever either.
        for pooled in [pooled for pooled in jobs if pooled.started is not None] or jobs:
            pooled.attempts += 1
        self._remove(worker, [pooled for pooled in jobs if pooled.attempts < MAX_ATTEMPTS])
        for pooled in jobs:
            if pooled.attempts >= MAX_ATTEMPTS:
                reason = exit_reason(worker.process.exitcode)
                pooled.future.set_exception(JobLost(f"its process died ({reason}), {MAX_ATTEMPTS} times"))

    def _remove(self, worker: Worker, repeated: list[PooledJob]) -> None:
        worker.kill()
        self._workers.remove(worker)
        for pooled in repeated:
            pooled.started = None
            if self._before_repeat is not None:
                self._before_repeat(pooled.job)
        self._waiting.extendleft(reversed(repeated))


def run_worker(setup: WorkerSetup[Any, Any], pipe: Connection, slots: int) -> None:
    """The main function of a worker: runs the jobs from the pipe, `slots` at a time, until the pipe closes.

    Jobs run in threads, so a job that blocks its thread does not stop the jobs in the other threads. The parent
    process keeps the time and kills this one when a job is overdue.
    """
    # Ctrl-C reaches every process of a terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run_jobs(setup, pipe, slots)


def run_jobs(setup: WorkerSetup[Any, Any], pipe: Connection, slots: int) -> None:
    """Run the jobs from the pipe, `slots` at a time, and end this process when the pipe closes."""
    _JobRunner(setup, pipe).run(slots)


class _JobRunner:
    """The jobs and requests of a worker, in its own process."""

    def __init__(self, setup: WorkerSetup[Any, Any], pipe: Connection) -> None:
        self._setup, self._pipe = setup, pipe
        self._waiting = SimpleQueue[JobSent]()
        self._requests: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def run(self, slots: int) -> None:
        threading.Thread(target=self._open, args=(slots,), daemon=True).start()
        while True:
            try:
                message = self._pipe.recv()
            except (EOFError, OSError):
                # Not sys.exit: it would wait for threads, and some may never end.
                os._exit(0)
            if isinstance(message, JobSent):
                self._waiting.put(message)
            elif message.error is not None:
                self._requests.pop(message.number).set_exception(message.error)
            else:
                self._requests.pop(message.number).set_result(message.answer)

    def call(self, request: Any) -> Future[Any]:
        """Send a request to the parent process."""
        number, answer = next(self._numbers), Future[Any]()
        answer.set_running_or_notify_cancel()
        self._requests[number] = answer
        self._send(ParentRequest(number, request))
        return answer

    def _open(self, slots: int) -> None:
        try:
            prepare = self._setup.open(self.call)
        except Exception as error:  # noqa: BLE001 - the parent must learn of every error
            self._send(_failure(error))
            return
        for _ in range(slots):
            threading.Thread(target=self._work, args=(prepare,), daemon=True).start()

    def _work(self, prepare: Callable[[Any], Callable[[], Any]]) -> None:
        while True:
            sent = self._waiting.get()
            try:
                run = prepare(sent.job)
            except Exception as error:  # noqa: BLE001 - the parent must learn of every error
                self._send(_failure(error))
                return
            self._send(JobStarted(sent.number))
            try:
                self._send(JobEnded(sent.number, run()))
            except BaseException as error:  # noqa: BLE001 - also SystemExit, which would end this thread alone
                self._send(JobEnded(sent.number, None, portable(error)))

    def _send(self, message: JobStarted | JobEnded | WorkerFailed | ParentRequest) -> None:
        # A parent process that is gone ends this one.
        with self._lock, suppress(OSError):
            self._pipe.send(message)


def _failure(error: Exception) -> WorkerFailed:
    return WorkerFailed(error if isinstance(error, ContextAgentError) else RuntimeError(repr(error)))


def portable(error: BaseException) -> BaseException:
    """Return the error if another process can read it, else a `RuntimeError` that describes it."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - written in this line
    except Exception:  # noqa: BLE001 - pickle raises whatever the error's class raises
        return RuntimeError(repr(error))
    return error
