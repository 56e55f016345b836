"""Sentence boundaries.

`sentence_spans` is the splitter for all text that a reader sees. It knows the full stops of many scripts, closing
quotation marks, and the abbreviations of English.

`unwrapped_spans` also joins the lines of a sentence that an editor has wrapped.

`loose_sentences` and `capitalized_sentences` are simpler. Shipped models were trained on their output, so it must not
change.

`capitalize` gives a sentence its capital letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

STOPS = ".!?…।॥؟۔։።៕"
"""Marks that end a sentence if white space follows."""
WIDE_STOPS = "。！？｡．"
"""Marks that end a sentence whatever follows."""
WIDE_CLOSERS = "」』）】》〉”’"
CLOSERS = re.escape("\"')]}»›" + WIDE_CLOSERS)
"""Closing quotation marks and brackets that belong to the sentence before them, escaped for a character class."""
BOUNDARY = re.compile(
    rf"\n\s*|(?<=[{STOPS}{WIDE_STOPS}{CLOSERS}])\s+|(?<=[{WIDE_STOPS}{WIDE_CLOSERS}])(?![\s{WIDE_STOPS}{CLOSERS}])"
)
"""A place at which a sentence may end: a line break, or the space after a stop or closer. `ends_sentence` decides."""

LONGEST_CLOSING = 8
"""The number of characters before a boundary that are searched for a stop and its closers."""
LONGEST_ABBREVIATION = 12
_TERMINATED = re.compile(rf"[{STOPS}{WIDE_STOPS}][{CLOSERS}]*\Z")
_ABBREVIATED = re.compile(
    r"(?:\A|[\s(\[\"'“‘])(?:[A-Z]|[A-Za-z](?:\.[A-Za-z])++|Mrs?|Ms|Drs?|Prof|St|Mt|Rev|Hon|Gen|Col|Capt|Lt|Sgt|Maj|Gov|Sen"
    r"|Rep|Pres|Jr|Sr|vs|cf|al|approx|ca|[Nn]os?|[Vv]ol|[Ff]igs?|[Ee]qs?|[Ss]ec|[Cc]h|pp?|eds?|Inc|Ltd|Co|Corp|Dept"
    r"|Univ|Ave|Blvd|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec|bzw|z\.B|d\.h|Nr|Str|Tel|Sra|Dra"
    r"|(?:[Ii]m|[Vv]om|[Zz]u[mr]|[Bb]eim|[Dd](?:e[mnrs]|as|ie)) \d{1,2})\.\Z"
)
"""An abbreviation, or a German ordinal number after an article, as in "im 19. Jahrhundert"."""
_ORDINAL = re.compile(r"(?<![\d.,])\d{1,2}\.\Z")
_GERMAN_MONTH = re.compile(
    r"(?:Januar|Jänner|Februar|März|April|Mai|Juni|Juli|August|September|Oktober|November|Dezember)\b"
)
_SMALL_LETTER, _CAPITAL_LETTER = re.compile(r"(?<![^\s(])[a-z]\.\Z"), re.compile(r"(?:[A-ZÄÖÜ]|Chr)\.")
"""The halves of a German abbreviation, such as "z. B." and "v. Chr."."""
_WORD = re.compile(r"\S{1,200}")
NARROWEST_PARAGRAPH = 40
"""Minimum number of characters of the longest line of a wrapped paragraph. Shorter lines are a list or verses."""
LONG_LINE = 0.75
"""The share of the longest line from which a line may be wrapped. Printed lines have letters of several widths."""
LONGEST_OPENING = 200
"""The number of characters before a line break that are searched for an open end."""
_OPEN_END = re.compile(
    r"(?<!\S)(?:a|an|and|are|as|at|be|by|for|from|has|have|in|is|of|on|or|than|that|the|their|this|to|was|were|which|with)"
    r"\Z"
)
"""A last word after which an English sentence goes on."""
_BEGINS_WORD = re.compile(r"[^\W_]|[`\[(\"'“‘„«]|\.\d")
"""The start of a line that continues the sentence of the line before. The mark of an item is not such a start."""
_OPEN_BRACKET = re.compile(r"[(\[][^()\[\]]{0,200}\Z")
_CODE = re.compile(r"[={};<>]|\w\(")
"""Marks of a line of code. Such lines are not wrapped text."""
_LOOSE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_CAPITALIZED = re.compile(r"(?<=[.!?;])\s+(?=[A-Z\"'(])|(?<=[。！？])(?=.)")


def terminated(text: str, start: int, end: int) -> bool:
    """Return True if `text[start:end]` ends with a sentence-ending mark.

    Closing quotation marks or brackets may follow it.
    """
    return _TERMINATED.search(text, max(start, end - LONGEST_CLOSING), end) is not None


def ends_sentence(text: str, start: int, end: int, following: int) -> bool:
    """Return True if the sentence `text[start:end]` ends at `end`, so that the next one begins at `following`.

    A sentence does not end after or inside an abbreviation, inside a German date, or before a lower-case letter.
    """
    if not terminated(text, start, end) or text[following : following + 1].islower():
        return False
    near = max(0, start - 1, end - LONGEST_ABBREVIATION)
    is_date = _GERMAN_MONTH.match(text, following) and _ORDINAL.search(text, near, end)
    is_half = _CAPITAL_LETTER.match(text, following) and _SMALL_LETTER.search(text, near, end)
    return end == following or not (is_date or is_half or _ABBREVIATED.search(text, near, end))


def sentence_spans(text: str, *, wrapped: bool = False) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each sentence, without the white space around it.

    A line break ends a sentence, unless the lines are `wrapped`.
    """
    start = len(text) - len(text.lstrip())
    for match in BOUNDARY.finditer(text, start):
        if (not wrapped and "\n" in match[0]) or ends_sentence(text, start, match.start(), match.end()):
            end = start + len(text[start : match.start()].rstrip())
            if start < end:
                yield start, end
            start = match.end()
    end = start + len(text[start:].rstrip())
    if start < end:
        yield start, end


