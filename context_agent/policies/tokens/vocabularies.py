"""Vocabularies, which turn text into token ids and back.

A document may spell `<|call|>`. A vocabulary encodes those characters, never the id of the special token.
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
"""A run of characters without a blank or digit, or of blanks alone, is cut at this length.

oss-harmony's byte-pair merge is quadratic in such a run, and takes half a minute for 200,000 letters.
"""
_RUN = re.compile(r"[^\s\d]+|\s+")
_SURROGATES = re.compile("[\ud800-\udfff]")


class Vocabulary(Protocol):
    """A vocabulary, which turns text into token ids and back."""

    @property
    def name(self) -> str:
        """The name, as a `TokenCounter` has it, such as `o200k_harmony`."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of the text as ordinary text, never of special tokens. The method raises no error."""

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids, with special tokens spelled.

        Invalid UTF-8 and unknown ids become U+FFFD. The method raises no error.
        """

    def special(self, spelling: str) -> int:
        """Return the id of a special token. Raise `ConfigError` if the vocabulary lacks it."""


class HarmonyVocabulary:
    """o200k_harmony, the vocabulary of gpt-oss and Context-1, which oss-harmony contains."""

    name = "o200k_harmony"
    size = 201_089
    """One more than the greatest id."""

    def encode(self, text: str) -> list[int]:
        """Return the ids as oss-harmony encodes the text, but cut runs of over 2,000 characters without a blank."""
        encoding = harmony_encoding()
        if len(text) < LONG_RUN:
            return list(encoding.encode(text, disallowed_special=()))
        return [token for piece in _pieces(text) for token in encoding.encode(piece, disallowed_special=())]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids. Unknown ids become U+FFFD."""
        tokens = list(ids)
        encoding = harmony_encoding()
        if all(0 <= token < self.size for token in tokens):
            return str(encoding.decode(tokens))
        return "".join(encoding.decode([token]) if 0 <= token < self.size else REPLACEMENT for token in tokens)

    def special(self, spelling: str) -> int:
        """Return the id of a special token. Raise `ConfigError` if harmony has no such token."""
        encoding = harmony_encoding()
        if spelling not in encoding.special_tokens_set:
            raise ConfigError(f"harmony has no special token {spelling!r}. Check the spelling.")
        (token,) = encoding.encode(spelling, allowed_special={spelling}, disallowed_special=())
        return int(token)


class TokenizerVocabulary:
    """The vocabulary of a `tokenizers.Tokenizer`, or of a transformers tokenizer built on one.

    A copy without any added tokens encodes content, because some added tokens steer a model without being flagged as
    special, such as `<tool_call>`. Raise `ConfigError` for a tokenizer that is not built on `tokenizers`.
    """

    def __init__(self, tokenizer: Any, name: str = "") -> None:
        from tokenizers import Tokenizer

        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not isinstance(backend, Tokenizer):
            raise ConfigError(
                f"{type(tokenizer).__name__} is not built on the tokenizers library. Use a fast tokenizer."
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
        """Return ordinary ids only."""
        text = _SURROGATES.sub(REPLACEMENT, text)
        ids: list[int] = self._content.encode(text, add_special_tokens=False).ids
        if self._reserved.isdisjoint(ids):
            return ids
        pieces = (self._content.encode(piece, add_special_tokens=False).ids for piece in self._broken(text))
        return [token for piece in pieces for token in piece if token not in self._reserved]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids. Ids outside the vocabulary become U+FFFD."""
        runs = [(valid, list(run)) for valid, run in groupby(ids, key=lambda token: 0 <= token < self._size)]
        return "".join(self._text(run) if valid else REPLACEMENT * len(run) for valid, run in runs)

    def special(self, spelling: str) -> int:
        """Return the id of an added token. Raise `ConfigError` if the tokenizer does not have it."""
        token = self._whole.token_to_id(spelling)
        if token is None or token not in self._reserved:
            raise ConfigError(
                f"the tokenizer {self.name} has no special token {spelling!r}. Use the tokenizer of the model."
            )
        return int(token)

    def reserves(self, token: int) -> bool:
        """Return True if the id belongs to an added token, which content never has."""
        return token in self._reserved

    def spelled(self, text: str) -> list[int]:
        """Return the ids of a template's own text, special tokens included. Never use it for content."""
        ids: list[int] = self._whole.encode(text, add_special_tokens=False).ids
        return ids

    def _text(self, ids: list[int]) -> str:
        return str(self._whole.decode(ids, skip_special_tokens=False))

    def _broken(self, text: str) -> Iterator[str]:
        """Yield the text, cut after the first character of each spelled token, so that no piece contains one."""
        start = 0
        for match in self._spelled.finditer(text) if self._spelled else ():
            yield text[start : match.start() + 1]
            start = match.start() + 1
        yield text[start:]


class VocabularyRenderer:
    """The part of a renderer that its vocabulary determines: how content is encoded, decoded and counted."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.counter_name = vocabulary.name

    def encode(self, text: str) -> tuple[int, ...]:
        """Return ordinary ids only."""
        return tuple(self.vocabulary.encode(text))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids, with special tokens spelled out."""
        return self.vocabulary.decode(ids)


def _pieces(text: str) -> Iterator[str]:
    """Yield the text with its overlong runs cut."""
    start = 0
    for match in _RUN.finditer(text):
        first, last = match.span()
        if last - first < LONG_RUN:
            continue
        for cut in range(first + LONG_RUN, last, LONG_RUN):
            yield text[start:cut]
            start = cut
    yield text[start:]
