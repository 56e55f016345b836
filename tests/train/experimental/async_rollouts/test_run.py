"""End-to-end runs that sample while they train: their metrics, and what survives a kill at any moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from context_agent._support.processes import environment
from context_agent.errors import ConfigError, PolicyError
from context_agent.testing import killed_runs, tiny_runs
from tests.support.forked_programs import run_module

pytest.importorskip("trl")

from context_agent.train.experimental.async_rollouts.rollout_process import RolloutProcess


def train(run: Any, **options: Any) -> Any:
    from context_agent.train import reinforcement

    return reinforcement.train(run, note=lambda _: None, **options)


@pytest.mark.usefixtures("forked_rollouts")
@pytest.mark.parametrize("sampler", ["process", "thread"])
def test_a_run_overlaps_within_its_bound_and_goes_on_where_it_is_stopped(
    sampler: str, student: Path, tmp_path: Path
) -> None:
    run = tiny_runs.rewards(
        student, tmp_path, rollouts={"steps": 3}, async_rollouts={"max_steps_ahead": 1, "sampler": sampler}
    )
    result = train(run)
    assert result.updates == 6
    lines = tiny_runs.timeless(tmp_path)
    assert [line["step"] for line in lines] == list(range(7))
    ages = [line["staleness/max"] for line in lines if "staleness/max" in line]
    assert 0 < max(ages) <= run.oldest == 3
    assert all(line["rows_stale"] == 0 for line in lines if "rows_stale" in line)
    assert {"episodes_mixed", "groups_left", "episodes_paused"} <= set(lines[1])
    with pytest.raises(ConfigError, match="Resume it with --resume"):
        train(run)
    assert train(run, resume=True).first_update == 6


@pytest.mark.usefixtures("forked_rollouts")
def test_a_run_whose_sampler_dies_is_saved_and_says_how_to_go_on(
    student: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tiny_runs.rewards(student, tmp_path, rollouts={"steps": 3}, async_rollouts={"sampler": "process"})
    original_put = RolloutProcess.put

    def put_or_die(self: RolloutProcess, model: Any, version: str) -> int:
        if version == "4":
            assert self._child is not None
            self._child.process.kill()
            assert self._child.exit_code(None) is not None
        return original_put(self, model, version)

    with monkeypatch.context() as patch:
        patch.setattr(RolloutProcess, "put", put_or_die)
        with pytest.raises(PolicyError, match=r"has ended \(SIGKILL[^.]*\)\. .* update 4 is saved.*--resume"):
            train(run)
    assert train(run, resume=True).first_update == 4


def test_a_buffer_from_before_the_first_checkpoint_is_not_written_over(student: Path, tmp_path: Path) -> None:
    (tmp_path / "buffer-0.jsonl").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"ended before its first checkpoint\. Resume it with --resume"):
        train(tiny_runs.rewards(student, tmp_path, async_rollouts={}))


@pytest.mark.slow
def test_killed_at_random_moments_it_loses_no_episode_and_trains_none_twice(student: Path, tmp_path: Path) -> None:
    options = ["--student", str(student), "--out", str(tmp_path), "--kills", "2", "--steps", "4"]
    with environment({"OMP_NUM_THREADS": "1"}):
        completed = run_module(killed_runs.__name__, *options, "--quota", "1.0", "0.6")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    verdicts = [json.loads(line) for line in completed.stdout.splitlines()]
    assert [verdict["quota"] for verdict in verdicts] == [1.0, 0.6]
    for verdict in verdicts:
        assert verdict["sound"]
        assert verdict["kills"] == 2
        assert verdict["finished"] > 0
