"""How the cost of a call grows with the size of its input."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

LEAST_SECONDS = 0.02
"""What is faster counts as this, so that noise on a busy machine is not mistaken for growth."""
REPEATS = 3


def growth(call: Callable[[Any], object], make: Callable[[int], Any], size: int) -> float:
    """Return how much longer a call takes on four times the input: 4 where the cost is linear, 16 where quadratic."""
    call(make(100))
    small, large = (seconds(call, make(length)) for length in (size, 4 * size))
    return large / small


def seconds(call: Callable[[Any], object], value: Any) -> float:
    """Return the processor time of a call, the least of several, at least `LEAST_SECONDS`."""
    times = []
    for _ in range(REPEATS):
        # A collection visits the objects of the whole process, which says nothing about the call.
        gc.disable()
        try:
            start = time.process_time()
            call(value)
            times.append(time.process_time() - start)
        finally:
            gc.enable()
        # A slow call is measured well enough by one run.
        if times[-1] > 1:
            break
    return max(LEAST_SECONDS, min(times))


MOST_GROWTH = 9
"""Between 4, where four times the input takes four times as long, and 16, where it is quadratic."""
