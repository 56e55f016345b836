"""The fields of a record and their values, such as the metadata of a document. A value may be an object with fields."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice

_MOST_VALUES, _DEEPEST, _LONGEST_NAME = 200, 8, 200
"""How many values of an object are read, how deep, and how many characters their names may have."""
_LONGEST_VALUE = 80
"""Maximum number of characters of a value that names something. A longer one is prose."""
_PLACES = frozenset("/\\")
"""Characters of paths and addresses, whose words name no property of a text."""


def inner_fields(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield a field, or those of the object that its value is, also as JSON. The objects of a list count, too."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    if isinstance(value, dict | list):
        yield from islice(_values(name, value, _DEEPEST), _MOST_VALUES)
    else:
        yield str(name), value


def _values(name: str, value: object, depth: int) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict | list) and depth:
        for inner, one in value.items() if isinstance(value, dict) else (("", it) for it in value):
            yield from _values(f"{name} {inner}".strip(), one, depth - 1)
    elif isinstance(value, str | int | float) and not isinstance(value, bool) and len(name) <= _LONGEST_NAME:
        yield name, value


def short_fields(metadata: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the fields whose values are short texts, such as a status or a name.

    Paths, addresses and values without letters do not count, and neither do fields whose names begin with `_`, which
    programs write for themselves.
    """
    for field, written in metadata.items():
        for name, value in () if str(field).startswith("_") else inner_fields(field, written):
            if not isinstance(value, str) or len(value) > _LONGEST_VALUE or not _PLACES.isdisjoint(value):
                continue
            if any(map(str.isalpha, value)):
                yield name, value
