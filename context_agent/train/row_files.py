"""Rows on disk in bulk: streamed, never all in memory, as JSONL and as parquet.

`write` makes a folder: `rows.jsonl`, `rows.parquet` and, last, `rows.json`, which says how many rows there are and by
which tokenizer they were made. Trainers read the parquet file, by columns. It needs pyarrow.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from context_agent._support.files import open_private, private_folder
from context_agent.errors import DataError, MissingExtraError
from context_agent.train.rows import Row, to_line

JSONL, PARQUET, ABOUT = "rows.jsonl", "rows.parquet", "rows.json"
CHUNK = 256
"""Rows that are in memory at a time."""


@dataclass(frozen=True, slots=True)
class RowFolder:
    """What was written. `tokens` are all ids, `trained` those that teach; `longest` is the longest row's length."""

    path: Path
    tokenizer: str
    rows: int
    tokens: int
    trained: int
    longest: int

    @property
    def parquet(self) -> Path:
        """The file that trainers read."""
        return self.path / PARQUET

    def check(self, tokenizer: str) -> None:
        """Raises `DataError` where the rows were made by another tokenizer than this one."""
        if self.tokenizer != tokenizer:
            raise DataError(
                f"the rows in {self.path} were made by the tokenizer {self.tokenizer!r}, the model's is "
                f"{tokenizer!r}: make them anew"
            )


def write(rows: Iterable[Row], folder: str | Path, *, tokenizer: str) -> RowFolder:
    """Writes the rows as they come. The folder counts as written when its `rows.json` is there."""
    folder = Path(folder)
    private_folder(folder)
    (folder / ABOUT).unlink(missing_ok=True)
    count = tokens = trained = longest = 0
    rows_file = open_private(folder / JSONL, "w", encoding="utf-8", newline="\n")
    with rows_file as lines, _Parquet(folder / PARQUET) as table:
        for some in _chunks(rows):
            lines.writelines(to_line(row) for row in some)
            table.add(some)
            lengths = [len(row.input_ids) for row in some]
            count, tokens, longest = count + len(some), tokens + sum(lengths), max(longest, *lengths)
            trained += sum(row.trained for row in some)
        lines.flush()
        os.fsync(lines.fileno())
    about = RowFolder(folder, tokenizer, count, tokens, trained, longest)
    data = {key: value for key, value in asdict(about).items() if key != "path"}
    partial = folder / f"{ABOUT}.partial"
    partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    partial.replace(folder / ABOUT)
    return about


def open_folder(folder: str | Path) -> RowFolder:
    """A folder that `write` made. Raises `DataError` for one that is not whole."""
    folder = Path(folder)
    try:
        return RowFolder(folder, **json.loads((folder / ABOUT).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{folder} is no folder of rows, or was not written to its end: {error}") from error


def read(path: str | Path) -> Iterator[Row]:
    """The rows of a parquet file, some at a time. Raises `DataError`."""
    parquet = _pyarrow("pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(CHUNK):
                for row in batch.to_pylist():
                    yield Row(**row)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"cannot read the rows {path}: {error}") from error


class _Parquet:
    """A parquet file that grows by a group of rows at a time."""

    def __init__(self, path: Path) -> None:
        arrow, parquet = _pyarrow("pyarrow"), _pyarrow("pyarrow.parquet")
        self._schema = arrow.schema(
            [
                ("input_ids", arrow.list_(arrow.int32())),
                ("loss_mask", arrow.list_(arrow.int8())),
                ("logprobs", arrow.list_(arrow.float64())),
                ("episode_id", arrow.string()),
                ("group_id", arrow.string()),
                ("policy_version", arrow.string()),
            ]
        )
        self._table = arrow.Table
        self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd")

    def add(self, rows: list[Row]) -> None:
        self._writer.write_table(self._table.from_pylist([asdict(row) for row in rows], schema=self._schema))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    some: list[Row] = []
    for row in rows:
        some.append(row)
        if len(some) == CHUNK:
            yield some
            some = []
    if some:
        yield some


def _pyarrow(module: str) -> Any:
    try:
        return __import__(module, fromlist=["_"])
    except ImportError:
        raise MissingExtraError("pyarrow", "train") from None
