"""The settings that both of TRL's trainers take."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from context_agent._support.processes import environment
from context_agent.errors import ConfigError, MissingExtraError
from context_agent.train.config import LoggingConfig, RunConfig, RunKind

try:
    import torch
    from transformers import TrainingArguments
except ImportError as error:
    raise MissingExtraError(error.name or "transformers", "train") from None

RANK_TIMEOUT = 4 * 3600
"""Seconds that ranks wait for each other. One rank may evaluate, or sample much longer than the others."""


_PROJECT_VARIABLES = ("MLFLOW_EXPERIMENT_NAME", "WANDB_PROJECT")
"""The environment variables from which transformers' integrations of trackers read the name of the project."""


def trainer_settings(config: RunConfig, kind: RunKind, trackers: Sequence[str]) -> dict[str, Any]:
    """Return the settings that both of TRL's trainers take. `trackers` are those that receive the metrics."""
    out, chosen = Path(config.out), config.optimizer
    return {
        "output_dir": str(out),
        "learning_rate": config.learning_rate(kind),
        "adam_beta1": chosen.betas[0],
        "adam_beta2": chosen.betas[1],
        "weight_decay": chosen.weight_decay,
        "max_grad_norm": chosen.max_grad_norm,
        "lr_scheduler_type": chosen.schedule,
        "warmup_steps": chosen.warmup,
        "seed": config.seed,
        "save_strategy": "steps",
        "save_steps": config.checkpoints.every,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "report_to": list(trackers),
        "run_name": config.logging.run or out.name,
        "project": config.logging.project,
        "use_cpu": not torch.cuda.is_available(),
        "bf16": config.model.dtype == "bfloat16",
        "fp16": config.model.dtype == "float16",
        "disable_tqdm": True,
        "ddp_timeout": RANK_TIMEOUT,
        **_checkpointing(config.model.gradient_checkpointing),
        **_local_trackio(),
    }


def installed_trackers(logging: LoggingConfig) -> tuple[str, ...]:
    """Return the trackers that the run names. If it names none, return trackio if it is installed.

    Raise `ConfigError` if a named tracker is not installed.
    """
    if logging.to is None:
        return ("trackio",) if _is_installed("trackio") else ()
    for name in logging.to:
        if not _is_installed(name):
            raise ConfigError(f"logging.to names {name}, which is not installed. Run `pip install {name}`.")
    return logging.to


def named_project(logging: LoggingConfig) -> AbstractContextManager[None]:
    """Tell the trackers of a run in the block the name of its project. A name that the user set in a variable stays."""
    return environment({name: logging.project for name in _PROJECT_VARIABLES if name not in os.environ})


def _is_installed(name: str) -> bool:
    """Return True if a package is installed. A folder of that name in the working directory does not count."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None


def _checkpointing(enabled: bool) -> dict[str, Any]:
    """Return the setting for activation checkpointing under the name that the installed transformers uses.

    Version 5.23 renamed the setting, and warns about the old name.
    """
    kind = (
        "activation"
        if "activation_checkpointing" in {field.name for field in fields(TrainingArguments)}
        else "gradient"
    )
    return {f"{kind}_checkpointing": enabled, f"{kind}_checkpointing_kwargs": {"use_reentrant": False}}


def _local_trackio() -> dict[str, Any]:
    """Return the settings that make trackio write to this machine only, also at the end of a run."""
    private = {"trackio_space_id": None, "trackio_static_space_id": False}
    names = {field.name for field in fields(TrainingArguments)}
    return {name: value for name, value in private.items() if name in names}
