"""Conversion of a table row or a JSON object into a document.

The fields other than id, title and text become metadata. Strings, numbers and booleans stay the same. Dates and
decimals become strings, and lists and objects become JSON. Null, NaN and empty values are left out. A value of bytes,
or of more than 10,000 characters, is left out with a notice, because metadata is stored with every chunk.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

from context_agent._support.question_files import json_type
from context_agent.errors import DataError
from context_agent.retrieval.document_checks import LONGEST_KEY, MOST_ENTRIES, RESERVED
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.headings import LONGEST_HEADING, marked_headings, shortened
from context_agent.retrieval.loaders.html_text import page_text
from context_agent.retrieval.loaders.json_outline import json_captions, with_line_breaks
from context_agent.retrieval.loaders.metadata import LARGEST_FIELD, metadata_value
from context_agent.retrieval.loaders.options import LoadOptions
from context_agent.retrieval.loaders.outlines import Lines, nested, text_captions
from context_agent.retrieval.loaders.reading import Reading, one_line, storable
from context_agent.types import Caption, Document, MetadataValue

ID_KEYS = ("id", "_id", "doc_id")
TITLE_KEYS = ("title",)
NAME_KEYS = ("name", "headline", "subject", "heading", "summary")
"""The fields that name a row without a title. They stay metadata, by which users may filter."""
TEXT_KEYS = ("text", "content", "body", "contents")
REPLY_KEYS = ("comments", "answers", "replies", "reviews")
"""The fields with what people replied to a row, such as the comments of an issue. A reply has a field of text."""
_AUTHOR_KEYS = ("author", "user", "owner")
_AUTHOR_NAMES = ("login", "name", "displayName", "display_name", "username")
_TIME_KEYS = ("createdAt", "created_at", "created", "submittedAt", "date")
LONGEST_AUTHOR = 100
"""Maximum number of characters of an author's name or of a time above a reply."""
LONGEST_ROW_NAME = 200
"""Maximum number of characters of such a name. A longer text is not a name."""
LONGEST_ID = 256
"""Maximum number of characters of an id. It is shown to the model with every chunk."""
TEXT_PER_VALUE = 16
"""The number of characters of the size limit that each JSON value or cell uses up.

A parsed value takes about 100 bytes.
"""
LEAST_DIVIDED = 1_500
"""Minimum number of characters of a row's text in which headings are searched. A shorter text is one chunk."""
LONGEST_NAME = 128
"""Maximum number of characters of a column's name in the text of a row. The name is repeated in each row."""
LARGEST_METADATA = 32_768
"""Maximum number of characters of all metadata values of a row. They are stored with every chunk."""
_PAGE = re.compile(
    r"\s*+(?:<!--[^>]{0,200}-->\s*+)?"
    r"<(?:!doctype html|html|body|p|div|h[1-6]|ul|ol|blockquote|table|section|article|figure)\b",
    re.IGNORECASE,
)
"""The beginning of a text that is HTML: a block, after a comment such as WordPress writes."""
_BREAKING = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")


def check_columns(names: Iterable[str], options: LoadOptions) -> None:
    """Raise `DataError` if the table lacks a column that the options name."""
    present = set(names)
    for key in (options.text_key, options.id_key, options.title_key):
        if key is not None and key not in present:
            raise DataError(f"there is no column {key!r}. The columns are {_listed(present)}.")


def has_text_column(names: Iterable[str], options: LoadOptions) -> bool:
    """Return True if one of the columns is the text of a row."""
    return options.text_key is not None or not set(TEXT_KEYS).isdisjoint(map(str.lower, names))


ALL_COLUMNS_NOTE = (
    f"there is no column {', '.join(TEXT_KEYS[:-1])} or {TEXT_KEYS[-1]}, so all columns of a row are its text. To read "
    "one of them as the text, pass --text-key."
)
ALL_FIELDS_NOTE = ALL_COLUMNS_NOTE.replace("column", "field")


def fields_text(record: Mapping[str, Any]) -> str:
    """Return a line for each field of a record. Lists and objects are JSON with one value per line."""
    return "\n".join(
        f"{key}: {json_lines(value) if isinstance(value, dict | list | int | float | None) else value}"
        for key, value in record.items()
    )


def fields_captions(record: Mapping[str, Any]) -> tuple[Caption, ...]:
    """Return the captions of the objects and lists inside a record, in the text that `fields_text` returns."""
    found: list[Caption] = []
    position = 0
    for key, value in record.items():
        start = position + len(unix_lines(f"{key}: "))
        text = unix_lines(value) if isinstance(value, str) else json_lines(value)
        if isinstance(value, dict | list):
            captions = json_captions(text)
            found += [Caption(start + it.start, start + it.end, it.text) for it in captions]
            found += [Caption(position, start + len(text), shortened(key, LONGEST_HEADING))] if captions else []
        # A carriage return at the end of a value is one line break with the newline that follows.
        is_broken = isinstance(value, str) and value.endswith("\r")
        position = start + len(text) + (not is_broken)
    return nested(found)


