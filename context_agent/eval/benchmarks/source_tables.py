"""The tables of a benchmark: the rows of its documents, questions and judgments, from files or a dataset repository.

A row that cannot be read is skipped. The reason is added to `problems` with the line number.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, Any, cast

from context_agent._support.small_files import MAX_EXPANSION, parse_json, read_lines, require_files
from context_agent.errors import DataError, MissingExtraError
from context_agent.retrieval.loaders.parquet import produced

SourceRow = Mapping[str, Any]
LocatedRow = tuple[str, SourceRow]
"""A row, with its location for messages (`file:line`) before it."""
JUDGMENT_FIELDS = ("query-id", "corpus-id", "score")
_NAMES: Mapping[str, Mapping[int, tuple[str, ...]]] = {
    "queries": {2: ("_id", "text")},
    "corpus": {2: ("_id", "text"), 3: ("_id", "title", "text")},
}
"""The columns of a table without a header, by its role and the number of its columns."""
DOCUMENT_IDS = ("_id", "id", "docid", "doc_id", "docno", "pid", "url")
"""The names of the field with the id of a document in a folder of BEIR or TREC. The first one in a row counts."""
DOCUMENT_TEXTS = ("text", "contents", "content", "passage")
"""The names of the field with the text of a document."""
QUERY_IDS = ("_id", "id", "qid", "query_id", "query-id")
"""The names of the field with the id of a question."""
QUERY_TEXTS = ("text", "query", "question")
"""The names of the field with the text of a question."""
_HEADER_NAMES = frozenset([*DOCUMENT_IDS, *DOCUMENT_TEXTS, *QUERY_IDS, *QUERY_TEXTS, "answer", "prompt", "title"])
"""Names of columns that show that the first line of a table is its header."""
BATCH_ROWS = 64
"""The number of rows of a parquet file in memory at a time."""
QUOTE = '"'
_QUOTED_FIELD = re.compile(r'"(?:[^"]|"")*+"')
MAX_FIELD_SIZE = 2**28
"""Maximum number of characters in a field of a CSV or TSV file."""


@dataclass(frozen=True, slots=True)
class HubTable:
    """The location of a role's rows in a dataset repository.

    Attributes:
        dataset: The name of the repository.
        config: The configuration of the dataset, if it has several.
        split: A split that replaces the requested one. If it is empty, the requested split is read.
    """

    dataset: str
    config: str | None = None
    split: str = ""


@dataclass(frozen=True, slots=True)
class SourceTables:
    """The rows of a benchmark by role (`corpus`, `queries`, `qrels`), from any source.

    Attributes:
        name: The name of the benchmark.
        open: A function that yields the rows of a role, and adds the rows that it skips to a list of problems.
        roles: The roles that the source has.
        problems: The rows that were skipped so far, each with its location and the reason.
    """

    name: str
    open: Callable[[str, list[str]], Iterable[LocatedRow]]
    roles: frozenset[str]
    problems: list[str] = field(default_factory=list)

    def rows(self, role: str) -> Iterator[LocatedRow]:
        """Yield the rows of a role in order.

        Raises:
            DataError: If the source lacks the role or cannot be read.
        """
        yield from self.open(role, self.problems)


def tables_from_folder(
    name: str,
    folder: Path,
    files: Mapping[str, tuple[str, ...]],
    split: str,
    fallback: SourceTables | None = None,
) -> SourceTables:
    """Return the tables in a folder.

    Args:
        name: The name of the benchmark.
        folder: The folder.
        files: The published file names of each role. The first one that exists is read. `{split}` is replaced by the
            split, and `{domain}` by the part of the split before its last underscore.
        split: The split.
        fallback: Tables that provide the roles without a file.
    """

    def filled(pattern: str) -> str:
        return pattern.format(split=split, domain=split.rpartition("_")[0])

    def find(role: str) -> Path | None:
        candidates = [folder / filled(pattern) for pattern in files[role]]
        return next((path for path in candidates if path.is_file()), None)

    def rows(role: str, problems: list[str]) -> Iterable[LocatedRow]:
        path = find(role)
        if path is None and fallback is not None and role in fallback.roles:
            return fallback.open(role, problems)
        if path is None:
            names = " or ".join(map(filled, files[role]))
            raise DataError(f"the folder {folder} of {name} has no {role} file. Add {names}.")
        return read_rows(path, problems, role)

    return SourceTables(name, rows, frozenset(role for role in files if find(role) is not None))


def tables_from_hub(name: str, hubs: Mapping[str, HubTable], split: str) -> SourceTables:
    """Return the tables of a dataset repository, which `datasets` downloads and caches.

    Reading them raises `MissingExtraError` if `datasets` is not installed.
    """

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
            raise DataError(
                f"cannot load {table_name} of {name} ({str(error).partition(chr(10))[0]}). Check the network, or pass "
                f"a folder: --benchmarks {name}=FOLDER."
            ) from error
        return ((f"{hub.dataset}:{number}", row) for number, row in enumerate(table, 1))

    return SourceTables(name, rows, frozenset(hubs))


def read_rows(path: Path, problems: list[str], role: str = "") -> Iterator[LocatedRow]:
    """Yield the rows of a `.jsonl`, `.json` (a list), `.tsv`, `.csv` or `.parquet` file. Text formats may be gzipped.

    Args:
        path: The file.
        problems: A list to which skipped rows are added, each with its location and the reason.
        role: The role of the rows. Judgments (`qrels`) may also be a `.txt` file in the format of TREC, and a table of
            documents or questions needs no header.

    Raises:
        DataError: If the file cannot be read, or if a packed file unpacks to far more than its size.
    """
    suffix = path.name.removesuffix(".gz").rpartition(".")[2]
    require_files([path])
    try:
        if suffix == "parquet":
            yield from _parquet(path, _unpacked_limit(path))
            return
        reader = _READERS.get(suffix)
        if role == "qrels" and suffix in {"tsv", "txt"}:
            reader = _judgments
        elif reader is _tabbed:
            reader = partial(_tabbed, names=_NAMES.get(role, {}))
        if reader is None:
            formats = ", ".join([*_READERS, "parquet"])
            raise DataError(f"{path} has the unknown file format {suffix!r}. Convert it to one of {formats}.")
        is_packed = path.suffix == ".gz"
        limit = _unpacked_limit(path) if is_packed else None
        with gzip.open(path) if is_packed else path.open("rb") as stream:
            yield from reader(path, cast("IO[bytes]", stream), limit, problems)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 ({error}). Convert the file to UTF-8.") from error
    except (OSError, EOFError, ValueError, zlib.error, csv.Error) as error:
        raise DataError(
            f"{path} cannot be read ({getattr(error, 'strerror', None) or error}). Download the file again."
        ) from error


def _unpacked_limit(path: Path) -> int:
    """Return the maximum number of bytes that a packed file may unpack to."""
    return MAX_EXPANSION * max(path.stat().st_size, 5_000)


def _check_unpacked(size: int, limit: int) -> None:
    if size > limit:
        raise ValueError(f"the file unpacks to more than {limit:,} bytes, {MAX_EXPANSION} times its size")


def _jsonl(path: Path, stream: IO[bytes], limit: int | None, problems: list[str]) -> Iterator[LocatedRow]:
    for number, line in enumerate(read_lines(stream, total=limit), 1):
        if line.strip():
            try:
                row = parse_json(line)
            except ValueError as error:
                problems.append(f"{path}:{number}: the line is not valid JSON ({error})")
                continue
            yield from _mapping(f"{path}:{number}", row, problems)


def _json(path: Path, stream: IO[bytes], limit: int | None, problems: list[str]) -> Iterator[LocatedRow]:
    text = stream.read(-1 if limit is None else limit + 1)
    if limit is not None:
        _check_unpacked(len(text), limit)
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not valid JSON ({error}). Download the file again.") from error
    if not isinstance(rows, list):
        raise DataError(f"{path} must contain a list of rows; got {type(rows).__name__}")
    for number, row in enumerate(rows, 1):
        yield from _mapping(f"{path}[{number}]", row, problems)


def _judgments(path: Path, stream: IO[bytes], limit: int | None, problems: list[str]) -> Iterator[LocatedRow]:
    """Yield the judgments of a table of BEIR, which has three columns, or of TREC, whose second of four is unused."""
    for number, raw in enumerate(read_lines(stream, total=limit), 1):
        line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")
        fields = line.split("\t") if "\t" in line else line.split()
        if not fields or (number == 1 and fields[-1].strip().isalpha()):  # a header
            continue
        if len(fields) not in (3, 4):
            problems.append(f"{path}:{number}: a judgment has 3 or 4 columns; got {len(fields)}")
            continue
        yield f"{path}:{number}", dict(zip(JUDGMENT_FIELDS, (fields[0], *fields[-2:]), strict=True))


def _tabbed(
    path: Path, stream: IO[bytes], limit: int | None, problems: list[str], *, names: Mapping[int, tuple[str, ...]]
) -> Iterator[LocatedRow]:
    """Yield the rows of a table. If its first line names no column, its columns have the names for their number."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_SIZE))
    numbered = enumerate(read_lines(stream, total=limit))
    lines = (line.decode("utf-8-sig" if number == 0 else "utf-8") for number, line in numbered)
    delimiter = "," if ".csv" in path.name else "\t"
    first = next(lines, "")
    cells = [cell.strip().strip('"').lower() for cell in first.split(delimiter)]
    header = names.get(len(cells)) if _HEADER_NAMES.isdisjoint(cells) else None
    rows = chain([first], lines)
    table = csv.reader(rows if delimiter == "," else _quoted(rows, len(cells)), delimiter=delimiter)
    columns: Sequence[str] = next(table, ()) if header is None else header
    for fields in table:
        if len(fields) > len(columns):
            problems.append(f"{path}:{table.line_num}: the row has more fields than the header")
        elif fields:
            yield f"{path}:{table.line_num}", dict(zip(columns, fields, strict=False))


