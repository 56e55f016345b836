"""How much a packed source may unpack to: limits relative to its own size, checked while it is read."""

from __future__ import annotations

from context_agent.errors import DataError

LARGEST_FILE = 256 * 2**20
"""Bytes of a document with its pictures, packed or not. A library may have to read all of them."""
FREE_UNPACKED_SIZE = 2**20
"""Bytes or characters that any packed source may unpack to."""
LARGEST_RATIO = 200
"""Ratio of unpacked to packed size that is allowed above `FREE_UNPACKED_SIZE`."""

ANY_ROWS = 10_000
"""Rows that any packed source may have."""
LEAST_ROW_BYTES = 2
"""Packed bytes of a row, on average, above `ANY_ROWS`. Only rows that repeat each other take fewer."""


def check_unpacked(unpacked: int, packed: int) -> None:
    """Raise `DataError` for a decompression bomb."""
    if unpacked > FREE_UNPACKED_SIZE and unpacked > LARGEST_RATIO * packed:
        raise DataError(
            f"unpacks to more than {LARGEST_RATIO} times its size: if you trust it, unpack it and index the result"
        )


def check_rows(rows: int, packed: int) -> None:
    """Raise `DataError` for a packed source whose rows repeat each other so often that reading them only costs time."""
    if rows > ANY_ROWS and rows * LEAST_ROW_BYTES > packed:
        raise DataError(
            f"has more than one row for every {LEAST_ROW_BYTES} bytes of its size: if you trust it, unpack it, remove "
            "repeated rows, and index the result"
        )