def readable_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record whose fields that are HTML are their text, also those inside its objects and lists."""
    return {key: _readable(value) for key, value in record.items()}


def _readable(value: Any) -> Any:
    if isinstance(value, str):
        return without_tags(value)
    if isinstance(value, dict):
        return readable_fields(value)
    return [_readable(item) for item in value] if isinstance(value, list) else value


def json_lines(value: object) -> str:
    """Return JSON with one value per line, and with the line breaks of texts as they are.

    It is not indented, because indentation would multiply the size of nested values.
    """
    return with_line_breaks(json.dumps(value, ensure_ascii=False, indent=0, default=_shown))


def _shown(value: object) -> str:
    """Return a value that JSON does not know, such as a date of a table. Bytes are not shown."""
    return "" if isinstance(value, bytes) else str(value)


def short_metadata(reading: Reading, record: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Return the metadata of a record whose text has all its fields: numbers, short texts, and lists of them.

    Users filter by such fields. Objects and longer texts are left out.
    """
    found: dict[str, MetadataValue] = {}
    for key, value in record.items():
        items = value if isinstance(value, list) else [value]
        is_short = all(isinstance(it, str | int | float) and len(str(it)) <= LONGEST_ROW_NAME for it in items)
        if not is_short or len(items) > MOST_ENTRIES or len(key) > LONGEST_KEY or key.startswith(RESERVED):
            continue
        if (entry := metadata_value(reading, key, value)) is not None:
            found[storable(key)] = entry
        if len(found) == MOST_ENTRIES - 2:  # The path and the day follow.
            break
    return found


def title_of(record: Mapping[str, Any], options: LoadOptions) -> str:
    """Return the title or the name of a record on one line. If it has neither, return an empty string."""
    fields = _Fields.of(tuple(record), options)
    return _title(record, fields.title)[1] or _name(record, fields.name)


def has_text(row: Mapping[str, Any], options: LoadOptions) -> bool:
    """Return True if the row has a field of text that is not empty."""
    keys = _Fields.of(tuple(row), options).text
    return any(isinstance(text := row.get(key), str) and bool(text.strip()) for key in keys)


def from_row(reading: Reading, number: int, row: object, *, by_field: bool = False) -> Iterator[Document]:
    """Yield the document of a row. If the row cannot be one, report what it lacks.

    If `by_field` is True, its text has a line for each field.
    """
    if not isinstance(row, dict):
        reading.skip(f"the row must be an object with fields; got {json_type(row)}", number)
        return
    try:
        document = _document(reading, {**row, TEXT_KEYS[0]: fields_text(readable_fields(row))} if by_field else row)
    except DataError as error:
        reading.skip(str(error), number)
    except RecursionError:
        reading.skip("a field of the row is nested too deeply", number)
    else:
        yield document


def _document(reading: Reading, row: Mapping[str, Any]) -> Document:
    """Return the document of a row, with an empty id if the row has none. If it has no text, raise `DataError`."""
    fields = _Fields.of(tuple(row), reading.options)
    text_key, text = _text(row, fields.text)
    id_key, identifier = _identifier(row, fields.id)
    title_key, title = _title(row, fields.title)
    title = title or _name(row, fields.name)
    if not identifier and (named_id := reading.options.id_key):
        reading.note_once(
            f"rows without field {named_id!r} get a digest of their content as id, after their file's name"
        )
    metadata: dict[str, MetadataValue] = {}
    replies = {key: said for key in REPLY_KEYS if (said := _replies(row.get(key)))}
    text = "\n\n".join([text, *replies.values()])
    used = {key for key in (text_key, id_key, title_key, *replies) if key}
    room = LARGEST_METADATA
    for key, value in row.items():
        if len(metadata) > MOST_ENTRIES:  # One more than can be stored, so that it is reported.
            break
        if len(key) > LONGEST_KEY:  # A name is in every row, so it is not even read.
            reading.note_once(
                f"field {key[:50]!r} has a name of more than {LONGEST_KEY} characters, so it is left out of the "
                "metadata"
            )
            continue
        if key not in used and (entry := metadata_value(reading, key, value)) is not None:
            room -= len(entry) if isinstance(entry, str) else 1
            if room < 0:
                reading.note_once(
                    f"some rows have more than {LARGEST_METADATA:,} characters of metadata, of which only the first "
                    "fields are kept"
                )
                break
            metadata[storable(key)] = entry
    if id_key and (source_id := str(row[id_key])) != identifier:
        metadata.setdefault("source_id", storable(source_id)[:LARGEST_FIELD])
    text = storable(text)
    captions: tuple[Caption, ...] = ()
    if len(text) >= LEAST_DIVIDED:
        captions = text_captions(text, Lines.LIST, headings=marked_headings(text, "markdown"), title=title)
    return Document(identifier, text, title, metadata, captions=captions)