def _quoted(lines: Iterable[str], columns: int) -> Iterator[str]:
    """Yield the lines of a table with tabs, as `csv` expects them.

    Most such tables do not quote. There, a field may begin with a quotation mark that closes in the middle of the
    field, or not at all. Such a field gets quotation marks around it. A field that continues on the next line, which
    then has fewer columns, stays as it is.
    """
    is_open = False
    for line, following in pairwise(chain(lines, [""])):
        text = line.rstrip("\r\n")
        fields = text.split("\t")
        literal = {field for field in fields if field.startswith('"') and not _QUOTED_FIELD.fullmatch(field)}
        is_odd = text.count('"') % 2 == 1
        continues = is_odd and bool(following) and following.count("\t") + 1 < columns
        if is_open or not literal or len(fields) != columns or continues:
            is_open ^= is_odd
            yield line
            continue
        cells = (f'"{field.replace(QUOTE, QUOTE * 2)}"' if field in literal else field for field in fields)
        yield "\t".join(cells) + line[len(text) :]


def _parquet(path: Path, limit: int) -> Iterator[LocatedRow]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "docs") from error
    number = size = 0
    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=BATCH_ROWS):
            size += sum(map(produced, batch.columns))
            _check_unpacked(size, limit)
            for row in batch.to_pylist():
                number += 1
                yield f"{path}:{number}", row
    except (pa.ArrowException, OverflowError) as error:
        raise DataError(f"{path} is damaged after {number} rows ({error}). Download the file again.") from error


def _mapping(location: str, row: object, problems: list[str]) -> Iterator[LocatedRow]:
    if isinstance(row, dict):
        yield location, row
    else:
        problems.append(f"{location}: the row must be an object; got {type(row).__name__}")


_READERS: dict[str, Callable[..., Iterator[LocatedRow]]] = {
    "jsonl": _jsonl,
    "json": _json,
    "tsv": _tabbed,
    "csv": _tabbed,
}
