"""The export of trained models, as whole weights or adapters, to folders that other programs can load."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from context_agent._support.atomic_files import replacing_folder
from context_agent.errors import ConfigError, DataError, MissingExtraError, reason_of
from context_agent.policies.tokens.model_files import ADAPTER_CONFIG, LOADING_ERRORS, check_adapter, check_model
from context_agent.policies.tokens.packaged import import_libraries, model_folder, with_adapter
from context_agent.policies.tokens.trained import EVALUATION_FILE, TrainedModel, trained_model

NOT_EXPORTED = ("training_args.bin", "README.md", EVALUATION_FILE)
"""Files of a trained model that only training uses."""


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """A model that was written to a folder.

    Attributes:
        folder: The new folder.
        source: The folder of the trained model.
        base: The base model that the adapters need. Empty for whole weights.
        bytes: Total size of the files, in bytes.
        has_chat_template: True if the folder contains a chat template.
    """

    folder: Path
    source: Path
    base: str
    bytes: int
    has_chat_template: bool


def merge(source: str | Path, out: str | Path, *, dtype: str | None = None) -> ExportedModel:
    """Merge trained adapters into the weights of their base model.

    Args:
        source: The folder of a run, or of one of its models.
        out: The new folder. It must not exist, or must be empty.
        dtype: Type of the merged weights, such as `bfloat16`. Defaults to the type of the base model.

    Returns:
        The model that was written.

    Raises:
        ConfigError: If the source has no adapters, or the base model cannot be loaded.
        DataError: If the folder cannot be written.
        MissingExtraError: If torch, transformers or peft is missing.
    """
    found = trained_model(source)
    if not found.is_adapter:
        raise ConfigError(f"{found.folder} has whole weights, so there is nothing to merge. Use `ctx1 train export`.")
    torch, transformers = import_libraries()
    folder = model_folder(found.about.base)
    # Adapters name their base model. It is loaded from this machine only and never downloaded.
    named = {"revision": found.about.revision, "trust_remote_code": False, "local_files_only": True}
    settings: dict[str, Any] = {"dtype": getattr(torch, dtype) if dtype else "auto", "use_safetensors": True}
    try:
        check_model(folder)
        config = transformers.AutoConfig.from_pretrained(folder, **named)
        if (getattr(config, "quantization_config", None) or {}).get("quant_method") == "mxfp4":
            # Adapters cannot be merged into packed four-bit weights.
            settings["quantization_config"] = transformers.Mxfp4Config(dequantize=True)
        weights = transformers.AutoModelForCausalLM.from_pretrained(folder, **named, **settings)
    except LOADING_ERRORS as error:
        raise ConfigError(
            f"cannot load the base model {folder!r} ({reason_of(error)}). If it is on the hub, run `hf download "
            f"{folder}` first."
        ) from error
    merged = with_adapter(weights, found.folder)

    def write(target: Path) -> None:
        merged.save_pretrained(target)
        _tokenizer(found).save_pretrained(target)
        replace(found.about, base="", revision=None).save(target)

    return _written(found, Path(out), write, base="")


def export(source: str | Path, out: str | Path) -> ExportedModel:
    """Copy a trained model, adapters or whole weights, in the form that vLLM and transformers load.

    Args:
        source: The folder of a run, or of one of its models.
        out: The new folder. It must not exist, or must be empty.

    Returns:
        The model that was written.

    Raises:
        ConfigError: If the source has no trained model.
        DataError: If the folder cannot be written.
        MissingExtraError: If transformers is missing.
    """
    found = trained_model(source)

    def write(target: Path) -> None:
        for path in sorted(found.folder.iterdir()):
            if path.is_file() and path.name not in NOT_EXPORTED:
                shutil.copyfile(path, target / path.name)
        _tokenizer(found).save_pretrained(target)
        found.about.save(target)
        if found.is_adapter:
            _name_base(target / ADAPTER_CONFIG, found.about.base)

    return _written(found, Path(out), write, base=found.about.base if found.is_adapter else "")


def _name_base(path: Path, base: str) -> None:
    """Write the folder or hub name of the base model into the adapters' configuration, where servers look for it."""
    config = {**check_adapter(path.parent), "base_model_name_or_path": model_folder(base), "inference_mode": True}
    path.write_text(json.dumps(config, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _tokenizer(found: TrainedModel) -> Any:
    """Load the tokenizer that was saved with the model."""
    _, transformers = import_libraries()
    try:
        return transformers.AutoTokenizer.from_pretrained(found.folder, trust_remote_code=False)
    except LOADING_ERRORS as error:
        raise ConfigError(
            f"{found.folder} has no tokenizer ({reason_of(error)}). Copy the tokenizer of its base model into the "
            "folder."
        ) from error


def _written(found: TrainedModel, out: Path, write: Callable[[Path], None], *, base: str) -> ExportedModel:
    """Write the folder completely. If that fails, leave no files behind."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and is not empty. Name another folder with --out.")
    try:
        with replacing_folder(out) as partial:
            write(partial)
    except (ConfigError, MissingExtraError):
        raise
    # If the disk is full, safetensors raises an error of its own.
    except Exception as error:
        raise DataError(
            f"{out} could not be written ({reason_of(error)}). Check the disk, or name another folder with --out."
        ) from error
    size = sum(path.stat().st_size for path in out.iterdir())
    return ExportedModel(out, found.folder, base, size, (out / "chat_template.jinja").is_file())
