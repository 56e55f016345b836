"""Front matter: YAML fields at the beginning of a Markdown file, which become metadata.

A file may come from a stranger, and YAML aliases can expand to any size. Front matter is therefore read with YAML's
safe loader, without aliases, up to `LARGEST_FRONT` characters and `DEEPEST_FRONT` levels. Front matter that is not
valid YAML, or not a list of fields, stays in the text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from context_agent.retrieval.loaders.reading import Reading, metadata_value, storable
from context_agent.types import MetadataValue

LARGEST_FRONT = 16_384
"""The number of characters at the beginning of a file in which front matter must end."""
DEEPEST_FRONT = 32
"""The most levels of nested lists and mappings. YAML's time grows with the square of their number."""
MOST_FRONT_EVENTS = 1_500
"""The most parser events, such as a value or the start of a list. YAML takes 0.05 s for as many."""
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)(?:^|\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)


def split_front_matter(reading: Reading, text: str) -> tuple[dict[str, MetadataValue], str]:
    """Return the fields of the front matter as metadata, and the text below it.

    Without front matter, return no fields and the whole text. Front matter that cannot be read is reported and stays in
    the text.
    """
    matched = _FRONT_MATTER.match(text[:LARGEST_FRONT])
    if matched is None:
        return {}, text
    try:
        fields = _fields(matched[1])
        values = {storable(str(key)): metadata_value(reading, str(key), value) for key, value in (fields or {}).items()}
    except Exception as error:  # noqa: BLE001 - values such as 2024-13-45 make YAML raise nearly anything
        reading.note_once(f"{_problem(error)}. The front matter stays in the text.")
        return {}, text
    if fields is None:
        return {}, text
    return {key: value for key, value in values.items() if value is not None}, text[matched.end() :].lstrip("\n")


def _fields(front: str) -> Mapping[Any, Any] | None:
    """Return the fields.

    If the text between the marks is not a list of fields, but for example a paragraph, return None.
    """
    import yaml

    depth = 0
    for number, event in enumerate(yaml.parse(front, Loader=yaml.SafeLoader)):
        if number > MOST_FRONT_EVENTS:
            raise ValueError(
                f"the front matter has more than {MOST_FRONT_EVENTS:,} values, lists and fields in total. Shorten it."
            )
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST_FRONT:
            raise ValueError(f"the front matter is nested more than {DEEPEST_FRONT} levels deep. Flatten it.")
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("the front matter has aliases (*name)")  # noqa: TRY004
    value = yaml.safe_load(front)
    return value if isinstance(value, dict) else {} if value is None and not front.strip() else None


def _problem(error: Exception) -> str:
    """Return the error on one line."""
    import yaml

    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 2} is not valid YAML: {error.problem}"
    return str(error) or type(error).__name__
