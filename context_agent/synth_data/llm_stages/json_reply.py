"""JSON objects in the replies of a language model."""

from __future__ import annotations

import json
import re
from typing import Any

LONGEST_REPLY = 200_000
"""The number of characters of a reply that are parsed."""


MOST_STARTS = 40
"""The number of opening braces at which the parser tries to read an object."""


_STRING_OR_COMMA = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|,(?=\s*+[}\]])', re.S)


_DECODER = json.JSONDecoder(strict=False)


def read_object(text: str) -> dict[str, Any]:
    """Return the largest JSON object in the text.

    Raises:
        ValueError: If there is no object. The message is written for the model.
    """
    text = text[:LONGEST_REPLY]
    starts = [match.start() for match in re.finditer(r"\{", text)][:MOST_STARTS]
    if not starts:
        raise ValueError("the reply must contain a JSON object")
    largest: tuple[int, dict[str, Any]] | None = None
    problem, end = "", 0
    for start in starts:
        if start < end:
            continue
        try:
            value, length = _decode(text[start:])
        except (ValueError, RecursionError) as error:
            problem = problem or str(error)
            continue
        end = start + length
        if isinstance(value, dict) and (largest is None or length > largest[0]):
            largest = (length, value)
    if largest is None:
        raise ValueError(f"the JSON in the reply is broken ({problem})")
    return largest[1]


def _decode(text: str) -> tuple[Any, int]:
    """Return the value at the start of the text, and its length. Commas before a closing bracket are ignored."""
    try:
        return _DECODER.raw_decode(text)
    except ValueError:
        return _DECODER.raw_decode(_STRING_OR_COMMA.sub(lambda match: match[0] if len(match[0]) > 1 else "", text))
