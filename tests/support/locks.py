"""File systems without locks."""

from __future__ import annotations

import os
from collections.abc import Callable


def without_locks(number: int) -> Callable[[int, int], None]:
    """Return a function in place of `fcntl.flock` that fails with this error number."""

    def flock(_descriptor: int, _operation: int) -> None:
        raise OSError(number, os.strerror(number))

    return flock
