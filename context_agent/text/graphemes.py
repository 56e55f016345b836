"""Characters that consist of several code points: letters with marks, joined emoji, flags."""

from __future__ import annotations

import unicodedata

LONGEST_CLUSTER = 32
"""The maximum number of code points in one character. A longer stack of combining marks is cut."""


def whole_character(text: str, position: int, end: int) -> int:
    """Return `position`, or the end of the character that contains it."""
    limit = min(end, position + LONGEST_CLUSTER)
    while position < limit and _continues(text, position):
        position += 1
    return position


def _continues(text: str, position: int) -> bool:
    """Return True if the code point at `position` belongs to the code point before it.

    Combining marks, joined emoji and flags consist of such code points.
    """
    before, here = text[position - 1], text[position]
    if here.isascii():
        return before == "\r" and here == "\n"
    if before == "\u200d" or here == "\u200d" or unicodedata.category(here)[0] == "M":
        return True
    if "\U0001f1e6" <= here <= "\U0001f1ff":
        return _flags_before(text, position) % 2 == 1
    return (
        "\U0001f3fb" <= here <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= here <= "\U000e007f"  # tags, as in the flag of Scotland
        or "\u1160" <= here <= "\u11ff"  # Hangul vowels and finals
        or ("\udc00" <= here <= "\udfff" and "\ud800" <= before <= "\udbff")
    )


def _flags_before(text: str, position: int) -> int:
    """Return the number of consecutive regional indicators before `position`. Two of them make a flag.

    The function stops counting after a few.
    """
    count = 0
    while count < LONGEST_CLUSTER and count < position and "\U0001f1e6" <= text[position - 1 - count] <= "\U0001f1ff":
        count += 1
    return count
