"""Where a run starts: from the base model of its run file, or from what an earlier run trained. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from context_agent._support.small_files import read_json
from context_agent.errors import ConfigError
from context_agent.policies.tokens.trained import BEST, FINAL, TrainedModel, trained_model
from context_agent.train.config import RunConfig

RUN_FILE = "run.json"
"""The file in a run's folder with its kind and settings."""
BASE_MODEL = "base"
"""As the start of a run: the model that the run file names."""


def started_from(run: RunConfig, source: str | Path) -> RunConfig:
    """Return the run with the model that an earlier run trained as its start.

    Adapters become `model.adapter`, a whole model becomes `model.name`.

    Args:
        run: The run. It is not changed.
        source: The folder of an earlier run, or of one of its models. Of a run, the model with the best evaluation is
            taken, and the last one if there was no evaluation.

    Returns:
        The changed run.

    Raises:
        ConfigError: If the folder holds no trained model, or adapters of another model than the run's, or the prompts
            of the two runs are spelled differently.
    """
    found = trained_model(source)
    if found.about.renderer != run.model.renderer.value:
        raise ConfigError(
            f"{found.folder} was trained with model.renderer = {found.about.renderer!r}, this run has "
            f"{run.model.renderer.value!r}: use the same"
        )
    if not found.is_adapter:
        return replace(run, model=replace(run.model, name=str(found.folder), revision=None, tiny=None, adapter=None))
    if base_name(run.model.name) != found.about.base:
        raise ConfigError(
            f"the adapters in {found.folder} were trained on {found.about.base!r}, and this run has model.name = "
            f"{run.model.name!r}: use the same"
        )
    return replace(run, model=replace(run.model, adapter=str(found.folder)))


def base_name(name: str) -> str:
    """Return the name by which adapters know their base model: a whole path for a folder."""
    return str(Path(name).resolve()) if name and Path(name).is_dir() else name


def check_start(run: RunConfig) -> None:
    """Refuse rewards that would start from the base model although lessons were trained on it.

    Raises:
        ConfigError: If a folder next to the run's holds finished lessons of the same base model. The message says how
            to start from them.
    """
    if run.model.adapter is not None:
        return
    lessons = [found for found in _lessons_beside(Path(run.out)) if _same_base(found, run)]
    if lessons:
        folder = lessons[-1].folder.parent
        raise ConfigError(
            f"{folder} holds lessons on the same model, and this run would start without them: add --from {folder}, or "
            f"--from {BASE_MODEL} to leave them out"
        )


def run_settings(folder: Path) -> dict[str, Any] | None:
    """Return what `run.json` of a run's folder holds; None if there is none that can be read."""
    try:
        return dict(read_json(folder / RUN_FILE))
    except (OSError, ValueError, TypeError):
        return None


def _lessons_beside(out: Path) -> Iterator[TrainedModel]:
    """Yield the finished lessons in the folder that holds the run's own, the oldest first."""
    folders = [path.parent for path in out.parent.glob(f"*/{RUN_FILE}")]
    for folder in sorted(folders, key=lambda path: (path / RUN_FILE).stat().st_mtime):
        about = run_settings(folder)
        trained = (folder / FINAL).is_dir() or (folder / BEST).is_dir()
        if about is not None and about.get("kind") == "sft" and trained and folder.resolve() != out.resolve():
            yield trained_model(folder)


def _same_base(found: TrainedModel, run: RunConfig) -> bool:
    """Return whether the lessons began with the model of this run."""
    before = run_settings(found.folder.parent) or {}
    model: Mapping[str, Any] = before.get("model") or {}
    now = run.plain()["model"]
    return (model.get("name"), model.get("tiny")) == (now["name"], now["tiny"])
