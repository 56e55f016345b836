"""The resources that the workers of tests open, and the jobs that they run."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from context_agent._support.worker_pool import CallParent


class OddError(Exception):
    """An error that pickle can write but not read, because it passes on one argument of two."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


@dataclass(frozen=True)
class Opened:
    """A setup that opens nothing. A job is the name of a method and its argument."""

    folder: Path | None = None
    fails: bool = False

    def open(self, call: CallParent) -> Callable[[Any], Callable[[], Any]]:
        if self.fails:
            raise ValueError("no weights here")
        return lambda job: partial(getattr(self, job[0]), job[1], call)

    def square(self, number: int, call: CallParent) -> tuple[int, int]:
        time.sleep(0.02)
        return number * number, os.getpid()

    def hang(self, _: int, call: CallParent) -> None:
        threading.Event().wait()

    def die(self, _: int, call: CallParent) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def fail(self, _: int, call: CallParent) -> None:
        raise OddError("a bug", "in a job")

    def leave(self, _: int, call: CallParent) -> None:
        raise SystemExit("enough")

    def pay(self, number: int, call: CallParent) -> list[str]:
        """Send two requests. The first process that runs this job dies between them."""
        assert self.folder is not None
        replies = [call(f"{number} first").result()]
        marker = self.folder / str(number)
        if not marker.exists():
            marker.touch()
            self.die(0, call)
        return [*replies, call(f"{number} second").result()]
