"""Strict validation of data from outside, and descriptions of what is wrong with it, made from pydantic's errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

Validated = TypeVar("Validated")

REPORTED_PROBLEMS = 3
MAX_FIELD_NAME = 80
"""Maximum number of characters of each part of a field's name. Names in a mapping come from outside too."""


def is_number(value: Any) -> bool:
    """Return True if the value is an integer or a float. A boolean is not a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def validate_plain(adapter: TypeAdapter[Validated], data: Mapping[str, Any]) -> Validated:
    """Convert decoded TOML or JSON to a value without changing the type of any part.

    pydantic would otherwise read `true` as 1 and "2" as 2. Strict validation of Python objects would refuse lists for
    tuples and tables for dataclasses, so the data is validated as JSON. A date of TOML becomes a table, so that it
    is not accepted as a text.

    Raises:
        ValidationError: If a part has the wrong type or value.
    """
    return adapter.validate_json(json.dumps(data, default=lambda date: {"date": str(date)}), strict=True)


def explain(error: ValidationError, *, whole: str = "the value", limit: int = REPORTED_PROBLEMS) -> str:
    """Return the first problems as `field: what is wrong; field: what is wrong (2 more)`, without the wrong values.

    Args:
        error: The error of pydantic.
        whole: The name of the data as a whole, for a problem that has no field.
        limit: The number of problems to name. The others are counted.
    """
    named = [f"{name or whole}: {problem}" for name, problem in problems(error, limit)]
    more = error.error_count() - len(named)
    return "; ".join(named) + (f" ({more} more)" if more else "")


def problems(error: ValidationError, limit: int = REPORTED_PROBLEMS) -> list[tuple[str, str]]:
    """Return the dotted field name and the message of each of the first problems.

    The name of the whole value is empty.
    """
    found = error.errors(include_url=False, include_input=False, include_context=False)[:limit]
    return [(".".join(str(part)[:MAX_FIELD_NAME] for part in item["loc"]), item["msg"]) for item in found]
