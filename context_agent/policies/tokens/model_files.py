"""Checks of folders with a model or a LoRA adapter, before transformers and PEFT read them.

Such a folder may come from someone else. Its settings can name code, kernels or another model to fetch, patterns that
never end, and sizes that no machine has. Its weights can be a pickle. A folder passes only if its weights are numbers
in safetensors and its settings describe these numbers.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from context_agent._support.small_files import parse_json, read_json, require_files
from context_agent.errors import ConfigError, DataError, reason_of

MODEL_CONFIG, TOKENIZER_CONFIG, TOKENIZER = "config.json", "tokenizer_config.json", "tokenizer.json"
ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
MAX_SETTINGS_BYTES = 16_000_000
"""The largest file of settings. That of a tokenizer with its added tokens is the largest of all."""
MAX_HEADER_BYTES = 100_000_000
"""The largest header of a safetensors file, as in the library."""
MAX_RANK = 4_096
MAX_LISTED = 10_000
"""Maximum number of names in a list of an adapter's settings."""
LOADING_ERRORS = (OSError, ValueError, RuntimeError, KeyError, TypeError, ImportError, SafetensorError)
"""Exceptions of transformers and PEFT for a folder that they cannot load."""
_PARAMETERS_PER_BYTE = 8
"""Maximum number of parameters that a byte of weights holds."""
_HUB_NAME = re.compile(r"\w[\w.-]{0,95}+(?:/\w[\w.-]{0,95}+)?", re.ASCII)
_PLAIN_NAME = re.compile(r"[\w.-]{1,200}")
_SHAPE_KEYS = (
    ("num_hidden_layers", "n_layer", "num_layers"),
    ("hidden_size", "n_embd", "d_model"),
    ("vocab_size", "intermediate_size", "moe_intermediate_size", "n_inner"),
)
"""Names of settings: the number of a model's layers, the width of each, and the other sides of its matrices."""
_CODE_KEYS = ("auto_map", "custom_pipelines", "trust_remote_code")
_ATTENTION_KEYS = ("attn_implementation", "_attn_implementation", "experts_implementation")
_ADAPTER_NAMES = ("target_modules", "target_parameters", "exclude_modules", "modules_to_save", "layers_pattern")
"""Settings that PEFT reads as patterns if they are texts, or joins into patterns."""
_ADAPTER_SETTINGS = frozenset(
    "alpha_pattern base_model_name_or_path bias ensure_weight_tying fan_in_fan_out inference_mode init_lora_weights "
    "layers_to_transform lora_alpha lora_bias lora_dropout peft_type peft_version r rank_pattern revision task_type "
    "use_dora use_rslora".split()
) | frozenset(_ADAPTER_NAMES)
"""Settings of an adapter that may have a value.

Others, such as `megatron_config`, name code, or copy layers.
"""
_INITIALISATIONS = (True, False, None, "gaussian", "orthogonal")


def check_model(name: str | Path) -> None:
    """Raise `ConfigError` if the folder of a model holds more than settings and weights, or if there is no such folder.

    A name that a model on the Hugging Face hub may have passes.
    """
    folder = Path(name)
    if folder.is_file():
        raise ConfigError(f"{name} is a file. Name the folder of a model, which has {MODEL_CONFIG} and a tokenizer.")
    if not folder.is_dir():
        if _HUB_NAME.fullmatch(str(name)) is None:
            raise ConfigError(
                f"{name} does not exist. Name the folder of a model, which has {MODEL_CONFIG} and a tokenizer, or a "
                "model on the Hugging Face hub, such as openai/gpt-oss-20b."
            )
        return
    _require_files(folder)
    if not any((folder / file).exists() for file in (MODEL_CONFIG, ADAPTER_CONFIG, TOKENIZER_CONFIG, TOKENIZER)):
        raise ConfigError(
            f"{folder} has no model, because {MODEL_CONFIG} and the tokenizer are missing. Name a folder with both. "
            "For the folder of a training run, this is its folder final."
        )
    if (folder / ADAPTER_CONFIG).exists():
        raise ConfigError(
            f"{folder} has a LoRA adapter, not a whole model. Pass the base model as the model, and this folder as "
            "its adapter."
        )
    settings = _settings(folder / MODEL_CONFIG)
    tokenizer = _settings(folder / TOKENIZER_CONFIG)
    for part in (settings, settings.get("text_config"), tokenizer):
        if isinstance(part, Mapping):
            _check_code(folder, part)
    weights = sorted(folder.glob("*.safetensors"))
    if weights:
        _check_size(folder, settings, weights)


