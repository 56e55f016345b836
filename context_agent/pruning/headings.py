"""Headings of markup languages other than Markdown and HTML: LaTeX, AsciiDoc, wikis, Org, Textile and manuals."""

from __future__ import annotations

import re

_COMMANDS = (
    *("part", "chapter", "section", "subsection", "subsubsection", "paragraph", "subparagraph"),
    *("SH", "SS"),
    *("unnumbered", "unnumberedsec", "unnumberedsubsec", "appendix"),
)
_LEVELS = dict(zip(_COMMANDS, (1, 2, 3, 4, 5, 6, 7, 1, 2, 2, 3, 4, 2), strict=True))
"""The level of the heading that each command of LaTeX, of `man` or of Texinfo writes."""
_HEADING = re.compile(
    r"^(?:[ \t]*+\\(?P<latex>(?:part|chapter|(?:sub){0,2}section|(?:sub)?paragraph))\*?(?:\[[^\]\n]*+\])?"
    r"\{(?P<braced>(?:[^{}\n]++|\{[^{}\n]*+\})++)\}"
    r"|\.(?P<roff>S[HS])[ \t]++\"?(?P<manual>[^\s\"][^\n\"]*+)"
    r"|@(?P<texinfo>chapter|(?:sub){0,2}section|unnumbered(?:sec|subsec)?|appendix)[ \t]++(?P<spaced>\S[^\n]*+)"
    r"|(?:h(?P<textile>[1-6])\.|=head(?P<pod>[1-6]))[ \t]++(?P<numbered>\S[^\n]*+)"
    r"|(?P<equals>={1,6}+)(?P<equaled>[ \t]*+[^\s=<>!~][^\n]*+))",
    re.M,
)
_TEXTS = ("braced", "manual", "spaced", "numbered")
_ORG = re.compile(r"^(?:#\+[A-Za-z_]{2,40}:|:(?:PROPERTIES|END):[ \t\r]*$|\*{1,8} (?:TODO|DONE) )", re.M)
"""A line that only Org has. Elsewhere a line with stars at its start is an item of a list."""
_ORG_HEADING = re.compile(r"^(?P<stars>\*{1,8}) (?P<said>\S[^\n]*+)$", re.M)
_ORG_TAGS = re.compile(r"[ \t]:[\w@#%:]{1,80}:$")
_BLANK = re.compile(r"\r?\n[ \t]*\r?(?:\n|\Z)|\r?\n:[\w-]{1,40}:|\r?\Z")
"""What follows a heading of AsciiDoc: a blank line, an attribute, or the end."""


def headings(text: str) -> dict[int, tuple[int, str]]:
    """Return the level and the text of each heading by the offset of its line.

    A line with equals signs on both sides is a heading of a wiki if one of those lines has one or two of them. Others
    with at least three name tests and their results. A line with equals signs before it alone is a heading of AsciiDoc
    or Typst if blank lines surround it.
    """
    found: dict[int, tuple[int, str]] = {}
    enclosed: dict[int, tuple[int, str]] = {}
    for match in _HEADING.finditer(text):
        start = match.start()
        if (marks := match["equals"]) is None:
            level = int(match["textile"] or match["pod"] or 0)
            level = level or _LEVELS[match["latex"] or match["roff"] or match["texinfo"]]
            found[start] = level, next(match[name] for name in _TEXTS if match[name]).strip()
            continue
        said = match["equaled"].strip()
        bare = said.rstrip("=")
        if bare != said:
            if len(said) - len(bare) == len(marks):
                enclosed[start] = len(marks), bare.strip()
        elif match["equaled"][0] in " \t" and _is_after_blank(text, start) and _BLANK.match(text, match.end("equaled")):
            found[start] = len(marks), said
    if any(level < 3 for level, _ in enclosed.values()):
        found |= enclosed
    if _ORG.search(text) is not None:
        for match in _ORG_HEADING.finditer(text):
            found[match.start()] = len(match["stars"]), _ORG_TAGS.sub("", match["said"].rstrip())
    return found


def _is_after_blank(text: str, start: int) -> bool:
    """Return True if the line before is blank, or is an attribute of AsciiDoc such as `[[anchor]]`."""
    if start == 0:
        return True
    before = text[max(text.rfind("\n", 0, start - 1) + 1, start - 200) : start].strip()
    return not before or (before[0] == "[" and before[-1] == "]")
