"""How the cost of a call grows with the size of its input."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.remembered_rows import rows_computed_anew

LEAST_SECONDS = 0.02
"""What is faster counts as this, so that noise on a busy machine is not mistaken for growth."""
MOST_GROWTH = 9
"""Between 4, where four times the input takes four times as long, and 16, where it is quadratic."""
REPEATS = 2
ATTEMPTS = 3
LONG_SECONDS = 0.1
"""What takes longer is measured well enough by one run."""


@contextmanager
def no_collections() -> Iterator[None]:
    """Suspend garbage collection, if it is not suspended already.

    A collection visits the objects of the whole process, which says nothing about the code that is timed.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def growth(call: Callable[[Any], object], make: Callable[[int], Any], size: int) -> float:
    """Return how much longer a call takes on four times the input: 4 where the cost is linear, 16 where quadratic.

    A growth of `MOST_GROWTH` or more is measured again, and the least counts. A neighbor on the machine can slow one
    measurement down; it doesn't do so each time.
    """
    call(make(100))
    least = float("inf")
    for _ in range(ATTEMPTS):
        small = seconds(call, make(size))
        least = min(least, seconds(call, make(4 * size), enough=MOST_GROWTH * small) / small)
        if least < MOST_GROWTH:
            break
    return least


def seconds(call: Callable[[Any], object], value: Any, *, enough: float = LEAST_SECONDS) -> float:
    """Return the processor time of a call, the least of several, at least `LEAST_SECONDS`.

    A call that takes less than `enough` is not repeated.
    """
    times = []
    for _ in range(REPEATS):
        with no_collections(), rows_computed_anew():
            start = time.process_time()
            call(value)
            times.append(time.process_time() - start)
        if times[-1] < enough or times[-1] > LONG_SECONDS:
            break
    return max(LEAST_SECONDS, min(times))
