"""A few documents with a two-step question, and an embedding without a model."""

from __future__ import annotations

import hashlib

QUESTION = "Which award did the director of Rope receive?"
TEXTS = {
    "Rope": ("Rope is a film of 1948 directed by Alfred Hitchcock.", 1948),
    "Alfred Hitchcock": ("Alfred Hitchcock received the AFI Life Achievement Award in 1979.", 1979),
    "Bread": ("Bread is made of flour, water and salt.", 1200),
    "Comets": ("Comets are bodies of ice that grow a tail near the sun.", 1680),
    "Operas": ("An opera is a play that is sung, first in Florence.", 1598),
}
"""Title to text and year."""


def vector(text: str) -> list[float]:
    """Eight numbers that depend on the text alone. Similar texts have no similar vectors."""
    return [(byte - 127.5) / 128 for byte in hashlib.blake2b(text.encode(), digest_size=8).digest()]
