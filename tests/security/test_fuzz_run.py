"""A minute of the fuzz run: hostile and random inputs for the loaders, the pruner and the proxy stay within bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fuzz import SURFACES, Run, replay

SECONDS = 60


@pytest.mark.slow
def test_a_minute_of_hostile_inputs_breaks_no_bound(tmp_path: Path) -> None:
    tallies = Run(SECONDS, 1, tmp_path).tallies()
    assert {folder: fault for tally in tallies.values() for folder, fault in tally.faults.items()} == {}
    for surface in SURFACES:
        assert tallies[surface].inputs >= 20, surface
        assert len(tallies[surface].outcomes) > 1, surface


def test_a_saved_input_is_tried_again(tmp_path: Path) -> None:
    folder = tmp_path / "loaders-1-1"
    folder.mkdir()
    (folder / "source.txt").write_bytes(b"A text.")
    assert replay(folder).outcome == "documents"
