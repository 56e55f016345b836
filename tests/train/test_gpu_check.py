"""scripts/gpu-check on a machine without a GPU: all parts with tiny models, and a part that breaks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parents[2] / "scripts"
if not (PROGRAMS / "gpu_check.py").is_file():
    pytest.skip("scripts live in the repository alone", allow_module_level=True)
for module in ("trl", "peft"):
    pytest.importorskip(module)

sys.path.insert(0, str(PROGRAMS))
import gpu_check  # noqa: E402
import gpu_parts  # noqa: E402

sys.path.remove(str(PROGRAMS))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program switches the model hub off for its process."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_every_part_runs_with_tiny_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--self-test", "--out", str(tmp_path)]) == 0
    table = (tmp_path / "gpu-check.md").read_text()
    assert table in capsys.readouterr().out
    rows = {name: gpu_check.read_rows(tmp_path / f"{name}.jsonl") for name in gpu_check.PARTS}
    assert all(rows.values()), "each part has rows"
    assert {row.verdict for part in rows.values() for row in part} == {"ok", "skipped"}
    figures = {row.figure: row for part in rows.values() for row in part}
    assert figures["float32: tokens"].verdict == figures["float32: log-probabilities"].verdict == "ok"
    assert figures["updates of rewards"].value == "1, 0 episodes aborted"
    assert "no GPU" in figures["memory of a LoRA step"].value
    assert all(
        row.value.startswith("no") for row in figures.values() if row.verdict == "skipped" and "vLLM" not in row.figure
    )


def test_a_part_that_breaks_is_a_row_and_the_next_one_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(scale: Any, folder: Path) -> Iterator[Any]:
        yield gpu_check.Row("", "first", "1")
        raise RuntimeError("out of memory")

    def runs(scale: Any, folder: Path) -> Iterator[Any]:
        yield gpu_check.Row("", "second", "2")

    monkeypatch.setattr(gpu_check, "PARTS", {"breaks": (breaks, 10.0), "runs": (runs, 10.0)})
    assert gpu_check.main(["--self-test", "--out", str(tmp_path)]) == 1
    lines = (tmp_path / "gpu-check.md").read_text().splitlines()[4:]
    assert [line.split(" | ")[1] for line in lines] == ["first", "error", "seconds", "second", "seconds"]
    assert "RuntimeError: out of memory" in lines[1]
    assert "FAILED" in lines[1]


def test_a_part_in_its_own_process_is_ended_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sleeper.py"
    program.write_text("import subprocess, time\nsubprocess.Popen(['sleep', '60'])\ntime.sleep(60)\n")
    monkeypatch.setattr(gpu_check, "__file__", str(program))
    (row,) = gpu_check.run_isolated("learning", tmp_path, 0.3)
    assert row.verdict == "FAILED"
    assert "not done after 0 s" in row.value


def test_without_a_gpu_the_real_check_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--out", str(tmp_path)]) == 2
    assert "--self-test" in capsys.readouterr().err


def test_the_shape_is_that_of_the_estimate() -> None:
    import torch
    import transformers

    from context_agent.train.estimate import KNOWN

    with torch.device("meta"):
        model = transformers.GptOssForCausalLM(gpu_parts.gpt_oss_config(gpu_parts.FULL))
    assert sum(item.numel() for item in model.parameters()) == KNOWN["openai/gpt-oss-20b"].parameters


def test_the_limits_of_the_parts_fit_in_25_minutes() -> None:
    assert sum(limit for _, limit in gpu_check.PARTS.values()) <= 25 * 60
