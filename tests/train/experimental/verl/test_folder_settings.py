"""The settings that verl gets for a run, and those that contradict the run. Needs no verl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError
from context_agent.testing import tiny_runs
from context_agent.train import run_file
from context_agent.train.config import RunConfig
from context_agent.train.experimental.verl.settings import (
    VerlTrainer,
    binding_verl_settings,
    disagreements,
    nest_dotted,
    verl_settings,
)


def make_run(**changes: Any) -> RunConfig:
    base = {
        "model": {"name": "some/model", "lora": {"rank": 8, "parameters": ["mlp.experts.gate_up_proj"]}},
        "data": {"questions": ["q.jsonl"], "path": ".ctx1"},
        "rollouts": {"groups": 8, "rollouts": 4, "substeps": 2, "steps": 30},
        "loss": {"cap": 5.0, "staleness": 5},
        "checkpoints": {"every": 5},
    }
    return run_file.parse_run(tiny_runs.merged(base, changes))


def test_the_run_s_loss_and_advantage_in_verl_s_words(tmp_path: Path) -> None:
    settings = verl_settings(make_run(), tmp_path, dev=7)
    actor, algorithm = settings["actor_rollout_ref"]["actor"], settings["algorithm"]
    assert (actor["policy_loss"]["loss_mode"], actor["clip_ratio_low"], actor["clip_ratio_high"]) == ("cispo", 1, 4)
    assert (algorithm["adv_estimator"], algorithm["norm_adv_by_std_in_grpo"]) == ("grpo", False)
    assert algorithm["filter_groups"] == {"enable": True, "metric": "reward"}
    assert algorithm["rollout_correction"]["bypass_mode"] is True
    assert settings["data"]["train_batch_size"] == 8
    assert actor["ppo_mini_batch_size"] == 4
    assert settings["trainer"]["v1"]["sampler"]["max_off_policy_threshold"] == 3
    # This project counts updates, verl counts steps.
    assert settings["trainer"]["save_freq"] == 3
    assert settings["data"]["val_max_samples"] == 7


def test_without_questions_to_evaluate_by_nothing_is_evaluated(tmp_path: Path) -> None:
    settings = verl_settings(make_run(), tmp_path, dev=0)
    assert (settings["trainer"]["test_freq"], settings["trainer"]["val_before_train"]) == (-1, False)
    assert settings["data"]["val_files"] == settings["data"]["train_files"]


def test_adapters_and_the_schedule_have_other_names_with_megatron(tmp_path: Path) -> None:
    fsdp, megatron = (
        verl_settings(make_run(), tmp_path, dev=0, trainer=trainer)["actor_rollout_ref"] for trainer in VerlTrainer
    )
    assert fsdp["model"]["target_parameters"] == ["mlp.experts.gate_up_proj"]
    assert fsdp["model"]["lora_rank"] == 8
    assert fsdp["actor"]["optim"]["lr_scheduler_type"] == "constant"
    assert megatron["model"]["lora"]["target_modules"] == ["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]
    assert "lora_rank" not in megatron["model"]
    assert megatron["actor"]["optim"]["lr_decay_style"] == "constant"


def test_a_maximal_gradient_norm_of_zero_means_no_clipping(tmp_path: Path) -> None:
    settings = verl_settings(make_run(optimizer={"max_grad_norm": 0}), tmp_path, dev=0)
    assert settings["actor_rollout_ref"]["actor"]["optim"]["clip_grad"] > 1e6


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"loss": {"kind": "grpo"}}, "only cispo"),
        ({"rollouts": {"baseline": "leave_one_out"}}, "only mean"),
        ({"rollouts": {"keep_negative": 0.5}}, "keep_negative"),
        ({"rewards": {"gamma": 0.9}}, "rewards.gamma"),
        ({"rewards": {"judge": 0.5}, "judge": {"model": "m", "max_calls": 9}}, "by gold alone"),
        ({"async_rollouts": {}}, "trainer_mode"),
        ({"rollouts": {"groups": 9}}, "must divide"),
        ({"optimizer": {"schedule": "linear"}}, 'to "constant" or "cosine"'),
        ({"loss": {"mask_above": 1.0}}, "mask_above"),
        ({"model": {"revision": "main"}}, "model.revision"),
        ({"model": {"adapter": "runs/x/final", "lora": None}}, r"model.adapter without \[model.lora\]"),
        ({"model": {"lora": {"first_layer": 3}}}, "first_layer"),
        ({"model": {"lora": {"alpha": 0.5}}}, "model.lora.alpha"),
    ],
)
def test_what_verl_cannot_do_alike_is_refused(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        verl_settings(make_run(**changes), tmp_path, dev=0)


def test_a_configuration_that_contradicts_the_run_is_reported() -> None:
    run = make_run()
    verl_config = nest_dotted(binding_verl_settings(run))
    assert disagreements(run, verl_config) == []
    verl_config["algorithm"]["norm_adv_by_std_in_grpo"] = True
    verl_config["actor_rollout_ref"]["rollout"]["n"] = 16
    del verl_config["trainer"]["use_v1"]
    assert disagreements(run, verl_config) == [
        "algorithm.norm_adv_by_std_in_grpo is True, and the run requires False",
        "actor_rollout_ref.rollout.n is 16, and the run requires 4",
        "trainer.use_v1 is None, and the run requires True",
    ]
    assert disagreements(run, {})
