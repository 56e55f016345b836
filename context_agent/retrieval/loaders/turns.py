"""The turns of a conversation, and the document that they make.

A conversation is a document. Each turn is a section with its speaker and time, so it is chunked on its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePath

from context_agent.retrieval.loaders.chat_exports import MAX_PARTS
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.reading import Reading, document, identifier, one_line, storable
from context_agent.types import Document, Section

LONGEST_SPEAKER = 100
"""The most characters of a speaker's name and of a time. They are stored with every chunk of a turn."""
LONGEST_SUBJECT = 200
"""The most characters of a conversation's title in the titles of its turns."""
MOST_TURNS = 20_000
"""The most turns that are chunked on their own. Further turns are chunked like any text."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class Turn:
    """The words of one speaker in one turn.

    Attributes:
        speaker: The name or the role of the speaker, or "" if it is unknown.
        time: The time as the source states it, in ISO 8601 where possible, or "" if it is unknown.
        text: The words.
    """

    speaker: str
    time: str
    text: str


def conversation(reading: Reading, turns: Iterable[Turn], title: str = "", name: str = "") -> Document | None:
    """Return the document of a conversation. If it has no text, return None.

    Args:
        reading: The source.
        turns: The turns, in order.
        title: The title of the conversation.
        name: A name that distinguishes the conversations of a file. It becomes part of the document's id.
    """
    subject = storable(one_line(title))[:LONGEST_SUBJECT]
    parts: list[str] = []
    sections: list[Section] = []
    date, position = "", 0
    for turn in turns:
        if not (words := storable(unix_lines(turn.text)).strip()):
            continue
        # A name may be in many turns, so it is shortened before anything else is done with it.
        speaker, time = (storable(one_line(field))[:LONGEST_SPEAKER] for field in (turn.speaker, turn.time))
        heading = f"{speaker} ({time})" if speaker and time else speaker or time
        part = f"{heading}:\n{words}\n\n" if heading else f"{words}\n\n"
        if len(sections) < MOST_TURNS:
            label = ", ".join(filter(None, (speaker, time)))
            section_title = ": ".join(filter(None, (subject or PurePath(reading.path).stem, label)))
            sections.append(Section(position, position + len(part), storable(section_title)))
        parts.append(part)
        position += len(part)
        date = date or (time if _DATE.match(time) else "")
    if not parts:
        return None
    whole = document(reading, "".join(parts), title, {"date": date} if date else {}, tuple(sections))
    return replace(whole, id=f"{whole.id}#{identifier(storable(name[:LONGEST_SPEAKER]))}") if name else whole


def message_text(content: object) -> str:
    """Return the text of a message: a string, or the texts of its parts. Parts such as pictures have no text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") if isinstance(part, dict) else part for part in islice(content, MAX_PARTS))
    return "\n\n".join(text for text in texts if isinstance(text, str) and text.strip())


def string_of(value: object) -> str:
    """Return the value if it is a text, else an empty string."""
    return value if isinstance(value, str) else ""
