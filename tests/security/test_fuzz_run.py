"""A short fuzz run: hostile and random inputs for the loaders, the pruner and the proxy stay within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import fuzz
from tests.support.forked_workers import ForkedContext, fork_workers
from tests.support.fuzz import SURFACES, Run, corpus, replay

BATCHES = {"loaders": 6, "pruner": 1, "proxy": 2}
INPUTS = {"loaders": 40, "pruner": 8, "proxy": 20}
"""Batches of each surface, and inputs of a batch. They take some 20 seconds of the processor.

`python -m tests.support.fuzz` tries as many as its time allows.
"""


@pytest.fixture(autouse=True)
def _forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_workers(monkeypatch)
    monkeypatch.setattr(fuzz, "PROCESSES", ForkedContext())


@pytest.mark.slow
@pytest.mark.parametrize("surface", SURFACES)
def test_hostile_inputs_of_every_kind_break_no_bound(surface: str, tmp_path: Path) -> None:
    if surface != "loaders":  # Its processes end without the packages of this extra.
        pytest.importorskip("prometheus_client", reason="needs the extra serve")
    inputs = INPUTS[surface]
    tally = Run(1, tmp_path, batches=BATCHES[surface], inputs=inputs, surfaces=[surface]).tallies()[surface]
    assert tally.faults == {}
    assert tally.inputs == BATCHES[surface] * inputs
    assert len(tally.outcomes) > 1
    if surface == "loaders":
        # The kinds are drawn, so a run this short may miss a few.
        assert len(tally.kinds & set(corpus())) > 0.8 * len(corpus())


def test_a_saved_input_is_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "loaders-1-1"
    folder.mkdir()
    (folder / "source.txt").write_bytes(b"A text.")
    assert replay(folder).outcome == "documents"
