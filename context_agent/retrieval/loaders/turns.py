"""The turns of a conversation, and the document that they make.

A conversation is a document. Each turn is a section with its speaker and time, so it is chunked on its own. In a chat
between people, a turn such as "yes please" says little alone. Its successive short turns of a day share a section.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePath

from context_agent.retrieval.loaders.chat_exports import MAX_PARTS
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.reading import Reading, document, identifier, one_line, storable
from context_agent.types import Document, Section

LONGEST_SPEAKER = 100
"""Maximum number of characters of a speaker's name and of a time. They are stored with every chunk of a turn."""
LONGEST_SUBJECT = 200
"""Maximum number of characters of a conversation's title in the titles of its turns."""
MOST_TURNS = 20_000
"""Maximum number of turns that are chunked on their own. Further turns are chunked like any text."""
JOINED_CHARACTERS = 600
"""Maximum number of characters of successive turns that share a section. A longer turn has its own."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_CLOCK = re.compile(r"\d{1,2}:\d\d")
"""The start of the time of day, which follows the day. A time in a recording has no day."""


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


@dataclass(slots=True)
class _Group:
    """Successive turns that share a section, from `start` to `end`. The first of them has the time and the day."""

    start: int = 0
    time: str = ""
    day: str = ""
    end: int = -1
    speakers: dict[str, None] = field(default_factory=dict)

    def takes(self, end: int, day: str) -> bool:
        """Return True if a turn of this day that ends here belongs to the group."""
        return self.day == day and end - self.start <= JOINED_CHARACTERS

    def add(self, speaker: str, end: int) -> None:
        self.speakers[speaker] = None
        self.end = end

    @property
    def label(self) -> str:
        """The speakers and the time."""
        return ", ".join(filter(None, (", ".join(filter(None, self.speakers))[:LONGEST_SPEAKER], self.time)))


def conversation(
    reading: Reading, turns: Iterable[Turn], title: str = "", name: str = "", *, joins: bool = False
) -> Document | None:
    """Return the document of a conversation. If it has no text, return None.

    Args:
        reading: The source.
        turns: The turns, in order.
        title: The title of the conversation.
        name: A name that distinguishes the conversations of a file. It becomes part of the document's id.
        joins: Whether successive short turns of a day share a section.
    """
    subject = storable(one_line(title))[:LONGEST_SUBJECT] or PurePath(reading.path).stem
    parts: list[str] = []
    sections: list[Section] = []
    group = _Group()
    date, position = "", 0
    for turn in turns:
        if not (words := storable(unix_lines(turn.text)).strip()):
            continue
        # A name may be in many turns, so it is shortened before anything else is done with it.
        speaker, time = (storable(one_line(field))[:LONGEST_SPEAKER] for field in (turn.speaker, turn.time))
        heading = f"{speaker} ({time})" if speaker and time else speaker or time
        part = f"{heading}:\n{words}\n\n" if heading else f"{words}\n\n"
        day = _CLOCK.split(time, maxsplit=1)[0]
        end = position + len(part)
        if not (joins and group.end == position and group.takes(end, day)):
            group = _Group(position, time, day)
            if len(sections) < MOST_TURNS:
                sections.append(Section(position, end, ""))
        group.add(speaker, end)
        if sections[-1].start == group.start:
            sections[-1] = Section(group.start, end, storable(": ".join(filter(None, (subject, group.label)))))
        parts.append(part)
        position = end
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
