"""Rules that decide whether a chunk states a fact.

A corpus can state a fact more than once. Any chunk that states the fact counts as finding it, so the gold of a fact is
a list of chunk ids. If a chunk has the quote's words, it states the quote. It also states the quote if one of its
sentences or table rows has all its numbers and most of its other words. If a quote has no numbers, a chunk states it
only in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from context_agent.retrieval.corpus import CANDIDATES, Corpus
from context_agent.synth_data.answers import SCALES
from context_agent.text.sentences import sentences
from context_agent.types import Chunk

SHARED_WORDS = 0.6
"""The share of a quote's other words that a sentence must have, besides all its numbers."""


SHORTEST_WORD = 3
"""The length of the shortest word that counts, in letters."""


_FIGURE = re.compile(
    rf"(?<![\w.])(\d{{1,3}}(?:,\d{{3}})++(?:\.\d+)?|\d+(?:\.\d+)?)\s*(%|(?:percent|{'|'.join(SCALES)})\b)?",
    re.I,
)


_LETTERS = re.compile(r"[^\W\d_]+")


def chunks_stating(quote: str, corpus: Corpus, *, limit: int = CANDIDATES) -> tuple[str, ...]:
    """Return the ids of the chunks that state the quote, in document order.

    Args:
        quote: The quote.
        corpus: The corpus to search.
        limit: The number of hits of a search for the quote that are examined.
    """
    return chunks_restating(quote, (hit.chunk for hit in corpus.search(quote, k=limit)))


def chunks_restating(quote: str, chunks: Iterable[Chunk]) -> tuple[str, ...]:
    """Return the ids of the chunks that state the quote, ordered by document and position."""
    stating = {(chunk.document_id, chunk.index, chunk.id) for chunk in chunks if states_fact(chunk.text, quote)}
    return tuple(chunk_id for _, _, chunk_id in sorted(stating))


def states_fact(text: str, quote: str) -> bool:
    """Return True if the text states the same fact as the quote."""
    folded = _joined_words(quote)
    if not folded:
        return False
    if f" {folded} " in f" {_joined_words(text)} ":
        return True
    numbers, words = numbers_in(quote), _content_words(quote)
    return bool(numbers) and any(
        numbers <= numbers_in(sentence) and len(words & _content_words(sentence)) >= SHARED_WORDS * len(words)
        for sentence in sentences(text)
    )


def numbers_in(text: str) -> frozenset[str]:
    """Return the numbers of a text in a form that can be compared.

    For example, `$1.2 million` becomes `1200000`. A percentage keeps its sign.
    """
    numbers = set()
    for match in _FIGURE.finditer(text):
        value, unit = float(match[1].replace(",", "")), (match[2] or "").lower()
        if unit in ("%", "percent"):
            numbers.add(f"{value:.12g}%")
        else:
            numbers.add(f"{value * SCALES.get(unit, 1):.12g}")
    return frozenset(numbers)


def _joined_words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _content_words(text: str) -> frozenset[str]:
    """Return the words that carry meaning. They are shortened to six letters, so that inflected forms agree.

    Units are not among them, because they belong to the numbers.
    """
    folded = (word.casefold() for word in _LETTERS.findall(text))
    return frozenset(word[:6] for word in folded if len(word) >= SHORTEST_WORD and word not in _UNCOUNTED)


_UNCOUNTED = frozenset(
    "the and for was were are has had have been with from that this its our which percent approximately about".split()
) | frozenset(SCALES)
