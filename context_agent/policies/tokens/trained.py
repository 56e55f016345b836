"""Trained models in folders. A folder is the output of a training run, a copy of it, or any model of transformers.

A run's folder has the last model in `final/` and, after evaluations, the best one in `best/`. Each model has its
weights, the tokenizer and `policy.json`. The weights are whole or LoRA adapters. `policy.json` says how to prompt the
model, and in which harness it was trained.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, NonNegativeInt, TypeAdapter, ValidationError, with_config

from context_agent._support.small_files import read_json
from context_agent._support.validation import explain, validate_plain
from context_agent.errors import ConfigError, reason_of
from context_agent.harness.profile import Profile, named_profile
from context_agent.policies.tokens.model_files import ADAPTER_CONFIG, MODEL_CONFIG

POLICY_FILE = "policy.json"
EVALUATION_FILE = "evaluation.json"
"""The evaluation of a run's best model: `update`, `metric` and `value`."""
FINAL, BEST = "final", "best"
"""The folders of a run's last model, and of the model with the best evaluation."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True)
class PolicyDescription:
    """The prompt format of a trained model, and the harness in which it was trained.

    Attributes:
        base: The name or folder of the model with which training began. It is empty if there was none.
        revision: The revision of that model on the hub.
        renderer: The format of prompts: `harmony`, `template`, `lines` or `words`.
        reasoning_effort: The reasoning effort, in the harmony format.
        parallel: True if a reply may have several calls, in the harmony format.
        profile: The name of the harness profile.
        window: The tokens of the context window. If it is 0, the profile's own window applies.
        max_tokens: Maximum number of tokens of one reply. If it is 0, the policy's own limit applies.
        shown: The hits that a search shows. If it is 0, the profile's own number applies.
        per_call: The tokens that a call may show in `window`. If it is 0, the profile's own share applies.
    """

    base: str = ""
    revision: str | None = None
    renderer: Literal["harmony", "template", "lines", "words"] = "template"
    reasoning_effort: Literal["low", "medium", "high"] = "high"
    parallel: bool = False
    profile: str = "default"
    window: NonNegativeInt = 0
    max_tokens: NonNegativeInt = 0
    shown: NonNegativeInt = 0
    per_call: NonNegativeInt = 0

    @property
    def harness(self) -> Profile:
        """The profile with the hits and the results' share of the window that the model was trained with."""
        profile = named_profile(self.profile)
        if self.shown:
            profile = replace(profile, search_limit=self.shown)
        if self.per_call:
            # A window times the share is rounded down, so half a token more gives `per_call` again.
            profile = replace(profile, result_share=(self.per_call + 0.5) / (self.window or profile.window))
        return profile

    def save(self, folder: Path) -> None:
        """Write the description into the folder of the weights."""
        (folder / POLICY_FILE).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


_DESCRIPTION = TypeAdapter(PolicyDescription)


@dataclass(frozen=True, slots=True)
class TrainedModel:
    """A folder with weights. If `is_adapter` is true, they are LoRA adapters for the model `about.base`."""

    folder: Path
    is_adapter: bool
    about: PolicyDescription


def trained_model(folder: str | Path) -> TrainedModel:
    """Find the model in a folder and read its description, without its weights.

    Args:
        folder: A training run, one of its models, a copy of one, or any model of transformers. Of a run, the model with
            the best evaluation is taken. If the run had no evaluation, the last model is taken.

    Returns:
        The model's folder and description.

    Raises:
        ConfigError: If there is no model in the folder, or its description cannot be read.
    """
    folder = Path(folder)
    found = next((path for path in (folder, folder / BEST, folder / FINAL) if _has_model(path)), None)
    if found is None:
        raise ConfigError(
            f"{folder} has no model. Name the folder of a finished `ctx1 train` run, or one with {MODEL_CONFIG} or "
            f"{ADAPTER_CONFIG}."
        )
    is_adapter = (found / ADAPTER_CONFIG).is_file()
    return TrainedModel(found, is_adapter, _described(found, is_adapter=is_adapter))


def _has_model(folder: Path) -> bool:
    return (folder / ADAPTER_CONFIG).is_file() or (folder / MODEL_CONFIG).is_file()


def _described(folder: Path, *, is_adapter: bool) -> PolicyDescription:
    """Read `policy.json`. If there is none, describe the model by its own configuration."""
    if (folder / POLICY_FILE).is_file():
        try:
            return validate_plain(_DESCRIPTION, _read(folder / POLICY_FILE))
        except ValidationError as error:
            raise ConfigError(
                f"{folder / POLICY_FILE} does not describe a policy ({explain(error)}). Name another folder."
            ) from None
    if is_adapter:
        base = str(_read(folder / ADAPTER_CONFIG).get("base_model_name_or_path") or "")
        # A local base says how to prompt it. One on the hub is assumed to use its chat template.
        local = Path(base)
        renderer = _described(local, is_adapter=False).renderer if base and _has_model(local) else "template"
        return PolicyDescription(base=base, renderer=renderer)
    harmony = _read(folder / MODEL_CONFIG).get("model_type") == "gpt_oss"
    return PolicyDescription(renderer="harmony" if harmony else "template")


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(read_json(path))
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"cannot read {path} ({reason_of(error)}). Restore the file, or name another folder."
        ) from error
