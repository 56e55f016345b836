"""verl's settings for a run, checked against verl 0.9.1.

verl's V1 trainer computes advantages over episodes only for `grpo`. It takes the reward of an episode's last row and
gives the result to all rows. Registered estimators see rows without their episodes, and would count an edited episode
once for each row. `grpo` without its division therefore computes this project's advantage. `filter_groups` replaces
groups with equal rewards. `cispo` on the sampler's own log-probabilities (`bypass_mode`) computes this project's loss.
With the default cap, its ratios lie between 1 - 1 and 1 + 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from math import ceil, isclose
from pathlib import Path
from typing import Any

from context_agent._support.validation import is_number
from context_agent.errors import ConfigError
from context_agent.train.advantages import Baseline
from context_agent.train.config import Loss, RunConfig

AGENT = "context_agent"
"""Name of the agent loop in verl's table."""


TRAIN_FILE, DEV_FILE, LOOP_FILE, SETTINGS_FILE = "train.parquet", "dev.parquet", "agent_loop.yaml", "settings.yaml"


ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"


UNCLIPPED = 1e9
"""The gradient norm for a run without clipping. In verl, 0 would clip every gradient to zero."""


MEGATRON_LAYERS = {"q_proj": "linear_qkv", "k_proj": "linear_qkv", "v_proj": "linear_qkv", "o_proj": "linear_proj"}
"""Megatron's names of the layers that get adapters."""


EXPERTS = ("linear_fc1", "linear_fc2")
"""Megatron's names of the expert layers."""


class VerlTrainer(StrEnum):
    """verl's training backend. The two have different names for the schedule and for adapters."""

    FSDP = "fsdp"
    MEGATRON = "megatron"
    """Supports replay of expert routing."""


def refuse_unsupported(run: RunConfig) -> None:
    """Raise `ConfigError` if verl cannot carry out a setting of the run in the same way."""
    lora = run.model.lora
    lacking = [
        (run.loss.kind is not Loss.CISPO, f'loss.kind = "{run.loss.kind}" (only cispo is the same loss in both)'),
        (
            run.rollouts.baseline is not Baseline.MEAN,
            f'rollouts.baseline = "{run.rollouts.baseline}" (only mean is computed over episodes)',
        ),
        (run.rollouts.keep_negative != 1, "rollouts.keep_negative (verl trains on every episode of a group)"),
        (run.rollouts.demonstrations != 0, "rollouts.demonstrations (verl samples every episode of a group)"),
        (run.rewards.judge != 0, "rewards.judge (verl's loop rewards an episode by gold alone)"),
        (run.parl.on, "[parl] (verl's loop rewards the performance alone)"),
        (run.episodes.searchers is not None, "episodes.searchers (verl's loop has one model, which it trains)"),
        (
            run.async_rollouts is not None,
            "[async_rollouts] (verl's own switch is trainer.v1.trainer_mode)",
        ),
        (
            run.loss.router_replay,
            "loss.router_replay (verl's own switch is actor.megatron.router_replay.mode)",
        ),
        (run.loss.mask_above is not None, "loss.mask_above (verl trains on every row)"),
        (run.model.revision is not None, "model.revision (download that revision, and name its folder in model.name)"),
        (
            run.model.adapter is not None and lora is None,
            "model.adapter without [model.lora] (verl must be told the rank, alpha and layers of the adapters)",
        ),
        (
            lora is not None and lora.first_layer > 0,
            "model.lora.first_layer (verl gives adapters to all layers)",
        ),
        (
            lora is not None and not lora.alpha.is_integer(),
            "model.lora.alpha (verl takes whole numbers only)",
        ),
        (run.rewards.gamma != 1, "rewards.gamma (verl weighs all tokens of a row alike)"),
        (run.rollouts.groups % run.rollouts.substeps != 0, "rollouts.substeps (it must divide rollouts.groups)"),
        (run.model.tiny is not None, "[model.tiny] (save the model first, and name its folder in model.name)"),
    ]
    unsupported = [what for wrong, what in lacking if wrong]
    if unsupported:
        raise ConfigError("verl cannot run these settings, so remove or change them: " + "; ".join(unsupported))


