"""Numbers with their nouns."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 turn` or `2 turns`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
