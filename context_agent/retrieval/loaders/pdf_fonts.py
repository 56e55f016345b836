"""The work that the fonts of a PDF file cost. pypdf reads all fonts of a page again for each page.

Work is counted in drawing operations, which take pypdf about 25 ns each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from context_agent.retrieval.loaders.pdf_objects import entry, resolved, stream_data

_FONT_OPERATIONS = 1_000
"""The operations that any font counts as, also on a page without text."""
_MAP_BYTE_OPERATIONS = 9
_LEAST_LINE_BYTES = 16
"""The bytes that a line of a map to Unicode counts as at least."""
_CODE_OPERATIONS = 100
"""The operations that each character code of a range counts as."""
_MOST_CODES = 100_000
"""The number of character codes after which pypdf refuses a map to Unicode or a list of widths."""
_WIDTH_OPERATIONS = 20
_DESCENDANT_OPERATIONS = 100
_PROGRAM_BYTE_OPERATIONS = 3
"""The operations that each byte of a font's program counts as, if pypdf looks for the characters in it."""

_CODE = rb"[ \t]*+<([0-9A-Fa-f]{1,8}+)>"
_RANGE = re.compile(_CODE * 3)
_LINE_END = re.compile(rb"[\r\n\]]|<<|>>")
"""Where pypdf ends a line of a map to Unicode."""


class FontCosts:
    """The costs of the fonts of a file. The cost of each font is found once."""

    def __init__(self) -> None:
        self._costs: dict[int, tuple[Any, int]] = {}
        """For the identity of each font, the font and its cost."""

    def operations(self, font: Any) -> int:
        """Return the number of drawing operations that a font counts as each time pypdf reads it."""
        if id(font) not in self._costs:
            _drop_identity_map(font)
            self._costs[id(font)] = font, _font_operations(font)
        return self._costs[id(font)][1]


def _drop_identity_map(font: Any) -> None:
    """Remove a font's map to Unicode if it maps each code to itself, as the encoding `Identity-H` does without a map.

    Programs such as TCPDF and mPDF write such a map of 65,536 codes, which takes pypdf a sixth of a second a page.
    """
    if entry(font, "/Subtype") != "/Type0" or entry(font, "/Encoding") != "/Identity-H":
        return
    data = stream_data(entry(font, "/ToUnicode"))
    lines = [line for line in _range_lines(data) if line.strip()]
    ranges = [_RANGE.fullmatch(line.rstrip()) for line in lines]
    if ranges and b"beginbfchar" not in data and all(r and len(r[1]) == 4 and r[1] == r[3] for r in ranges):
        del font["/ToUnicode"]


def _font_operations(font: Any) -> int:
    listed = sum(
        len(values)
        for values in (entry(entry(font, "/Encoding"), "/Differences"), entry(font, "/CharProcs"))
        if isinstance(values, (list, dict))
    )
    mapped = entry(font, "/ToUnicode")
    return (
        _FONT_OPERATIONS
        + listed
        + _map_operations(stream_data(mapped))
        + (0 if mapped else _program_operations(font))
        + sum(map(_descendant_operations, _items(entry(font, "/DescendantFonts"))))
    )


def _program_operations(font: Any) -> int:
    """Return the operations of a font's program, in which pypdf looks for the characters of a Type 1 font."""
    if entry(font, "/Subtype") != "/Type1":
        return 0
    descriptor = entry(font, "/FontDescriptor")
    programs = (stream_data(entry(descriptor, key)) for key in ("/FontFile", "/FontFile3"))
    return sum(map(len, programs)) * _PROGRAM_BYTE_OPERATIONS


def _map_operations(data: bytes) -> int:
    """Return the operations of a map to Unicode."""
    lines = sum(1 for _ in _LINE_END.finditer(data))
    codes = min(sum(map(_codes, _range_lines(data))), _MOST_CODES)
    return max(len(data), lines * _LEAST_LINE_BYTES) * _MAP_BYTE_OPERATIONS + codes * _CODE_OPERATIONS


def _range_lines(data: bytes) -> Iterator[bytes]:
    """Yield the lines of a map that state ranges of codes."""
    for section in data.split(b"beginbfrange")[1:]:
        yield from _LINE_END.split(section.partition(b"endbfrange")[0])


def _codes(line: bytes) -> int:
    """Return the number of codes of a range. A line in a notation that only pypdf reads has the maximum."""
    if found := _RANGE.match(line):
        return max(0, int(found[2], 16) - int(found[1], 16))
    words = re.sub(rb"[<>\[]", rb" \g<0> ", line).replace(b"<", b"").replace(b">", b"").split()
    is_list = len(words) > 2 and words[2] == b"["  # the codes of a list are as long as their text
    return 0 if len(words) < 3 or is_list or words[0].startswith(b"%") else _MOST_CODES


def _descendant_operations(descendant: Any) -> int:
    """Return the operations of a descendant font, whose widths are lists (`10 [500 600]`) or ranges (`10 20 500`)."""
    items, widths = _items(entry(resolved(descendant), "/W")), 0
    position = 0
    while position < len(items):
        first, last, width = (resolved(item) for item in [*items[position : position + 3], None, None][:3])
        position += 1
        if isinstance(last, list):
            widths += len(last)
            position += 1
        elif all(isinstance(value, (int, float)) for value in (first, last, width)):
            widths += max(0, int(last) - int(first))
            position += 2
    return _DESCENDANT_OPERATIONS + (len(items) + min(widths, _MOST_CODES)) * _WIDTH_OPERATIONS


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
