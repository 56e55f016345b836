"""The reader of JSON files. A conversation or a record of a list is a document. Any other value is one document.

The large values inside such a document are sections, titled by their keys.

Servers send a list of records inside an object, with the number of records and other facts around it.

If a file is not valid JSON, for example because it has comments, it is read as plain text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from context_agent.errors import DataError
from context_agent.retrieval.loaders.chat_exports import chats_in, format_of
from context_agent.retrieval.loaders.conversations import is_conversation, nothing_said, read_conversation
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.json_outline import json_captions, json_sections, with_line_breaks
from context_agent.retrieval.loaders.reading import LeftOutError, Reading, content, decoded, document, one_line
from context_agent.retrieval.loaders.rows import (
    TEXT_PER_VALUE,
    fields_captions,
    fields_text,
    from_row,
    has_text,
    json_lines,
    readable_fields,
    short_metadata,
    title_of,
)
from context_agent.retrieval.loaders.slack import remember_users
from context_agent.retrieval.loaders.sniffing import GENERATED_REASON, is_generated
from context_agent.types import Document

LONG_LINES = 400
"""The average number of characters in a line above which JSON is rewritten with one value per line."""
LEAST_RECORDS = 2
"""Minimum number of objects of a list inside an object that are records."""
RECORDS_SHARE = 0.8
"""Minimum share of a file's characters that the records inside an object make up."""
_NESTED = ("properties", "attributes", "fields", "_source")
"""The fields of a record that hold its other fields, in GeoJSON, JSON:API, Airtable and Elasticsearch."""
_COLUMN_KEYS = ("columns", "fields", "header", "headers")
"""The fields that name the columns of a table."""
_ROW_KEYS = ("data", "rows", "values", "records")
"""The fields that hold the rows of a table, which are lists."""
MAX_ENVELOPES = 4
"""Maximum number of objects inside each other in which a list of records is searched."""


def read_json(reading: Reading) -> Iterator[Document]:
    """Yield the conversations or records of a file. If it has neither, yield its text."""
    try:
        yield from _read(reading)
    except RecursionError:
        raise DataError("the JSON is nested too deeply to be read") from None


def _read(reading: Reading) -> Iterator[Document]:
    raw = decoded(reading, content(reading)).text
    if reading.found and is_generated(reading.path, raw):
        raise LeftOutError(GENERATED_REASON)
    if sum(map(raw.count, ",[{")) > reading.options.max_size // TEXT_PER_VALUE:
        raise DataError(reading.options.too_large("the number of JSON values in the file"))
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        yield document(reading, raw, reading.path)
    else:
        yield from _documents(reading, raw, value)


def _documents(reading: Reading, raw: str, value: Any) -> Iterator[Document]:
    chats = value if isinstance(value, list) else chats_in(value)
    whole = read_conversation(reading, value) if is_conversation(value) else None
    is_export = isinstance(value, dict) and format_of(value) is not None
    if whole is not None:
        yield whole
        return
    if is_export:
        reading.note_once("the messages of the chat contain no text, so the file is read as JSON")
    elif is_conversation(value):
        raise nothing_said()
    if any(map(is_conversation, chats)):
        yield from _conversations(reading, chats)
    elif isinstance(value, list) and value and all(isinstance(record, dict) for record in value):
        remember_users(reading, value)
        for number, record in enumerate(value, start=1):
            yield from _record(reading, number, record)
    elif table := _table(value):
        yield from _documents(reading, raw, table)
    elif records := _enclosed(value):
        found, rest = records
        yield from _documents(reading, raw, found)
        if " " in json.dumps(rest, separators=(",", ":")):
            yield document(reading, "\n".join(map(fields_text, rest)), reading.path)
    else:
        long = len(raw) > LONG_LINES * (raw.count("\n") + 1)
        escaped = r"\u" in raw  # words with escapes inside are not found
        text = json_lines(value) if long or escaped else with_line_breaks(unix_lines(raw))
        title = _stated_title(value) or reading.path
        yield document(reading, text, title, sections=json_sections(text, title), captions=json_captions(text))


def _stated_title(value: Any) -> str:
    """Return the title of a schema or of the description of an API. If there is none, return an empty string."""
    if not isinstance(value, dict):
        return ""
    places = value, value.get("info")
    titles = (place.get("title") for place in places if isinstance(place, dict))
    return next((one_line(title) for title in titles if isinstance(title, str) and title.strip()), "")


def _enclosed(value: Any) -> tuple[list[Any], list[dict[str, Any]]] | None:
    """Return the records inside an object, and the fields around them.

    If no list of objects makes up most of the object, return None.
    """
    rest: list[dict[str, Any]] = []
    for _ in range(MAX_ENVELOPES):
        if not isinstance(value, dict) or not value:
            break
        sizes = {key: len(json.dumps(field)) for key, field in value.items()}
        largest = max(sizes, key=sizes.__getitem__)
        if sizes[largest] < RECORDS_SHARE * sum(sizes.values()):
            return None
        rest.append({key: field for key, field in value.items() if key != largest})
        value = value[largest]
    is_records = isinstance(value, list) and len(value) >= LEAST_RECORDS and all(isinstance(row, dict) for row in value)
    return (value, list(filter(None, rest))) if is_records else None


def _table(value: Any) -> list[dict[str, Any]]:
    """Return the rows of a table that names its columns beside its rows. Of any other value, return an empty list.

    Programs such as pandas and SQL servers write tables as `{"columns": [...], "data": [[...], ...]}`.
    """
    if not isinstance(value, dict):
        return []
    for names_key, rows_key in product(_COLUMN_KEYS, _ROW_KEYS):
        names, rows = value.get(names_key), value.get(rows_key)
        if not (isinstance(names, list) and names and isinstance(rows, list) and rows):
            continue
        names = [name.get("name") if isinstance(name, dict) else name for name in names]
        if (
            all(isinstance(name, str) for name in names)
            and len(set(names)) == len(names)
            and all(isinstance(row, list) and len(row) == len(names) for row in rows)
        ):
            return [dict(zip(names, row, strict=True)) for row in rows]
    return []


def _conversations(reading: Reading, values: list[Any]) -> Iterator[Document]:
    count = 0
    for number, value in enumerate(values, start=1):
        if is_conversation(value) and (whole := read_conversation(reading, value, number)) is not None:
            count += 1
            yield whole
    if not count:
        raise nothing_said()


def _record(reading: Reading, number: int, record: dict[str, Any]) -> Iterator[Document]:
    """Yield the document of a record. If it has a text field, it is a row. Otherwise each field makes a line."""
    if has_text(record, reading.options):
        yield from from_row(reading, number, record)
    elif record:
        parts = [record, *(part for key in _NESTED if isinstance(part := record.get(key), dict))]
        title = next(filter(None, (title_of(part, reading.options) for part in parts)), f"{reading.path} {number}")
        metadata = short_metadata(reading, {key: value for part in reversed(parts) for key, value in part.items()})
        fields = readable_fields(record)
        whole = document(reading, fields_text(fields), title, metadata, captions=fields_captions(fields))
        yield replace(whole, id=f"{whole.id}#{number}")
