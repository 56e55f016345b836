"""The parts of a text that lines without marks name: the parents of indented lines, the headers of tables, and records.

`text_captions` finds them with the headings of a text. It returns the captions of all parts, which nest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import chain, islice

from context_agent.retrieval.loaders.headings import MOST_CAPTIONS, Heading, heading_captions, plain_words, shortened
from context_agent.text.fences import FENCE, closes_fence
from context_agent.types import Caption

LONGEST_PARENT = 80
"""Maximum number of characters of the line that indented lines belong to. A longer one is shortened."""
LONGEST_PARAGRAPH = 100
"""Maximum number of characters of a line of prose that names the indented lines below it."""
LONGEST_HEADER = 160
"""Maximum number of characters of the names of the columns of a table. Longer ones are shortened."""
LEAST_ROWS, LEAST_BARS = 3, 1
"""Minimum number of lines of a table, including its header, and the minimum number of bars in each."""
LONGEST_ROW = 10_000
"""Maximum number of characters of a row of a table that is recognized."""
MOST_LINES = 1_000_000
"""Maximum number of lines whose indentation is compared."""
MOST_PARENTS = 32
"""Maximum number of parts that a part is inside of."""
_LINE = re.compile(r"^(?P<indent>[ \t│├└┬─]*+)(?P<words>\S[^\n]*+)", re.MULTILINE)
_WHOLE_LINE = re.compile(r"[^\n]*+\n|[^\n]++")
TAB = 4
"""The number of spaces that a tab counts as."""
_COMMENTS = ("#", "//", "/*", "--", ";", ")", "]", "}", "</", '"""', "'''", "%")
"""The first characters of lines that name nothing: comments, closing brackets and tags."""
_ITEM = re.compile(r"(?:[-*+•]|\d{1,3}[.)])[ \t]++")
_LAYOUT = re.compile(
    r"\.\.[ \t]++(?:\|[^|\n]{1,80}+\|[ \t]*+)?(?:image|figure|code|code-block|sourcecode|literalinclude|parsed-literal"
    r"|highlight|include|contents|toctree|table|list-table|csv-table|raw|only|note|tip|hint|important|warning|caution)::"
)
"""A directive of reStructuredText that says how its lines are printed, not what they are about."""
_STATEMENT = re.compile(
    r"(?:if|for|while|with|elif|except|async|await|return|yield)\b[^\n]*+(?<=:)\Z|(?:try|else|finally):\Z"
    r"|[^\n]*?(?:[\w\])\"'] ?=(?! ?\Z)|[(\[{\\;]\Z)"
)
"""A line of a sample of code within prose."""
LONG_ITEM = 50
"""Minimum number of characters of an item that may wrap before a capital letter. A shorter one names what follows."""
_REMARK = re.compile(r"(?<=[\s{:;])(?:#|//)\s.*+")
"""A remark at the end of a line."""
LONGEST_READ = 400
"""Maximum number of characters of a line that are read for its name."""
_ENDS = " \t\r:={([,-*+•|>\"'"
"""The characters that the name of a parent loses at its ends."""
_LETTER = re.compile(r"[^\W\d_]")
_NAMED = re.compile(
    r"^(?P<key>name|title|subject|package|service|host|job|pod|node|id|path|file)[ \t]*+:[ \t]++(?P<words>\S[^\n]*)",
    re.MULTILINE | re.IGNORECASE,
)
"""A line that names the record that follows."""
_HEAD = re.compile(r"(?:[^\W\d_][\w -]{0,40}:[ \t]++\S[^\n]{0,100}\n){2,12}(?=[ \t]*\n)")
"""The lines at the beginning of a text that say what it is about, up to a blank line."""


class Lines(Enum):
    """What the lines of a text are, which decides whether a line names the indented lines below it.

    In code and settings, each line does. In a list, only items do. In prose, a line must be a paragraph of its own, an
    item or the beginning of a list.
    """

    CODE = "code"
    LIST = "list"
    PROSE = "prose"


def text_captions(
    text: str, lines: Lines, *, headings: Iterable[Heading] = (), title: str = "", records: bool = False
) -> tuple[Caption, ...]:
    """Return the captions of all parts of a text, in the order of their starts.

    Args:
        text: The text.
        lines: What the lines of the text are.
        headings: The headings of the text.
        title: The title of the document.
        records: Whether the text may have records, each with lines such as `Name: queue`.
    """
    found = [
        *heading_captions(headings, len(text), title=title),
        *_indented(text, lines),
        *islice(_tables(text), MOST_CAPTIONS),
    ]
    if records:
        found += [*_head(text), *heading_captions(_records(text), len(text))]
    return nested(found)


