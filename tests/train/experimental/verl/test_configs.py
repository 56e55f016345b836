"""The shipped configurations, composed by hydra and checked by verl itself. Needs verl, and no GPU."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl has an environment of its own: docs/verl.md")

from context_agent.train import run_file
from context_agent.train.experimental.verl.settings import VerlTrainer, disagreements, verl_settings
from tests.support import verl_parts

CONFIGS = Path(__file__).parents[4] / "configs" / "verl"
SHIPPED = [("gpt-oss-20b", VerlTrainer.MEGATRON), ("qwen3-4b", VerlTrainer.FSDP)]


@pytest.fixture(params=SHIPPED, ids=lambda param: str(param[0]))
def shipped(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Any]:
    """The run, and verl's configuration for its machines with the run's settings."""
    name, trainer = request.param
    run = run_file.read_run(CONFIGS / f"{name}.toml")
    settings = verl_settings(run, tmp_path, dev=64, trainer=trainer)
    (tmp_path / "settings.yaml").write_text(f"# @package _global_\n{json.dumps(settings)}\n")
    shutil.copy(CONFIGS / f"{name}.yaml", tmp_path / "primary.yaml")
    return run, verl_parts.composed(tmp_path)


def test_verl_takes_them(shipped: tuple[Any, Any]) -> None:
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    run, verl_config = shipped
    validate_config(
        verl_config, use_reference_policy=need_reference_policy(verl_config), use_critic=need_critic(verl_config)
    )
    assert not need_critic(verl_config)
    OmegaConf.resolve(verl_config)
    omega_conf_to_dataclass(verl_config.algorithm)
    rollout = omega_conf_to_dataclass(verl_config.actor_rollout_ref.rollout)
    assert (rollout.n, rollout.max_model_len) == (run.rollouts.rollouts, run.episodes.window)
    assert disagreements(run, verl_config) == []


def test_their_asynchronous_trainer_exists_and_takes_their_batches(shipped: tuple[Any, Any]) -> None:
    pytest.importorskip("transfer_queue")
    from verl.trainer.ppo.v1 import get_trainer_cls

    _, verl_config = shipped
    mode = verl_config.trainer.v1.trainer_mode
    assert get_trainer_cls(mode).__name__ == "PPOTrainer" + mode.title().replace("_", "")
    if mode == "separate_async":
        steps = verl_config.trainer.v1.separate_async.parameter_sync_step
        assert verl_config.data.train_batch_size == steps * verl_config.actor_rollout_ref.actor.ppo_mini_batch_size
        assert verl_config.actor_rollout_ref.rollout.checkpoint_engine.backend != "naive"
