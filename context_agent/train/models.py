"""The model of a run with its tokenizer and renderer, and how to load them."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from context_agent._support.suggest import suggestion
from context_agent.errors import ConfigError, MissingExtraError, reason_of
from context_agent.policies.tokens.harmony import harmony_renderer
from context_agent.policies.tokens.lines import LinesRenderer
from context_agent.policies.tokens.model_files import (
    LOADING_ERRORS,
    check_adapter,
    check_model,
    without_renaming_warning,
)
from context_agent.policies.tokens.packaged import model_folder
from context_agent.policies.tokens.prompt import TokenRenderer
from context_agent.policies.tokens.template import TemplateRenderer
from context_agent.train.config import LoraConfig, ModelConfig, RendererKind, RunConfig
from context_agent.train.output_layer import with_float32_head
from context_agent.train.toy.environment import environment_texts, make_environment
from context_agent.train.toy.word_prompts import WordRenderer

try:
    import torch
    import transformers
    from huggingface_hub import try_to_load_from_cache
except ImportError as error:
    raise MissingExtraError(error.name or "torch", "train") from None


SAMPLES, SAMPLE_BYTES = 64, 65_536
"""Number and size of the samples of a file of weights that its digest reads."""
WEIGHTS_REMEDY = "Restore the folders of model.name and model.adapter"
"""What a user can do if the weights that a run started from have changed."""
_mxfp4: Any = getattr(transformers, "Mxfp4Config", None)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with its tokenizer and renderer.

    Attributes:
        model: The causal language model of transformers.
        tokenizer: The tokenizer of transformers. It pads rows, and is saved with the model.
        renderer: The renderer that writes prompts as token ids.
        adapter: The configuration of new LoRA adapters. None if all weights are trained, or if `model` already has
            adapters that are trained further.
    """

    model: Any
    tokenizer: Any
    renderer: TokenRenderer
    adapter: Any = None


def load_model(run: RunConfig) -> LoadedModel:
    """Load the model of a run.

    Args:
        run: The run.

    Returns:
        The model with its tokenizer and renderer.

    Raises:
        ConfigError: If the model cannot be loaded, or does not match the tokenizer.
    """
    if run.threads:
        torch.set_num_threads(run.threads)
    if run.model.adapter:
        check_adapter(run.model.adapter)  # before the weights of the base model, which may take minutes
    tokenizer, renderer = load_renderer(run)
    random.seed(run.seed)
    torch.manual_seed(run.seed)
    model = _tiny(run, tokenizer) if run.model.tiny is not None else _load_named(run.model, _weights_dtype(run.model))
    size = model.config.get_text_config().vocab_size
    if len(tokenizer) > size:
        raise ConfigError(
            f"the tokenizer has {len(tokenizer)} tokens, but the vocabulary of {run.model.name or 'the tiny model'} "
            f"has {size}. Use the tokenizer that the model was trained with."
        )
    if tokenizer.pad_token is None and tokenizer.eos_token is None:
        raise ConfigError(
            f"the tokenizer of {run.model.name or 'the tiny model'} has neither a padding token nor an end token, so "
            "rows of different lengths cannot share a pass. Set pad_token in its tokenizer_config.json."
        )
    if run.model.name and run.model.renderer is RendererKind.WORDS:
        _check_words(run.model.name, tokenizer)
    if run.model.adapter:
        adapted = _with_adapter(model, run.model.adapter)
        _check_same_adapters(adapted, run.model)
        return LoadedModel(adapted, tokenizer, renderer)
    if run.model.lora is not None:
        _check_targets(model, run.model.lora)
    layers = model.config.get_text_config().num_hidden_layers
    return LoadedModel(model, tokenizer, renderer, lora_adapter(run.model, layers))


