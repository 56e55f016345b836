"""The shape of a model: the settings in its configuration that determine its size.

This module does not import torch and does not download anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from context_agent._support.small_files import read_json
from context_agent.errors import ConfigError, reason_of
from context_agent.train.config import RunConfig


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The settings in a model's configuration that determine its size.

    Attributes:
        hidden: Width of the residual stream.
        layers: Number of transformer layers.
        heads: Query heads of a layer.
        kv_heads: Key and value heads of a layer.
        head: Width of a head.
        inner: Inner width of a feed-forward network or expert.
        vocabulary: Number of token ids.
        experts: Experts of a layer. 1 for a dense model.
        chosen: Experts that each token is routed to.
        tied: True if the input and output embeddings share one table.
        biases: True if linear layers have biases.
        sinks: True if attention has a learned sink for each head.
        window: Sliding window of every other layer, in tokens. 0 if there is none.
        projections: Projections of a feed-forward network or expert: 3 with a gate, 2 without one.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head: int
    inner: int
    vocabulary: int
    experts: int = 1
    chosen: int = 1
    tied: bool = False
    biases: bool = False
    sinks: bool = False
    window: int = 0
    projections: int = 3

    @property
    def attention(self) -> int:
        """Number of weights in one layer's attention."""
        queries, keys = self.heads * self.head, self.kv_heads * self.head
        biases = queries + 2 * keys + self.hidden if self.biases else 0
        return self.hidden * (2 * queries + 2 * keys) + biases + (self.heads if self.sinks else 0)

    @property
    def expert(self) -> int:
        """The number of weights in one expert, or in a dense layer's network."""
        biases = (self.projections - 1) * self.inner + self.hidden if self.biases else 0
        return self.projections * self.hidden * self.inner + biases

    @property
    def parameters(self) -> int:
        """Number of weights in the whole model."""
        router = self.experts * (self.hidden + 1) if self.experts > 1 else 0
        layer = self.attention + self.experts * self.expert + router + 2 * self.hidden
        return self.layers * layer + self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden

    @property
    def active(self) -> int:
        """Number of weights that each token passes through. The input embedding is a look-up and does not count."""
        layer = self.attention + min(self.chosen, self.experts) * self.expert
        return self.layers * layer + self.vocabulary * self.hidden

    def cached(self, tokens: float) -> float:
        """Return how many numbers the key-value cache holds for a sequence of `tokens` tokens.

        A layer with a sliding window holds at most its window.
        """
        windowed = self.layers // 2 if self.window else 0
        retained = (self.layers - windowed) * tokens + windowed * min(tokens, self.window)
        return 2.0 * self.kv_heads * self.head * retained


KNOWN = {
    "openai/gpt-oss-20b": ModelShape(2880, 24, 64, 8, 64, 2880, 201_088, 32, 4, False, True, True, 128),
    "openai/gpt-oss-120b": ModelShape(2880, 36, 64, 8, 64, 2880, 201_088, 128, 4, False, True, True, 128),
    "Qwen/Qwen3-4B": ModelShape(2560, 36, 32, 8, 128, 9728, 151_936, tied=True),
    "Qwen/Qwen3-4B-Instruct-2507": ModelShape(2560, 36, 32, 8, 128, 9728, 151_936, tied=True),
    "Qwen/Qwen3-1.7B": ModelShape(2048, 28, 16, 8, 128, 6144, 151_936, tied=True),
    "Qwen/Qwen3-0.6B": ModelShape(1024, 28, 16, 8, 128, 3072, 151_936, tied=True),
    "smollm2": ModelShape(576, 30, 9, 3, 64, 1536, 49_152, tied=True),
}
"""Shapes of known models, from their published `config.json`."""


def shape_of(run: RunConfig, config: str | Path | None = None) -> ModelShape:
    """Return the shape of the run's model.

    Args:
        run: The run.
        config: A `config.json`. If it is None, the shape comes from the tiny model's settings, the model's local
            folder, or `KNOWN`.

    Returns:
        The shape.

    Raises:
        ConfigError: If none of these gives the shape, or the file cannot be read.
    """
    if config is None and run.model.tiny is not None:
        return _tiny(run)
    folder = Path(run.model.name) / "config.json"
    if config is not None or folder.is_file():
        return _read(Path(config) if config is not None else folder)
    if run.model.name not in KNOWN:
        raise ConfigError(
            f"the shape of {run.model.name!r} is unknown. Pass its config.json with --model-config, use a local "
            f"folder, or choose from {', '.join(KNOWN)}."
        )
    return KNOWN[run.model.name]


def _tiny(run: RunConfig) -> ModelShape:
    """Return the shape of the model that `train.tiny_model.tiny_config` describes.

    The vocabulary size is approximate. A vocabulary of words has a few hundred entries.
    """
    tiny = run.model.tiny
    assert tiny is not None
    vocabulary = 320 if run.data.world is not None else 2_048
    heads = tiny.hidden // 32
    chosen = min(2, tiny.experts)
    return ModelShape(
        tiny.hidden,
        tiny.layers,
        2 * heads,
        heads,
        32,
        tiny.hidden,
        vocabulary,
        tiny.experts,
        chosen,
        tiny.tied,
        True,
        True,
    )


NAMES: Mapping[str, Sequence[str]] = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer"),
    "heads": ("num_attention_heads", "n_head"),
    "inner": ("moe_intermediate_size", "intermediate_size", "n_inner", "ffn_dim"),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
}
"""The names of a size in `config.json`. They differ between model types."""


UNGATED = frozenset("bloom codegen falcon gpt2 gpt_bigcode gpt_neo gpt_neox gptj opt phi starcoder2".split())
"""Types of models whose feed-forward networks have no gate."""


def _read(path: Path) -> ModelShape:
    try:
        data: dict[str, Any] = read_json(path)
        data = data.get("text_config", data)
        sizes = {size: next((int(data[name]) for name in names if data.get(name)), 0) for size, names in NAMES.items()}
        kind, hidden, heads = data["model_type"], sizes["hidden"], sizes["heads"]
        if not (hidden and heads and sizes["layers"]):
            raise ConfigError(
                f"the shape of a model of the type {kind!r} is unknown, because {path} gives no number of layers, "
                "attention heads or hidden units. Leave out --dry-run."
            )
        oss = kind == "gpt_oss"
        return ModelShape(
            hidden=hidden,
            layers=sizes["layers"],
            heads=heads,
            kv_heads=int(data.get("num_key_value_heads") or heads),
            head=int(data.get("head_dim") or hidden // heads),
            inner=sizes["inner"] or 4 * hidden,
            vocabulary=int(data["vocab_size"]),
            experts=sizes["experts"] or 1,
            chosen=int(data.get("num_experts_per_tok") or 1),
            # transformers leaves out the setting where it is true, as in Gemma and GPT-2.
            tied=bool(data.get("tie_word_embeddings", True)),
            biases=oss,
            sinks=oss,
            window=int(data.get("sliding_window") or 0) if oss else 0,
            projections=2 if kind in UNGATED else 3,
        )
    except OSError as error:
        raise ConfigError(
            f"cannot read the model's configuration {path} ({reason_of(error)}). Pass an existing config.json with "
            "--model-config."
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise ConfigError(
            f"{path} is not the config.json of a language model ({type(error).__name__}: {error}). Pass another file "
            "with --model-config."
        ) from error