def unwrapped_spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each sentence of a text that may have hard line breaks.

    A sentence goes on in the next line if the line begins with a lower-case letter, and if its first word would not
    have fit into the line before. The longest line of the paragraph tells how long a line may be. After a long line
    whose end leaves the sentence open, such as "the value is" or an open bracket, it goes on whatever word follows.
    Lines of code are not joined.
    """
    previous: tuple[int, int] | None = None
    paragraph, width = 0, 0
    for start, end in sentence_spans(text):
        if start >= paragraph:
            found = text.find("\n\n", start)
            first, paragraph = text.rfind("\n\n", 0, start) + 1, found if found >= 0 else len(text)
            width = max(map(len, text[first:paragraph].split("\n")))
        if previous and not terminated(text, *previous) and _is_wrapped(text, previous[1], start, width):
            previous = previous[0], end
            continue
        if previous:
            yield previous
        previous = start, end
    if previous:
        yield previous


def _is_wrapped(text: str, end: int, following: int, width: int) -> bool:
    """Return True if a line of a paragraph this wide was wrapped between these positions."""
    if text[end:following].count("\n") != 1 or width < NARROWEST_PARAGRAPH:
        return False
    begin, last = text.rfind("\n", 0, end) + 1, text.find("\n", following)
    if _CODE.search(text, begin, last if last >= 0 else len(text)):
        return False
    if end - begin >= LONG_LINE * width and _BEGINS_WORD.match(text, following):
        near = max(begin, end - LONGEST_OPENING)
        if _OPEN_END.search(text, near, end) or _OPEN_BRACKET.search(text, near, end):
            return True
    word = _WORD.match(text, following)
    fits = end - begin + 1 + (len(word[0]) if word else 1) <= width
    return text[following].islower() and not fits


def sentences(text: str) -> list[str]:
    """Return the sentences of a text as written."""
    return [text[start:end] for start, end in sentence_spans(text)]


def loose_ends(text: str, start: int, end: int) -> list[int]:
    """Return the ends of the loose sentences of `text[start:end]`. A sentence includes the white space after it."""
    return [match.end() for match in _LOOSE.finditer(text, start, end)]


def loose_sentences(text: str) -> list[str]:
    """Return the parts between full stops and line breaks, with single spaces. A part may end at an abbreviation."""
    return [" ".join(part.split()) for part in _LOOSE.split(text) if part.strip()]


def capitalized_sentences(text: str) -> list[str]:
    """Return the parts that end with a full stop or semicolon before a capital letter, as written.

    If there is no such end, the whole text is one part.
    """
    return _CAPITALIZED.split(text)


def capitalize(text: str) -> str:
    """Return the text with a capital first letter. Unlike `str.capitalize`, the other letters stay."""
    return text[:1].upper() + text[1:]
