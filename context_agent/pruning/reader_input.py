"""The two texts that the reader sees of a pair, in the form that it was trained on.

The first is the question, then a line for each of the best other passages. The second is the passage itself, of which a
long one is shortened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

EVIDENCE = 2
"""Other passages that the reader sees."""
QUESTION_WORDS, TITLE_WORDS, SENTENCE_WORDS, EXCERPT_WORDS = 50, 8, 18, 60
"""Most words of the question, of a title, of a sentence of another passage, and of the passage itself."""


def premise(question: str, evidence: Iterable[tuple[str, str]]) -> str:
    """The first text; `evidence` has a title, which may be empty, and a sentence for each of the other passages."""
    lines = [_line(title, ": ", cut(sentence, SENTENCE_WORDS)) for title, sentence in islice(evidence, EVIDENCE)]
    return " | ".join([cut(question, QUESTION_WORDS), *lines])


def excerpt(title: str, text: str, sentences: Sequence[str], worth: Sequence[float]) -> str:
    """The second text. A long passage is cut to its first sentence and those of the highest `worth`, in order."""
    words = text.split()
    short = " ".join(words) if len(words) <= EXCERPT_WORDS else _worthiest(sentences, worth)
    return _line(title, ". ", short)


def _worthiest(sentences: Sequence[str], worth: Sequence[float]) -> str:
    chosen, room = {0}, EXCERPT_WORDS - len(sentences[0].split())
    for row in sorted(range(1, len(sentences)), key=lambda row: -worth[row]):
        size = len(sentences[row].split())
        if size <= room:
            chosen.add(row)
            room -= size
    return cut(" ".join(sentences[row] for row in sorted(chosen)), EXCERPT_WORDS)


def _line(title: str, mark: str, text: str) -> str:
    return f"{cut(title, TITLE_WORDS)}{mark}{text}" if title else text


def cut(text: str, words: int) -> str:
    """The first words of a text, with single spaces."""
    return " ".join(text.split(maxsplit=words)[:words])