def initial_weights_digest(chosen: ModelConfig) -> str:
    """Return a digest of the weights in the local folders that a run starts from.

    Large files are only sampled. Training changes all parts of a file, so a sample shows it.
    """
    digest = sha256()
    for folder in filter(None, (chosen.name, chosen.adapter)):
        for path in sorted(Path(folder).glob("*.safetensors")):
            size = path.stat().st_size
            digest.update(f"{path.name} {size}\n".encode(errors="replace"))
            with path.open("rb") as file:
                for place in range(0, size, max(SAMPLE_BYTES, size // SAMPLES)):
                    file.seek(place)
                    digest.update(file.read(SAMPLE_BYTES))
    return digest.hexdigest()[:16]


def hub_commit(chosen: ModelConfig) -> str:
    """Return the commit of a model's files in the cache of the Hugging Face hub. Call this after loading the model.

    If the model is not from the hub, return an empty string.
    """
    if not chosen.name or Path(model_folder(chosen.name)).is_dir():
        return ""
    found = try_to_load_from_cache(chosen.name, "config.json", revision=chosen.revision)
    return Path(found).parent.name if isinstance(found, str) else ""


def check_window(run: RunConfig, model: Any) -> None:
    """Raise `ConfigError` if an episode's window is larger than the longest sequence that the model takes."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if positions is not None and run.episodes.window > positions:
        raise ConfigError(
            f"episodes.window = {run.episodes.window} is larger than the longest sequence of "
            f"{run.model.name or 'the tiny model'}, which has {positions} tokens. Lower episodes.window."
        )


def load_frozen(chosen: ModelConfig, folder: str, tokenizer: Any) -> Any:
    """Load a model that is not trained and that uses the prompt format of the run.

    Args:
        chosen: The model table of the run file.
        folder: The folder of the frozen model.
        tokenizer: The tokenizer of the run.

    Returns:
        The model in evaluation mode, without gradients.

    Raises:
        ConfigError: If the model cannot be loaded, or its vocabulary differs from the run's.
    """
    if chosen.renderer is RendererKind.WORDS:
        _check_words(folder, tokenizer)
    named = replace(chosen, name=folder, revision=None)
    return _load_named(named, getattr(torch, chosen.dtype)).eval().requires_grad_(False)


def trains_all_weights(chosen: ModelConfig) -> bool:
    """Return True if the run trains all weights instead of adapters."""
    return chosen.lora is None and chosen.adapter is None


def autocast_dtype(chosen: ModelConfig) -> torch.dtype | None:
    """Return the number type of forward passes, both in training and in sampling.

    If the passes compute in the type of the weights, return None.
    """
    return None if chosen.dtype == "float32" else getattr(torch, chosen.dtype)


def _weights_dtype(chosen: ModelConfig) -> torch.dtype:
    """Return the type of the model's weights. Weights that are trained have 32 bits.

    In 16 bits, rounding would remove most updates of size 1e-5.
    """
    return torch.float32 if trains_all_weights(chosen) else getattr(torch, chosen.dtype)


def load_renderer(run: RunConfig) -> tuple[Any, TokenRenderer]:
    """Load the tokenizer of transformers and the renderer, without loading weights.

    Args:
        run: The run. The renderer `words` takes its vocabulary from the run's toy environment.

    Returns:
        The tokenizer and the renderer.

    Raises:
        ConfigError: If the tokenizer cannot be loaded.
    """
    chosen = run.model
    if chosen.renderer is RendererKind.WORDS:
        assert run.data.world is not None
        environment = make_environment(run.data.world)
        words = WordRenderer(environment_texts(environment, swarm=bool(run.episodes.swarm)))
        return words.tokenizer(), words
    tokenizer = _tokenizer(chosen)
    if chosen.renderer is RendererKind.LINES:
        return tokenizer, LinesRenderer(tokenizer, name=chosen.name)
    if chosen.renderer is RendererKind.TEMPLATE:
        return tokenizer, TemplateRenderer(tokenizer, name=chosen.name)
    return tokenizer, harmony_renderer(tokenizer, effort=chosen.reasoning_effort, parallel=chosen.parallel)


def lora_adapter(chosen: ModelConfig, layers: int) -> Any:
    """Return PEFT's configuration of the adapters. If all weights are trained, return None.

    The adapters have no dropout, because the stacked parameters of experts do not support it.

    Args:
        chosen: The model table of the run file.
        layers: Number of layers of the model.

    Returns:
        A `peft.LoraConfig`, or None.

    Raises:
        ConfigError: If `model.lora.first_layer` leaves no layer.
        MissingExtraError: If peft is missing.
    """
    if chosen.lora is None:
        return None
    if chosen.lora.first_layer >= layers:
        raise ConfigError(
            f"model.lora.first_layer must be one of the model's layers, 0 to {layers - 1}; got "
            f"{chosen.lora.first_layer}"
        )
    try:
        import peft
    except ImportError:
        raise MissingExtraError("peft", "train") from None
    return peft.LoraConfig(
        r=chosen.lora.rank,
        lora_alpha=chosen.lora.alpha,
        lora_dropout=0.0,
        target_modules=list(chosen.lora.modules) or None,
        target_parameters=list(chosen.lora.parameters) or None,
        layers_to_transform=list(range(first, layers)) if (first := chosen.lora.first_layer) else None,
        task_type="CAUSAL_LM",
    )


def _check_same_adapters(adapted: Any, chosen: ModelConfig) -> None:
    """Raise `ConfigError` if the adapters that are trained further differ from those that the run file describes."""
    stored, lora = adapted.peft_config["default"], chosen.lora
    if lora is None:
        return
    pairs: dict[str, tuple[object, object]] = {
        "rank": (stored.r, lora.rank),
        "alpha": (f"{stored.lora_alpha:g}", f"{lora.alpha:g}"),
        "modules": (_names(stored.target_modules), _names(lora.modules)),
        "parameters": (_names(stored.target_parameters), _names(lora.parameters)),
        "first_layer": (min(stored.layers_to_transform or [0]), lora.first_layer),
    }
    differing = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if differing:
        has, wants = (" and ".join(f"{name} {pair[side]}" for name, pair in differing.items()) for side in (0, 1))
        raise ConfigError(
            f"the adapters in {chosen.adapter!r} have {has}, but [model.lora] has {wants}, which would have no effect. "
            "Use the same values, or leave out [model.lora]."
        )


def _names(targets: Collection[str] | str | None) -> str:
    """Return the names of layers in one order, for a comparison and for a message."""
    return targets if isinstance(targets, str) else ", ".join(sorted(targets or ())) or "none"


def _check_targets(model: Any, lora: LoraConfig) -> None:
    """Raise `ConfigError` if the model lacks a layer that gets adapters, or if its adapters could not be trained.

    The loss reads the weights of the output layer directly, so adapters of that layer would have no effect in training.
    If an embedding shares these weights, merging its adapters would change both layers.
    """
    head = model.get_output_embeddings()
    linear = {path: layer for path, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)}
    choices = {
        "modules": (
            dict(model.named_modules()),
            {path.rpartition(".")[2] for path, layer in linear.items() if layer is not head},
        ),
        "parameters": (dict(model.named_parameters()), ("mlp.experts.gate_up_proj", "mlp.experts.down_proj")),
    }
    for setting, (layers, usual) in choices.items():
        for name in getattr(lora, setting):
            named = [layer for path, layer in layers.items() if f".{path}".endswith(f".{name}")]
            if not named:
                raise ConfigError(
                    f"the model has no {name!r}, which model.lora.{setting} names. {suggestion(name, usual)}"
                )
            if any(layer is head or getattr(layer, "weight", layer) is head.weight for layer in named):
                raise ConfigError(
                    f"model.lora.{setting} names {name!r}, which is the output layer or shares its weights. Such "
                    f"adapters cannot be trained. Remove {name!r}."
                )


def _tokenizer(chosen: ModelConfig) -> Any:
    from context_agent.train.tiny_model import CHAT_TEMPLATE, for_transformers, own_tokenizer

    if chosen.tiny is not None:
        tokenizer = for_transformers(own_tokenizer())
        tokenizer.chat_template = CHAT_TEMPLATE
        return tokenizer
    try:
        check_model(folder := model_folder(chosen.name))
        return transformers.AutoTokenizer.from_pretrained(folder, revision=chosen.revision, trust_remote_code=False)
    except LOADING_ERRORS as error:
        raise ConfigError(
            f"the tokenizer of {chosen.name!r} cannot be loaded ({reason_of(error)}). Check model.name."
        ) from error


def _tiny(run: RunConfig, tokenizer: Any) -> Any:
    from context_agent.train.tiny_model import tiny_config

    assert run.model.tiny is not None
    config = tiny_config(tokenizer, **asdict(run.model.tiny), yarn=False)
    options = {} if run.model.attention is None else {"attn_implementation": run.model.attention}
    try:
        model: Any = transformers.AutoModelForCausalLM.from_config(config, **options)
    except (ValueError, ImportError) as error:
        raise ConfigError(f"the tiny model cannot be made ({error}). Check model.attention.") from error
    model = model.to(_weights_dtype(run.model))
    return model if autocast_dtype(run.model) is None else with_float32_head(model)


def _load_named(chosen: ModelConfig, dtype: torch.dtype) -> Any:
    options: dict[str, Any] = {
        "dtype": dtype,
        "revision": chosen.revision,
        "use_safetensors": True,
        "trust_remote_code": False,
    }
    if chosen.attention is not None:
        options["attn_implementation"] = chosen.attention
    if chosen.dequantize:
        options["quantization_config"] = _mxfp4(dequantize=True)
    try:
        check_model(folder := model_folder(chosen.name))
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
    except LOADING_ERRORS as error:
        checked = "model.name" if chosen.attention is None else "model.name and model.attention"
        raise ConfigError(
            f"the model {chosen.name!r} cannot be loaded ({reason_of(error)}). Check {checked}."
        ) from error
    if model.base_model is model and isinstance(getattr(model, "model", None), torch.nn.Module):
        # Llama 4 without images keeps the name that its layers have with images. TRL looks for the layers there.
        model.base_model_prefix = "model"
    return model if autocast_dtype(chosen) is None else with_float32_head(model)


def _check_words(folder: str, tokenizer: Any) -> None:
    """Raise `ConfigError` if the saved model has another vocabulary than the tokenizer.

    A word's id is its index in the vocabulary of one environment. In another environment the same id is another word.
    """
    try:
        check_model(folder)
        saved = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except LOADING_ERRORS as error:
        raise ConfigError(
            f"the tokenizer of {folder!r} cannot be loaded ({reason_of(error)}). Name the folder of a trained model."
        ) from error
    if saved.get_vocab() != tokenizer.get_vocab():
        raise ConfigError(f"{folder} was trained on another world. Set data.world to the world that it was trained on.")


def _with_adapter(model: Any, folder: str) -> Any:
    try:
        from peft import PeftModel
    except ImportError:
        raise MissingExtraError("peft", "train") from None
    try:
        with without_renaming_warning():
            adapted = PeftModel.from_pretrained(model, folder, is_trainable=True)
    except LOADING_ERRORS as error:
        raise ConfigError(
            f"the adapters in {folder!r} cannot be loaded ({reason_of(error)}). Name another folder with --from."
        ) from error
    # PEFT would look on the Hugging Face hub for the base that the folder names.
    for settings in adapted.peft_config.values():
        settings.base_model_name_or_path, settings.revision = model.name_or_path, None
    return adapted
