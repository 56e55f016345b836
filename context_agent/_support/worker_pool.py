"""Worker processes that run jobs, on this machine or on those of a Ray cluster (`ray_machines`).

Each process has its own copy of what its jobs need, which takes memory. There are two advantages. Each process computes
on a core of its own. A job that blocks forever can be ended from outside: the pool kills its process, and repeats the
other jobs of that process. If a process dies, the pool repeats its jobs, too.

A job may send requests to the parent process, which has the pool. The parent keeps what must exist once, such as a log
of paid replies. A repeated job therefore finds the replies to its first requests there.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import wait
from queue import SimpleQueue
from typing import Any, Generic, Protocol, Self, TypeVar

from context_agent._support.child_process import (
    ChildFailed,
    ChildProcess,
    ParentPipe,
    Reply,
    Request,
    SentRequests,
    child_failure,
    picklable_error,
    start_process,
)
from context_agent._support.processes import THREAD_VARIABLES, available_cores, exit_reason
from context_agent.errors import ConfigError

JobT = TypeVar("JobT")
ResultT = TypeVar("ResultT")
JobT_contra = TypeVar("JobT_contra", contravariant=True)
ResultT_co = TypeVar("ResultT_co", covariant=True)

GRACE_PERIOD = 5.0
"""Seconds beyond its limit in which a job may still end by itself."""
PREFETCH = 2
"""Jobs that wait in a process in addition to those in progress, so that the process is never idle."""
MAX_ATTEMPTS = 2
"""Maximum number of attempts at a job whose process dies."""
POLL_INTERVAL = 1.0
"""Seconds between checks for overdue jobs while no message arrives."""
ONE_THREAD = dict.fromkeys(THREAD_VARIABLES, "1")
"""The environment of a worker, which limits numerical libraries to one thread.

