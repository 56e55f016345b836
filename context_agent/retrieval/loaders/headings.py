"""The headings of a text, and the parts of it that they name.

A long text is cut into chunks, so the heading of a part is often in another chunk than the words below it. The captions
that are made here give each chunk the headings above it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from context_agent.retrieval.loaders.reading import one_line, storable
from context_agent.text.fences import closes_fence
from context_agent.types import Caption

MOST_CAPTIONS = 20_000
"""Maximum number of parts of a document that have a caption. Further parts have that of the part around them."""
LONGEST_HEADING = 120
"""Maximum number of characters of a heading. A longer one is shortened."""
UNDERLINE_SLACK = 2
"""Maximum number of characters by which the underline of a title is shorter than the title. AsciiDoc allows as many."""
_MARKDOWN = re.compile(
    r"^ {0,3}(?:(?P<fence>`{3,}+(?![^`\n]*+`)|~{3,}+)(?P<info>[^\n]*+)|(?P<marks>#{1,6})[ \t]++(?P<words>[^\n]++)"
    r"|<h(?P<depth>[1-6])\b[^>\n]{0,300}>(?P<tagged>[^\n]{1,400}?)</h(?P=depth)>"
    r"|(?P<title>[^\s#>|`~*+-][^\n]{0,199})\n {0,3}(?P<rule>={2,}+|-{2,}+)[ \t]*+$)",
    re.MULTILINE | re.IGNORECASE,
)
"""A fence around code, or a heading of Markdown: with marks, with tags, or with a rule below it.

