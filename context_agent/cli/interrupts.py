"""Ctrl-C during asynchronous work."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")


def run_interruptible(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, and let Ctrl-C interrupt it at any point.

    `asyncio.run` cancels the coroutine instead, which then runs until it next waits. With a hundred thousand tasks,
    that takes minutes.

    Raises:
        KeyboardInterrupt: If the user presses Ctrl-C.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        return asyncio.run(work)
    # asyncio.run replaces only the default handler.
    signal.signal(signal.SIGINT, _interrupt)
    try:
        return asyncio.run(work)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
