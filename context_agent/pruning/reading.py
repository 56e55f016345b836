"""The pairs of texts that the shipped cross-encoder reads, in the form that it was trained on.

The first text is the premise. It has the question, and a line for each of the best other passages. The second text is
the excerpt. It is the passage itself, shortened if it is long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

EVIDENCE = 2
"""The number of other passages in a premise."""
QUESTION_WORDS, TITLE_WORDS, SENTENCE_WORDS, EXCERPT_WORDS = 50, 8, 18, 80
"""Maximum number of words of the question, of a title, of another passage's sentence, and of the passage itself."""


def premise(question: str, evidence: Iterable[tuple[str, str]]) -> str:
    """Return the first text of a pair.

    Args:
        question: The question.
        evidence: The title and one sentence of each other passage, best first. A title may be empty.
    """
    lines = [
        titled(title, ": ", first_words(sentence, SENTENCE_WORDS)) for title, sentence in islice(evidence, EVIDENCE)
    ]
    return " | ".join([first_words(question, QUESTION_WORDS), *lines])


def excerpt(title: str, text: str, sentences: Sequence[str], worth: Sequence[float]) -> str:
    """Return the second text of a pair.

    Args:
        title: The title of the passage. It may be empty.
        text: The passage.
        sentences: Its sentences.
        worth: A number for each sentence. It is used only if the passage has more than `EXCERPT_WORDS` words.

    Returns:
        The title and the passage. A long passage is shortened to its first sentence and those of the highest worth, in
        their order.
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
    """Return a text with its title before it. If the title is empty, return the text alone."""
    return f"{first_words(title, TITLE_WORDS)}{mark}{text}" if title else text


def first_words(text: str, words: int) -> str:
    """Return the first words of a text, with single spaces."""
    return " ".join(text.split(maxsplit=words)[:words])