A line with backticks on both sides of code is not a fence.
"""
_PAGE = re.compile(r"^(?P<marks>#{1,6}) (?P<words>[^\n]++)", re.MULTILINE)
"""A heading as the readers of pages and of Office files write it."""
_MANUAL = re.compile(r"^(?P<marks>#{2,3}) (?P<words>[^\n]++)", re.MULTILINE)
_ASCIIDOC = re.compile(
    r"^(?:(?P<fence>-{4,}+|\.{4,}+|\+{4,}+|/{4,}+|```)[^\S\n]*+$|(?P<marks>[=#]{1,6})[ \t]++(?P<words>\S[^\n]*+))",
    re.MULTILINE,
)
_ORG = re.compile(r"^(?P<marks>\*{1,9})[ \t]++(?P<words>\S[^\n]*+)", re.MULTILINE)
_WIKI = re.compile(r"^(?P<marks>={1,6})(?P<words>[^=\n][^\n]{0,299}?)(?P=marks)[ \t]*+$", re.MULTILINE)
_TEXTILE = re.compile(r"^h(?P<depth>[1-6])\.[ \t]++(?P<words>\S[^\n]*+)", re.MULTILINE)
_TYPST = re.compile(r"^(?P<marks>={1,6})[ \t]++(?P<words>\S[^\n]*+)", re.MULTILINE)
_LATEX = re.compile(
    r"^[ \t]*+\\(?P<name>part|chapter|section|subsection|subsubsection|paragraph)\*?(?P<argument>[\[{][^\n]*+)",
    re.MULTILINE,
)
_LATEX_LEVELS = "part chapter section subsection subsubsection paragraph".split()
_MARKED: Mapping[str, re.Pattern[str]] = {
    "asciidoc": _ASCIIDOC,
    "manual": _MANUAL,
    "markdown": _MARKDOWN,
    "org": _ORG,
    "page": _PAGE,
    "textile": _TEXTILE,
    "typst": _TYPST,
    "wiki": _WIKI,
}
_UNDERLINED = re.compile(
    r"^(?:(?P<over>[=\-~^\"'#*+`:._])(?P=over){2,}+[ \t]*+\n)?[ \t]{0,8}"
    r"(?P<title>[^\W_][^\n]{0,199}|[`:][^\n]{1,199})\n"
    r"(?P<rule>(?P<mark>[=\-~^\"'#*+`:._])(?P=mark){2,}+)[ \t]*+$",
    re.MULTILINE,
)
"""A title with a line of punctuation below it, or with such lines above and below it."""
_PLAIN = re.compile(
    r"(?:\A|(?<=\n)\n|(?<=\n\n))"
    r"(?:(?P<number>(?:\d{1,3}|[A-Z])(?:\.\d{1,3}){0,5})(?:\.[ \t]++|[ \t]{1,4}+)(?=[^\W\d_a-z])[^\n]{1,100}"
    r"|(?P<capitals>[A-Z][A-Z0-9 ,.:'&/()-]{2,80}))(?<![;,!?])\n(?=[ \t]*+(?:\n|\Z))"
)
"""A line of its own that begins with the number of a part, or that has only capital letters."""
_SECTION = re.compile(r"^\[{1,2}(?P<name>[A-Za-z\"'][^\[\]\n]{0,119})\]{1,2}[ \t]*+(?:[#;][^\n]*+)?$", re.MULTILINE)
"""The first line of a section of settings."""
_LINK = re.compile(r"!?\[([^\[\]\n]{0,200}+)\](?:\([^()\s]{0,300}+\)|\{[^}\n]{0,100}+\})")
_TITLE_MARKS = re.compile(r"</?[a-zA-Z][^<>\n]{0,200}>|\{:? ?[#.][^\W\d][^{}\n]{0,100}\}|\*\*|``?")
"""The tags, the attributes such as `{#name .kind}`, and the marks of strong words and of code in a heading."""
_MARKS = re.compile(_TITLE_MARKS.pattern + r"|(?<![\w\\])__?(?=\w)|(?<=\w)__?(?!\w)")
_RST_ROLE = re.compile(r":[a-z][a-z:]{0,30}:(?=`)")


class Heading(NamedTuple):
    """A heading: where it begins, its level and its words. The part that it names ends at the next one of its level."""

    start: int
    level: int
    words: str


def heading_captions(headings: Iterable[Heading], end: int, *, title: str = "") -> tuple[Caption, ...]:
    """Return the captions of the parts that headings name.

    Args:
        headings: The headings, in the order of their starts.
        end: The length of the text.
        title: The title of the document, which every chunk has already. A heading that repeats it names nothing.
    """
    found: list[Caption] = []
    opened: list[tuple[int, int, str, int]] = []
    """The level, the start and the words of each part that is open, and its place in `found`."""

    def close(level: int, position: int) -> None:
        while opened and opened[-1][0] >= level:
            _, start, words, place = opened.pop()
            found[place] = Caption(start, position, words)

    for heading in headings:
        if len(found) >= MOST_CAPTIONS:
            break
        close(heading.level, heading.start)
        words = shortened(heading.words, LONGEST_HEADING)
        if words and words.casefold() != title.casefold():
            opened.append((heading.level, heading.start, words, len(found)))
            found.append(Caption(heading.start, heading.start, words))
    close(-1, end)
    return tuple(found)


def shortened(words: str, most: int) -> str:
    """Return the words on one line with at most so many characters."""
    line = one_line(storable(words))
    return line if len(line) <= most else line[: most - 3] + "..."


def marked_headings(text: str, markup: str, *, known: Collection[str] | None = None) -> Iterator[Heading]:
    """Yield the headings of a text in markup.

    Args:
        text: The text.
        markup: The name of the markup, such as `markdown`. `page` is the text of a page or of an Office file.
        known: The lines that are headings. Others only look like one, such as comments in code. None means that all
            are.
    """
    fence = ""
    for found in _MARKED[markup].finditer(text):
        parts = found.groupdict()
        if parts.get("fence"):
            mark = parts["fence"]
            if not fence:
                fence = mark
            elif closes_fence(fence, mark, parts.get("info") or ""):
                fence = ""
        elif fence or (known is not None and found[0] not in known):
            continue
        elif parts.get("title"):
            # A rule below several lines underlines no title. Rows of a table have rules, too.
            if not found.start() or text.endswith("\n\n", 0, found.start()):
                yield Heading(found.start(), 1 if parts["rule"][0] == "=" else 2, plain_words(parts["title"]))
        else:
            start = found.start() + len(found[0]) - len(found[0].lstrip())
            level = int(parts.get("depth") or 0) or len(parts["marks"])
            yield Heading(start, level, plain_words(without_closing_marks(parts.get("tagged") or parts["words"])))


def without_closing_marks(words: str) -> str:
    """Return the words of a heading without the marks at its end, which stand apart. Those of `C#` belong to it."""
    words = words.strip()
    marked = words.rstrip("#")
    return marked.rstrip() if not marked or marked[-1].isspace() else words


def underlined_headings(text: str) -> Iterator[Heading]:
    """Yield the titles with a rule below them, as in reStructuredText. The first kind of rule is that of level 1."""
    kinds: list[tuple[bool, str]] = []
    for found in _UNDERLINED.finditer(text):
        title = found["title"].rstrip()
        if found["over"] not in (None, found["mark"]) or len(found["rule"]) + UNDERLINE_SLACK < len(title):
            continue
        kind = (found["over"] is not None, found["mark"])
        if kind not in kinds:
            kinds.append(kind)
        yield Heading(found.start(), kinds.index(kind) + 1, plain_words(_RST_ROLE.sub("", title)))


def plain_headings(text: str) -> Iterator[Heading]:
    """Yield the headings of plain text: underlined or numbered titles, and lines of their own in capital letters.

    The first kind of title is that of the highest level. The number of a title shows its level among those.
    """
    headings = [
        *((heading.start, f"rule {heading.level}", 0, heading.words) for heading in underlined_headings(text)),
        *(
            (found.start("number"), "number", found["number"].count("."), found[0].strip())
            if found["number"]
            else (found.start("capitals"), "capitals", 0, found["capitals"])
            for found in _PLAIN.finditer(text)
        ),
    ]
    ranks: dict[str, int] = {}
    for start, kind, depth, words in sorted(headings):
        yield Heading(start, 10 * ranks.setdefault(kind, len(ranks) + 1) + depth, words)


def section_headings(text: str) -> Iterator[Heading]:
    """Yield the names of the sections of settings, as in TOML and INI files. A new section ends the one before it."""
    return (Heading(found.start(), 1, found["name"].strip("\"' ")) for found in _SECTION.finditer(text))


def latex_headings(text: str, argument: Callable[[str], str]) -> Iterator[Heading]:
    """Yield the headings of LaTeX. `argument` returns the words of an argument."""
    for found in _LATEX.finditer(text):
        start = found.start() + len(found[0]) - len(found[0].lstrip())
        yield Heading(start, _LATEX_LEVELS.index(found["name"]), argument(found["argument"][: 4 * LONGEST_HEADING]))


def plain_title(words: str) -> str:
    """Return the words of a heading that is a title without links and marks. Underscores stay, as in `__init__`."""
    return _TITLE_MARKS.sub("", _LINK.sub(r"\1", words)).strip()


def plain_words(words: str) -> str:
    """Return the words of a heading without links and marks."""
    return _MARKS.sub("", _LINK.sub(r"\1", words)).strip()
