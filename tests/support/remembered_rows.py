"""Remembers the rows and states of the shipped models, so that the tests of a run compute those of a text once.

They depend on their text or pair alone, as `tests/_support/test_onnx.py` shows. Many tests ask the same question about
the same documents. A question about twenty notes takes 0.7 seconds of the processor, of which 0.5 go into the rows.
All test processes share a folder of rows, and so do the programs that run in forks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from context_agent._support import onnx, shipped_models

MOST_ROWS = 20_000
"""Rows that are kept at a time, of some 2 KB each."""
MOST_STATES = 1_000
"""Texts whose states are kept at a time, of some 50 KB each."""

SHIPPED = {shipped_models.MINILM_FILE.absolute(), shipped_models.READER_FILE.absolute()}
"""Models whose files no test replaces."""

_PAUSES: list[None] = []
"""An item for each block that computes rows anew."""


@contextmanager
def remembered_rows(folder: Path) -> Iterator[None]:
    """Remember the rows that graphs in this process compute. Those of the shipped models are kept in the folder."""
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
            row = known[key] = _shared(folder, graph, key[1:], lambda: compute(graph, output, first, second))
        return row.copy()

    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx._Graph, "_run", run)
        yield


def _shared(folder: Path, graph: onnx._Graph, key: object, compute: Callable[[], onnx.Rows]) -> onnx.Rows:
    """Return the row that the folder has, or compute it and store it there."""
    opened = {id(known): file for (file, *_), known in list(onnx._GRAPHS.items())}
    if (model := opened.get(id(graph))) not in SHIPPED:
        return compute()
    file = folder / sha256(repr((model, key)).encode()).hexdigest()
    with suppress(OSError):
        return np.load(file)  # type: ignore[no-any-return]
    row = compute()
    # The rows end with the run, perhaps before a process of it.
    with suppress(OSError):
        partial = file.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        with partial.open("wb") as target:
            np.save(target, row)
        partial.replace(file)
    return row


@contextmanager
def rows_computed_anew() -> Iterator[None]:
    """Compute each row in the block, whose time or results are measured."""
    _PAUSES.append(None)
    try:
        yield
    finally:
        _PAUSES.pop()
