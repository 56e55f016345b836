"""Two data-parallel ranks with unequal rows take the same gradient step as one rank with all rows, for every loss.

They also measure the same loss on held-out rows.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from context_agent._support.processes import environment
from context_agent.train.config import Loss
from tests.support.forked_programs import run_module

torch = pytest.importorskip("torch")
pytest.importorskip("trl")


def test_two_ranks_with_unequal_rows_step_like_one(tmp_path: Path) -> None:
    with environment({"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}):
        completed = run_module("tests.support.two_ranks", str(tmp_path))
    assert completed.returncode == 0, completed.stderr[-3000:]
    on_one, on_two = (torch.load(tmp_path / f"{ranks}.pt") for ranks in (1, 2))
    assert on_one.keys() == on_two.keys() == {loss.value for loss in Loss}
    for loss, single in on_one.items():
        pair = on_two[loss]
        assert single.keys() == pair.keys()
        assert max(float(value.abs().max()) for value in single.values()) > 1e-4
        assert max(float((single[name] - pair[name]).abs().max()) for name in single) <= 1e-6
    single_loss, pair_loss = (float((tmp_path / f"{ranks}.held_out").read_text()) for ranks in (1, 2))
    assert pair_loss == pytest.approx(single_loss, rel=1e-5)
