"""scripts/gpu-check on a machine without a GPU: all parts with tiny models, missing packages, and parts that fail."""

from __future__ import annotations

import importlib.metadata
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bare_machine import run_on_bare_machine
from tests.support.missing_packages import need

PROGRAMS = Path(__file__).parents[2] / "scripts"
if not (PROGRAMS / "gpu_check.py").is_file():
    pytest.skip("scripts live in the repository alone", allow_module_level=True)
need("trl", "peft")

sys.path.insert(0, str(PROGRAMS))
import gpu_check  # noqa: E402
from gpu import material  # noqa: E402
from gpu.material import MaterialError, SourceFile  # noqa: E402
from gpu.part import FULL, Clock, Row, Scale  # noqa: E402
from gpu.shapes import gpt_oss_config, qwen3_config  # noqa: E402

sys.path.remove(str(PROGRAMS))


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program switches the model hub off for its process."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def wheel_of(name: str, folder: Path) -> Path:
    """Pack an installed package as a wheel."""
    distribution = importlib.metadata.distribution(name)
    about = distribution.read_text("WHEEL") or ""
    tag = next(line for line in about.splitlines() if line.startswith("Tag: ")).removeprefix("Tag: ")
    folder.mkdir(exist_ok=True)
    path = folder / f"{name.replace('-', '_')}-{distribution.version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in distribution.files or ():
            if ".." not in file.parts and file.name not in {"INSTALLER", "REQUESTED"} and file.suffix != ".pyc":
                archive.write(str(file.locate()), str(file))
    return path


@pytest.mark.slow
def test_every_part_runs_on_a_bare_machine_with_wheels(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    for name in ("tantivy", "google-re2"):
        wheel_of(name, wheels)
    arguments = ["--self-test", "--minutes", "30", "--wheels", str(wheels), "--out", str(tmp_path / "out")]
    finished = run_on_bare_machine(PROGRAMS / "gpu_check.py", *arguments, folder=tmp_path / "bare")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert (tmp_path / "out" / "gpu-check.md").read_text() in finished.stdout
    assert "installed tantivy" in finished.stdout
    rows = {name: gpu_check.read_rows(tmp_path / "out" / f"{name}.jsonl") for name in gpu_check.PARTS}
    assert all(rows.values()), "each part has rows"
    assert {row.verdict for part in rows.values() for row in part} == {"ok", "skipped"}
    figures = {row.figure: row for part in rows.values() for row in part}
    assert figures["updates of rewards"].value.startswith("2 of 4 episodes")
    assert "no GPU" in figures["memory of a LoRA step"].value
    assert (tmp_path / "out" / "smollm2" / "adapter" / "adapter_model.safetensors").is_file()


@pytest.mark.slow
def test_every_part_that_vllm_serves_runs_with_tiny_models(tmp_path: Path) -> None:
    assert gpu_check.main(["--self-test", "--vllm", "--out", str(tmp_path), "--minutes", "30"]) == 0
    figures = {row.figure: row for name in gpu_check.SERVED for row in gpu_check.read_rows(tmp_path / f"{name}.jsonl")}
    assert figures["float32: tokens"].verdict == figures["float32: log-probabilities"].verdict == "ok"
    assert figures["updates of rewards"].value == "1, 0 episodes aborted"
    skipped = [row for row in figures.values() if row.verdict == "skipped"]
    assert all(row.value.startswith("no") or "vLLM" in row.figure for row in skipped)


def planned(monkeypatch: pytest.MonkeyPatch, **parts: Any) -> None:
    """Make these functions the parts of the check."""

    class Planned(gpu_check.PartPlan):
        def load(self) -> Any:
            return parts[self.function]

    plans = {name: Planned("", name, 0.5) for name in parts}
    monkeypatch.setattr(gpu_check, "PARTS", plans)


def test_a_part_that_breaks_is_a_row_and_the_next_one_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(scale: Scale, folder: Path, clock: Clock) -> Iterator[Row]:
        yield Row("", "first", "1")
        raise RuntimeError("out of memory")

    def runs(scale: Scale, folder: Path, clock: Clock) -> Iterator[Row]:
        assert 60 < clock.left <= 120, "a part gets its share of the minutes"
        yield Row("", "second", "2")

    planned(monkeypatch, breaks=breaks, runs=runs)
    assert gpu_check.main(["--self-test", "--out", str(tmp_path), "--minutes", "4"]) == 1
    lines = (tmp_path / "gpu-check.md").read_text().splitlines()[4:]
    assert [line.split(" | ")[1] for line in lines] == ["first", "error", "seconds", "second", "seconds"]
    assert "RuntimeError: out of memory" in lines[1]
    assert "FAILED" in lines[1]


def test_a_part_without_time_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(scale: Scale, folder: Path, clock: Clock) -> Iterator[Row]:
        raise AssertionError("it has no time")

    planned(monkeypatch, never=never)
    assert gpu_check.main(["--self-test", "--out", str(tmp_path), "--minutes", "0.1"]) == 0
    assert "no time left" in (tmp_path / "gpu-check.md").read_text()


def test_a_part_in_its_own_process_is_ended_at_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sleeper.py"
    program.write_text("import subprocess, time\nsubprocess.Popen(['sleep', '60'])\ntime.sleep(60)\n")
    monkeypatch.setattr(gpu_check, "__file__", str(program))
    monkeypatch.setattr(gpu_check, "ENDING_SECONDS", 0.0)
    (row,) = gpu_check.run_isolated("smollm2", tmp_path, 0.3)
    assert row.verdict == "FAILED"
    assert "not done after 0 s" in row.value


def test_without_a_gpu_the_real_check_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--out", str(tmp_path)]) == 2
    assert "--self-test" in capsys.readouterr().err


def test_the_shapes_are_those_of_the_estimate() -> None:
    import torch
    import transformers

    from context_agent.train.model_shape import KNOWN

    for config, name in ((gpt_oss_config(FULL), "openai/gpt-oss-20b"), (qwen3_config(FULL), "Qwen/Qwen3-4B")):
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config)
        count = sum(item.numel() for item in model.parameters())
        assert count == pytest.approx(KNOWN[name].parameters, rel=1e-4)