def _replies(value: object) -> str:
    """Return the text of replies, each below its author and time. If the value is not a list of replies, return ""."""
    parts: list[str] = []
    for reply in value if isinstance(value, list) else ():
        if not isinstance(reply, dict):
            return ""
        words = (text.strip() for key in TEXT_KEYS if isinstance(text := reply.get(key), str))
        if said := without_tags(next(filter(None, words), "")):
            author, time = _author(reply), _first_string(reply, _TIME_KEYS)
            heading = f"{author} ({time})" if author and time else author or time
            parts.append(f"{heading}:\n{said}" if heading else said)
    return "\n\n".join(parts)


def without_tags(text: str) -> str:
    """Return the text of a field that is HTML, as the exports of forums, blogs and help desks have it.

    A text that does not begin with a block and end with a tag is returned as it is.
    """
    is_page = _PAGE.match(text) is not None and text.rstrip().endswith(">")
    return (page_text(unix_lines(text))[1] or text) if is_page else text


def _author(reply: Mapping[str, Any]) -> str:
    """Return the name of the author of a reply, which may be a field of an object."""
    person = next((reply[key] for key in _AUTHOR_KEYS if reply.get(key)), "")
    return _first_string(person, _AUTHOR_NAMES) if isinstance(person, dict) else _first_string({"": person}, [""])


def _first_string(values: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Return the first of the fields that is text, on one line and shortened."""
    found = (value for key in keys if isinstance(value := values.get(key), str) and value.strip())
    return one_line(next(found, ""))[:LONGEST_AUTHOR]


@dataclass(frozen=True, slots=True)
class _Fields:
    """The names of the fields that may hold the text, id, title and name of a row, as the row spells them."""

    text: tuple[str, ...]
    id: tuple[str, ...]
    title: tuple[str, ...]
    name: tuple[str, ...]

    @classmethod
    @lru_cache(maxsize=1)  # the rows of a table have the same fields
    def of(cls, names: tuple[str, ...], options: LoadOptions) -> Self:
        """Return the fields of a row with these names of fields."""
        return cls(
            (options.text_key,) if options.text_key else _spelled(names, TEXT_KEYS),
            (options.id_key,) if options.id_key else _spelled(names, ID_KEYS),
            (options.title_key,) if options.title_key else _spelled(names, TITLE_KEYS),
            () if options.title_key else tuple(key for key in _spelled(names, NAME_KEYS) if key in names),
        )


def _spelled(names: tuple[str, ...], keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the keys as the names spell them. Tables often write `Title` or `TEXT`."""
    if not set(keys).isdisjoint(names):
        return keys
    by_lower = {name.lower(): name for name in names if len(name) <= LONGEST_NAME}
    return tuple(by_lower.get(key, key) for key in keys)


def _text(row: Mapping[str, Any], keys: Iterable[str]) -> tuple[str, str]:
    reason = ""
    for key in keys:
        value = row.get(key)
        if isinstance(value, str) and value.strip():
            return key, without_tags(value)
        if key in row:
            kind = "empty" if value is None or isinstance(value, str) else f"{json_type(value)}, not a string"
            reason = f"field {key!r} is {kind}"
    raise DataError(reason or f"the row has no field {_alternatives(keys)}. Its fields are {_listed(row)}.")


def _identifier(row: Mapping[str, Any], keys: Iterable[str]) -> tuple[str, str]:
    """Return the key and the id, shortened and on one line. Without an id, return two empty strings.

    Raises:
        DataError: If the id is unusable.
    """
    for key in keys:
        value = row.get(key)
        if value is None or value != value:  # noqa: PLR0124 - NaN, an empty cell of a table
            continue
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise DataError(f"field {key!r} must be a string or a number; got {json_type(value)}")
        text = storable(str(value))
        name = _BREAKING.sub("_", text).strip()
        if len(name) > LONGEST_ID:
            name = f"{name[:200]}-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"
        if name:
            return key, name
    return "", ""


def _title(row: Mapping[str, Any], keys: Iterable[str]) -> tuple[str, str]:
    """Return the key and the title on one line. Without a title, return two empty strings.

    A title that is not a string stays metadata.
    """
    for key in keys:
        value = row.get(key)
        if isinstance(value, str) and value.strip():
            return key, one_line(storable(value))
    return "", ""


def _name(row: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Return the first name of the row that is a short line. If there is none, return an empty string."""
    names = (value.strip() for key in keys if isinstance(value := row.get(key), str))
    return next((storable(name) for name in names if 0 < len(name) <= LONGEST_ROW_NAME and "\n" not in name), "")


def _alternatives(keys: Iterable[str]) -> str:
    *rest, last = keys
    return f"{', '.join(rest)} or {last}" if rest else repr(last)


def _listed(names: Iterable[str]) -> str:
    """Return at most 12 names, for a message."""
    quoted = sorted(repr(storable(name))[:50] for name in names)
    return ", ".join(quoted[:12]) + (" ..." if len(quoted) > 12 else "") if quoted else "none"
