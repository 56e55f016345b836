"""Token counters: a protocol, and counters that need no download.

The default vocabulary is o200k_harmony, which oss-harmony contains.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from openai_harmony import HarmonyEncoding

SLICE_CHARACTERS = 2_000
"""Characters encoded at once. Byte-pair merging takes quadratic time on one endless word."""


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
        encoding = harmony_encoding()
        return sum(
            len(encoding.encode(text[start : start + SLICE_CHARACTERS], disallowed_special=()))
            for start in range(0, len(text), SLICE_CHARACTERS)
        )


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
