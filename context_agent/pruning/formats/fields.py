"""Fields of messages, which may be mappings or objects, and JSON values in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def json_like(value: Any) -> bool:
    """Return True if a value consists only of JSON types.

    These are dicts with string keys, lists, strings, numbers, booleans and None.
    """
    if isinstance(value, dict):
        return all(type(key) is str and json_like(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(json_like, value))
    return value is None or type(value) in (str, int, float, bool)


def json_text(value: Any) -> str | None:
    """Return the JSON text of a value. If the value would change when it is read back, return None.

    JSON has no infinite numbers. A body with `1e400` has one after decoding, which providers would refuse.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False) if json_like(value) else None
    except (TypeError, ValueError, RecursionError):
        return None


def has_failed(code: Any) -> bool:
    """Return True if the exit code of a program says that it failed."""
    return isinstance(code, int) and code != 0


def get_field(value: Any, name: str) -> Any:
    """Return a key of a mapping or an attribute of an object. If it is missing, return None."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def text_field(value: Any, name: str) -> str:
    """Return a field if it is a string. Otherwise return an empty string."""
    field = get_field(value, name)
    return field if isinstance(field, str) else ""


def first_value(value: Any, *names: str) -> Any:
    """Return the value of the first field that is present. If there is none, return None."""
    return first_field(value, *names)[1]


def first_field(value: Any, *names: str) -> tuple[str, Any]:
    """Return the name and the value of the first field that is present."""
    return next(((name, field) for name in names if (field := get_field(value, name)) is not None), ("", None))


def items(value: Any) -> Sequence[Any]:
    """Return the value if it is a list or a tuple. Otherwise return an empty sequence."""
    return value if isinstance(value, list | tuple) else ()


def first_key(part: Any) -> str:
    """Return the first key of a mapping, or else the name of the type."""
    return str(next(iter(part), "")) if isinstance(part, Mapping) else type(part).__name__


def written(arguments: Any) -> str:
    """Return the arguments of a call as text. If they are nested too deeply, return an empty string."""
    try:
        return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
    except (RecursionError, ValueError, TypeError):
        return ""
