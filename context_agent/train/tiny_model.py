"""Tiny models and tokenizers with the architecture of real ones, made in seconds without a download.

The tiny model has gpt-oss's architecture: experts, attention sinks, sliding windows and rotary positions. Its 0.3
million weights are random. Its byte-pair vocabulary is learned on the spot and has harmony's special tokens. Every part
of the training path accepts it as a gpt-oss. The model needs the `train` extra. The tokenizers need only the core.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PositiveFloat, PositiveInt

from context_agent.errors import ConfigError, MissingExtraError
from context_agent.policies.tokens.vocabularies import HarmonyVocabulary
from context_agent.tokens import harmony_encoding

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True, slots=True)
class TinyModelConfig:
    """A gpt-oss with a few hundred thousand random weights, made when the run starts.

    Attributes:
        hidden: Width of the residual stream, a multiple of 32.
        layers: Number of transformer blocks.
        experts: Experts of each block.
        positions: Longest sequence, in tokens.
        deviation: Standard deviation of the random weights.
        tied: True if the input and output embeddings share one table.
    """

    hidden: Annotated[int, Field(ge=1, le=8_192)] = 96
    layers: Annotated[int, Field(ge=1, le=128)] = 3
    experts: PositiveInt = 2
    positions: PositiveInt = 1024
    deviation: PositiveFloat = 0.02
    tied: bool = False


SPECIALS = tuple(
    f"<|{name}|>"
    for name in ("startoftext", "endoftext", "return", "constrain", "channel", "start", "end", "message", "call")
)
"""Harmony's special tokens that a conversation or a tokenizer needs."""

BASE_TOKENS = 199_998
"""Number of ordinary tokens in o200k_harmony. The special tokens follow them."""

_ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]*[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]+{_ENDING}"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]+[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]*{_ENDING}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The pattern by which o200k splits text before it merges bytes (tiktoken's `o200k_base`)."""


def tiny_tokenizer(texts: Iterable[str], *, size: int = 2_048) -> Tokenizer:
    """Learn a byte-level BPE tokenizer from texts, with harmony's special tokens.

    Args:
        texts: The texts.
        size: Largest number of tokens, special ones included.

    Returns:
        The tokenizer.

    Raises:
        ConfigError: If `size` is too small for all bytes and the special tokens.
    """
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

    if size < 256 + len(SPECIALS):
        raise ConfigError(f"a vocabulary must have at least {256 + len(SPECIALS)} tokens; got {size}")
    tokenizer = _with_o200k_splits(Tokenizer(models.BPE()))
    specials = [AddedToken(text, special=True, normalized=False) for text in SPECIALS]
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def own_tokenizer(size: int = 2_048) -> Tokenizer:
    """Return a tokenizer of at most `size` tokens that is learned from this package's own prompts."""
    return tiny_tokenizer(_prompt_texts(), size=size)


@cache
def harmony_tokenizer() -> Tokenizer:
    """Return o200k_harmony as a `tokenizers.Tokenizer`, rebuilt from the data of oss-harmony.

    The first call takes some seconds. The tokenizer has 199,998 ordinary tokens and 1,091 special ones. It reads
    special tokens that occur in text, as gpt-oss's own does. `TokenizerVocabulary` encodes content as text only.
    """
    from tokenizers import Tokenizer, models

    letters = _byte_letters()
    ids = {token: index for index, token in enumerate(_base_tokens())}
    spelled = {token: "".join(letters[byte] for byte in token) for token in ids}
    vocabulary = HarmonyVocabulary()
    names = sorted(harmony_encoding().special_tokens_set, key=lambda name: (vocabulary.special(name), name))
    data = json.loads(_with_o200k_splits(Tokenizer(models.BPE(ignore_merges=True))).to_str())
    data["model"]["vocab"] = {spelled[token]: index for token, index in ids.items()}
    data["model"]["merges"] = [(spelled[remaining], spelled[right]) for remaining, right in _merges(ids)]
    data["added_tokens"] = [{**_ADDED, "id": vocabulary.special(name), "content": name} for name in names]
    return Tokenizer.from_str(json.dumps(data))


def for_transformers(tokenizer: Tokenizer) -> Any:
    """Convert a tokenizer to one of transformers, with gpt-oss's roles for the special tokens."""
    try:
        import transformers
    except ImportError:
        raise MissingExtraError("transformers", "train") from None
    result: Any = transformers.PreTrainedTokenizerFast
    return result(
        tokenizer_object=tokenizer,
        bos_token="<|startoftext|>",  # noqa: S106 - tokens of another kind
        eos_token="<|return|>",  # noqa: S106
        pad_token="<|endoftext|>",  # noqa: S106
        clean_up_tokenization_spaces=False,
    )