def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, bytes]:
    """Pack a small file and one that is cut into three pieces; return the folders' parent and the large file."""
    monkeypatch.setattr(material, "FOLDER_BYTES", 1_000)
    large = bytes(range(256)) * 10
    (tmp_path / "small").write_bytes(b"small")
    (tmp_path / "large").write_bytes(large)
    files = [SourceFile(tmp_path / "small", "checkout/weights/small"), SourceFile(tmp_path / "large", "large.gguf")]
    folders = material.pack(files, tmp_path / "out")
    assert [folder.name for folder in folders] == ["1", "2", "3"]
    return tmp_path / "out", large


def test_material_is_packed_in_parts_and_comes_back_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, large = packed(tmp_path, monkeypatch)
    for folder in out.iterdir():
        assert (
            sum(path.stat().st_size for path in folder.rglob("*") if path.suffix != ".json" and path.is_file()) <= 1_000
        )
    material.unpack(out, tmp_path / "back")
    assert (tmp_path / "back" / "large.gguf").read_bytes() == large
    (tmp_path / "tree").mkdir()
    material.restore_checkout(tmp_path / "back", tmp_path / "tree")
    assert (tmp_path / "tree" / "weights" / "small").read_bytes() == b"small"


@pytest.mark.parametrize(
    ("damage", "told"),
    [("change", "damaged"), ("remove", "missing"), ("folder", "2 of 3 pieces"), ("all", "no folder")],
)
def test_damaged_material_is_refused(
    damage: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = packed(tmp_path, monkeypatch)
    piece = out / "2" / "large.gguf.2-of-3"
    match damage:
        case "change":
            piece.write_bytes(piece.read_bytes()[:-1] + b"x")
        case "remove":
            piece.unlink()
        case "folder":
            (out / "2" / material.MANIFEST).unlink()
        case _:
            for manifest in out.rglob(material.MANIFEST):
                manifest.unlink()
    with pytest.raises(MaterialError, match=told):
        material.unpack(out, tmp_path / "back")
    assert gpu_check.main(["--material", str(out), "--out", str(tmp_path / "run")]) == 2
    assert told in capsys.readouterr().err


def test_a_wheel_of_what_is_installed_is_left_out(tmp_path: Path) -> None:
    wheel_of("packaging", tmp_path)
    assert material.install_missing(tmp_path, tmp_path / "site") == []


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    row = Row("part", "figure", "1 | 2", "3")
    (tmp_path / "part.jsonl").write_text(
        json.dumps({"part": "part", "figure": "figure", "value": "1 | 2", "reference": "3"})
    )
    assert gpu_check.read_rows(tmp_path / "part.jsonl") == [row]
