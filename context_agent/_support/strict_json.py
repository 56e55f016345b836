"""JSON that every parser reads. `json.dumps` writes NaN and infinity, which are not JSON."""

from __future__ import annotations

import json
import math
from typing import Any


def strict_json(value: Any, **options: Any) -> str:
    """Return the value as JSON, in which a number that is not finite is null.

    Args:
        value: The value.
        options: Further arguments of `json.dumps`.
    """
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(without_infinity(value), allow_nan=False, **options)


def without_infinity(value: Any) -> Any:
    """Return a copy of a JSON value, with None in place of numbers that are not finite. Tuples become lists."""
    if isinstance(value, dict):
        return {key: without_infinity(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_infinity(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
