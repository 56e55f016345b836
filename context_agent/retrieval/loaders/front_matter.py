"""Front matter: fields in YAML or TOML at the beginning of a Markdown file, which become metadata.

A file may come from a stranger, and YAML aliases can expand to any size. Front matter is therefore read with YAML's
safe loader, without aliases, up to `LARGEST_FRONT` characters and `DEEPEST_FRONT` levels. Front matter that is not
valid, or not a list of fields, stays in the text. Its title is read all the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from context_agent._support.small_files import parse_toml
from context_agent.retrieval.loaders.metadata import metadata_value
from context_agent.retrieval.loaders.reading import Reading, storable
from context_agent.types import MetadataValue

LARGEST_FRONT = 16_384
"""The number of characters at the beginning of a file in which front matter must end."""
DEEPEST_FRONT = 32
"""Maximum number of levels of nested lists and mappings. YAML's time grows with the square of their number."""
MOST_FRONT_EVENTS = 1_500
"""Maximum number of parser events, such as a value or the start of a list. YAML takes 0.05 s for as many."""
_TOML_FRONT = re.compile(r"\+\+\+[ \t]*+\n(.*?)(?:^|\n)\+\+\+[ \t]*+(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_TITLE_LINE = re.compile(r"^title[ \t]*+[:=]([^\n]*)", re.IGNORECASE | re.MULTILINE)
_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?)(?:^|\n)(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)


def split_front_matter(reading: Reading, text: str) -> tuple[str, dict[str, MetadataValue], str]:
    """Return the title and the other fields of the front matter, and the text below it.

    Without front matter, return no title, no fields and the whole text. Front matter that cannot be read is reported
    and stays in the text.
    """
    head = text[:LARGEST_FRONT]
    matched = _FRONT_MATTER.match(head) or _TOML_FRONT.match(head)
    if matched is None:
        return "", {}, text
    try:
        fields = parse_toml(matched[1]) if head.startswith("+") else _fields(matched[1])
        values = {storable(str(key)): metadata_value(reading, str(key), value) for key, value in (fields or {}).items()}
    except Exception as error:  # noqa: BLE001 - YAML raises nearly anything
        reading.note_once(f"{_problem(error)}. The front matter stays in the text.")
        return _written_title(matched[1]), {}, text
    if fields is None:
        return "", {}, text
    key = next((key for key in values if key.lower() == "title"), "")
    stated = values.pop(key, None)
    if key and fields.get(key, "") is None:
        title = ""
    else:
        title = stated if isinstance(stated, str) and isinstance(fields[key], str) else _written_title(matched[1])
    return title, {key: value for key, value in values.items() if value is not None}, text[matched.end() :].lstrip("\n")


def _written_title(front: str) -> str:
    """Return the title as it is written. YAML reads `12:30` as a number, `No` as False, and `A: B` not at all.

    A list, an object and a field of a template are not titles.
    """
    line = _TITLE_LINE.search(front)
    written = line[1].strip() if line else ""
    return "" if written.startswith(("[", "{")) else written.strip("\"'")


def _fields(front: str) -> Mapping[Any, Any] | None:
    """Return the fields of YAML.

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
    try:
        value = yaml.safe_load(front)
    except ValueError:  # YAML takes a value such as 2024-13-45 for a date. All values then stay as they are written.
        value = yaml.load(front, Loader=yaml.BaseLoader)  # noqa: S506 - it makes only strings and lists of them
    return value if isinstance(value, dict) else {} if value is None and not front.strip() else None


def _problem(error: Exception) -> str:
    """Return the error on one line."""
    import yaml

    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 2} is not valid YAML: {error.problem}"
    return str(error) or type(error).__name__
