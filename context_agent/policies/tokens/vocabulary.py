"""Vocabularies: text to token ids and back.

A document may spell `<|call|>`. `encode` gives the ids of those characters, never the id of the special token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Protocol

from context_agent.errors import ConfigError
from context_agent.tokens import harmony_encoding

REPLACEMENT = "\ufffd"
LONG_RUN = 2_000
"""Runs of characters without a blank or digit (or all blank) are cut at this length: oss-harmony's byte-pair merge is
quadratic in such a run, and takes half a minute for 200,000 letters."""

_RUN = re.compile(r"[^\s\d]+|\s+")
_SURROGATES = re.compile("[\ud800-\udfff]")


class Vocabulary(Protocol):
    """Text to token ids and back."""

    @property
    def name(self) -> str:
        """As a `TokenCounter` has it, e.g. `o200k_harmony`."""

    def encode(self, text: str) -> list[int]:
        """Ids of the text as ordinary text, never of special tokens. Never raises."""

    def decode(self, ids: Iterable[int]) -> str:
        """Text of the ids, special tokens spelled; invalid UTF-8 and unknown ids become U+FFFD. Never raises."""

    def special(self, spelling: str) -> int:
        """The id of a special token. Raises `ConfigError` if the vocabulary lacks it."""


class HarmonyVocabulary:
    """o200k_harmony, the vocabulary of gpt-oss and Context-1, embedded in oss-harmony."""

    name = "o200k_harmony"
    size = 201_089
    """One past the greatest id."""

    def encode(self, text: str) -> list[int]:
        """As oss-harmony encodes it, except that runs of over 2,000 characters without a blank are cut."""
        encoding = harmony_encoding()
        if len(text) < LONG_RUN:
            return list(encoding.encode(text, disallowed_special=()))
        return [token for piece in _pieces(text) for token in encoding.encode(piece, disallowed_special=())]

    def decode(self, ids: Iterable[int]) -> str:
        """Unknown ids become U+FFFD."""
        tokens = list(ids)
        encoding = harmony_encoding()
        if all(0 <= token < self.size for token in tokens):
            return str(encoding.decode(tokens))
        return "".join(encoding.decode([token]) if 0 <= token < self.size else REPLACEMENT for token in tokens)

    def special(self, spelling: str) -> int:
        """Raises `ConfigError` if harmony has no such special token."""
        encoding = harmony_encoding()
        if spelling not in encoding.special_tokens_set:
            raise ConfigError(f"harmony has no special token {spelling!r}")
        (token,) = encoding.encode(spelling, allowed_special={spelling}, disallowed_special=())
        return int(token)


class TokenizerVocabulary:
    """The vocabulary of a `tokenizers.Tokenizer`, or of a transformers tokenizer built on one.

    Content is encoded by a copy without any added tokens: some steer a model without being flagged as special, such as
    `<tool_call>`.
    """

    def __init__(self, tokenizer: Any, name: str = "") -> None:
        """Raises `ConfigError` for a tokenizer that is not built on `tokenizers`."""
        from tokenizers import Tokenizer

        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not isinstance(backend, Tokenizer):
            raise ConfigError(
                f"{type(tokenizer).__name__} is not built on the tokenizers library: use a fast tokenizer"
            )
        self.name = name or f"tokenizer/{backend.get_vocab_size()}"
        self._whole = backend
        added = backend.get_added_tokens_decoder()
        self._reserved = frozenset(added)
        self._size = max([*backend.get_vocab(with_added_tokens=True).values()], default=-1) + 1
        self._content = Tokenizer.from_str(json.dumps({**json.loads(backend.to_str()), "added_tokens": []}))
        spelled = sorted((re.escape(token.content) for token in added.values()), key=len, reverse=True)
        self._spelled = re.compile("|".join(spelled)) if spelled else None

    def encode(self, text: str) -> list[int]:
        """Ordinary ids only."""
        text = _SURROGATES.sub(REPLACEMENT, text)
        ids: list[int] = self._content.encode(text, add_special_tokens=False).ids
        if self._reserved.isdisjoint(ids):
            return ids
        pieces = (self._content.encode(piece, add_special_tokens=False).ids for piece in self._broken(text))
        return [token for piece in pieces for token in piece if token not in self._reserved]

    def decode(self, ids: Iterable[int]) -> str:
        """Ids outside the vocabulary become U+FFFD."""
        runs = [(valid, list(run)) for valid, run in groupby(ids, key=lambda token: 0 <= token < self._size)]
        return "".join(self._text(run) if valid else REPLACEMENT * len(run) for valid, run in runs)

    def special(self, spelling: str) -> int:
        """Raises `ConfigError` if the tokenizer has no such added token."""
        token = self._whole.token_to_id(spelling)
        if token is None or token not in self._reserved:
            raise ConfigError(f"the tokenizer {self.name} has no special token {spelling!r}")
        return int(token)

    def reserves(self, token: int) -> bool:
        """Whether the id is an added token's, which content never has."""
        return token in self._reserved

    def spelled(self, text: str) -> list[int]:
        """Ids of a template's own text, special tokens included. Never for content."""
        ids: list[int] = self._whole.encode(text, add_special_tokens=False).ids
        return ids

    def _text(self, ids: list[int]) -> str:
        return str(self._whole.decode(ids, skip_special_tokens=False))

    def _broken(self, text: str) -> Iterator[str]:
        """The text, cut after the first character of each spelled token, so that no piece contains one."""
        start = 0
        for match in self._spelled.finditer(text) if self._spelled else ():
            yield text[start : match.start() + 1]
            start = match.start() + 1
        yield text[start:]


class VocabularyRenderer:
    """What a renderer's vocabulary determines: how content is encoded, decoded and counted."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.counter_name = vocabulary.name

    def encode(self, text: str) -> tuple[int, ...]:
        """Ordinary ids only."""
        return tuple(self.vocabulary.encode(text))

    def decode(self, ids: Iterable[int]) -> str:
        """Special tokens are spelled out."""
        return self.vocabulary.decode(ids)


def _pieces(text: str) -> Iterator[str]:
    """The text with its overlong runs cut."""
    start = 0
    for match in _RUN.finditer(text):
        first, last = match.span()
        if last - first < LONG_RUN:
            continue
        for cut in range(first + LONG_RUN, last, LONG_RUN):
            yield text[start:cut]
            start = cut
    yield text[start:]
