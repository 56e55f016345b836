"""Fenced code in Markdown: the lines between a line of marks, which are backticks or tildes, and the next such line."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator

FENCE = re.compile(r"^(?P<indent>[ \t]*+)(?P<mark>`{3,}+(?![^`\n]*+`)|~{3,}+)(?P<info>[^\n]*+)", re.MULTILINE)
"""A line of marks above or below code. The line above the code may say more, such as its language.

A line with backticks on both sides of code is not a fence.
"""
_TEXT_LINE = re.compile(r"^(?P<indent>[ \t]*+)[^\s]", re.MULTILINE)


def closes_fence(fence: str, mark: str, info: str) -> bool:
    """Return True if a line of marks ends the code below a fence: the marks are as many, and no words follow them."""
    return mark.startswith(fence) and not info.strip()


def fenced_spans(text: str, rules: Container[int] = frozenset()) -> Iterator[tuple[int, int]]:
    """Yield the spans of fenced code, with the lines of marks. Code that is not closed goes to the end of the text.

    If the marks of such code are indented, it ends before the next line that is indented less, as an item of a list
    does.

    Args:
        text: The text.
        rules: The offsets of lines that begin no code, such as rules below titles.
    """
    lines = [*FENCE.finditer(text)]
    unclosed = set[str]()
    position = 0
    for row, opening in enumerate(lines):
        start, mark = opening.start(), opening["mark"]
        if start < position or start in rules:
            continue
        closing = None
        if not any(mark.startswith(other) for other in unclosed):
            later = (lines[number] for number in range(row + 1, len(lines)))
            closing = next((line for line in later if closes_fence(mark, line["mark"], line["info"])), None)
        if closing is None:
            unclosed = {other for other in unclosed if not other.startswith(mark)} | {mark}
        position = _dedent(text, opening) if closing is None else closing.end()
        yield start, position


def _dedent(text: str, opening: re.Match[str]) -> int:
    """Return the offset of the first line after a fence that is indented less. If there is none, return the end."""
    if opening["indent"]:
        for line in _TEXT_LINE.finditer(text, opening.end()):
            if len(line["indent"]) < len(opening["indent"]):
                return line.start()
    return len(text)


def without_fenced(text: str) -> str:
    """Return a text in Markdown without its fenced code."""
    kept: list[str] = []
    position = 0
    for start, end in fenced_spans(text):
        kept.append(text[position:start])
        position = end
    return "".join([*kept, text[position:]])
