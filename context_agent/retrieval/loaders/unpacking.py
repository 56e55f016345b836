"""Limits on the size that a packed source may unpack to, relative to its own size.

They are checked while it is read.
"""

from __future__ import annotations

from context_agent.errors import DataError

LARGEST_FILE = 256 * 2**20
"""Maximum number of bytes of a document with its pictures, packed or not. A library may have to read all of them."""
FREE_UNPACKED_SIZE = 2**20
"""The number of bytes or characters that any packed source may unpack to."""
LARGEST_RATIO = 200
"""The largest ratio of unpacked to packed size above `FREE_UNPACKED_SIZE`."""

ANY_ROWS = 10_000
"""The number of rows that any packed source may have."""
LEAST_ROW_BYTES = 2
"""Minimum number of packed bytes of a row, on average, above `ANY_ROWS` rows. Only repeated rows take fewer."""


def check_unpacked(unpacked: int, packed: int) -> None:
    """Raise `DataError` if the source is a decompression bomb."""
    if unpacked > FREE_UNPACKED_SIZE and unpacked > LARGEST_RATIO * packed:
        raise DataError(
            f"the file unpacks to more than {LARGEST_RATIO} times its size. If you trust it, unpack it and index the "
            "result."
        )


def check_rows(rows: int, packed: int) -> None:
    """Raise `DataError` if the rows of a packed source repeat each other so often that reading them only costs time."""
    if rows > ANY_ROWS and rows * LEAST_ROW_BYTES > packed:
        raise DataError(
            f"the file has more than one row for every {LEAST_ROW_BYTES} bytes of its size. If you trust it, unpack "
            "it, remove repeated rows, and index the result."
        )
