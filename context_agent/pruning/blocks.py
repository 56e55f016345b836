"""Passages of a text, and the rules that cut plain text into them.

Text is cut at headings and blank lines, so that Markdown sections, paragraphs and blocks of code are passages. Long
blocks are cut at lines that begin an entry, as in a log. Long lines are cut at sentences.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple

from context_agent.pruning.captions import (
    BLAME,
    FIGURE_SPACE,
    INDENTATION,
    LINE_NUMBER,
    LINE_PREFIX,
    MESSAGE,
    NODE_HEADING,
    RECORD,
    SOURCE,
    WIDEST_INDENT,
    Captions,
)
from context_agent.text.sentences import loose_ends

TINY, SMALL, TARGET, LARGEST = 40, 100, 600, 1_200
"""Sizes in characters.

A record below `TINY` or a block below `SMALL` is joined with the next one, up to `TARGET`. The rows of a table are
joined up to `TINY`. A block above `LARGEST` is cut.
"""
SMALL_BUDGET, SMALLEST = 1_600, 2 / 3
"""The budget in tokens below which the last two sizes shrink with the budget, and the factor to which they shrink.

If only a few large passages fit, they are from one or two results, and the evidence of other results is lost.
"""
FINE = 0.4
"""The factor to which the last two sizes shrink if a large passage of the text would take much of the budget."""
LETTERS_OF_A_WIDE = 4
"""The letters that have about as many tokens as one Chinese, Japanese or Korean character."""
_WIDE = re.compile(r"[\u2e80-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]++")
"""Chinese, Japanese and Korean characters."""
UNSCALED = 800_000
"""The length in characters above which a text gets larger passages, so that their number is bounded."""
SHORT_ROWS = 200_000
"""The length in characters above which tiny rows of a table are joined up to `TARGET`. So the work is bounded."""
MOST_SHORT = 2_000
"""Maximum number of blocks of one text that may stay short because a heading follows them."""
LEAST_ESCAPED = 5
"""Minimum number of escaped line breaks of a text that was written as a string, and their minimum for each real one."""
LOG_PREFIX = 48
"""The number of characters of a log entry in which its time and level are searched."""
FEWEST_ALIGNED = 3
"""Minimum number of lines whose first numbers are aligned at their ends."""
_COUNTED = re.compile(
    rf"^(?!{LINE_NUMBER.pattern})(?P<space> {{0,80}}+)(?P<number>\d[\d.,]{{0,20}}+[%KMGTPkB]{{0,3}}+)[ \t]"
    r"[^\n]*+(?:\n|\Z)",
    re.M,
)
"""A line that begins with a number, which is not the number of the line."""
_PARAGRAPH = re.compile(r"\n(?:[ \t\r]*\n)++")
_PAGE = re.compile(r"^\f", re.M)
"""The start of a page in the text of a PDF."""
_CHAIN = re.compile(r"(?:The above exception was the direct cause of|During handling of the above exception)")
"""The start of the line between two tracebacks of Python that belong together."""
INDENTED = (" ", "\t")
"""The first character of an indented line."""
_LAST_LINE = re.compile(
    r"[)\]}]|(?:end|END|fi|done|esac)[;,.)]{0,2}[ \t\r]*$"
    r"|(?:else|elif|elsif|except|finally|rescue|ensure)\b(?:[^\n]{0,200}[:{])?[ \t\r]*$"
    r"|(?:[\w.]{0,80}(?:Error|Exception|Warning|Interrupt|Exit|Failure)|panic|Caused by)\b",
    re.M,
)
"""The start of a line that belongs to the indented lines before it.

