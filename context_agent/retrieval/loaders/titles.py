"""The titles of files: the ones that say something, and the place of a page whose title does not name its file."""

from __future__ import annotations

import re
from pathlib import PurePath

from context_agent.retrieval.loaders.reading import Reading, one_line, storable

LONGEST_PLACE = 120
"""Maximum number of characters of the path in a title, the last ones."""
_NAME_WORD = re.compile(r"[^\W\d_]{2,}")
_INDEXES = frozenset({"index", "readme"})
"""The names of files that say only that a page is the first of its folder."""
_PLACEHOLDER = re.compile(
    r"(?:untitled(?:[ -]?(?:\d{1,3}|document|page|presentation|spreadsheet))?"
    r"|(?:document|dokument|presentation|title|slide|folie|diapositiva|diapositive)[ -]?\d{0,3}"
    r"|powerpoint[ -]pr[äe]sentation|pr[ée]sentation powerpoint|(?:a?present\w{3,9}) (?:de|di|do) powerpoint)",
    re.IGNORECASE,
)
"""The titles that programs give to files that people did not title."""
_PRINTED = re.compile(r"Microsoft (?:Excel|PowerPoint|Word) - (\S[^\n]*?)(?:\.\w{3,4})?", re.IGNORECASE)
"""The titles that programs give to files that were printed to PDF."""


def meaningful_title(title: str) -> str:
    """Return the title that a file states. If a program made it up, return the name in it, or an empty string."""
    line = one_line(title)
    if printed := _PRINTED.fullmatch(line):
        return printed[1]
    return "" if _PLACEHOLDER.fullmatch(line) else line


def placed_title(reading: Reading, title: str) -> str:
    """Return the title of a page, with its place in parentheses if the title does not say the name of its file.

    Pages such as `queue/README.md` often have the same title, and only their paths say what they are about.
    """
    path = PurePath(storable(reading.path))
    title = one_line(title) or path.stem
    said = {word.lower() for word in _NAME_WORD.findall(title)}
    is_stem = title == path.stem
    if not path.parts[1:] or (not is_stem and not said.isdisjoint(map(str.lower, _NAME_WORD.findall(path.stem)))):
        return title
    parts = path.parent.parts if is_stem or path.stem.lower() in _INDEXES else (*path.parent.parts, path.stem)
    place = [part for part in parts if not said.issuperset(map(str.lower, _NAME_WORD.findall(part)))]
    return f"{title} ({'/'.join(place)[-LONGEST_PLACE:]})" if place else title
