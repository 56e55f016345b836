"""Records of plain text whose fields have keys, such as `Title: …` and `URL: …`, without a blank line between them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

FEWEST_RECORDS = 3
NEXT_SHARE = 2 / 3
"""Minimum share of the records whose second line has the same key."""
RULE = "_=-#* \t\r"
"""The characters of a rule, and those around the name of a record."""
_FIELD = re.compile(
    r"^(?P<indent> {0,2})(?P<key>\*{0,2}[^\W\d_][\w/().-]{0,30}+(?: [\w/().-]{1,20}+){0,3}+)"
    r"(?:\t| {0,60}+:\*{0,2}(?=[ \t]))[^\n]*+",
    re.M,
)
"""A line with a key and its value. Some tools write a tab between them, or align the colons."""
_OPENERS = tuple("{[(,")
"""The characters at the end of a line that the next line continues."""
_NUMBER = re.compile(r"[\da-f]{6,}+|\d++")
_WORD = re.compile(r"[^\W\d_]++")


def keyed_records(text: str) -> list[int]:
    """Return the offsets of the first lines of records. If the text has none, return an empty list.

    The key of their first field is the first that occurs at least three times. In most records, the same key follows
    it. What is before the first line of a record does not continue there.

    A line of one form right before each first field, such as `======== a.jpg`, is the first line of the record.
    """
    fields = [*_FIELD.finditer(text)]
    counts = Counter(field["key"] for field in fields)
    firsts = [field for field in fields if counts[field["key"]] >= FEWEST_RECORDS]
    if not firsts:
        return []
    key = firsts[0]["key"]
    seconds = Counter(
        after["key"] for before, after in pairwise(fields) if before["key"] == key and after.start() == before.end() + 1
    )
    firsts = [field for field in firsts if field["key"] == key]
    if seconds[key] or max(seconds.values(), default=0) < NEXT_SHARE * len(firsts):
        return []
    if (titles := _titles(text, firsts)) is not None:
        return titles
    later = firsts[1:]
    begin = all(_can_begin(text, it) for it in later) and not all(_has_title(text, it) for it in later)
    return [it.start() for it in firsts] if begin else []


def _titles(text: str, firsts: Sequence[re.Match[str]]) -> list[int] | None:
    """Return the offsets of the lines right before the fields. If they do not have one form, return None.

    Their first words have the same form, which is that of a mark, a number or an address, but not of a word.
    """
    forms: set[str] = set()
    starts: list[int] = []
    for field in firsts:
        start = text.rfind("\n", 0, max(0, field.start() - 1)) + 1
        line = text[start : field.start()].rstrip()
        indent = len(line) - len(line.lstrip())
        is_title = line.strip(RULE) and indent == len(field["indent"]) and not line.endswith((*_OPENERS, ":"))
        if not is_title or _FIELD.match(line) is not None:
            return None
        forms.add(_WORD.sub("a", _NUMBER.sub("0", line.split(maxsplit=1)[0])))
        starts.append(start)
    return starts if len(forms) == 1 and forms != {"a"} else None


def _can_begin(text: str, field: re.Match[str]) -> bool:
    """Return True if the line before does not continue with this one, as a bracket or an item of a list does."""
    line_before = text[text.rfind("\n", 0, max(0, field.start() - 1)) + 1 : field.start()]
    said = line_before.strip()
    if not said.strip(RULE):
        return True
    is_below = said[-1] == ":" and len(line_before) - len(line_before.lstrip()) < len(field["indent"])
    return (said[0].isalnum() or said[0] == "*") and not said.endswith(_OPENERS) and not is_below


def _has_title(text: str, field: re.Match[str]) -> bool:
    """Return True if the line before is no field and follows a blank line or a rule, such as `commit 1a2b3c4`."""
    title_start = text.rfind("\n", 0, max(0, field.start() - 1)) + 1
    title = text[title_start : field.start()]
    line_before = text[text.rfind("\n", 0, max(0, title_start - 1)) + 1 : title_start]
    return bool(title.strip(RULE + "\n")) and _FIELD.match(title) is None and not line_before.strip(RULE + "\n")
