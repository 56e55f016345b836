from __future__ import annotations

import json
from pathlib import Path

import pytest

from context_agent.cli.app import run

ROOT = Path(__file__).parents[2]
LAPTOP = ROOT / "configs" / "tiny-laptop.toml"
LARGE = ROOT / "configs" / "gpt-oss-20b-1gpu.toml"
LESSONS = ROOT / "configs" / "gpt-oss-20b-sft.toml"


def test_a_dry_run_tells_settings_memory_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "rl", "--run", str(LARGE), "--dry-run"]) == 0
    output = capsys.readouterr().out
    assert "model.name = openai/gpt-oss-20b" in output
    assert "rewards.trajectory = 0.3" in output
    assert "20.9 billion weights" in output
    assert "fits in 141 GB" in output
    assert "128 episodes" in output
    assert "time of a step" in output


def test_a_dry_run_of_lessons_tells_their_own_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No sampler is held, no episode is sampled; the tokens are those of the demonstrations."""
    monkeypatch.chdir(tmp_path)
    lessons = ["train", "sft", "--run", str(LESSONS), "--dry-run"]
    assert run(lessons) == 0
    output = capsys.readouterr().out
    assert "there are no trajectories yet, so 1,000 are assumed" in output
    assert "sampled" not in output.partition("\n\n")[2]
    (tmp_path / "trajectories" / "kept").mkdir(parents=True)
    for name in ("a", "b", "c"):
        (tmp_path / "trajectories" / "kept" / f"{name}.jsonl").write_text("")
    assert run([*lessons, "--json", "--set", "expected.row_tokens=1000", "--set", "sft.epochs=4"]) == 0
    estimate = json.loads(capsys.readouterr().out)["estimate"]
    assert (estimate["episodes"], estimate["row_tokens"]) == (3, 12_000)
    assert estimate["seconds"] == 12_000 / 2_500
    assert estimate["server_memory"] == {}
    assert "sampling cache" not in estimate["memory"]


def test_rewards_beside_lessons_name_where_they_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --from, the second half of a recipe would throw the first away."""
    from context_agent.policies.tokens.trained import PolicyDescription
    from context_agent.train.run_file import read_run

    monkeypatch.chdir(tmp_path)
    lessons = tmp_path / "runs" / "gpt-oss-20b-sft"
    (lessons / "final").mkdir(parents=True)
    (lessons / "run.json").write_text(json.dumps({"kind": "sft", **read_run(LESSONS).plain()}))
    (lessons / "final" / "adapter_config.json").write_text("{}")
    PolicyDescription(base="openai/gpt-oss-20b", renderer="harmony").save(lessons / "final")
    rewards = ["train", "rl", "--run", str(LARGE), "--dry-run", "--json"]
    for options in ((), ("--resume",)):  # nothing is there to resume
        assert run([*rewards, *options]) == 2
        assert "Add --from runs/gpt-oss-20b-sft, or --from base" in capsys.readouterr().err
    for start, adapter in (("runs/gpt-oss-20b-sft", "runs/gpt-oss-20b-sft/final"), ("base", None)):
        assert run([*rewards, "--from", start]) == 0
        printed = capsys.readouterr()
        assert json.loads(printed.out)["run"]["model"]["adapter"] == adapter
        assert ("training starts from" in printed.err) == (adapter is not None)
    monkeypatch.setenv("RANK", "1")
    assert run([*rewards, "--from", "runs/gpt-oss-20b-sft"]) == 0
    assert "training starts from" not in capsys.readouterr().err


def test_a_setting_on_the_command_line_overrides_the_file_or_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "rl", "--run", str(LARGE), "--dry-run", "--json", "--set", "rollouts.groups=4"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["rollouts"]["groups"] == 4
    assert run(["train", "rl", "--run", str(LARGE), "--dry-run", "--set", "rollouts.group=4"]) == 2
    assert "unknown setting 'rollouts.group'. Did you mean 'rollouts.groups'?" in capsys.readouterr().err


def test_a_dry_run_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "rl", "--run", str(LARGE), "--dry-run", "--json", "--out", "elsewhere"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["run"]["out"] == "elsewhere"
    assert report["run"]["loss"]["kind"] == "cispo"
    estimate = report["estimate"]
    assert estimate["peak"] < estimate["room"] == 141e9
    assert estimate["step_seconds"] == pytest.approx(
        estimate["sampled_tokens"] / 2_500 + estimate["row_tokens"] / 2_500
    )


def test_a_dry_run_needs_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from context_agent.cli.app import run; "
        f"code = run(['train', 'rl', '--run', {str(LAPTOP)!r}, '--dry-run', '--json']); "
        "assert not {'torch', 'transformers', 'trl'} & set(sys.modules), 'loaded'; sys.exit(code)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("[model]\nnam = 'x'\n[data]\n", 2, "unknown key 'nam' in [model]. Did you mean 'name'?"),
        ("[model]\nname = 'x'\n", 2, "data: Field required"),
        (
            "[model]\nname = 'x'\n[data]\n",
            2,
            "the shape of 'x' is unknown. Pass its config.json with --model-config",
        ),
    ],
)
def test_a_bad_run_file_is_reported_in_one_line(
    text: str, code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    assert run(["train", "rl", "--run", str(path), "--dry-run"]) == code
    error_message = capsys.readouterr().err.strip()
    assert told in error_message
    assert "\n" not in error_message


def test_a_run_whose_episodes_only_the_trainer_plays_is_refused_before_ray_is_reached(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("trl")
    assert run(["train", "rl", "--run", str(LAPTOP), "--ray", "nowhere.invalid:1"]) == 2
    assert 'Set engine.kind = "vllm"' in capsys.readouterr().err


def test_a_run_file_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "rl"]) == 2
    assert "--run" in capsys.readouterr().err


def test_the_sft_command_trains_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The laptop's run file with fewer demonstrations gives a model and prints one JSON object on stdout."""
    pytest.importorskip("trl")
    text = (
        LAPTOP.read_text().replace("demonstrations = 20000", "demonstrations = 40").replace("worlds = 6", "worlds = 1")
    )
    text = text.replace("entities = 800", "entities = 120").replace("tasks = 15000", "tasks = 300")
    text = text.replace("hidden = 96", "hidden = 32")
    path = tmp_path / "run.toml"
    path.write_text(text)
    assert run(["train", "sft", "--run", str(path), "--out", str(tmp_path / "out"), "--json"]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert report["updates"] > 1
    assert (Path(report["model"]) / "model.safetensors").is_file()
    assert "ctx1 train sft:" in captured.err
    assert run(["train", "sft", "--run", str(path), "--out", str(tmp_path / "out")]) == 2
    assert "Resume it with --resume" in capsys.readouterr().err
