"""Numbered passages, in which a model reads the results of a search."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from context_agent.text.markers import escape_markers, escaped_line
from context_agent.types import RankedDocument

MAX_CHARACTERS = 40_000
"""The default limit on the characters of all passages that a model gets, which is about 10,000 tokens."""
_FORGED_HEADING = re.compile(r"^\[(?=\d{1,6}\] [^\n]*\(id: )", re.MULTILINE)
"""A line inside a passage that looks like the first line of another passage."""


@dataclass(frozen=True, slots=True)
class NumberedPassage:
    """A passage with the number by which a model cites it.

    Attributes:
        number: The number that the model writes in brackets, from 1.
        document_id: The document that the passage is from.
        title: The title of the document. It may be empty.
        text: The passage as written.
    """

    number: int
    document_id: str
    title: str
    text: str

    def render(self) -> str:
        """Return the passage as the model reads it."""
        return passage_text(self.number, self.document_id, self.title, self.text)


def passage_text(number: int, id: str, title: str, text: str) -> str:
    """Return a passage as a model reads it: a line with number, title and id, then the text.

    Markers are escaped, so that no text can pass for another passage or for a role.
    """
    heading = f"{escaped_line(title)} (id: {escaped_line(id)})".lstrip()
    escaped = _FORGED_HEADING.sub(r"[\\", escape_markers(text))
    return f"[{number}] {heading}\n{escaped}"


def passages_of(documents: Iterable[RankedDocument], limit: int = MAX_CHARACTERS) -> tuple[NumberedPassage, ...]:
    """Return the passages of ranked documents, numbered from 1.

    Args:
        documents: The documents of a search result, best first.
        limit: The maximum number of characters in all passages together. If the first passage alone is longer, it is
            truncated.

    Returns:
        As many passages as fit, in the order of the documents.

    Example:
        >>> from context_agent.types import RankedChunk
        >>> chunk = RankedChunk("light_0", "It was lit in 1868.", 0.9)
        >>> print(passages_of([RankedDocument("light", "Orm Skerry Light", 0.9, (chunk,))])[0].render())
        [1] Orm Skerry Light (id: light)
        It was lit in 1868.
    """
    passages: list[NumberedPassage] = []
    room = limit
    for document in documents:
        for chunk in document.chunks:
            if len(chunk.text) > room and passages:
                return tuple(passages)
            passages.append(NumberedPassage(len(passages) + 1, document.id, document.title, chunk.text[:room]))
            room -= len(chunk.text)
    return tuple(passages)
