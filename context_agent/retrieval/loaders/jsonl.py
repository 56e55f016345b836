"""The reader of JSONL files. Each line is a row."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import chain, count
from typing import Any, BinaryIO

from context_agent.errors import DataError
from context_agent.retrieval.loaders.agent_sessions import is_session, read_session
from context_agent.retrieval.loaders.conversations import is_conversation, read_conversation
from context_agent.retrieval.loaders.decoding import (
    BLOCK_BYTES,
    LARGEST_CONTROL_SHARE,
    NUL_REASON,
    codec_with_mark,
    utf_encoding,
)
from context_agent.retrieval.loaders.reading import Reading, decoded
from context_agent.retrieval.loaders.rows import (
    ALL_FIELDS_NOTE,
    TEXT_PER_VALUE,
    from_row,
    has_text,
    has_text_column,
)
from context_agent.types import Document

MOST_BAD_ROWS = 10_000
"""The number of unreadable rows at the beginning of a source after which the rest is left out, if none was readable."""
SAMPLE_ROWS = 20
"""Maximum number of first rows that are examined together."""
SAMPLE_CHARACTERS = 2**20
"""The number of characters after which no further row is examined."""
_UNREADABLE = object()
_UNDECODED = re.compile("[\udc80-\udcff]")


def read_jsonl(reading: Reading) -> Iterator[Document]:
    """Yield the rows of a file with one JSON object per line. Empty lines are skipped.

    If the rows are a session of a coding agent, they are one document. If the first row has no field of text, as in the
    logs of many programs, the text of a row has a line for each field.
    """
    with closing(_rows(reading)) as numbered:
        first = _sample(numbered)
        if reading.options.text_key is None and is_session([row for _, row, _ in first]):
            yield read_session(reading, (row for _, row, _ in chain(first, numbered)))
            return
        found, before = False, reading.report.skipped
        by_field: bool | None = None
        for number, row, _ in chain(first, numbered):
            if by_field is None and isinstance(row, dict):
                by_field = not (has_text_column(row, reading.options) or is_conversation(row))
                if by_field:
                    reading.note_once(ALL_FIELDS_NOTE)
            for document in _from_row(reading, number, row, by_field=bool(by_field)):
                found = True
                yield document
            if not found and reading.report.skipped - before >= MOST_BAD_ROWS:
                raise DataError(f"the first {MOST_BAD_ROWS:,} lines with text are not rows, so the rest was not read")


def _rows(reading: Reading) -> Generator[tuple[int, Any, int], None, None]:
    """Yield the number, the value and the length of each line that is not empty.

    The value of a line that cannot be read is `_UNREADABLE`.
    """
    for number, line in lines(reading.stream, reading.options.encoding, reading.options.max_size):
        if line is None:
            reading.skip(reading.options.too_large("the line"), number)
            yield number, _UNREADABLE, 0
        elif line.strip():
            yield number, _row(reading, number, line), len(line)


def _sample(rows: Iterator[tuple[int, Any, int]]) -> list[tuple[int, Any, int]]:
    """Return the first rows up to one that cannot be read. They show whether the file is a session."""
    sample: list[tuple[int, Any, int]] = []
    size = 0
    for row in rows:
        sample.append(row)
        size += row[2]
        if row[1] is _UNREADABLE or len(sample) == SAMPLE_ROWS or size > SAMPLE_CHARACTERS:
            break
    return sample


def lines(stream: BinaryIO, encoding: str | None, longest: int) -> Generator[tuple[int, str | None], None, None]:
    """Yield the numbered lines of a seekable stream.

    Bytes that cannot be decoded become lone surrogates.

    Args:
        stream: The stream.
        encoding: The encoding that the caller names, if any.
        longest: Maximum number of characters of a line. A longer line is yielded as None.

    Raises:
        DataError: If the stream is not text.
    """
    head = stream.read(4096)
    stream.seek(0)
    encoding = codec_with_mark(encoding or _encoding_of(head))
    text = io.TextIOWrapper(stream, encoding, errors="surrogateescape", newline="\n")
    try:
        for number in count(1):
            line = text.readline(longest + 1)
            if not line:
                return
            yield number, None if _pass_rest(text, line, longest) else line
    except UnicodeError as error:
        raise DataError(f"the file is not valid {encoding} text ({error}). Pass another --encoding.") from error
    finally:
        text.detach()


def _pass_rest(text: io.TextIOWrapper, line: str, longest: int) -> bool:
    """Return True if the line is longer than `longest`. In that case, read and drop the rest of it."""
    if len(line) <= longest:
        return False
    while line and not line.endswith("\n"):
        line = text.readline(BLOCK_BYTES)
    return True


def _encoding_of(head: bytes) -> str:
    encoding = utf_encoding(head)
    if encoding is None and head.count(0) > len(head) * LARGEST_CONTROL_SHARE:
        raise DataError(NUL_REASON)
    return encoding or "utf-8"


def _decoded_anew(reading: Reading, line: str) -> str:
    """Return a line that is not UTF-8 as other text is read. If it is not in the named encoding, raise `DataError`."""
    if reading.options.encoding:
        raise DataError(f"the line is not valid {reading.options.encoding}. Pass another --encoding.")
    return decoded(reading, line.encode("utf-8", "surrogateescape"), guess=False).text  # a line is too short


def _row(reading: Reading, number: int, line: str) -> Any:
    """Return the value in a line. If it cannot be read, report it and return `_UNREADABLE`."""
    if _UNDECODED.search(line):
        try:
            line = _decoded_anew(reading, line)
        except DataError as error:
            reading.skip(str(error), number)
            return _UNREADABLE
    most = reading.options.max_size // TEXT_PER_VALUE
    if len(line) > most and sum(map(line.count, ",[{")) > most:
        reading.skip(
            f"the line has more than {most:,} JSON values. Split it, or raise the limit with --max-mb.", number
        )
        return _UNREADABLE
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        reading.skip(
            f"the line is not valid JSON at character {error.pos + 1} ({error.msg.removesuffix(' at')})", number
        )
    except RecursionError:
        reading.skip("the JSON is nested too deeply to be read", number)
    except ValueError as error:
        reading.skip(f"the JSON cannot be read ({error})", number)
    return _UNREADABLE


def _from_row(reading: Reading, number: int, row: Any, *, by_field: bool) -> Iterator[Document]:
    """Yield the document of a row. If `by_field` is True, a row without a field of text has a line for each field."""
    if row is _UNREADABLE:
        return
    if by_field and isinstance(row, dict) and row and not has_text_column(row, reading.options):
        yield from from_row(reading, number, row, by_field=True)
    elif is_conversation(row) and not has_text(row, reading.options):
        if (whole := read_conversation(reading, row, number)) is not None:
            yield whole
        else:
            reading.skip("the conversation of the row has no text", number)
    else:
        yield from from_row(reading, number, row)
