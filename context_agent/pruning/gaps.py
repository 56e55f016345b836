"""The gaps of a text: the parts that stubs replace, because their passages are removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from context_agent.pruning.blocks import Passage


def runs(rows: Iterable[int], share_stub: Callable[[int, int], bool]) -> list[list[int]]:
    """Group the rows into runs of neighbors that share a stub. The rows of a run ascend."""
    grouped: list[list[int]] = []
    for row in sorted(rows):
        if grouped and grouped[-1][-1] == row - 1 and share_stub(row - 1, row):
            grouped[-1].append(row)
        else:
            grouped.append([row])
    return grouped


@dataclass(slots=True)
class Gap:
    """A part of a text that a stub replaces.

    Attributes:
        rows: The indices of the passages in it.
        start: The offset where it begins.
        end: The offset after it.
        first: The first passage, with the form of the stub.
        group: The number of the group whose stubs are joined.
    """

    rows: list[int]
    start: int
    end: int
    first: Passage
    group: int


def gaps(passages: Sequence[Passage], removed: Iterable[int]) -> list[Gap]:
    """Return the parts of a text that stubs replace if these passages are removed.

    Neighbors in one group share a stub. An item of a list is removed as a whole if none of its passages remains.
    """
    gone = {*removed}
    remaining = {item for row, passage in enumerate(passages) if row not in gone for item in passage.items}
    found: list[Gap] = []
    for row in sorted(gone):
        passage = passages[row]
        item = next((item for item in reversed(passage.items) if item not in remaining), None)
        part = passage if item is None else item
        last = found[-1] if found else None
        if last is not None and last.rows[-1] == row - 1 and last.group == part.group:
            last.rows.append(row)
            last.end = part.end
        else:
            first = passage if item is None else replace(passage, form=item.form, strings=item.strings)
            found.append(Gap([row], part.start, part.end, first, part.group))
    return found


def without(text: str, passages: Sequence[Passage], removed: Iterable[int], stub: Callable[[list[int]], str]) -> str:
    """Return the text with a stub in place of each run of removed passages.

    Args:
        text: The text.
        passages: All passages of the text.
        removed: The indices of the removed passages.
        stub: A function that returns the stub for a run of indices.
    """
    parts: list[str] = []
    position = 0
    for gap in gaps(passages, removed):
        parts += [text[position : gap.start], _framed(stub(gap.rows), gap.first)]
        position = gap.end
    return "".join([*parts, text[position:]])


def _framed(stub: str, passage: Passage) -> str:
    """Return the stub in the form of the passage that it replaces.

    The form is a value, an element or a row. Inside strings the stub is escaped.
    """
    match passage.form:
        case "value":
            stub = json.dumps(stub)
        case "member":
            stub = f'{json.dumps(stub)}: ""'
        case "element":
            stub = f"<!-- {stub.replace('--', '- -')} -->"
        case "cell":
            quoted = stub.replace('"', '""')
            stub = f'"{quoted}"' + passage.delimiter * (passage.cells - 1)
        case "row":
            escaped, bar = stub.replace("|", "\\|"), passage.delimiter or "|"
            stub = f"{passage.delimiter} {escaped} {bar}" + bar * (passage.cells - 1)
    for _ in range(passage.strings):
        # An apostrophe could end a Python string.
        stub = json.dumps(stub)[1:-1].replace("'", "\\u0027")
    return stub
