from __future__ import annotations

import json
from pathlib import Path

import pytest

from context_agent.cli.app import run

pytest.importorskip("datasets", reason="needs the extra datasets")

RUN = """
[model]
name = "some/model"
dtype = "float32"
renderer = "words"
[data.world]
entities = 120
tasks = 300
[rollouts]
steps = 3
groups = 4
substeps = 2
[evaluation]
questions = 5
[optimizer]
schedule = "{schedule}"
"""


def run_file(folder: Path, schedule: str = "constant") -> str:
    path = folder / "run.toml"
    path.write_text(RUN.format(schedule=schedule))
    return str(path)


def test_it_writes_what_verl_is_started_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "verl"
    assert run(["train", "verl", "--run", run_file(tmp_path), "--out", str(out), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["rows"], report["dev"], report["folder"]) == (12, 5, str(out))
    assert {path.name for path in out.iterdir()} == {
        "train.parquet",
        "dev.parquet",
        "settings.yaml",
        "agent_loop.yaml",
    }


def test_the_report_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(["train", "verl", "--run", run_file(tmp_path), "--out", str(tmp_path / "v"), "--trainer", "megatron"]) == 0
    )
    assert "12 rows of" in capsys.readouterr().out


def test_a_run_that_verl_cannot_do_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "verl", "--run", run_file(tmp_path, "linear"), "--out", str(tmp_path / "v")]) == 2
    assert 'verl has no schedule "linear"' in capsys.readouterr().err
