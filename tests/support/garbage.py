"""Rare collections of garbage, which leave out what exists for as long as the process."""

from __future__ import annotations

import gc

GARBAGE_THRESHOLD = 50_000
"""The number of new objects after which Python collects garbage. With Python's own threshold of 700, the tests spend a
tenth of their time on it."""


def collect_rarely() -> None:
    """Leave what exists by now out of later collections, and make them rare.

    Millions of objects of torch and its like live as long as the process. A collection that visits them takes up to a
    second, and in a fork it copies their memory.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD, 20, 20)
    gc.enable()