def tiny_gpt_oss(
    folder: str | Path,
    *,
    texts: Iterable[str] = (),
    size: int | None = 2_048,
    hidden: int = 64,
    yarn: bool = True,
    seed: int = 0,
) -> Path:
    """Write a tiny gpt-oss with its tokenizer to a folder, as `save_pretrained` does.

    Equal arguments give equal weights.

    Args:
        folder: The folder.
        texts: The texts from which the vocabulary is learned. Without any, it is learned from this package's own
            prompts.
        size: Largest number of tokens. None takes gpt-oss's own vocabulary, which vLLM's chat endpoint assumes. The
            model then has 26 million weights.
        hidden: Width of the residual stream, a multiple of 32.
        yarn: If True, use YaRN with a factor of 32, as gpt-oss does. With this factor, such a small model does not
            learn on short sequences. If False, use plain RoPE.
        seed: Seed of the random weights.

    Returns:
        The folder.

    Raises:
        MissingExtraError: If transformers is missing.
    """
    try:
        import torch
        from transformers import GptOssForCausalLM
    except ImportError as error:
        raise MissingExtraError(error.name or "transformers", "train") from None
    texts = list(texts)
    result = harmony_tokenizer() if size is None else tiny_tokenizer(texts, size=size) if texts else own_tokenizer(size)
    tokenizer = for_transformers(result)
    config = tiny_config(tokenizer, hidden=hidden, yarn=yarn)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = GptOssForCausalLM(config)
    model.generation_config.eos_token_id = [tokenizer.convert_tokens_to_ids(t) for t in ("<|return|>", "<|call|>")]
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    tokenizer.chat_template = CHAT_TEMPLATE
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)


def tiny_llama(folder: str | Path) -> Path:
    """Write a tiny Llama, SmolLM2's architecture, with a tokenizer and a chat template to a folder.

    The weights are always the same.

    Args:
        folder: The folder.

    Returns:
        The folder.

    Raises:
        MissingExtraError: If transformers is missing.
    """
    try:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError as error:
        raise MissingExtraError(error.name or "transformers", "train") from None
    tokenizer = for_transformers(own_tokenizer())
    tokenizer.chat_template = CHAT_TEMPLATE
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=len(tokenizer),
        max_position_embeddings=8_192,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Path(folder)


def tiny_config(
    tokenizer: Any,
    *,
    hidden: int = 64,
    layers: int = 2,
    experts: int = 4,
    positions: int = 131_072,
    yarn: bool = True,
    deviation: float = 0.02,
    tied: bool = False,
) -> Any:
    """Return the `GptOssConfig` of a tiny model.

    Args:
        tokenizer: The tokenizer, which determines the vocabulary.
        hidden: Width of the residual stream, a multiple of 32, which is the size of a head.
        layers: Number of transformer blocks.
        experts: Experts of each block.
        positions: Longest sequence, in tokens.
        yarn: If True, use YaRN with a factor of 32. If False, use plain RoPE.
        deviation: Standard deviation of the random weights. gpt-oss's own .02 suits its width of 2,880. Here about `1 /
            sqrt(hidden)` gives activations of the same variance.
        tied: If True, the input and output embeddings share one table.

    Returns:
        The configuration.

    Raises:
        ConfigError: If `hidden` is not a multiple of 32.
    """
    from transformers import GptOssConfig

    if hidden % 32:
        raise ConfigError(f"the hidden size must be a multiple of 32; got {hidden}")
    stretched = {
        "rope_type": "yarn",
        "rope_theta": 150_000.0,
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4_096,
    }
    return GptOssConfig(
        num_hidden_layers=layers,
        num_local_experts=experts,
        num_experts_per_tok=min(2, experts),
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=hidden,
        head_dim=32,
        num_attention_heads=hidden // 32 * 2,
        num_key_value_heads=hidden // 32,
        sliding_window=128,
        max_position_embeddings=positions,
        rope_parameters=stretched if yarn else {"rope_type": "default", "rope_theta": 10_000.0},
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        router_aux_loss_coef=0.0,
        initializer_range=deviation,
        tie_word_embeddings=tied,
    )


CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "<|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}"
)
"""A part of harmony that suffices for a server's chat endpoint. The token path does not use it."""

_ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def _with_o200k_splits(tokenizer: Tokenizer) -> Tokenizer:
    """Make the tokenizer split text as o200k does, over bytes, and return it."""
    from tokenizers import Regex, decoders, pre_tokenizers

    cut = pre_tokenizers.Split(Regex(PATTERN), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@cache
def _base_tokens() -> tuple[bytes, ...]:
    """Return the bytes of each ordinary token, ordered by id."""
    inner = harmony_encoding()._inner  # noqa: SLF001 - the bytes are not to be had by its public face
    return tuple(bytes(inner.decode_bytes([token])) for token in range(BASE_TOKENS))


def _merges(ids: dict[bytes, int]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs that byte-pair encoding merges, ordered by the token they form, as tiktoken's ranks imply."""
    for token in sorted(ids, key=lambda item: ids[item]):
        pairs = [
            (token[:cut], token[cut:]) for cut in range(1, len(token)) if token[:cut] in ids and token[cut:] in ids
        ]
        yield from sorted(pairs, key=lambda pair: (ids[pair[0]], ids[pair[1]]))


def _byte_letters() -> dict[int, str]:
    """Return the printable letter that byte-level BPE writes for each byte (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + index) for index, byte in enumerate(rest)}


def _prompt_texts() -> list[str]:
    """Return this package's prompts and the openings made from them."""
    from context_agent.harness.profile import context_1, default
    from context_agent.policies.tokens.harmony import HarmonyRenderer

    renderer = HarmonyRenderer()
    return [renderer.opening(profile).text for profile in (default(), context_1())] * 2
