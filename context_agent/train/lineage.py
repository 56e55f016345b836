"""The model that a run starts from: the base model of its run file, or the result of an earlier run.

This module does not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from context_agent._support.small_files import read_json
from context_agent.errors import ConfigError
from context_agent.policies.tokens.packaged import packaged_policy
from context_agent.policies.tokens.trained import BEST, FINAL, TrainedModel, trained_model
from context_agent.train.config import RunConfig

RUN_FILE = "run.json"
"""The file in a run's folder that records its kind and settings."""
BASE_MODEL = "base"
"""The value of `--from` that starts a run from the model in the run file."""


def started_from(run: RunConfig, source: str | Path) -> RunConfig:
    """Return the run with the model of an earlier run as its start.

    Adapters become `model.adapter`. A whole model becomes `model.name`.

    Args:
        run: The run. It is not changed.
        source: The folder of an earlier run, or of one of its models. If it is a run, the model with the best
            evaluation is used. If there was no evaluation, the last model is used. `smollm2` means the adapter that
            ships for this model.

    Returns:
        The changed run.

    Raises:
        ConfigError: If the folder has no trained model, its adapters belong to another base model, or it was trained
            with another renderer.
    """
    found = packaged_policy(str(source)) or trained_model(source)
    if found.about.renderer != run.model.renderer.value:
        raise ConfigError(
            f"{found.folder} was trained with model.renderer = {found.about.renderer!r}, but this run has "
            f"{run.model.renderer.value!r}. Use the same renderer."
        )
    if not found.is_adapter:
        return replace(run, model=replace(run.model, name=str(found.folder), revision=None, tiny=None, adapter=None))
    if base_model_name(run.model.name) != found.about.base:
        raise ConfigError(
            f"the adapters in {found.folder} were trained on {found.about.base!r}, but this run has model.name = "
            f"{run.model.name!r}. Set model.name = {found.about.base!r}, or use adapters of this run's model."
        )
    return replace(run, model=replace(run.model, adapter=str(found.folder)))


def base_model_name(name: str) -> str:
    """Return the name of the base model as adapters record it. For a folder, it is the absolute path."""
    return str(Path(name).resolve()) if name and Path(name).is_dir() else name


def tokenizer_names(name: str) -> list[str]:
    """Return the names under which the tokenizer of a model is known.

    A model with whole weights has the tokenizer of the model that its training began with, and so on.

    Args:
        name: The name or the folder of the model.

    Returns:
        The names of the models, in the form of `base_model_name`. The model's own name comes first.
    """
    names: list[str] = []
    while name and (name := base_model_name(name)) not in names:
        names.append(name)
        with suppress(ConfigError):  # a name on the hub, or a tokenizer without a model
            name = trained_model(name).about.base
    return names


def check_start(run: RunConfig) -> None:
    """Raise `ConfigError` if reinforcement learning would ignore supervised training of the same model.

    Args:
        run: The run that is about to start.

    Raises:
        ConfigError: If the parent of the run's folder also contains a finished supervised run of the same base model.
            The message says how to start from that run.
    """
    if run.model.adapter is not None:
        return
    lessons = [found for found in _lessons_beside(Path(run.out)) if _same_base(found, run)]
    if lessons:
        folder = lessons[-1].folder.parent
        raise ConfigError(
            f"{folder} has lessons on the same model, but this run would start without them. Add --from {folder}, or "
            f"--from {BASE_MODEL} to leave them out."
        )


def run_settings(folder: Path) -> dict[str, Any] | None:
    """Return the contents of `run.json` in a run's folder. If it cannot be read, return None."""
    try:
        return dict(read_json(folder / RUN_FILE))
    except (OSError, ValueError, TypeError):
        return None


def _lessons_beside(out: Path) -> Iterator[TrainedModel]:
    """Yield the finished supervised runs that share the parent folder of `out`, oldest first."""
    folders = [path.parent for path in out.parent.glob(f"*/{RUN_FILE}")]
    for folder in sorted(folders, key=lambda path: (path / RUN_FILE).stat().st_mtime):
        about = run_settings(folder)
        trained = (folder / FINAL).is_dir() or (folder / BEST).is_dir()
        if about is not None and about.get("kind") == "sft" and trained and folder.resolve() != out.resolve():
            with suppress(ConfigError):  # a folder without weights, which nothing can start from
                yield trained_model(folder)


def _same_base(found: TrainedModel, run: RunConfig) -> bool:
    """Return True if the earlier run began with the same model as this run."""
    before, now = (run_settings(found.folder.parent) or {}).get("model"), run.plain()["model"]
    return isinstance(before, dict) and all(before.get(key) == now[key] for key in ("name", "tiny"))
