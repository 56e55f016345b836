"""Training rows on disk. This module needs pyarrow, but not torch.

`write_row_folder` writes `rows.jsonl` and `rows.parquet`. Last it writes `rows.json` with the number of rows and the
tokenizer. Trainers read columns of the parquet file.
"""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Self, TypeVar

from context_agent._support.atomic_files import replace_file
from context_agent._support.private_files import open_private, private_folder
from context_agent._support.small_files import read_json, require_files
from context_agent.errors import DataError, MissingExtraError, reason_of
from context_agent.train.rows import TrainingRow

T = TypeVar("T")


_COLUMNS = tuple(field.name for field in fields(TrainingRow))


def _columns(row: TrainingRow) -> dict[str, Any]:
    """Return the row's fields. `asdict` would copy the lists id by id, which takes most of the time of writing."""
    return {name: getattr(row, name) for name in _COLUMNS}


def to_line(row: TrainingRow) -> str:
    """Return the row as a line of JSONL."""
    data = {name: value for name, value in _columns(row).items() if name != "experts" or value}
    return json.dumps(data, ensure_ascii=True, separators=(",", ":")) + "\n"


ROWS_FOLDER = "rows"
"""The folder of the rows within the folder of a supervised run."""


JSONL, PARQUET, ABOUT = "rows.jsonl", "rows.parquet", "rows.json"


CHUNK = 256
"""Number of rows that are in memory at a time."""


@dataclass(frozen=True, slots=True)
class RowFolder:
    """A folder of rows on disk.

    Attributes:
        path: The folder.
        tokenizer: The tokenizer that made the rows.
        rows: Number of rows.
        tokens: Number of ids in all rows.
        trained: Number of ids that are trained.
        longest: Length of the longest row.
        digest: The `RowDigest` of the rows. Empty in folders of an older version.
    """

    path: Path
    tokenizer: str
    rows: int
    tokens: int
    trained: int
    longest: int
    digest: str = ""

    @property
    def parquet(self) -> Path:
        """Parquet file, which trainers read."""
        return self.path / PARQUET

    def check(self, tokenizer: str) -> None:
        """Raise `DataError` if another tokenizer made the rows."""
        if self.tokenizer != tokenizer:
            raise DataError(
                f"the rows in {self.path} were made by the tokenizer {self.tokenizer!r}, but the model has "
                f"{tokenizer!r}. Make the rows again with the model's tokenizer."
            )


class RowDigest:
    """A digest of what lessons read of rows, in their order: the ids, which of them are trained, and the question."""

    def __init__(self) -> None:
        self._hash = sha256()

    def add(self, rows: Iterable[TrainingRow]) -> None:
        """Add rows."""
        for row in rows:
            self.add_columns(row.input_ids, row.loss_mask, row.group_id)

    def add_columns(self, input_ids: Sequence[int], loss_mask: Sequence[int], group_id: str) -> None:
        """Add a row by its columns."""
        self._hash.update(f"{len(input_ids)} {len(loss_mask)} {group_id}\n".encode(errors="replace"))
        for numbers in (input_ids, loss_mask):
            self._hash.update(array("i", numbers))

    def hex(self) -> str:
        """Return the digest of the rows so far."""
        return self._hash.hexdigest()[:16]


def write_row_folder(rows: Iterable[TrainingRow], folder: str | Path, *, tokenizer: str) -> RowFolder:
    """Write rows to a folder as they arrive. The folder is complete once its `rows.json` exists.

    Args:
        rows: The rows.
        folder: The folder. Rows that are already in it are replaced.
        tokenizer: The name of the tokenizer that made the rows.

    Returns:
        The written folder.
    """
    folder = Path(folder)
    private_folder(folder)
    require_files(folder.glob("*"), links=False)
    (folder / ABOUT).unlink(missing_ok=True)
    count = tokens = trained = longest = 0
    digest = RowDigest()
    rows_file = open_private(folder / JSONL, "w", encoding="utf-8", newline="\n")
    with rows_file as lines, _Parquet(folder / PARQUET) as table:
        for chunk in chunked(rows, CHUNK):
            lines.writelines(to_line(row) for row in chunk)
            table.add(chunk)
            lengths = [len(row.input_ids) for row in chunk]
            count, tokens, longest = count + len(chunk), tokens + sum(lengths), max(longest, *lengths)
            trained += sum(row.trained for row in chunk)
            digest.add(chunk)
        lines.flush()
        os.fsync(lines.fileno())
    about = RowFolder(folder, tokenizer, count, tokens, trained, longest, digest.hex())
    data = {key: value for key, value in asdict(about).items() if key != "path"}
    replace_file(folder / ABOUT, json.dumps(data, indent=1) + "\n")
    return about


def open_folder(folder: str | Path) -> RowFolder:
    """Open a folder that `write_row_folder` wrote.

    Args:
        folder: The folder.

    Returns:
        The folder with its counts.

    Raises:
        DataError: If the folder is incomplete.
    """
    folder = Path(folder)
    try:
        require_files(folder.glob("*"))
        return RowFolder(folder, **read_json(folder / ABOUT))
    except (OSError, ValueError, TypeError, DataError) as error:
        raise DataError(
            f"{folder} is not a complete rows folder ({reason_of(error, inside=folder)}). Delete it, and run the "
            "step again."
        ) from error


def read_parquet(path: str | Path) -> Iterator[TrainingRow]:
    """Yield the rows of a parquet file, reading a chunk at a time.

    Args:
        path: The file.

    Yields:
        The rows.

    Raises:
        DataError: If the file cannot be read.
    """
    parquet = _pyarrow("pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(CHUNK):
                for row in batch.to_pylist():
                    yield TrainingRow(**row)
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"cannot read the rows {path} ({reason_of(error)}). Make the rows again.") from error


class _Parquet:
    """A parquet file to which rows are added in groups."""

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
                ("experts", arrow.string()),
            ]
        )
        self._table = arrow.Table
        self._writer = parquet.ParquetWriter(path, self._schema, compression="zstd")

    def add(self, rows: list[TrainingRow]) -> None:
        self._writer.write_table(self._table.from_pylist([_columns(row) for row in rows], schema=self._schema))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()


def chunked(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items in lists of length `size`. The last list may be shorter."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


def _pyarrow(module: str) -> Any:
    try:
        return __import__(module, fromlist=["_"])
    except ImportError:
        raise MissingExtraError("pyarrow", "train") from None
