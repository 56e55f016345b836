"""The metadata of documents, in the form that every index accepts."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, time

from context_agent.retrieval.loaders.reading import Reading, storable
from context_agent.types import MetadataValue

LARGEST_FIELD = 10_000
"""Maximum number of characters of a metadata value."""


def metadata_value(reading: Reading, key: str, value: object) -> MetadataValue | None:
    """Return the value in a form that metadata accepts. If it is empty or too large, return None."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if (isinstance(value, int) and -(2**63) <= value < 2**63) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, bytes):
        reading.note_once(f"field {key[:50]!r} contains bytes, so it is left out of the metadata")
        return None
    text = storable(_as_text(value))
    if len(text) <= LARGEST_FIELD:
        return text
    reading.note_once(
        f"field {key[:50]!r} has values above {LARGEST_FIELD:,} characters, so they are left out of the metadata"
    )
    return None


def with_day(metadata: Mapping[str, MetadataValue]) -> Mapping[str, MetadataValue]:
    """Return the metadata with the day of its `date` as the number YYYYMMDD, unless it has a `day` already.

    Filters compare numbers only, so without the day no filter could ask for a period. A `date` that is not in ISO 8601
    gives no day.
    """
    stated = metadata.get("date")
    if not isinstance(stated, str) or "day" in metadata:
        return metadata
    try:
        day = date.fromisoformat(stated[:10])
    except ValueError:
        return metadata
    return {**metadata, "day": day.year * 10_000 + day.month * 100 + day.day}


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=_as_text)
    if isinstance(value, date | time):  # `datetime` is a `date`
        return value.isoformat()
    return str(value)
