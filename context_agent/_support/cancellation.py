"""Cancellation of work in threads. Python cannot stop a thread from outside, so the work has to ask.

It calls `check_cancelled` between its steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_IS_CANCELLED: ContextVar[Callable[[], bool]] = ContextVar("ctx1_is_cancelled", default=lambda: False)


class WorkCancelled(BaseException):
    """The cancellation of work. As with other cancellations, `except Exception` does not catch it."""


def check_cancelled() -> None:
    """Raise `WorkCancelled` if this work is in a block of `cancelled_if` whose function returns True."""
    if _IS_CANCELLED.get()():
        raise WorkCancelled


@contextmanager
def cancelled_if(is_cancelled: Callable[[], bool]) -> Iterator[None]:
    """Cancel the work that starts in the block, also in threads of asyncio, when the function returns True."""
    token = _IS_CANCELLED.set(is_cancelled)
    try:
        yield
    finally:
        _IS_CANCELLED.reset(token)
