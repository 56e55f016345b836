"""Token counters: a protocol, and counters that need no download.

The default vocabulary is o200k_harmony, which oss-harmony contains.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from openai_harmony import HarmonyEncoding

SLICE_CHARACTERS = 2_000
"""Characters encoded at once. Byte-pair merging takes quadratic time on one endless word."""

_PIECE_START = re.compile(r"(?<=\n)(?=[^\s/])|(?<=[\]}\"'],)(?= )")
"""Where o200k_harmony begins a new token whatever precedes: at a line, or at the space between two values of JSON."""


class TokenCounter(Protocol):
    """A counter of the tokens that a policy's model would spend on a text."""

    @property
    def name(self) -> str:
        """The name that trajectories store, such as `o200k_harmony`."""

    def count(self, text: str) -> int:
        """Return the number of tokens of a text. The spelling of a special token counts as ordinary text."""


class HarmonyCounter:
    """A counter of tokens in o200k_harmony, the vocabulary of gpt-oss and Context-1."""

    name = "o200k_harmony"

    def count(self, text: str) -> int:
        """Return the number of tokens. A long text is counted in slices, which may add one token for each slice."""
        return sum(map(self._tokens, _slices(text)))

    def _tokens(self, text: str) -> int:
        return len(harmony_encoding().encode(text, disallowed_special=()))


class RepeatCounter(HarmonyCounter):
    """A counter of tokens in o200k_harmony for texts that repeat each other's lines, which it counts once.

    Its numbers are those of `HarmonyCounter`.
    """

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        known, total = self._known, 0
        for part in _slices(text):
            for piece in _PIECE_START.split(part):
                if (tokens := known.get(piece)) is None:
                    tokens = known[piece] = self._tokens(piece)
                total += tokens
        return total

    def forget(self) -> None:
        """Forget the lines that were counted."""
        self._known = {}


def _slices(text: str) -> Iterator[str]:
    """Yield the parts of a text that are encoded at once."""
    return (text[start : start + SLICE_CHARACTERS] for start in range(0, len(text), SLICE_CHARACTERS))


class CharCounter:
    """A counter of one token for every four characters, rounded up.

    Use it in tests, and for models without a known tokenizer.
    """

    name = "chars/4"

    def count(self, text: str) -> int:
        """Return a quarter of the number of characters, rounded up."""
        return -(-len(text) // 4)


def counter_named(name: str) -> TokenCounter | None:
    """Return the counter with this name. If the name belongs to a model's tokenizer, return None."""
    return next(
        (counter_class() for counter_class in (HarmonyCounter, CharCounter) if counter_class.name == name), None
    )


@cache
def harmony_encoding() -> HarmonyEncoding:
    """Return oss-harmony's encoding of gpt-oss. The first call takes about half a second."""
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