@contextmanager
def without_renaming_warning() -> Iterator[None]:
    """Hide the warning that PEFT reads a property of transformers by its old name. A user cannot act on it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)
        yield


def check_adapter(folder: str | Path) -> Mapping[str, Any]:
    """Return the settings of a LoRA adapter.

    Raises:
        ConfigError: If the folder has no adapter in safetensors, or its settings name code, patterns or sizes that
            are not a trained adapter's.
    """
    path = Path(folder)
    _require_files(path)
    try:
        settings = read_json(path / ADAPTER_CONFIG)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} has no LoRA adapter ({reason_of(error)}). Name a folder with {ADAPTER_CONFIG}."
        ) from error
    if not isinstance(settings, dict) or settings.get("peft_type") != "LORA":
        raise ConfigError(
            f"{path} has no LoRA adapter, because {ADAPTER_CONFIG} does not set peft_type to LORA. Name another folder."
        )
    if not (path / ADAPTER_WEIGHTS).is_file():
        raise ConfigError(
            f"{path} has no LoRA adapter in {ADAPTER_WEIGHTS}, and pickled weights are not read. Save the adapter "
            "with PEFT."
        )
    if problem := _adapter_problem(settings):
        raise ConfigError(
            f"{path / ADAPTER_CONFIG} cannot be used, because {problem}. Save the adapter with PEFT's defaults."
        )
    return settings


def _adapter_problem(settings: Mapping[str, Any]) -> str:
    """Return the reason why the settings are not those of a plain adapter. If they are, return an empty text."""
    for key, value in settings.items():
        if value and key not in _ADAPTER_SETTINGS and not _harmless(key, value):
            return f"{ascii(key)[:60]} is not a setting of a plain adapter"
    for key in _ADAPTER_NAMES:
        if not _are_names(settings.get(key) or []):
            return f"{key} is not a list of names"
    for key in ("rank_pattern", "alpha_pattern"):
        if not (
            isinstance(named := settings.get(key) or {}, dict) and _are_names(named) and _are_sizes(named.values())
        ):
            return f"{key} is not a table of small numbers by name"
    layers = settings.get("layers_to_transform") or []
    if not ((isinstance(layers, list) and all(type(layer) is int for layer in layers)) or type(layers) is int):
        return "layers_to_transform is not a list of numbers"
    if settings.get("init_lora_weights", True) not in _INITIALISATIONS:
        return "init_lora_weights reads more than the adapter"
    return "" if _are_sizes([settings.get("r", 8)]) else f"r is not a whole number from 1 to {MAX_RANK:,}"


def _harmless(key: str, value: object) -> bool:
    """Return True if PEFT writes this setting, with this default, for every adapter."""
    match key, value:
        case "auto_mapping", {"parent_library": str(library)}:
            return library.startswith("transformers.")
        case "runtime_config", {"ephemeral_gpu_offload": False}:
            return True
    return (key, value) in (("megatron_core", "megatron.core"), ("qalora_group_size", 16))


def _are_names(values: object) -> bool:
    return (
        isinstance(values, list | dict)
        and len(values) <= MAX_LISTED
        and all(isinstance(name, str) and _PLAIN_NAME.fullmatch(name) for name in values)
    )


def _are_sizes(values: Iterable[object]) -> bool:
    return all(type(value) in (int, float) and 0 < value <= MAX_RANK for value in values)  # type: ignore[operator]


def _check_code(folder: Path, settings: Mapping[str, Any]) -> None:
    """Refuse settings that name code of the folder, or a kernel of the Hugging Face hub."""
    for key in _CODE_KEYS:
        if settings.get(key):
            raise ConfigError(f"{folder} needs custom code ({key}), which this package never runs. Name another model.")
    for key in _ATTENTION_KEYS:
        if "/" in json.dumps(settings.get(key)):
            raise ConfigError(f"{folder} names a kernel to download ({key}). Remove it from {MODEL_CONFIG}.")


def _check_size(folder: Path, settings: Mapping[str, Any], weights: Iterable[Path]) -> None:
    """Refuse settings that describe a larger model than the weights.

    The weights that are missing would be allocated and filled at random.
    """
    tensors = sum(len(_header(file)) for file in weights)
    most = _PARAMETERS_PER_BYTE * sum(file.stat().st_size for file in weights)
    text = settings.get("text_config")
    shape = {**settings, **text} if isinstance(text, Mapping) else settings
    numbers = {key: value for key, value in shape.items() if isinstance(value, int | float) and "token_id" not in key}
    layers, width, height = (max(numbers.get(key, 0) for key in keys) for keys in _SHAPE_KEYS)
    if layers > tensors or width * height > most or not all(-(2**63) < value < 2**63 for value in numbers.values()):
        raise ConfigError(f"{folder / MODEL_CONFIG} describes a larger model than the weights. Name another model.")


def _header(file: Path) -> Mapping[str, Any]:
    """Return the header of a safetensors file. If the header does not fit the file, raise `ConfigError`."""
    try:
        with file.open("rb") as stream:
            size = int.from_bytes(stream.read(8), "little")
            header = parse_json(stream.read(size)) if size <= min(MAX_HEADER_BYTES, file.stat().st_size) else None
    except (OSError, ValueError) as error:
        raise ConfigError(f"the weights {file} cannot be read ({reason_of(error)}). Copy them again.") from error
    if not isinstance(header, dict):
        raise ConfigError(f"the weights {file} have a damaged header. Copy them again.")
    return header


def _settings(file: Path) -> Mapping[str, Any]:
    """Return the settings in a file. A missing file has none."""
    try:
        value = read_json(file, MAX_SETTINGS_BYTES)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read ({reason_of(error)}). Copy the model again.") from error
    return value if isinstance(value, dict) else {}


def _require_files(folder: Path) -> None:
    """Refuse pipes and sparse files. Links are allowed, because a folder of the Hugging Face cache has them."""
    try:
        require_files(folder.glob("*"))
    except DataError as error:
        raise ConfigError(str(error)) from error
