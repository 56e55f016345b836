"""How many tokens a text has: one protocol, and counters that need no download.

The default vocabulary is o200k_harmony, which is embedded in oss-harmony.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

SLICE = 2_000
"""Characters encoded at once, so that one endless word cannot make the byte-pair merge quadratic."""


class TokenCounter(Protocol):
    """How many tokens a policy's model would spend on a text."""

    @property
    def name(self) -> str:
        """Written into trajectories, e.g. `o200k_harmony`."""

    def count(self, text: str) -> int:
        """Number of tokens of `text` as plain content: special-token spellings in it count as ordinary text."""


class HarmonyCounter:
    """o200k_harmony, the vocabulary of gpt-oss and Context-1."""

    name = "o200k_harmony"

    def count(self, text: str) -> int:
        """Tokens of `text`; a longer one is counted in slices, which may add one token a slice."""
        encoding = harmony_encoding()
        return sum(
            len(encoding.encode(text[start : start + SLICE], disallowed_special=()))
            for start in range(0, len(text), SLICE)
        )


class CharCounter:
    """One token for every four characters, rounded up: for tests and for models without a known tokenizer."""

    name = "chars/4"

    def count(self, text: str) -> int:
        """ceil(len(text) / 4)."""
        return -(-len(text) // 4)


def counter_named(name: str) -> TokenCounter | None:
    """Return the counter of that name, None if it is a model's own: that comes with its tokenizer."""
    return next(
        (counter_class() for counter_class in (HarmonyCounter, CharCounter) if counter_class.name == name), None
    )


@cache
def harmony_encoding() -> HarmonyEncoding:
    """oss-harmony's encoding of gpt-oss; loads in about half a second, once."""
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
