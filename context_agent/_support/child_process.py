"""A process that this package starts, and the messages that it exchanges with its parent process.

`start_process` starts it with the spawn method, because a fork would inherit locks that other threads hold. Both sides
send frozen dataclasses through one pipe. Either side may send a `Request`. The other side answers it with a `Reply`.

A child ends when its parent ends, and ignores Ctrl-C, which reaches every process of a terminal. Only the parent reacts
to it.
"""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.resource_tracker import ensure_running
from typing import Any, Protocol

from context_agent._support.processes import environment
from context_agent.errors import ContextAgentError

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""The environment in which Python starts without the working folder in its path.

A new process first imports `multiprocessing`. The folder may come from someone else and contain a module of this name.
"""


@dataclass(frozen=True, slots=True)
class Request:
    """A message with a request. The sender numbers its requests."""

    number: int
    content: Any


@dataclass(frozen=True, slots=True)
class Progress:
    """A message about a request that is not answered yet."""

    number: int
    content: Any


@dataclass(frozen=True, slots=True)
class Reply:
    """A message with the answer to a request, or with its error."""

    number: int
    answer: Any
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class ChildFailed:
    """A message that a child cannot work, because it cannot open what it needs."""

    error: Exception


class ProcessHandle(Protocol):
    """A process on this machine or another."""

    @property
    def exitcode(self) -> int | None:
        """The exit code of the process. It is None while the process runs, and if the code is unknown."""
        ...

    def kill(self) -> None:
        """End the process."""
        ...

    def join(self, timeout: float | None = None) -> None:
        """Wait until the process has ended, or until the timeout in seconds."""
        ...


class ChildProcess:
    """A child, from the point of view of its parent. Threads may share it, but only one may read the pipe."""

    def __init__(self, process: ProcessHandle, pipe: Connection) -> None:
        self.pipe = pipe
        self.process = process
        self._sending = threading.Lock()
        # If two threads poll a process at once, one of them may read a wrong exit code.
        self._polling = threading.Lock()

    def send(self, message: Any) -> None:
        """Send a message. If the process has died, the reader of the pipe notices it."""
        with self._sending, suppress(OSError):
            self.pipe.send(message)

    def exit_code(self, timeout: float | None) -> int | None:
        """Return the exit code. If the process still runs after `timeout` seconds, return None."""
        with self._polling:
            self.process.join(timeout)
            return self.process.exitcode

    def kill(self) -> None:
        """Kill the process, which may no longer react to messages. A message that it has not read yet is lost."""
        self.process.kill()
        with self._sending:
            self.pipe.close()
        with self._polling:
            self.process.join()

    def end(self, timeout: float) -> None:
        """Wait until the process has ended by itself. If it still runs after `timeout` seconds, kill it."""
        with self._polling:
            self.process.join(timeout)
            if self.process.exitcode is None:
                self.process.kill()
                self.process.join()


class ParentPipe:
    """The pipe to the parent process, from the point of view of a child. Threads may share it, but only one reads.

    Attributes:
        clean_up: A function that is called if the parent ends first. It deletes what the parent cannot delete any more.
    """

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.clean_up: Callable[[], object] = lambda: None
        self._sending = threading.Lock()

    def send(self, message: Any) -> None:
        """Send a message. If the parent has ended, the reader of the pipe notices it."""
        with self._sending, suppress(OSError):
            self._pipe.send(message)

    def receive(self) -> Any:
        """Wait for the next message, and return it. If the parent has ended or closed the pipe, end this process."""
        try:
            return self._pipe.recv()
        except (EOFError, OSError):
            try:
                self.clean_up()
            finally:
                # sys.exit would wait for threads, and some may never end.
                os._exit(0)


class SentRequests:
    """The requests that one side has sent and that the other side has not answered yet. Threads may share them."""

    def __init__(self, send: Callable[[Request], None]) -> None:
        self._send = send
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[Future[Any], Callable[[Any], None]]] = {}
        self._lock = threading.Lock()
        self._end: Exception | None = None

    def send(self, content: Any, on_progress: Callable[[Any], None] = lambda _: None) -> Future[Any]:
        """Send a request.

        Args:
            content: The request.
            on_progress: A function that is called with the content of each `Progress`, in the thread that reads.

        Returns:
            A future of the answer. It cannot be cancelled. After `fail`, it has the error.
        """
        future = Future[Any]()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._end is not None:
                future.set_exception(self._end)
                return future
            number = next(self._numbers)
            self._waiting[number] = future, on_progress
        self._send(Request(number, content))
        return future

    def receive(self, message: Progress | Reply) -> None:
        """Pass a message of the other side to whoever waits for it."""
        if isinstance(message, Progress):
            self._waiting[message.number][1](message.content)
            return
        with self._lock:
            future, _ = self._waiting.pop(message.number)
        if message.error is not None:
            future.set_exception(message.error)
        else:
            future.set_result(message.answer)

    def fail(self, error: Exception) -> None:
        """Give the error to all requests without an answer, and to those that are sent later."""
        with self._lock:
            self._end = error
            waiting, self._waiting = self._waiting, {}
        for future, _ in waiting.values():
            future.set_exception(error)


def start_resource_tracker() -> None:
    """Start the process in which `multiprocessing` counts semaphores and shared memory. If it runs, do nothing."""
    with environment(SAFE_PATH):
        ensure_running()


def start_process(
    target: Callable[..., None],
    arguments: tuple[Any, ...],
    *,
    name: str,
    variables: Mapping[str, str] | None = None,
    daemon: bool = True,
    context: BaseContext | None = None,
) -> tuple[BaseProcess, Connection]:
    """Start a child that calls `target(*arguments, parent)`, where `parent` is its `ParentPipe`.

    Args:
        target: The main function of the child. It must be picklable.
        arguments: Its first arguments. They must be picklable.
        name: The name of the process.
        variables: Environment variables of the child, in addition to those of this process.
        daemon: True if the child is ended when this process exits.
        context: The start method. Defaults to the spawn method.

    Returns:
        The process, and this side of the pipe.
    """
    context = context or get_context("spawn")
    pipe, child_end = context.Pipe()
    try:
        process: BaseProcess = context.Process(  # type: ignore[attr-defined]  # every context has it
            target=_run_child, args=(target, arguments, child_end), name=name, daemon=daemon
        )
        with environment({**SAFE_PATH, **(variables or {})}):
            process.start()
    except BaseException:
        pipe.close()
        raise
    finally:
        child_end.close()
    return process, pipe


def _run_child(target: Callable[..., None], arguments: tuple[Any, ...], pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    target(*arguments, ParentPipe(pipe))


def child_failure(error: Exception) -> ChildFailed:
    """Return the message that tells the parent why a child cannot work."""
    return ChildFailed(error if isinstance(error, ContextAgentError) else RuntimeError(repr(error)))


def picklable_error(error: BaseException) -> BaseException:
    """Return the error if another process can unpickle it. Otherwise return a `RuntimeError` that describes it."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - written in this line
    except Exception:  # noqa: BLE001 - pickle raises whatever the error's class raises
        return RuntimeError(repr(error))
    return error
