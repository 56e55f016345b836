"""Runs a function on hostile input in a child process that may take little memory, and measures what it took."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from tests.support.forked_workers import start_fork
from tests.support.remembered_rows import rows_computed_anew

LIMIT = 6_000_000_000
"""Bytes of address space after which a child fails instead of taking the machine down."""


@dataclass(frozen=True)
class Outcome:
    """What a function returned or raised, the peak of its memory in bytes, and its seconds on the processor."""

    value: Any
    error: BaseException | None
    memory: int
    seconds: float

    def require(self, *, memory: int = 400_000_000, seconds: float = 20.0) -> Outcome:
        """Assert that the bounds were kept, and that only this package's errors were raised."""
        from context_agent.errors import ContextAgentError

        assert self.error is None or isinstance(self.error, ContextAgentError), repr(self.error)
        assert self.memory <= memory
        assert self.seconds <= seconds
        return self


def bounded(function: Callable[..., Any], *arguments: Any, seconds: float = 60.0) -> Outcome:
    """Run a function of a module in a fork. A child that hangs is killed and fails the test."""
    receiver, sender = Pipe(duplex=False)
    child = start_fork(_run, sender, function, arguments)
    sender.close()
    try:
        assert receiver.poll(seconds), f"no end after {seconds} seconds"
        outcome: Outcome = receiver.recv()
    except EOFError:
        child.join()
        raise AssertionError(f"the process died: {child.exitcode}") from None
    finally:
        child.kill()
        child.join()
    return outcome


def _run(sender: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
    before, started = _peak(), time.process_time()
    value, error = None, None
    try:
        with rows_computed_anew():
            value = function(*arguments)
    except BaseException as raised:  # noqa: BLE001 - the test judges it
        error = raised
    spent = time.process_time() - started
    try:
        sender.send(Outcome(value, error, _peak() - before, spent))
    except Exception:  # noqa: BLE001 - not every error can be pickled
        sender.send(Outcome(None, RuntimeError(repr(error)), _peak() - before, spent))


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
