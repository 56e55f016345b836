"""The units of passages, which are compared with a task one by one, and the text of passages as the models read it."""

from __future__ import annotations

import re

from context_agent.pruning.blocks import Passage, is_log_entry
from context_agent.text.sentences import loose_sentences

UNIT_CHARACTERS, LONGEST_UNIT = 100, 200
"""Lines are joined up to the first number of characters, and cut at sentences above the second."""
MAX_UNITS = 24
"""Maximum number of units of a passage. The last one has the rest of the text."""
PLAIN_FORMS = ("text", "string")
"""Forms of passages that are not records."""
VARIABLE = re.compile(r"(?<![^\W_])\d[\w:.+-]*|\b[0-9a-f]{8,}\b")
"""The parts in which log entries with the same message differ: times, numbers, hashes."""
_LINE_LOCATION = re.compile(r"^[^\s:]{1,200}[:-]\d{1,9}[:-]\s?")
"""The file and the line number at the start of a line that a search in files found."""
_MEMBER_END = re.compile(r",\s*+(?=[\"'{\[])|(?<=[}>])\s*+(?=[{<])")
_MARKS = re.compile(r"[\"'{}\[\]|<>]+")
"""The end of a member of a record, and the marks around its keys and values."""


def units(passage: Passage) -> list[str]:
    """Return the lines and sentences of a passage, at least one.

    Short neighbors are joined, so that a unit has about `UNIT_CHARACTERS` characters.
    """
    is_record = passage.form not in PLAIN_FORMS
    text = _MEMBER_END.sub("\n", passage.text) if is_record else passage.text
    found: list[list[str]] = []
    characters = 0
    for line in text.split("\n"):
        for part in [line] if len(line) <= LONGEST_UNIT else loose_sentences(line):
            if not part.strip():
                continue
            is_short = bool(found) and characters + len(part) < UNIT_CHARACTERS
            if is_short or len(found) >= MAX_UNITS:
                found[-1].append(part)
                characters += 1 + len(part)
            else:
                found.append([part])
                characters = len(part)
    return ["\n".join(parts) for parts in found] or [passage.text]


def plain_text(passage: Passage) -> str:
    """Return the text of a passage as the models read it. The members of a record are lines."""
    if passage.form not in PLAIN_FORMS:
        return plain(passage, _MEMBER_END.sub("\n", passage.text))
    if is_log_entry(passage.text):
        return plain(passage, passage.text)
    # The first line keeps the name of its file.
    first, *lines = passage.text.split("\n")
    return "\n".join([first, *(_LINE_LOCATION.sub("", line) for line in lines)])


def plain(passage: Passage, text: str) -> str:
    """Return a part of a passage without marks, log times and line numbers, which carry no meaning."""
    if passage.form not in PLAIN_FORMS:
        return _MARKS.sub(" ", text)
    if is_log_entry(text):
        return VARIABLE.sub(" ", text)
    return "\n".join(_LINE_LOCATION.sub("", line) for line in text.split("\n"))