It is a bracket, the end of a block or another branch of it, an exception, or the cause of one.
"""
_TRACEBACK = "Traceback (most recent call last)"
"""The first line of a traceback of Python. Its last line may have any name."""
_PROMPT = re.compile(r"(?:>>>|\$|#|In \[\d{1,5}\]:|(?:PS )?[\w.@~:/\\()-]{1,80}[$#>]) \S")
"""The start of a line with the prompt of a shell or of an interpreter. What it printed follows."""
_HTML = re.compile(r"^[ \t]*+<(?:!doctype html|html|table|tr)\b", re.M | re.I)
HTML_START = 2_000
"""The first characters of a text, in which HTML shows itself."""
_OPENING = re.compile(
    r"[ \t]*+<(?:article|aside|blockquote|body|div|dl|dt|figure|footer|form|h[1-6]|head|header|hr|li|main|nav|ol|p|pre"
    r"|script|section|style|table|tbody|thead|tr|ul)\b",
    re.I,
)
"""The start of a line of HTML that opens a block."""
_LINE = re.compile(r"[^\n]*\n?")
_TIME = r"\d\d:\d\d:\d\d"
_LEVEL = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|FATAL|CRITICAL)\b"
_LOGGED = re.compile(rf"{_TIME}|\b{_LEVEL}|\blevel\\?[\"']?[ \t]?[:=][ \t]?\\?[\"']?[a-z]")
"""The parts that most log entries have: the time of day, or a level."""
_FIELD = re.compile(
    r"[ \t\"']*+[A-Za-z][\w ./()-]{0,40}+[\"']?[:=][ \t\"']*+"
    rf"(?:{_LEVEL}|[\w, /-]{{0,30}}?{_TIME}(?:[.,]\d{{1,9}})?+(?:[ \t]?(?:[A-Z]{{1,5}}|[+-]\d\d:?\d\d|\d{{4}})\b)*+)"
    r"[ \t\r\"',;]*+$",
    re.M,
)
"""A line with a key whose value is a time or a level, such as `Started: Mon, 16 Nov 2026 09:14:22 +0000`."""
_LOCATION = re.compile(r"(?!\d{4}-\d\d-|\d\d?:\d\d)([^\s:]+)[:-]\d+[:-]")
"""The file name in a line of grep's output. A date and a time of day are none."""
_LETTER = re.compile(r"[^\W_]")
_RECORD_BORDERS = ("},{", "}, {", "),(", "), (", "],[", "], [")
"""The text between two records of one line, such as the rows of an `INSERT` statement."""
_FIELD_MARKS = (",", ";", "&", "|")
"""The marks between the fields of a line without spaces, such as the query of an address."""


Form = Literal["text", "value", "string", "member", "element", "cell", "row"]
"""The form in which a passage is written.

A passage is plain text, values of JSON or Python, text in a JSON string, members of an object, XML elements, rows of a
CSV file, or rows of a table with bars.
"""


class Item(NamedTuple):
    """A record of a list that is divided into passages. If all of them are removed, one stub replaces the record.

    Attributes:
        start: The offset where it begins in the result's text.
        end: The offset after it in the result's text.
        group: The number of the group of its list. Neighbors in one group can share a stub.
        form: The form in which it is written: an item of a list, a member of an object, or an XML element.
        strings: The number of JSON strings that it is nested in.
    """

    start: int
    end: int
    group: int
    form: Form = "value"
    strings: int = 0


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a tool result that is kept or removed as a whole.

    Attributes:
        text: The content. For a JSON string it has no escapes.
        start: The offset where it begins in the result's text.
        end: The offset after it in the result's text.
        label: The name of the part that it belongs to, such as its heading.
        form: The form in which it is written.
        group: The number of its group. Neighbors in one group can share a stub.
        tokens: Its size in tokens, or 0 if it was not counted.
        strings: The number of JSON strings that it is nested in.
        cells: The number of cells in a row of its table.
        delimiter: The delimiter of its table.
        binary: True if it is encoded text or long white space.
        dense: True if it is a part of minified code, of a hex dump or of a line of numbers.
        items: The records of lists that it is a part of, the innermost first.
    """

    text: str
    start: int
    end: int
    label: str = ""
    form: Form = "text"
    group: int = 0
    tokens: int = 0
    strings: int = 0
    cells: int = 1
    delimiter: str = ","
    binary: bool = False
    dense: bool = False
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of passages in characters.

    Attributes:
        tiny: A record below this size is joined with the next one.
        small: A block below this size is joined with the next one.
        target: The size up to which small parts are joined.
        rows: The size up to which the tiny rows of a table are joined. Each row is a record, so a passage of several
            rows is about several things. In a text above `SHORT_ROWS`, it is the target size.
        largest: The size above which a block is cut.
    """

    tiny: int
    small: int
    target: int
    rows: int
    largest: int

    @classmethod
    def of(cls, text: str, budget: int | None = None, *, is_fine: bool = False) -> Sizes:
        """Return the sizes for a text.

        A very long text gets larger passages, so the number of passages is bounded. A small budget gets smaller
        passages, and so does a text in Chinese, Japanese or Korean.

        Args:
            text: The text.
            budget: The tokens that all results may keep. None if the budget is large.
            is_fine: True to shrink the last two sizes to `FINE`, whatever the budget.
        """
        wide = sum(map(len, _WIDE.findall(text))) / max(1, len(text))
        factor = max(1 - wide + wide / LETTERS_OF_A_WIDE, len(text) / UNSCALED)
        shrunk = factor if budget is None else factor * min(1.0, max(SMALLEST, budget / SMALL_BUDGET))
        if is_fine:
            shrunk = factor * FINE
        tiny, target = int(TINY * factor), int(TARGET * shrunk)
        rows = tiny if len(text) <= SHORT_ROWS else target
        return cls(tiny, int(SMALL * factor), target, rows, int(LARGEST * shrunk))


