"""Files of questions: JSONL with one question per row, with its answer and gold documents if they are known.

`read_rows` reads any JSONL source line by line. `load_rows` also checks the rows, and that no id is repeated.
"""

from __future__ import annotations

import gzip
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as brief
from typing import IO, Any, Protocol, TypeGuard, TypeVar, cast

from context_agent._support.small_files import MAX_EXPANSION, parse_json, read_lines
from context_agent.errors import DataError, reason_of
from context_agent.types import Question

Source = str | os.PathLike[str] | IO[str] | IO[bytes]


class Identified(Protocol):
    """A row that has an id."""

    @property
    def id(self) -> str:
        """The id, which is unique in its file."""


_T = TypeVar("_T", str, int)
_Row = TypeVar("_Row", bound=Identified)
_NAMES = {
    str: "a string",
    int: "a whole number",
    list: "a list",
    dict: "an object",
    float: "a number",
    bool: "a boolean",
}

_NAMES_OF_GOLD = {f"gold{of}{ending}" for of in ("", "doc", "document") for ending in ("", "s", "id", "ids")}
"""The names of fields that are meant to be `gold`, without case and separators."""
GZIP, PARQUET, ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
"""The first bytes of the kinds of files that people pass instead of JSON Lines. A spreadsheet is a ZIP file."""
JSON_LINES = "Write each object on one line of its own, as JSON Lines."
_EXAMPLE = '{"id": "q1", "question": "...", "gold": ["a.md"]}'
_TABLE = f"The file is a table. Convert it to JSON Lines, with an object such as {_EXAMPLE} for each row."
_LIST = "Write each object on one line of its own, for example with `jq -c '.[]' FILE.json > FILE.jsonl`."
_SQUAD = f"The file is in the format of SQuAD. Write an object such as {_EXAMPLE} for each question, on one line."
MAX_HEADER = 1_000
"""Maximum number of characters of a first line in which the names of a table's columns are searched."""
_DELIMITERS = re.compile("[,;\t]")
MAX_PROBLEMS = 1_000
"""The number of invalid rows of a source that get an error of their own. A small file can have millions of them."""


@dataclass(frozen=True, slots=True)
class JsonRow:
    """A line of a JSONL source.

    Attributes:
        number: The line number, from 1.
        location: The source and the line number, for error messages.
        value: The decoded value.
        problem: Why the line has no value. It is empty if the line is valid.
    """

    number: int
    location: str
    value: Any = None
    problem: str = ""


def load_questions(source: Source, *, problems: list[str] | None = None) -> list[Question]:
    """Return the questions of a JSONL source, in order.

    The id is the field `id` or `_id`, or else the line number. The text is the field `question` or `query`. It may be
    empty, and the search then reports that. Other fields that `Question` lacks are ignored, but a row is invalid if it
    has its gold in a field such as `gold_ids`.

    Args:
        source: A file (`.gz` or not), an open stream, or `-` for standard input.
        problems: As in `load_rows`.

    Raises:
        DataError: If the source cannot be read. Without `problems`, also if a row is invalid or repeats an id.
    """
    return load_rows(source, _graded_question, problems=problems)


def load_rows(
    source: Source, read: Callable[[object, int, str], _Row], *, problems: list[str] | None = None
) -> list[_Row]:
    """Return the rows of a JSONL source, in order, and check that no id is repeated.

    Args:
        source: A file (`.gz` or not), an open stream, or `-` for standard input.
        read: A function that parses a value, given the value, its line number and its location.
        problems: A list to which an error for each invalid row is added. After `MAX_PROBLEMS` of them, the others share
            one text. Without it the first invalid row raises an error.

    Raises:
        DataError: If the source cannot be read. Without `problems`, also if a row is invalid or repeats an id.
    """
    rows: list[_Row] = []
    numbers: dict[str, int] = {}
    invalid, others = 0, ""
    for line in read_rows(source):
        try:
            row = _checked(line, read, numbers)
        except DataError as error:
            if problems is None:
                raise
            invalid += 1
            others = others or f"{line.location.rpartition(':')[0]}: another row is invalid"
            problems.append(str(error) if invalid <= MAX_PROBLEMS else others)
        else:
            rows.append(row)
            numbers[row.id] = line.number
    return rows


def _checked(line: JsonRow, read: Callable[[object, int, str], _Row], numbers: Mapping[str, int]) -> _Row:
    """Return the row of a line. Raise `DataError` if it is invalid or repeats one of the ids in `numbers`."""
    if line.problem:
        raise DataError(line.problem)
    row = read(line.value, line.number, line.location)
    if row.id in numbers:
        raise DataError(
            f"{line.location}: line {numbers[row.id]} already has the id {row.id!r}. Give each row its own id."
        )
    return row


def split_of(file_name: str) -> str:
    """Return the split in the name of a question file, such as `dev` for `queries.dev.jsonl`."""
    return file_name.removeprefix("queries.").removesuffix(".gz").removesuffix(".jsonl")


def read_rows(source: Source) -> Iterator[JsonRow]:
    """Yield the lines of a JSONL source with their values, leaving out blank lines.

    Raises:
        DataError: If the source cannot be read.
    """
    with _opened(source) as (name, stream):
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield _decoded_row(line, number, f"{name}:{number}")


def _graded_question(row: object, number: int, location: str) -> Question:
    """Return the question in a decoded row, as `question_of`. A field that was meant to be `gold` is an error."""
    question = question_of(row, number, location)
    if not question.gold and not question.facts and isinstance(row, dict):
        for key in row:
            if key != "gold" and "".join(filter(str.isalpha, key.casefold())) in _NAMES_OF_GOLD:
                raise DataError(f"{location}: the field {brief(key)} is not read. Rename it to gold.")
    return question


