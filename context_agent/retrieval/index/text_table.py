"""Texts in one UTF-8 buffer, in memory or mapped from a file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from mmap import mmap

import numpy as np
from numpy.typing import NDArray

SEPARATOR = b"\n"
"""The line break after each text in the buffer."""


@dataclass(frozen=True, slots=True)
class TextTable:
    """Texts in corpus order.

    Text i is `buffer[starts[i] : starts[i + 1] - 1]`. `starts` has shape (n + 1,) and type int64.
    """

    buffer: bytes | mmap
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, texts: Iterable[str]) -> TextTable:
        """Return a table in memory."""
        encoded = [encode(text) + SEPARATOR for text in texts]
        starts = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(text) for text in encoded], out=starts[1:])
        return cls(b"".join(encoded), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def raw(self, row: int) -> bytes:
        """Return one text in UTF-8."""
        return self.buffer[int(self.starts[row]) : int(self.starts[row + 1]) - 1]

    def text(self, row: int) -> str:
        """Return one text."""
        return self.raw(row).decode()

    def row_at(self, offset: int) -> int:
        """Return the row whose text, or the separator after it, is at this offset in the buffer."""
        return int(np.searchsorted(self.starts, offset, side="right")) - 1


def encode(text: str) -> bytes:
    """Return the text in UTF-8. A question mark replaces each lone surrogate."""
    return text.encode("utf-8", errors="replace")
