"""Raw rows of a benchmark: from files in their published format, or from a dataset repository through `datasets`.

A row that cannot be read is skipped; the reason is added to the `problems` with the line number.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from context_agent.errors import DataError, MissingExtraError

SourceRow = Mapping[str, Any]
LocatedRow = tuple[str, SourceRow]
"""The location of a row for messages (`file:line`), and the row."""

MAX_FIELD_SIZE = 2**28
"""Characters in a field of a CSV or TSV file."""


@dataclass(frozen=True, slots=True)
class HubTable:
    """The location of a role's rows in a dataset repository. A non-empty `split` overrides the requested one."""

    dataset: str
    config: str | None = None
    split: str = ""


@dataclass(frozen=True, slots=True)
class SourceTables:
    """The rows of a benchmark by role (`corpus`, `queries`, `qrels`), from any source.

    `problems` grows while rows are read.
    """

    name: str
    open: Callable[[str, list[str]], Iterable[LocatedRow]]
    roles: frozenset[str]
    problems: list[str] = field(default_factory=list)

    def rows(self, role: str) -> Iterator[LocatedRow]:
        """The rows of a role in order. Raises `DataError` if there is no such file."""
        yield from self.open(role, self.problems)


def tables_from_folder(
    name: str,
    folder: Path,
    files: Mapping[str, tuple[str, ...]],
    split: str,
    fallback: SourceTables | None = None,
) -> SourceTables:
    """The tables in a folder, each under the first existing one of its published names; `{split}` is filled in.

    A role without a file comes from the `fallback` tables if they have it.
    """

    def find(role: str) -> Path | None:
        candidates = [folder / pattern.format(split=split) for pattern in files[role]]
        return next((path for path in candidates if path.is_file()), None)

    def rows(role: str, problems: list[str]) -> Iterable[LocatedRow]:
        path = find(role)
        if path is None and fallback is not None and role in fallback.roles:
            return fallback.open(role, problems)
        if path is None:
            names = " or ".join(pattern.format(split=split) for pattern in files[role])
            raise DataError(f"{name}: {folder} has no {role} file: add {names}")
        return read_rows(path, problems)

    return SourceTables(name, rows, frozenset(role for role in files if find(role) is not None))


def tables_from_hub(name: str, hubs: Mapping[str, HubTable], split: str) -> SourceTables:
    """The tables of a repository, downloaded and cached by `datasets`. Raises `MissingExtraError` without it."""

    def rows(role: str, problems: list[str]) -> Iterator[LocatedRow]:
        hub = hubs[role]
        try:
            import datasets
        except ImportError as error:
            raise MissingExtraError("datasets", "datasets") from error
        hub_split = hub.split or split
        try:
            table = datasets.load_dataset(hub.dataset, hub.config, split=hub_split)
        except Exception as error:
            table_name = f"{hub.dataset}{f' ({hub.config})' if hub.config else ''}, split {hub_split}"
            raise DataError(f"{name}: cannot load {table_name}: {str(error).partition(chr(10))[0]}") from error
        return ((f"{hub.dataset}:{number}", row) for number, row in enumerate(table, 1))

    return SourceTables(name, rows, frozenset(hubs))


def read_rows(path: Path, problems: list[str]) -> Iterator[LocatedRow]:
    """The rows of a `.jsonl`, `.json` (a list), `.tsv`, `.csv` or `.parquet` file; the text formats may be gzipped.

    Raises `DataError` for a file that cannot be read.
    """
    suffix = path.name.removesuffix(".gz").rpartition(".")[2]
    try:
        if suffix == "parquet":
            yield from _parquet(path)
            return
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            yield from _READERS[suffix](path, cast("IO[bytes]", stream), problems)
    except KeyError:
        formats = ", ".join([*_READERS, "parquet"])
        raise DataError(f"{path}: unknown file format {suffix!r}: convert it to one of {formats}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _jsonl(path: Path, stream: IO[bytes], problems: list[str]) -> Iterator[LocatedRow]:
    for number, line in enumerate(stream, 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                problems.append(f"{path}:{number}: not valid JSON: {error}")
                continue
            yield from _mapping(f"{path}:{number}", row, problems)


def _json(path: Path, stream: IO[bytes], problems: list[str]) -> Iterator[LocatedRow]:
    try:
        rows = json.load(stream)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(rows, list):
        raise DataError(f"{path} contains a {type(rows).__name__} instead of a list of rows")
    for number, row in enumerate(rows, 1):
        yield from _mapping(f"{path}[{number}]", row, problems)


def _tabbed(path: Path, stream: IO[bytes], problems: list[str]) -> Iterator[LocatedRow]:
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_SIZE))
    lines = (line.decode("utf-8-sig" if first == 0 else "utf-8") for first, line in enumerate(stream))
    table = csv.DictReader(lines, delimiter="," if ".csv" in path.name else "\t")
    for row in table:
        if None in row:
            problems.append(f"{path}:{table.line_num}: more fields than the header")
            continue
        yield f"{path}:{table.line_num}", row


def _parquet(path: Path) -> Iterator[LocatedRow]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "docs") from error
    number = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=256):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}:{number}", row
    except pa.ArrowException as error:
        raise DataError(f"{path}: damaged parquet after {number} rows: {error}") from error


def _mapping(location: str, row: object, problems: list[str]) -> Iterator[LocatedRow]:
    if isinstance(row, dict):
        yield location, row
    else:
        problems.append(f"{location}: a {type(row).__name__} instead of an object")


_READERS: dict[str, Callable[[Path, IO[bytes], list[str]], Iterator[LocatedRow]]] = {
    "jsonl": _jsonl,
    "json": _json,
    "tsv": _tabbed,
    "csv": _tabbed,
}
