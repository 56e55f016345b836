"""Remembers the rows and states of the shipped models, so that the tests of a process compute those of a text once.

They depend on their text or pair alone, as `tests/_support/test_onnx.py` shows. Many tests ask the same question about
the same documents. Reading them again would take a third of the time of the tests of `ctx1 search`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

from context_agent._support import onnx

MOST_ROWS = 20_000
"""Rows that are kept at a time, of some 2 KB each."""
MOST_STATES = 1_000
"""Texts whose states are kept at a time, of some 50 KB each."""

_PAUSES: list[None] = []
"""An item for each block that computes rows anew."""


@contextmanager
def remembered_rows() -> Iterator[None]:
    """Remember the rows that graphs in this process compute."""
    compute = onnx._Graph._run
    rows: dict[tuple[object, ...], onnx.Rows] = {}
    states: dict[tuple[object, ...], onnx.Rows] = {}

    def run(graph: onnx._Graph, output: str, first: Sequence[int], second: Sequence[int] | None = None) -> onnx.Rows:
        if _PAUSES:
            return compute(graph, output, first, second)
        known, most = (states, MOST_STATES) if output == onnx.STATES else (rows, MOST_ROWS)
        texts = [None if pieces is None else np.array(pieces, dtype=np.int32).tobytes() for pieces in (first, second)]
        key = (graph, output, *texts)
        if (row := known.get(key)) is None:
            if len(known) >= most:
                known.clear()
            row = known[key] = compute(graph, output, first, second)
        return row.copy()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx._Graph, "_run", run)
        yield


@contextmanager
def rows_computed_anew() -> Iterator[None]:
    """Compute each row in the block, whose time or results are measured."""
    _PAUSES.append(None)
    try:
        yield
    finally:
        _PAUSES.pop()