def nested(captions: Iterable[Caption]) -> tuple[Caption, ...]:
    """Return captions in the order of their starts. A part ends with the part that it begins in.

    A part inside of `MOST_PARENTS` others has no caption.
    """
    done: list[Caption] = []
    ends: list[int] = []
    for caption in sorted(captions, key=lambda caption: (caption.start, -caption.end)):
        while ends and ends[-1] <= caption.start:
            ends.pop()
        if len(ends) == MOST_PARENTS:
            continue
        end = min(caption.end, ends[-1]) if ends else caption.end
        ends.append(end)
        done.append(Caption(caption.start, end, caption.text))
    return tuple(done[:MOST_CAPTIONS])


def _indented(text: str, lines: Lines) -> Iterator[Caption]:
    """Yield the captions of the lines that have more indented lines below them."""
    opened: list[tuple[int, int, str]] = []
    """The indentation, the start and the name of each parent."""
    before = (0, 0, "", False)
    """The indentation, the start and the words of the line before, and whether a blank line is above it."""
    end, fence, count = 0, "", 0
    for line in islice(_LINE.finditer(text), MOST_LINES):
        indent, words, start = len(line["indent"].expandtabs(TAB)), line["words"], line.start("words")
        is_apart = line.start() == 0 or text.startswith("\n\n", line.start() - 2)
        mark = FENCE.match(words) if lines is not Lines.CODE else None
        if mark and (not fence or closes_fence(fence, mark["mark"], mark["info"])):
            fence = "" if fence else mark["mark"]
            continue
        if fence:
            continue
        while opened and opened[-1][0] >= indent:
            _, begin, name = opened.pop()
            yield Caption(begin, line.start(), name)
        own, begin, said, was_apart = before
        if own < indent and said and not is_apart and _is_continued(said, words, lines):
            end = line.end()
            continue
        if own < indent and count < MOST_CAPTIONS and _is_parent(said, lines, is_apart=was_apart and is_apart):
            item = _ITEM.match(said)
            name = plain_words(_REMARK.sub("", said[item.end() if item else 0 : LONGEST_READ]))
            name = shortened(name.strip(_ENDS), LONGEST_PARENT)
            if name:
                opened.append((own, begin, name))
                count += 1
        before, end = (indent, start, words, is_apart), line.end()
    yield from (Caption(begin, end, name) for _, begin, name in opened)


def _is_continued(words: str, following: str, lines: Lines) -> bool:
    """Return True if a line goes on in the more indented line directly below it, as a wrapped item does."""
    if lines is Lines.CODE or _ITEM.match(following):
        return False
    if lines is Lines.LIST:
        return True
    return bool(_ITEM.match(words) and not words.endswith(":") and (following[0].islower() or len(words) >= LONG_ITEM))


def _is_parent(words: str, lines: Lines, *, is_apart: bool) -> bool:
    """Return True if a line names the more indented lines below it.

    Args:
        words: The line.
        lines: What the lines of the text are.
        is_apart: Whether blank lines are above and below the line.
    """
    if words.startswith(_COMMENTS) or not _LETTER.search(words):
        return False
    if lines is Lines.CODE or _ITEM.match(words):
        return True
    if lines is Lines.LIST or len(words) > LONGEST_PARAGRAPH or _LAYOUT.match(words) or _STATEMENT.match(words):
        return False
    return words.isupper() or words.endswith(":") or (is_apart and not words.endswith((".", "!", "?", ",", ";")))


def _tables(text: str) -> Iterator[Caption]:
    """Yield the captions of the tables whose cells have `|` between them: the title and the names of the columns."""
    start = position = 0
    rows, above = list[str](), ""
    for line in chain((found[0] for found in _WHOLE_LINE.finditer(text)), [""]):
        if line.count("|") >= LEAST_BARS and len(line) <= LONGEST_ROW:
            start = start if rows else position
            rows += [line] if len(rows) < LEAST_ROWS else []
        else:
            if len(rows) == LEAST_ROWS and (header := _header(rows[0])):
                title = above if 0 < len(above) <= LONGEST_PARENT and above[0].isalnum() else ""
                yield Caption(start, position, shortened(f"{title}: {header}" if title else header, LONGEST_HEADER))
            above, rows = line.strip(), []
        position += len(line)


def _header(row: str) -> str:
    """Return the names of the columns of a table. If a cell has no letter, the table has no header, and return ""."""
    cells = [plain_words(cell) for cell in row.strip().strip("|").split("|")]
    return ", ".join(filter(None, cells)) if all(not cell or _LETTER.search(cell) for cell in cells) else ""


def _records(text: str) -> Iterator[Heading]:
    """Yield the lines that name records, as headings. The key that occurs first has the highest level."""
    levels: dict[str, int] = {}
    for found in _NAMED.finditer(text):
        level = levels.setdefault(found["key"].lower(), len(levels))
        yield Heading(found.start(), level, found["words"])


def _head(text: str) -> Iterator[Caption]:
    """Yield the caption of a text that begins with a block of lines that say what it is about."""
    if found := _HEAD.match(text):
        yield Caption(0, len(text), shortened(", ".join(found[0].splitlines()), LONGEST_HEADER))