Span = tuple[int, int, str]
"""The start, the end and the label of a passage."""


def text_spans(text: str, sizes: Sizes, captions: Captions | None = None) -> Iterator[Span]:
    """Yield the blocks between blank lines and headings.

    Short blocks are joined with the next one, and long blocks are cut. A block stays with the less indented one that
    it follows, up to the target size.

    Args:
        text: The text.
        sizes: The sizes of its passages.
        captions: The captions of the text, before any of them was asked for. By default they are made here.
    """
    captions = Captions(text) if captions is None else captions
    blocks = [*_joined_blocks(text, sizes, captions)]
    is_html = _HTML.search(text, 0, HTML_START) is not None
    for (start, end), (following, _) in pairwise([*blocks, (len(text), len(text))]):
        titled = captions.begin(start, following)
        has_entries = is_log(text[start:end])
        if has_entries or end - start > sizes.largest:
            target = sizes.small if has_entries else sizes.target
            for first, last, entry in entry_spans(text, start, end, target, sizes, is_html=is_html):
                # Of the lines that are cut at sentences, only log entries have their names at the start.
                is_rest = text.find("\n", entry, first) != -1 or is_log_entry(
                    text[entry : min(first, entry + LOG_PREFIX)]
                )
                yield first, last, captions.caption(first, entry=entry if is_rest else first)
        else:
            yield start, end, captions.caption(start, titled=titled)


def _joined_blocks(text: str, sizes: Sizes, captions: Captions) -> Iterator[tuple[int, int]]:
    found = (start for match in RECORD.finditer(text) if (start := match.start()) not in captions.headings)
    records = sorted({*found, *captions.records})
    pages = [match.start() for match in _PAGE.finditer(text)]
    first_lines = captions.heads() | {*records, *pages}
    starts = first_lines | {0} | {match.end() for match in _PARAGRAPH.finditer(text)}
    if pages:
        # The last lines of a page, such as its number, stay with the lines before them.
        feet = [it for before, page in pairwise([0, *pages]) for it in (max(before, page - sizes.small), page)]
        starts = {start for start in starts if start in first_lines or not inside(feet, start)}
    starts |= {match.start() for match in MESSAGE.finditer(text)}
    if captions.fences:
        starts = {start for start in starts if not inside(captions.fences, start)}
        records = [start for start in records if not inside(captions.fences, start)]
    # A record of several blocks stays whole if it is not too long.
    wholes = [span for span in pairwise([*records, len(text)]) if span[1] - span[0] <= sizes.largest]
    bounds = [bound for start, end in wholes for bound in (start, end)]
    starts = {start for start in starts if not inside(bounds, start)}
    pending: tuple[int, int] | None = None
    short_left = MOST_SHORT
    for first, last in pairwise([*sorted(starts), len(text)]):
        block = trimmed(text, first, last)
        if block is None:
            continue
        if pending is not None:
            fits = block[1] - pending[0] <= sizes.largest
            is_short = fits and pending[1] - pending[0] < sizes.small
            last_line = text.rfind("\n", *pending) + 1 or pending[0]
            is_chained = fits and (_CHAIN.match(text, block[0]) or _CHAIN.match(text, last_line))
            is_inner = block[1] - pending[0] <= sizes.target and _indent(text, block[0]) > _indent(text, pending[0])
            is_head = first in first_lines and short_left > 0 and _LETTER.search(text, *pending)
            if is_chained or ((is_short or is_inner) and not is_head):
                block = (pending[0], block[1])
            else:
                short_left -= is_short
                yield pending
        pending = block
    if pending is not None:
        yield pending


