"""How much a packed source may unpack to: a bound relative to its own size, checked while it is read."""

from __future__ import annotations

from context_agent.errors import DataError

UNPACKED = 2**20
"""Bytes or characters that any packed source may unpack to."""
LARGEST_RATIO = 200
"""Ratio of unpacked to packed size that is allowed above `UNPACKED`."""


def check_unpacked(unpacked: int, packed: int) -> None:
    """Raise `DataError` for a decompression bomb."""
    if unpacked > UNPACKED and unpacked > LARGEST_RATIO * packed:
        raise DataError(
            f"unpacks to more than {LARGEST_RATIO} times its size: if you trust it, unpack it and index the result"
        )