def binding_verl_settings(run: RunConfig) -> dict[str, Any]:
    """Return the settings that determine what is learned, by verl's dotted names.

    `disagreements` compares them with verl's configuration.
    """
    return {
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": False,
        "algorithm.filter_groups.enable": True,
        "algorithm.filter_groups.metric": "reward",
        "algorithm.rollout_correction.bypass_mode": True,
        "algorithm.use_kl_in_reward": False,
        f"{ACTOR}.policy_loss.loss_mode": "cispo",
        f"{ACTOR}.clip_ratio_low": 1.0,
        f"{ACTOR}.clip_ratio_high": run.loss.cap - 1,
        f"{ACTOR}.loss_agg_mode": "token-mean",
        f"{ACTOR}.entropy_coeff": 0.0,
        f"{ACTOR}.use_kl_loss": run.loss.kl > 0,
        f"{ACTOR}.kl_loss_coef": run.loss.kl,
        f"{ACTOR}.ppo_epochs": 1,
        f"{ROLLOUT}.n": run.rollouts.rollouts,
        f"{ROLLOUT}.temperature": run.engine.temperature,
        f"{ROLLOUT}.top_p": 1.0,
        f"{ROLLOUT}.top_k": -1,
        f"{ROLLOUT}.calculate_log_probs": True,
        "trainer.use_v1": True,
    }


def verl_settings(run: RunConfig, folder: Path, *, dev: int, trainer: VerlTrainer = VerlTrainer.FSDP) -> dict[str, Any]:
    """Return all of verl's settings for a run, nested like its configuration.

    The number of machines, the sharding of weights and the servers are not part of a run. configs/verl/ has files for
    them.

    Args:
        run: The run.
        folder: The folder of `prepare`.
        dev: Number of dev questions.
        trainer: verl's training backend.

    Returns:
        The settings.

    Raises:
        ConfigError: If verl cannot carry out the run.
    """
    refuse_unsupported(run)
    learned = binding_verl_settings(run) | _sizes(run) | _optimizer(run, trainer) | _model(run, trainer)
    return nest_dotted(learned | _schedule(run, dev) | _files(folder, dev))


def disagreements(run: RunConfig, config: Mapping[str, Any]) -> list[str]:
    """Return the differences between verl's configuration and the run in settings that determine what is learned."""
    differences = []
    for key, expected in binding_verl_settings(run).items():
        actual = _lookup(config, key)
        same = isclose(actual, expected) if is_number(actual) and is_number(expected) else actual == expected
        if not same:
            differences.append(f"{key} is {actual!r}, and the run requires {expected!r}")
    return differences


