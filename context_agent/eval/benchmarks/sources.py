"""Raw rows of a benchmark: from files in their published format, or from a data set's repository through `datasets`.

A row that cannot be read is left out, and what is wrong with it is added to the `problems` with its line number.
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

Row = Mapping[str, Any]
Placed = tuple[str, Row]
"""A row, and the place that messages name: `file:line`."""

LARGEST_CELL = 2**28


@dataclass(frozen=True, slots=True)
class Hub:
    """Where a role's rows lie in a repository of data sets; `split` is used as it stands where it is not empty."""

    dataset: str
    config: str | None = None
    split: str = ""


@dataclass(frozen=True, slots=True)
class Tables:
    """The rows of a benchmark by role (`corpus`, `queries`, `qrels`), whatever they come from.

    `problems` fills while rows are drawn.
    """

    name: str
    open: Callable[[str, list[str]], Iterable[Placed]]
    roles: frozenset[str]
    problems: list[str] = field(default_factory=list)

    def rows(self, role: str) -> Iterator[Placed]:
        """The rows of a role in order. Raises `DataError` where there is no such file."""
        yield from self.open(role, self.problems)


def from_folder(
    name: str, folder: Path, files: Mapping[str, tuple[str, ...]], split: str, beside: Tables | None = None
) -> Tables:
    """The tables that lie in a folder under the first of the names published for them; `{split}` is filled in.

    A role that is not there is taken from the tables `beside`, where they have it.
    """

    def find(role: str) -> Path | None:
        wanted = [folder / pattern.format(split=split) for pattern in files[role]]
        return next((path for path in wanted if path.is_file()), None)

    def rows(role: str, problems: list[str]) -> Iterable[Placed]:
        path = find(role)
        if path is None and beside is not None and role in beside.roles:
            return beside.open(role, problems)
        if path is None:
            names = " or ".join(pattern.format(split=split) for pattern in files[role])
            raise DataError(f"{name}: no {role} in {folder}: looked for {names}")
        return read(path, problems)

    return Tables(name, rows, frozenset(role for role in files if find(role) is not None))


def from_hub(name: str, hubs: Mapping[str, Hub], split: str) -> Tables:
    """The tables of a repository, downloaded and cached by `datasets`. Raises `MissingExtraError` without it."""

    def rows(role: str, problems: list[str]) -> Iterator[Placed]:
        hub = hubs[role]
        try:
            import datasets
        except ImportError as error:
            raise MissingExtraError("datasets", "datasets") from error
        chosen = hub.split or split
        try:
            table = datasets.load_dataset(hub.dataset, hub.config, split=chosen)
        except Exception as error:
            where = f"{hub.dataset}{f' ({hub.config})' if hub.config else ''}, split {chosen}"
            raise DataError(f"{name}: cannot load {where}: {str(error).partition(chr(10))[0]}") from error
        return ((f"{hub.dataset}:{number}", row) for number, row in enumerate(table, 1))

    return Tables(name, rows, frozenset(hubs))


def read(path: Path, problems: list[str]) -> Iterator[Placed]:
    """The rows of a `.jsonl`, `.json` (a list), `.tsv`, `.csv` or `.parquet` file, `.gz` or not for the texts."""
    kind = path.name.removesuffix(".gz").rpartition(".")[2]
    try:
        if kind == "parquet":
            yield from _parquet(path)
            return
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            yield from _READERS[kind](path, cast("IO[bytes]", stream), problems)
    except KeyError:
        raise DataError(f"{path}: no format is known by the ending {kind!r}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8: {error}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _jsonl(path: Path, stream: IO[bytes], problems: list[str]) -> Iterator[Placed]:
    for number, line in enumerate(stream, 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                problems.append(f"{path}:{number}: not valid JSON: {error}")
                continue
            yield from _mapping(f"{path}:{number}", row, problems)


def _json(path: Path, stream: IO[bytes], problems: list[str]) -> Iterator[Placed]:
    try:
        rows = json.load(stream)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not valid JSON: {error}") from error
    if not isinstance(rows, list):
        raise DataError(f"{path}: a {type(rows).__name__}, not a list of rows")
    for number, row in enumerate(rows, 1):
        yield from _mapping(f"{path}[{number}]", row, problems)


def _tabbed(path: Path, stream: IO[bytes], problems: list[str]) -> Iterator[Placed]:
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST_CELL))
    lines = (line.decode("utf-8-sig" if first == 0 else "utf-8") for first, line in enumerate(stream))
    table = csv.DictReader(lines, delimiter="," if ".csv" in path.name else "\t")
    for row in table:
        if None in row:
            problems.append(f"{path}:{table.line_num}: more cells than the header has names")
            continue
        yield f"{path}:{table.line_num}", row


def _parquet(path: Path) -> Iterator[Placed]:
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


def _mapping(place: str, row: object, problems: list[str]) -> Iterator[Placed]:
    if isinstance(row, dict):
        yield place, row
    else:
        problems.append(f"{place}: a {type(row).__name__}, not an object with fields")


_READERS: dict[str, Callable[[Path, IO[bytes], list[str]], Iterator[Placed]]] = {
    "jsonl": _jsonl,
    "json": _json,
    "tsv": _tabbed,
    "csv": _tabbed,
}