Several processes on all cores would slow each other down, and the result of a sum depends on the number of threads.
"""

CallParent = Callable[[Any], "Future[Any]"]
"""A function that sends a request to the parent process and returns a future of the answer."""


class WorkerSetup(Protocol[JobT_contra, ResultT_co]):
    """The resources that a worker opens for its jobs. The setup is sent to another process, so it must be picklable."""

    def open(self, call: CallParent) -> Callable[[JobT_contra], Callable[[], ResultT_co]]:
        """Open the resources that all jobs need.

        Args:
            call: A function that sends a request to the parent process.

        Returns:
            A function that prepares a job. It returns the function that runs the job. The time of a job counts from its
            run. An error while opening or preparing ends the pool.
        """
        ...


class JobLost(Exception):
    """The error of a job that hung or whose process died.

    `seconds` is how long the job ran, or 0 if that is unknown.
    """

    def __init__(self, reason: str, seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class JobStarted:
    """A message that a worker has started a job, whose time counts from here."""

    number: int


@dataclass(slots=True)
class PooledJob:
    """A job that has no result yet. `started` is the monotonic time when its current attempt began to run."""

    number: int
    job: Any
    future: Future[Any]
    attempts: int = 0
    started: float | None = None


@dataclass(slots=True)
class Worker:
    """A running process, and its jobs by their numbers."""

    child: ChildProcess
    jobs: dict[int, PooledJob] = field(default_factory=dict)


class Machines(Protocol):
    """The machines that workers run on. `cores` is the number of their processors."""

    cores: int

    def start(self, setup: WorkerSetup[Any, Any], slots: int) -> Worker | None:
        """Start a worker that runs `slots` jobs at a time. If there is no free processor, return None."""
        ...


class ThisMachine:
    """This machine, on which each worker is a process."""

    def __init__(self) -> None:
        self.cores = available_cores()

    def start(self, setup: WorkerSetup[Any, Any], slots: int) -> Worker:
        """Start a worker as a child of this process."""
        return Worker(
            ChildProcess(*start_process(run_worker, (setup, slots), name="ctx1-worker", variables=ONE_THREAD))
        )


class WorkerPool(Generic[JobT, ResultT]):
    """A pool of workers and the jobs that wait for them. It is a context manager, and a thread of this process runs it.

    No worker starts before the first job.

    Args:
        setup: The resources that each worker opens.
        machines: The machines that workers run on.
        processes: Maximum number of worker processes.
        concurrency: Maximum number of jobs at a time, in all processes together.
        limit: Seconds that a job may take. A job that takes longer is lost.
        answer: A function that answers the requests of jobs.
        before_repeat: A function that is called with a job before the job is repeated because its process has ended.
    """

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
        """The reason why no more jobs are accepted."""
        self._woken = False
        self._alarm, self._wake_pipe = Pipe(duplex=False)
        self._thread = threading.Thread(target=self._run, daemon=True, name="ctx1-pool")

    @property
    def capacity(self) -> int:
        """The number of jobs that keep all processes busy."""
        return self._processes * (self._slots + PREFETCH)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End the workers. Jobs without a result are lost. If the workers failed, raise the error that ended them."""
        with self._lock:
            failure = self._end
            self._end = failure or JobLost("the workers were ended")
            self._wake()
        # If a worker is just being started, the thread may take longer. It ends by itself.
        self._thread.join(GRACE_PERIOD)
        if failure is not None and kind is None:
            raise failure

    def submit(self, job: JobT) -> Future[ResultT]:
        """Queue a job, and return a future of its result.

        The future may have an exception instead: the job's own error, `JobLost`, or the error that ended the pool.
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
        """Run a job from a coroutine, and return its result. Raise the exceptions that `submit` describes."""
        return await asyncio.wrap_future(self.submit(job))

    def _wake(self) -> None:
        """Wake the thread so that it looks for jobs now. The caller must hold the lock."""
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
                worker.child.kill()
            with self._lock:
                lost = [*self._waiting, *(pooled for worker in self._workers for pooled in worker.jobs.values())]
            for pooled in lost:
                pooled.future.set_exception(JobLost("the workers were ended") if self._end is None else self._end)

    def _assign(self) -> None:
        """Send waiting jobs to workers with room, and start workers while there are too few."""
        while len(self._workers) < self._processes and self._waiting:
            worker = self._machines.start(self._setup, self._slots)
            if worker is None:
                break
            self._workers.append(worker)
            self._distribute()
        if self._waiting and not self._workers:
            raise ConfigError("no machine has a free processor for a worker. End other work there, or try again later.")
        self._distribute()

    def _distribute(self) -> None:
        while self._waiting:
            free = [worker for worker in self._workers if self._has_room(worker)]
            if not free:
                return
            worker, pooled = min(free, key=lambda worker: len(worker.jobs)), self._waiting.popleft()
            worker.jobs[pooled.number] = pooled
            worker.child.send(Request(pooled.number, pooled.job))

    def _has_room(self, worker: Worker) -> bool:
        """Return True if the next job may go to this worker.

        A job whose process died runs alone. If its process dies again, the job must be the cause.
        """
        if self._waiting[0].attempts or any(pooled.attempts for pooled in worker.jobs.values()):
            return not worker.jobs
        ahead = PREFETCH if len(self._workers) == self._processes else 0
        return len(worker.jobs) < self._slots + ahead

    def _receive(self) -> None:
        """Handle the messages that have arrived. If none arrives, return after `POLL_INTERVAL`."""
        workers = {worker.child.pipe: worker for worker in self._workers}
        for ready in wait([self._alarm, *workers], timeout=POLL_INTERVAL):
            if ready is self._alarm:
                with self._lock:
                    self._alarm.recv_bytes()
                    self._woken = False
                continue
            worker = workers[ready]  # type: ignore[index]  # it waits for pipes only
            try:
                message = worker.child.pipe.recv()
            except (EOFError, OSError):
                self._handle_death(worker)
            else:
                self._handle(worker, message)

    def _handle(self, worker: Worker, message: JobStarted | Reply | ChildFailed | Request) -> None:
        if isinstance(message, ChildFailed):
            raise message.error
        if isinstance(message, Request):
            self._pass_on(worker, message)
        elif isinstance(message, JobStarted):
            worker.jobs[message.number].started = time.monotonic()
        elif message.error is not None:
            worker.jobs.pop(message.number).future.set_exception(message.error)
        else:
            worker.jobs.pop(message.number).future.set_result(message.answer)

    def _pass_on(self, worker: Worker, message: Request) -> None:
        """Have a request answered, and send the answer to the worker when it arrives."""
        assert self._answer is not None

        def reply(answer: Future[Any]) -> None:
            self._answers.discard(answer)
            if not answer.cancelled():
                error = answer.exception()
                answered = None if error is not None else answer.result()
                worker.child.send(Reply(message.number, answered, error and picklable_error(error)))

        answer = self._answer(message.content)
        self._answers.add(answer)
        answer.add_done_callback(reply)

    def _end_overdue(self) -> None:
        """Give up overdue jobs and kill their processes. The other jobs of these processes are repeated."""
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
                reason = f"no answer came within {self._limit:g} seconds, so the process that hung was killed"
                pooled.future.set_exception(JobLost(reason, now - (pooled.started or now)))

    def _handle_death(self, worker: Worker) -> None:
        """Repeat the jobs of a process that died. After `MAX_ATTEMPTS` deaths, give the jobs up."""
        exit_code = worker.child.exit_code(timeout=None)
        jobs = list(worker.jobs.values())
        # If no job had started, the process died while opening the resources, which must not repeat forever either.
        for pooled in [pooled for pooled in jobs if pooled.started is not None] or jobs:
            pooled.attempts += 1
        self._remove(worker, [pooled for pooled in jobs if pooled.attempts < MAX_ATTEMPTS])
        for pooled in jobs:
            if pooled.attempts >= MAX_ATTEMPTS:
                reason = exit_reason(exit_code)
                pooled.future.set_exception(JobLost(f"the process died {MAX_ATTEMPTS} times ({reason})"))

    def _remove(self, worker: Worker, repeated: list[PooledJob]) -> None:
        worker.child.kill()
        self._workers.remove(worker)
        for pooled in repeated:
            pooled.started = None
            if self._before_repeat is not None:
                self._before_repeat(pooled.job)
        self._waiting.extendleft(reversed(repeated))


def run_worker(setup: WorkerSetup[Any, Any], slots: int, parent: ParentPipe) -> None:
    """Run the jobs from the pipe, `slots` at a time, until the pipe closes. Then end this process.

    Jobs run in threads, so a job that blocks its thread does not stop the other jobs. The parent process measures the
    time of each job and kills this process if a job is overdue.
    """
    _JobRunner(setup, parent).run(slots)


class _JobRunner:
    """The jobs and requests of a worker, inside its process."""

    def __init__(self, setup: WorkerSetup[Any, Any], parent: ParentPipe) -> None:
        self._setup, self._parent = setup, parent
        self._waiting = SimpleQueue[Request]()
        self._requests = SentRequests(parent.send)

    def run(self, slots: int) -> None:
        threading.Thread(target=self._open, args=(slots,), daemon=True).start()
        while True:
            message: Request | Reply = self._parent.receive()
            if isinstance(message, Request):
                self._waiting.put(message)
            else:
                self._requests.receive(message)

    def _open(self, slots: int) -> None:
        try:
            prepare = self._setup.open(self._requests.send)
        except Exception as error:  # noqa: BLE001 - the parent must learn of every error
            self._parent.send(child_failure(error))
            return
        for _ in range(slots):
            threading.Thread(target=self._work, args=(prepare,), daemon=True).start()

    def _work(self, prepare: Callable[[Any], Callable[[], Any]]) -> None:
        while True:
            sent = self._waiting.get()
            try:
                run = prepare(sent.content)
            except Exception as error:  # noqa: BLE001 - the parent must learn of every error
                self._parent.send(child_failure(error))
                return
            self._parent.send(JobStarted(sent.number))
            try:
                self._parent.send(Reply(sent.number, run()))
            except BaseException as error:  # noqa: BLE001 - also SystemExit, which would end this thread alone
                self._parent.send(Reply(sent.number, None, picklable_error(error)))