def _indent(text: str, start: int) -> int:
    """Return the number of spaces and tabs before the text of a line that starts here."""
    line = text[start : start + WIDEST_INDENT]
    return len(line) - len(line.lstrip(" \t"))


def inside(bounds: Sequence[int], position: int) -> bool:
    """Return True if a position is between the bounds of a span, and not its start."""
    row = bisect_right(bounds, position)
    return row % 2 == 1 and bounds[row - 1] < position


def trimmed(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Return the span without leading blank lines and trailing white space. If nothing remains, return None."""
    end = start + len(text[start:end].rstrip())
    indented = start + len(text[start:end]) - len(text[start:end].lstrip())
    start = max(start, text.rfind("\n", start, indented) + 1)
    return (start, end) if start < end else None


def with_line_breaks(text: str) -> str:
    """Return a text of the same length in which escaped line breaks and tabs are line breaks and spaces.

    A text that was written as a string has them, such as one of a cut JSON value. Otherwise the letter of the escape
    would join the next word. If a text has few of them, or many real line breaks, it is returned as it is: then they
    may be parts of code or of the paths of Windows.
    """
    escaped = text.count("\\n")
    if escaped < LEAST_ESCAPED or escaped <= LEAST_ESCAPED * text.count("\n"):
        return text
    return text.replace("\\r", "  ").replace("\\t", "  ").replace("\\n", " \n")


def with_aligned_numbers(text: str) -> str:
    """Return a text of the same length in which the spaces before shorter numbers of a column are figure spaces.

    Numbers that are aligned at their ends begin the lines of `uniq -c`, of `wc` or of `find -ls`. The spaces before
    them do not say what a line is below. If nothing is above the column, all spaces before it become figure spaces.
    """
    parts: list[str] = []
    position = 0
    column: list[re.Match[str]] = []

    def fill() -> None:
        nonlocal position
        widths = {match.end("space") - match.start() for match in column}
        if len(column) >= FEWEST_ALIGNED and len(widths) > 1:
            first = column[0].start()
            is_alone = not text[text.rfind("\n", 0, max(0, first - 1)) + 1 : first].strip()
            indent = 0 if is_alone else min(widths)
            for match in column:
                start, end = match.start() + indent, match.end("space")
                parts.extend((text[position:start], FIGURE_SPACE * (end - start)))
                position = end
        column.clear()

    for match in _COUNTED.finditer(text):
        if column and (match.start() != column[-1].end() or _number_end(match) != _number_end(column[-1])):
            fill()
        column.append(match)
    fill()
    return "".join([*parts, text[position:]])


def _number_end(match: re.Match[str]) -> int:
    return match.end("number") - match.start()


def is_log(block: str) -> bool:
    """Return True if most lines of a block are log entries."""
    lines = block.split("\n")
    return len(lines) > 2 and 2 * sum(map(is_log_entry, lines)) > len(lines)


def is_log_entry(line: str) -> bool:
    """Return True if a line begins as log entries do, with a time of day or a level.

    A field of a record whose value is a time or a level is no entry.
    """
    return _LOGGED.search(line, 0, LOG_PREFIX) is not None and BLAME.match(line) is None and _FIELD.match(line) is None


def entry_spans(
    text: str, start: int, end: int, target: int, sizes: Sizes, *, is_html: bool = False
) -> Iterator[tuple[int, int, int]]:
    """Cut a block at lines, and yield parts of at most `target` characters.

    An indented line stays with the line before it, and so does a line that ends the indented lines. The first line of
    output stays with the prompt, and the first line of a traceback stays with the log entry before it. If the part gets
    too long, it is cut at the least indented line. The spaces before a line number are not indentation. Lines about the
    same file stay together. In HTML, a part begins at a line that opens a block. In the accessibility tree of a page,
    it begins at a heading. The rest of an entry that is cut does not get the next entry's lines. A numbered line of
    code stays with the message of a compiler before it, and what follows a line with a colon at its end stays with that
    line.

    Yields:
        The start and the end of a part, and the start of the entry that its first line belongs to.
    """
    first = entry = start
    begun, location = end, ""
    indents: list[tuple[int, int]] = []
    for match in _LINE.finditer(text, start, end):
        line, here = match[0], match.start()
        content = prefix.end() if (prefix := LINE_PREFIX.match(line)) else 0
        begins = bool(line) and line[content : content + 1].strip(" \t\r\n│") != ""
        if is_html:
            begins = _OPENING.match(line) is not None
        elif begins and indents:
            begins = not _continues(text, begun, indents[-1], match, content)
        located = _LOCATION.match(line) or SOURCE.match(line)
        place = located[1] if located else "" if begins else location
        is_head = "heading" in line and NODE_HEADING.match(line) is not None
        begins = begins or is_head
        moves = (is_head or entry < first or place != location) and here - first >= sizes.small
        if here > first and begins and (moves or match.end() - first > target):
            yield from ((*span, entry) for span in _sentences(text, first, here, sizes))
            first, entry, indents = here, here, []
        if begins:
            begun = end if is_html or is_head else here
        if body := line[content:].lstrip(INDENTATION):
            indents.append((len(line) - content - len(body), here))
        while here > first and match.end() - first > sizes.largest:
            later = [(indent, -at) for indent, at in indents if at >= first + sizes.small]
            cut_at = -min(later)[1] if later else here
            yield from ((*span, entry) for span in _sentences(text, first, cut_at, sizes))
            first, entry, indents = cut_at, min(begun, cut_at), [it for it in indents if it[1] >= cut_at]
        location = place
    yield from ((*span, entry) for span in _sentences(text, first, end, sizes))


def _continues(text: str, begun: int, last: tuple[int, int], match: re.Match[str], content: int) -> bool:
    """Return True if a line that is not indented stays with the lines before it.

    It may end indented lines, or be the output of a command, a traceback, or the line of code that a compiler shows. It
    may also be what a line with a colon at its end introduces.

    Args:
        text: The text.
        begun: The offset where the entry before it begins.
        last: The indentation and the offset of the last line before it that is not blank.
        match: The line.
        content: The number of characters of its prefix.
    """
    indent, before = last
    line, said, line_before = match[0], match[0][content:], text[before : match.start()]
    if LINE_NUMBER.match(line) is not None and LINE_NUMBER.match(line_before) is None:
        return True
    if indent > 0:
        is_error = text.find(_TRACEBACK, begun, before) != -1 and not is_log_entry(said)
        return is_error or _LAST_LINE.match(said) is not None
    if _PROMPT.match(line_before) is not None and _PROMPT.match(line) is None:
        return True
    if is_log_entry(line):
        return False
    if text[match.end() : match.end() + 1] in INDENTED and is_log_entry(line_before[:LOG_PREFIX]):
        return True
    is_code = LINE_NUMBER.match(line_before) is not None or _LOCATION.match(line_before) is not None
    return not is_code and line_before.rstrip().endswith(":")


def _sentences(text: str, start: int, end: int, sizes: Sizes) -> Iterator[tuple[int, int]]:
    """Yield the span. If it is too long, cut it at sentences and yield parts of about the target size."""
    if end - start <= sizes.largest:
        span = trimmed(text, start, end)
        yield from () if span is None else (span,)
        return
    ends = loose_ends(text, start, end)
    first = start
    for last, following in pairwise([*ends, end, end + sizes.largest]):
        while last - first > sizes.largest:
            cut_at = _cut_in_line(text, first + sizes.small, first + sizes.target)
            yield first, cut_at
            first = cut_at
        if following - first > sizes.target and (span := trimmed(text, first, last)):
            yield span
            first = last


def _cut_in_line(text: str, start: int, end: int) -> int:
    """Return where to cut a long line without sentences: between two records, at a space, or after a mark."""
    borders = ((text.rfind(border, start, end), len(border) - 1) for border in _RECORD_BORDERS)
    at, length = max(borders)
    for marks in ((" ",), _FIELD_MARKS):
        if at == -1:
            at, length = max(text.rfind(mark, start, end) for mark in marks), 1
    return end if at == -1 else at + length
