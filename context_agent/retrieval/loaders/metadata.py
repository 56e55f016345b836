"""What a document's metadata may hold: values of fields, and the YAML front matter of Markdown.

Front matter may come from strangers: it is read with YAML's safe loader, without aliases, which could unfold to any
size, and up to `LARGEST_FRONT` characters and `DEEPEST_FRONT` levels. What is not valid YAML, or not a list of fields,
stays in the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import date, time
from typing import Any

from context_agent.retrieval.loaders.report import Reading
from context_agent.types import MetadataValue

LARGEST_FIELD = 10_000
"""Characters of a metadata value."""
LARGEST_FRONT = 16_384
"""Characters at the beginning of a file in which front matter must end."""
DEEPEST_FRONT = 32
"""Lists and mappings inside each other: the time that YAML takes grows with the square of their number."""
_FRONT = re.compile(r"---[ \t]*\n(.*?)(?:^|\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """The text with each NUL and lone surrogate, which no database accepts, replaced by U+FFFD."""
    return _UNSTORABLE.sub("\ufffd", text)


def metadata_value(reading: Reading, key: str, value: object) -> MetadataValue | None:
    """The value as metadata can hold it; None for an empty value or one that is too large."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if (isinstance(value, int) and -(2**63) <= value < 2**63) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, bytes):
        reading.note_once(f"field {key[:50]!r} contains bytes: left out of the metadata")
        return None
    text = storable(_as_text(value))
    if len(text) <= LARGEST_FIELD:
        return text
    reading.note_once(f"field {key[:50]!r} has values above {LARGEST_FIELD:,} characters: left out of the metadata")
    return None


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=_as_text)
    if isinstance(value, date | time):  # `datetime` is a `date`
        return value.isoformat()
    return str(value)


def split_front_matter(reading: Reading, text: str) -> tuple[dict[str, MetadataValue], str]:
    """The fields of the front matter as metadata, and the text below it; ({}, text) if there is none.

    Front matter that cannot be read is reported and stays in the text.
    """
    matched = _FRONT.match(text[:LARGEST_FRONT])
    if matched is None:
        return {}, text
    try:
        fields = _fields(matched[1])
        values = {storable(str(key)): metadata_value(reading, str(key), value) for key, value in (fields or {}).items()}
    except Exception as error:  # noqa: BLE001 - values such as 2024-13-45 make YAML raise nearly anything
        reading.note_once(f"its front matter stays in the text: {_problem(error)}")
        return {}, text
    if fields is None:
        return {}, text
    return {key: value for key, value in values.items() if value is not None}, text[matched.end() :].lstrip("\n")


def _fields(front: str) -> Mapping[Any, Any] | None:
    """The fields; None if the text between the lines is no list of fields, but for example a paragraph."""
    import yaml

    depth = 0
    for event in yaml.parse(front, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST_FRONT:
            raise ValueError(f"nested too deeply (more than {DEEPEST_FRONT} levels)")
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it has aliases (*name)")  # noqa: TRY004
    value = yaml.safe_load(front)
    return value if isinstance(value, dict) else {} if value is None and not front.strip() else None


def _problem(error: Exception) -> str:
    """The error in one line."""
    import yaml

    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 2} is not valid YAML: {error.problem}"
    return str(error) or type(error).__name__
