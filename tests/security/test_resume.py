"""A run that is resumed in a stranger's folder: pickles are not loaded, and no link leads the run out of its folder."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError, ContextAgentError, DataError
from context_agent.testing import tiny_runs

torch = pytest.importorskip("torch")
pytest.importorskip("trl")


class Bomb:
    """A pickle that makes a folder when it is loaded."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trace),)


def run_in(out: Path) -> Any:
    return tiny_runs.demonstrations(
        out, sft={"demonstrations": 24, "epochs": 1, "rows_per_pass": 8}, checkpoints={"every": 1}
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    from context_agent.train import sft

    sft.train(run_in(out), note=lambda _: None)
    return out


@pytest.fixture
def out(trained: Path, tmp_path: Path) -> Path:
    """A run with updates left."""
    folder = Path(shutil.copytree(trained, tmp_path / "run"))
    shutil.rmtree(newest(folder))
    return folder


def resume(out: Path) -> None:
    from context_agent.train import sft

    sft.train(run_in(out), resume=True, note=lambda _: None)


def test_rows_and_questions_that_changed_since_the_checkpoint_are_refused(out: Path) -> None:
    from context_agent.train.row_files import open_folder, read_parquet, write_row_folder
    from context_agent.train.training_run import TrainingRun

    folder = open_folder(out / "rows")
    rows = list(read_parquet(folder.parquet))
    write_row_folder(rows[::-1], folder.path, tokenizer=folder.tokenizer)
    with pytest.raises(ConfigError, match=r"the rows have changed since .*step-.* Restore the files of data\.traj"):
        resume(out)
    write_row_folder(rows, folder.path, tokenizer=folder.tokenizer)
    run = TrainingRun(run_in(out), "sft", resume=True, note=lambda _: None)
    run.bind_data("rows", folder.digest, "Restore them")
    run.bind_data("questions", "of which the checkpoint says nothing", "Restore them")
    resume(out)


def newest(out: Path) -> Path:
    return max((out / "checkpoints").glob("step-*"))


def replaced(out: Path, name: str, content: bytes) -> None:
    """Replace a file of the newest checkpoint, and its size and checksum in the manifest."""
    checkpoint = newest(out)
    file = next(checkpoint.rglob(name))
    file.write_bytes(content)
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    name = file.relative_to(checkpoint).as_posix()
    manifest["files"][name], manifest["checksums"][name] = len(content), zlib.crc32(content)
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("form", ["pickle", "torch"])
@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state*.pth"])
def test_a_pickle_in_a_checkpoint_is_not_loaded(out: Path, tmp_path: Path, name: str, form: str) -> None:
    bomb = Bomb(tmp_path / "trace")
    if form == "torch":
        torch.save({"state": bomb}, tmp_path / "bomb")
    else:
        (tmp_path / "bomb").write_bytes(pickle.dumps(bomb))
    replaced(out, name, (tmp_path / "bomb").read_bytes())
    with pytest.raises(ConfigError, match="code of a checkpoint is never run"):
        resume(out)
    assert not (tmp_path / "trace").exists()


def test_the_arguments_and_weights_of_a_checkpoint_are_not_unpickled(out: Path, tmp_path: Path) -> None:
    for name in ("training_args.bin", "pytorch_model.bin"):
        for folder in (newest(out), newest(out) / "trainer"):
            if folder.is_dir():
                (folder / name).write_bytes(pickle.dumps(Bomb(tmp_path / "trace")))
    for finished in ("best", "final"):
        shutil.rmtree(out / finished, ignore_errors=True)
    resume(out)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("name", ["metrics.jsonl", "run.json", "checkpoints/.step-00000099.partial", ".final.partial"])
def test_a_run_is_not_led_out_of_its_folder_by_a_link(out: Path, tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (out / name).unlink(missing_ok=True)
    (out / name).symlink_to(victim)
    with pytest.raises(DataError, match="is a link"):
        resume(out)
    assert victim.read_text() == "precious"


def test_a_pipe_and_holes_in_a_run_are_refused(out: Path) -> None:
    file = newest(out) / "a"
    os.mkfifo(file)
    with pytest.raises(DataError, match="is a pipe"):
        resume(out)
    file.unlink()
    file.touch()
    os.truncate(file, 1 << 40)
    with pytest.raises(DataError, match="almost none"):
        resume(out)


@pytest.mark.parametrize("content", [b"[" * 3_000_000, b"{}", b"nul", b'{"global_step": 1e999}', b'{"unknown": 1}'])
def test_a_state_of_the_trainer_that_is_none_is_an_error_of_this_package(out: Path, content: bytes) -> None:
    replaced(out, "trainer_state.json", content)
    with pytest.raises(ContextAgentError):
        resume(out)
