"""The choice of an embedder for a new index when the caller names none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from context_agent.retrieval.embedders import MINILM, STATIC, load_embedder
from context_agent.text.language_identification import identify
from context_agent.text.languages import ENGLISH

if TYPE_CHECKING:
    from context_agent.retrieval.embedders import Embedder

SMALL_CORPUS_CHARACTERS = 600_000
"""The maximum size of the texts that get MiniLM's vectors by default.

MiniLM finds more than the static vectors, but takes 2 to 20 ms a passage on one core. Texts of this size are about 300
passages of 512 tokens or 1,000 short ones, so embedding them takes at most about 15 seconds.
"""
LEAST_COUNTED = 100
"""A shorter text counts as this many characters, because MiniLM takes at least 2 ms for every text."""


def default_embedder(texts: Iterable[str]) -> Embedder:
    """Return the embedder of a new index whose caller names none.

    It is `minilm` if the texts are small and English, and `static` otherwise. MiniLM knows only English. In
    other languages it shows no clear gain over the static vectors (`benchmarks/languages.py`), but takes a hundred
    times as long.

    Args:
        texts: The texts to embed. They are read only until their size exceeds `SMALL_CORPUS_CHARACTERS`.
    """
    read = list[str]()

    def sizes() -> Iterator[int]:
        for text in texts:
            read.append(text)
            yield len(text)

    return load_embedder(MINILM if is_small(sizes()) and identify(read) == ENGLISH else STATIC)


def is_small(sizes: Iterable[int]) -> bool:
    """Return True if texts with these numbers of characters are small enough for MiniLM.

    The sizes are read only until their sum is too large.
    """
    total = 0
    for size in sizes:
        total += max(size, LEAST_COUNTED)
        if total > SMALL_CORPUS_CHARACTERS:
            return False
    return True