def question_of(row: object, number: int, location: str) -> Question:
    """Return the question in a decoded row.

    Args:
        row: The decoded JSON.
        number: The line number, which is the id of a row without one.
        location: The place of the row. Error messages start with it.

    Raises:
        DataError: If the row is not a question.
    """
    if not isinstance(row, dict):
        remedy = _LIST if isinstance(row, list) else JSON_LINES
        raise DataError(f"{location}: the row must be an object with fields; got {json_type(row)}. {remedy}")
    text = question_text(row)
    if not isinstance(text, str):
        remedy = _SQUAD if isinstance(row.get("data"), list) else "Add one, or rename a field."
        reason = (
            f"the row has no field question, and its fields are {brief(list(row))}. {remedy}"
            if text is None
            else f"field question must be a string; got {json_type(text)}"
        )
        raise DataError(f"{location}: {reason}")
    return Question(
        id=_identifier(question_id(row), number, location),
        question=text,
        answer=_field(row, "answer", "", location),
        gold=_gold(row.get("gold"), location),
        type=_field(row, "type", "", location),
        hops=_field(row, "hops", 0, location),
        facts=_facts(row.get("facts"), location),
    )


def question_text(row: Mapping[str, Any]) -> Any:
    """Return the value of a row's question. If it has none, return None."""
    return _first(row, ("question", "query"))


def question_id(row: Mapping[str, Any]) -> Any:
    """Return the value of a row's id. If it has none, return None."""
    return _first(row, ("id", "_id"))


def _decoded_row(line: str | bytes, number: int, location: str) -> JsonRow:
    """Decode a line as UTF-8, whatever the terminal's encoding is, and without a byte order mark."""
    try:
        text = line if isinstance(line, str) else line.decode("utf-8")
        return JsonRow(number, location, parse_json(text.removeprefix("\ufeff") if number == 1 else text))
    except UnicodeDecodeError as error:
        remedy = _remedy(line) or "Convert the file to UTF-8."
        return JsonRow(number, location, problem=f"{location}: the line is not UTF-8 ({error}). {remedy}")
    except ValueError as error:
        remedy = _remedy(line) or (_remedy_of_text(text) if number == 1 else "") or JSON_LINES
        return JsonRow(number, location, problem=f"{location}: the line is not valid JSON ({error}). {remedy}")


def _remedy(line: str | bytes) -> str:
    """Return what to do about the first line of a file of another kind. If the kind is unknown, return ""."""
    start = line[:4].encode(errors="replace") if isinstance(line, str) else line[:4]
    if start[:2] == GZIP:
        return "Unpack the file, or add .gz to its name."
    kind = {PARQUET: "Parquet", ZIP: "a spreadsheet or a ZIP file"}.get(start)
    return f"The file is {kind}. Convert it to JSON Lines." if kind else ""


def _remedy_of_text(line: str) -> str:
    """Return what to do about a first line that is not JSON. If its kind is unknown, return ""."""
    cells = {cell.strip(' "').lower() for cell in _DELIMITERS.split(line[:MAX_HEADER].strip("\ufeff\r\n"))}
    if len(cells) > 1 and not cells.isdisjoint({"question", "query"}):
        return _TABLE
    return _LIST if line.strip() == "[" else ""


def _first(row: Mapping[str, Any], keys: Iterable[str]) -> Any:
    return next((row[key] for key in keys if row.get(key) is not None), None)


def _identifier(value: object, number: int, location: str) -> str:
    if value is None or value == "":
        return str(number)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise DataError(f"{location}: field id must be a string or a whole number; got {json_type(value)}")
    return str(value)


def _gold(value: object, location: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not _are_ids(value) or not all(str(gold_id).strip() for gold_id in value):
        raise DataError(f'{location}: field gold must be a list of document ids, such as ["a.md"]; got {brief(value)}')
    return tuple(str(gold_id) for gold_id in value)


def _facts(value: object, location: str) -> tuple[tuple[str, ...], ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(_are_ids(fact) and fact for fact in value):
        raise DataError(f"{location}: field facts must be a list of facts, each a list of one or more chunk ids")
    return tuple(tuple(str(value_id) for value_id in fact) for fact in value)


def _are_ids(value: object) -> TypeGuard[list[str | int]]:
    return isinstance(value, list) and all(
        isinstance(value_id, str | int) and not isinstance(value_id, bool) for value_id in value
    )


def _field(row: Mapping[str, Any], key: str, default: _T, location: str) -> _T:
    value = row.get(key)
    if value is None:
        return default
    if type(value) is not type(default):
        raise DataError(f"{location}: field {key} must be {_NAMES[type(default)]}; got {json_type(value)}")
    return value


def json_type(value: object) -> str:
    """Return the type of a value in JSON's terms, such as `a string`.

    If JSON lacks the type, return Python's name for it.
    """
    return "null" if value is None else _NAMES.get(type(value), f"a {type(value).__name__}")


@contextmanager
def _opened(source: Source) -> Iterator[tuple[str, Iterable[str | bytes]]]:
    """Yield the name of the source and its lines. A stream that the caller opened stays open."""
    name = "standard input" if source == "-" else str(getattr(source, "name", "stream"))
    try:
        if source != "-" and isinstance(source, str | os.PathLike):
            path, name = Path(source), str(source)
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
                total = MAX_EXPANSION * max(path.stat().st_size, 5_000) if path.suffix == ".gz" else None
                yield name, read_lines(cast("IO[bytes]", file), total=total)
        else:
            stream: Any = sys.stdin if isinstance(source, str | os.PathLike) else source
            stream = getattr(stream, "buffer", stream)
            yield name, read_lines(stream) if hasattr(stream, "readline") else stream
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"{name} cannot be read ({reason_of(error)}). Check the path and the file.") from error