def nest_dotted(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by dotted key as nested tables."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *tables, last = key.split(".")
        position = nested
        for table in tables:
            position = position.setdefault(table, {})
        position[last] = value
    return nested


def _sizes(run: RunConfig) -> dict[str, Any]:
    window = run.episodes.window
    return {
        "data.train_batch_size": run.rollouts.groups,
        f"{ACTOR}.ppo_mini_batch_size": run.rollouts.groups // run.rollouts.substeps,
        # A row's prompt and response together fit in a window. The edits decide how long each is.
        "data.max_prompt_length": window,
        "data.max_response_length": window,
        f"{ROLLOUT}.max_model_len": window,
        f"{ACTOR}.use_dynamic_bsz": True,
        f"{ACTOR}.ppo_max_token_len_per_gpu": max(window, run.loss.pass_tokens),
    }


def _optimizer(run: RunConfig, trainer: VerlTrainer) -> dict[str, Any]:
    chosen = run.optimizer
    if chosen.schedule == "linear":
        raise ConfigError('verl has no schedule "linear". Set optimizer.schedule to "constant" or "cosine".')
    schedule = "lr_scheduler_type" if trainer is VerlTrainer.FSDP else "lr_decay_style"
    return {
        f"{ACTOR}.optim.lr": run.learning_rate("rl"),
        f"{ACTOR}.optim.betas": list(chosen.betas),
        f"{ACTOR}.optim.weight_decay": chosen.weight_decay,
        f"{ACTOR}.optim.clip_grad": chosen.max_grad_norm or UNCLIPPED,
        f"{ACTOR}.optim.lr_warmup_steps": ceil(chosen.warmup / run.rollouts.substeps),
        f"{ACTOR}.optim.{schedule}": "cosine" if chosen.schedule == "cosine" else "constant",
    }


def _model(run: RunConfig, trainer: VerlTrainer) -> dict[str, Any]:
    chosen, at = run.model, "actor_rollout_ref.model"
    settings: dict[str, Any] = {
        f"{at}.path": chosen.name,
        f"{at}.enable_gradient_checkpointing": chosen.gradient_checkpointing,
    }
    if chosen.lora is None:
        return settings
    if trainer is VerlTrainer.MEGATRON:
        layers = [MEGATRON_LAYERS.get(module, module) for module in chosen.lora.modules]
        layers += EXPERTS if chosen.lora.parameters else ()
        return settings | {
            f"{at}.lora.rank": chosen.lora.rank,
            f"{at}.lora.alpha": int(chosen.lora.alpha),
            f"{at}.lora.target_modules": list(dict.fromkeys(layers)),
            f"{at}.lora.adapter_path": chosen.adapter,
        }
    return settings | {
        f"{at}.lora_rank": chosen.lora.rank,
        f"{at}.lora_alpha": int(chosen.lora.alpha),
        f"{at}.target_modules": list(chosen.lora.modules),
        f"{at}.target_parameters": list(chosen.lora.parameters) or None,
        f"{at}.lora_adapter_path": chosen.adapter,
    }


def _schedule(run: RunConfig, dev: int) -> dict[str, Any]:
    """Return the settings of steps, evaluation and checkpoints.

    verl counts steps. In some places, the run file counts updates.
    """
    every = run.evaluation.every if dev else 0
    return {
        "trainer.total_training_steps": run.rollouts.steps,
        "trainer.total_epochs": 1,
        "trainer.test_freq": every or -1,
        "trainer.val_before_train": bool(every),
        "trainer.save_freq": ceil(run.checkpoints.every / run.rollouts.substeps),
        "trainer.max_actor_ckpt_to_keep": run.checkpoints.keep,
        "trainer.project_name": run.logging.project,
        "trainer.experiment_name": run.logging.run or Path(run.out).name,
        "trainer.logger": ["console", *(run.logging.to or ())],
        "trainer.v1.sampler.max_off_policy_threshold": run.loss.staleness // run.rollouts.substeps + 1,
        "trainer.v1.sampler.sync_refill_failed_groups": True,
        f"{ROLLOUT}.val_kwargs.temperature": min(run.evaluation.temperatures, default=0.0),
        f"{ROLLOUT}.agent.default_agent_loop": AGENT,
    }


def _files(folder: Path, dev: int) -> dict[str, Any]:
    path = folder.resolve()
    return {
        "data.train_files": [str(path / TRAIN_FILE)],
        # verl requires a file for evaluation even if it never evaluates.
        "data.val_files": [str(path / (DEV_FILE if dev else TRAIN_FILE))],
        "data.val_max_samples": dev or 1,
        # The file is in the order of the curriculum.
        "data.shuffle": False,
        "data.filter_overlong_prompts": False,
        f"{ROLLOUT}.agent.agent_loop_config_path": str(path / LOOP_FILE),
        "trainer.default_local_dir": str(path / "checkpoints"),
        "trainer.rollout_data_dir": None,
    }


def _lookup(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = config.get(part) if hasattr(config, "get") else None
    return config
