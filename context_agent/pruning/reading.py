"""The pairs of texts that the shipped cross-encoder reads, in the form that it was trained on.

The first text, the premise, has the question and a line for each of the best other passages. The second one, the
excerpt, is the passage itself, shortened if it is long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

EVIDENCE = 2
"""Other passages in a premise."""
QUESTION_WORDS, TITLE_WORDS, SENTENCE_WORDS, EXCERPT_WORDS = 50, 8, 18, 80
"""Most words of the question, of a title, of a sentence of another passage, and of the passage itself."""


def premise(question: str, evidence: Iterable[tuple[str, str]]) -> str:
    """Return the first text.

    Args:
        question: The question.
        evidence: The title and a sentence of each other passage. The title may be empty.
    """
    lines = [
        titled(title, ": ", first_words(sentence, SENTENCE_WORDS)) for title, sentence in islice(evidence, EVIDENCE)
    ]
    return " | ".join([first_words(question, QUESTION_WORDS), *lines])


def excerpt(title: str, text: str, sentences: Sequence[str], worth: Sequence[float]) -> str:
    """Return the second text.

    Args:
        title: The title of the passage. It may be empty.
        text: The passage.
        sentences: Its sentences.
        worth: A number for each sentence. It is used only if the passage has more than
            `EXCERPT_WORDS` words.

    Returns:
        The title and the passage. Of a long passage, the first sentence and those of the highest worth, in order.
    """
    words = text.split()
    short = " ".join(words) if len(words) <= EXCERPT_WORDS else _worthiest(sentences, worth)
    return titled(title, ". ", short)


def _worthiest(sentences: Sequence[str], worth: Sequence[float]) -> str:
    chosen, room = {0}, EXCERPT_WORDS - len(sentences[0].split())
    for row in sorted(range(1, len(sentences)), key=lambda row: -worth[row]):
        size = len(sentences[row].split())
        if size <= room:
            chosen.add(row)
            room -= size
    return first_words(" ".join(sentences[row] for row in sorted(chosen)), EXCERPT_WORDS)


def titled(title: str, mark: str, text: str) -> str:
    """Return a text behind its title, if there is one."""
    return f"{first_words(title, TITLE_WORDS)}{mark}{text}" if title else text


def first_words(text: str, words: int) -> str:
    """Return the first words of a text, with single spaces."""
    return " ".join(text.split(maxsplit=words)[:words])
