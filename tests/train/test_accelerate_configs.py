"""The launch configurations that ship, read by accelerate itself, and two real processes without a GPU."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

pytest.importorskip("accelerate")
pytest.importorskip("trl")
pytest.importorskip("psutil")

from context_agent._support.processes import environment
from context_agent.testing import tiny_runs
from context_agent.train.checkpoints import Checkpoints
from tests.support.forked_ctx1 import forked_ctx1
from tests.support.forked_programs import run_module

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs" / "accelerate"


def launch_settings(name: str) -> tuple[Any, dict[str, str]]:
    """What `accelerate launch` makes of the file: its arguments, and the environment that ranks are started in."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

    command = ["--config_file", str(CONFIGS / f"{name}.yaml"), "-m", "context_agent.cli", "train", "rl"]
    args, _, _ = _validate_launch_command(launch_command_parser().parse_args(command))
    if args.use_deepspeed:
        args.deepspeed_fields_from_accelerate_config = ""
        return args, dict(prepare_deepspeed_cmd_env(args)[1])
    return args, dict(prepare_multi_gpu_env(args))


@pytest.mark.parametrize(("name", "machines", "processes"), [("multi_gpu", 1, 4), ("two_nodes", 2, 16)])
def test_copies_of_the_model(name: str, machines: int, processes: int) -> None:
    args, variables = launch_settings(name)
    assert (args.multi_gpu, args.num_machines, args.num_processes) == (True, machines, processes)
    assert (args.use_fsdp, args.use_deepspeed, args.mixed_precision) == (False, False, "no")
    assert variables["ACCELERATE_MIXED_PRECISION"] == "no"


def test_states_spread_by_fsdp(monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.utils import FullyShardedDataParallelPlugin

    args, variables = launch_settings("fsdp2")
    assert args.use_fsdp
    for name, value in variables.items():
        if name.startswith(("FSDP_", "ACCELERATE_")):
            monkeypatch.setenv(name, value)
    plugin = FullyShardedDataParallelPlugin()
    assert (plugin.fsdp_version, plugin.reshard_after_forward) == (2, True)
    assert plugin.state_dict_type.name == "FULL_STATE_DICT"
    assert not plugin.activation_checkpointing


def test_states_spread_by_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    args, variables = launch_settings("zero3")
    assert (args.use_deepspeed, args.zero_stage) == (True, 3)
    assert variables["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == "3"
    assert variables["ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL"] == "true"


def write_toml(folder: Path, kind: str) -> Path:
    """A small run, two processes wide."""
    changes: dict[str, Any] = {"out": str(folder / kind), "evaluation": {"every": 1, "questions": 2}}
    if kind == "sft":
        changes |= {"model": {"tiny": {"hidden": 32, "layers": 1}}, "sft": {"demonstrations": 60, "epochs": 1}}
        changes |= {"optimizer": {"learning_rate": 1e-2}}
    else:
        changes |= {"model": {"name": str(folder / "sft" / "final")}}
        changes |= {"rollouts": {"steps": 2, "groups": 3, "substeps": 2}, "checkpoints": {"every": 2}}
    plain = tiny_runs.merged(tiny_runs.TINY, changes)
    path = folder / f"{kind}.toml"
    top = [f"{key} = {json.dumps(value)}" for key, value in plain.items() if not isinstance(value, dict)]
    path.write_text("\n".join([*top, *_tables(plain, "")]) + "\n")
    return path


def _tables(plain: dict[str, Any], prefix: str) -> list[str]:
    lines = []
    for key, value in plain.items():
        if isinstance(value, dict):
            inner = [f"{k} = {json.dumps(v)}" for k, v in value.items() if not isinstance(v, dict)]
            lines += [f"[{prefix}{key}]", *inner, *_tables(value, f"{prefix}{key}.")]
    return lines


def launch(kind: str, folder: Path) -> CompletedProcess[str]:
    """`accelerate launch` with the file for several GPUs, on two processes that have none.

    The launcher and its two processes are forks. If they hang, the error says where in each process.
    """
    file = write_toml(folder, kind)
    options = ("--config_file", str(CONFIGS / "multi_gpu.yaml"), "--num_processes", "2", "--main_process_port", "0")
    command = ("-m", "context_agent.cli", "train", kind, "--run", str(file), "--json")
    variables = {"ACCELERATE_USE_CPU": "true", "PYTHON_EXEC": forked_ctx1(), "PYTHONFAULTHANDLER": "1"}
    with environment({"OMP_NUM_THREADS": "1", **variables}):
        return run_module("accelerate.commands.launch", *options, *command, folder=folder, at_timeout=_abort_ranks)


def _abort_ranks(launcher: int) -> None:
    import psutil

    for rank in psutil.Process(launcher).children(recursive=True):
        rank.send_signal(signal.SIGABRT)


@pytest.mark.slow
def test_two_processes_train_as_one_run(tmp_path: Path) -> None:
    for kind in ("sft", "rl"):
        completed = launch(kind, tmp_path)
        assert completed.returncode == 0, completed.stderr[-8000:]
        # Only the first process prints a summary and writes files.
        (summary,) = completed.stdout.splitlines()
        result, out = json.loads(summary), tmp_path / kind
        metrics = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
        assert metrics == sorted(set(metrics))
        assert metrics[-1] == result["updates"] > 1
        assert (out / "final" / "model.safetensors").is_file()
        newest = Checkpoints(out / "checkpoints", kind=kind, settings={}).all()[-1]
        assert newest.step == result["updates"]
        states = {path.name for path in newest.path.glob("trainer/rng_state_*.pth")}
        assert states == {"rng_state_0.pth", "rng_state_1.pth"}
    # Each process played its share of the questions, and the metrics are those of all shares.
    run_json = json.loads((tmp_path / "rl" / "run.json").read_text())
    assert run_json["rollouts"]["groups"] == 3
    lines = [json.loads(line) for line in (tmp_path / "rl" / "metrics.jsonl").read_text().splitlines()]
    played = 3 * run_json["rollouts"]["rollouts"]
    step = next(line for line in lines if "episodes" in line)
    assert step["episodes"] + step["episodes_aborted"] == played
