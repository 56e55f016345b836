"""Changes to values inside a JSON text. Every byte outside the changed values stays the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from context_agent._support.strict_json import strict_json

Path = tuple[str | int, ...]
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()
_DEEPEST = 40
"""Maximum number of levels that are compared. Deeper values are replaced as a whole."""


def differences(before: Any, after: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the path and the new value of each place where two JSON values differ, at the innermost level."""
    if before is after:
        return
    if len(path) < _DEEPEST and isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        for key in before:
            yield from differences(before[key], after[key], (*path, key))
    elif len(path) < _DEEPEST and isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, (*path, index))
    elif type(before) is not type(after) or before != after:
        yield path, after


def with_values(text: str, changes: Mapping[Path, Any]) -> str:
    """Return a JSON text with other values at some paths.

    Args:
        text: The text. If an object has a name twice, the last one counts.
        changes: The new value of each path.

    Raises:
        ValueError: If the text is not JSON, or if it lacks one of the paths.
    """
    spans: list[tuple[int, int, str]] = []
    _find(text, _skip(text, 0), changes, spans)
    if len(spans) < len(changes):
        raise ValueError("the text must have a value at each of the paths")
    parts: list[str] = []
    position = 0
    for start, end, written in sorted(spans):
        parts += [text[position:start], written]
        position = end
    return "".join([*parts, text[position:]])


def _find(text: str, start: int, changes: Mapping[Path, Any], spans: list[tuple[int, int, str]]) -> None:
    """Add the span of each change inside the value at `start`, with the text to write there."""
    if () in changes:
        spans.append((start, _DECODER.raw_decode(text, start)[1], _written(changes[()])))
        return
    inner: dict[str | int, dict[Path, Any]] = {}
    for (key, *rest), value in changes.items():
        inner.setdefault(key, {})[tuple(rest)] = value
    opening = text[start : start + 1]
    if opening not in ("{", "["):
        raise ValueError("the text must have a value at each of the paths")
    positions = dict(_members(text, start) if opening == "{" else _items(text, start))
    for key, by_path in inner.items():
        if key in positions:
            _find(text, positions[key], by_path, spans)


def _members(text: str, start: int) -> Iterator[tuple[str | int, int]]:
    """Yield the name of each member of an object, and the offset of its value."""
    at = _skip(text, start + 1)
    while text[at] != "}":
        name, end = _DECODER.raw_decode(text, at)
        value = _skip(text, _skip(text, end) + 1)
        yield name, value
        at = _next(text, _DECODER.raw_decode(text, value)[1])


def _items(text: str, start: int) -> Iterator[tuple[str | int, int]]:
    """Yield the number of each item of an array, and its offset."""
    at, number = _skip(text, start + 1), 0
    while text[at] != "]":
        yield number, at
        number += 1
        at = _next(text, _DECODER.raw_decode(text, at)[1])


def _next(text: str, end: int) -> int:
    end = _skip(text, end)
    return _skip(text, end + 1) if text[end] == "," else end


def _skip(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _written(value: Any) -> str:
    """Return the JSON text of a value. A lone surrogate is escaped, because UTF-8 cannot encode it."""
    written = strict_json(value, ensure_ascii=False, separators=(",", ":"))
    try:
        written.encode()
    except UnicodeEncodeError:
        return json.dumps(json.loads(written), separators=(",", ":"))
    return written
