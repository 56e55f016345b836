"""A checkpoint is complete or absent, whatever happens while it is written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError
from context_agent.train.checkpoints import CHECKPOINTS_FOLDER, MANIFEST, Checkpoints, has_checkpoint

SETTINGS: dict[str, Any] = {"seed": 0, "out": "a", "rollouts": {"groups": 8}, "model": {"name": "m"}}


def save_steps(folder: Path, *steps: int, keep: int = 2, settings: dict[str, Any] | None = None) -> Checkpoints:
    checkpoints = Checkpoints(folder, kind="rl", settings=settings or SETTINGS, keep=keep)
    for step in steps:
        partial = checkpoints.open(step)
        (partial / "trainer").mkdir()
        (partial / "trainer" / "weights").write_bytes(bytes(range(step % 256)))
        (partial / "trainer" / "other").write_bytes(bytes(reversed(range(step % 256))))
        checkpoints.commit(step)
    return checkpoints


def test_the_newest_are_kept_and_the_newest_is_found(tmp_path: Path) -> None:
    checkpoints = save_steps(tmp_path, 4, 8, 12)
    assert [checkpoint.step for checkpoint in checkpoints.all()] == [8, 12]
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.step == 12
    assert (newest.path / "trainer" / "weights").stat().st_size == 12
    assert {path.name for path in tmp_path.iterdir()} == {"step-00000008", "step-00000012"}


def test_an_incomplete_checkpoint_does_not_count(tmp_path: Path) -> None:
    checkpoints = save_steps(tmp_path, 4)
    (checkpoints.open(8) / "weights").write_bytes(b"half")
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.step == 4
    checkpoints.sweep()
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000004"]


@pytest.mark.parametrize("damage", ["cut", "lost", "manifest", "flipped", "swapped"])
def test_a_damaged_checkpoint_does_not_count(damage: str, tmp_path: Path) -> None:
    checkpoints = save_steps(tmp_path, 4, 8)
    last = tmp_path / "step-00000008"
    match damage:
        case "cut":
            (last / "trainer" / "weights").write_bytes(b"x")
        case "lost":
            (last / "trainer" / "weights").unlink()
        case "flipped":
            (last / "trainer" / "weights").write_bytes(bytes([0, 1, 2, 3, 4, 5, 6, 8]))
        case "swapped":
            weights, other = last / "trainer" / "weights", last / "trainer" / "other"
            weights.rename(last / "aside")
            other.rename(weights)
            (last / "aside").rename(other)
        case "manifest":
            (last / MANIFEST).write_text("{")
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.step == 4
    assert checkpoints.newer(newest) == [last]


def test_the_next_checkpoint_replaces_the_damaged_ones_after_it(tmp_path: Path) -> None:
    """Otherwise they would count as the newest ones, and the run's own would be deleted as old."""
    save_steps(tmp_path, 4, 8, 12, keep=3)
    for step in (8, 12):
        weights = tmp_path / f"step-{step:08d}" / "trainer" / "weights"
        weights.write_bytes(weights.read_bytes()[::-1])
    checkpoints = save_steps(tmp_path, 5)
    assert [checkpoint.step for checkpoint in checkpoints.all()] == [4, 5]
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.step == 5


def test_a_checkpoint_without_checksums_counts(tmp_path: Path) -> None:
    checkpoints = save_steps(tmp_path, 4)
    manifest = tmp_path / "step-00000004" / MANIFEST
    data = json.loads(manifest.read_text())
    data["checksums"] = {"/dev/zero": 1}
    manifest.write_text(json.dumps(data))
    assert checkpoints.newest() is not None
    del data["checksums"]
    manifest.write_text(json.dumps(data))
    assert checkpoints.newest() is not None


def test_a_checkpoint_of_another_run_is_refused_by_what_differs(tmp_path: Path) -> None:
    save_steps(tmp_path, 4)
    other = {"seed": 0, "out": "b", "rollouts": {"groups": 16}, "model": {"name": "m"}}
    with pytest.raises(ConfigError, match=r"rollouts\.groups was 8 and is 16.\. Resume with those settings"):
        Checkpoints(tmp_path, kind="rl", settings=other).newest()
    with pytest.raises(ConfigError, match="of `ctx1 train rl`, not of `ctx1 train sft`"):
        Checkpoints(tmp_path, kind="sft", settings=SETTINGS).newest()
    moved = Checkpoints(tmp_path, kind="rl", settings=SETTINGS | {"out": "elsewhere"}).newest()
    assert moved is not None


def test_a_moved_input_is_refused_with_the_link_that_helps(tmp_path: Path) -> None:
    save_steps(tmp_path, 4)
    moved = SETTINGS | {"model": {"name": "elsewhere/m"}}
    with pytest.raises(
        ConfigError, match=r"was 'm' .* If a file or folder was moved, put a link to it at its old path"
    ):
        Checkpoints(tmp_path, kind="rl", settings=moved).newest()
    with pytest.raises(ConfigError) as raised:
        Checkpoints(tmp_path, kind="rl", settings=SETTINGS | {"seed": 1}).newest()
    assert "link" not in str(raised.value)


def test_the_data_of_a_run_are_known_from_its_checkpoints(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / CHECKPOINTS_FOLDER, kind="rl", settings=SETTINGS)
    assert not has_checkpoint(tmp_path)
    checkpoints.data["questions"] = "a digest"
    checkpoints.open(4)
    checkpoints.commit(4)
    assert has_checkpoint(tmp_path)
    newest = Checkpoints(tmp_path / CHECKPOINTS_FOLDER, kind="rl", settings=SETTINGS).newest()
    assert newest is not None
    assert newest.data == {"questions": "a digest"}
    manifest = newest.path / MANIFEST
    older = {key: value for key, value in json.loads(manifest.read_text()).items() if key != "data"}
    manifest.write_text(json.dumps(older))
    assert [checkpoint.data for checkpoint in checkpoints.all()] == [{}]


def test_fewer_than_two_are_not_enough(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="keep must be at least 2"):
        Checkpoints(tmp_path, kind="rl", settings={}, keep=1)


def test_the_same_step_may_be_saved_again(tmp_path: Path) -> None:
    checkpoints = save_steps(tmp_path, 4, 4)
    assert [checkpoint.step for checkpoint in checkpoints.all()] == [4]
    assert checkpoints.all()[0].settings == SETTINGS


@pytest.mark.parametrize("wait", [0.0, 0.01, 0.03, 0.07])
def test_a_process_killed_while_it_saves_leaves_whole_ones(wait: float, tmp_path: Path) -> None:
    """Saves in a loop until it is killed; at any moment, at least two complete checkpoints remain."""
    program = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from context_agent.train.checkpoints import Checkpoints
        made = Checkpoints(Path(sys.argv[1]), kind="rl", settings={}, keep=2)
        for step in range(1, 100_000):
            place = made.open(step)
            for name in range(8):
                (place / f"part-{name}").write_bytes(bytes([step % 256]) * 200_000)
            made.commit(step)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    checkpoints = Checkpoints(tmp_path, kind="rl", settings={}, keep=2)
    deadline = time.monotonic() + 60
    while len(checkpoints.all()) < 2 and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(wait)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    complete = checkpoints.all()
    assert len(complete) >= 2
    for checkpoint in complete:
        data = json.loads((checkpoint.path / MANIFEST).read_text())
        assert {(checkpoint.path / name).read_bytes()[0] for name in data["files"]} == {checkpoint.step % 256}
    checkpoints.open(complete[-1].step + 1)
    assert [path.name for path in tmp_path.glob(".*")] == [f".step-{complete[-1].step + 1:08d}.partial"]
