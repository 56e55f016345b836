"""The reader with its last layer adapted to an agent's own tool results, and the file that stores the adaptation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from context_agent._support.onnx import PairModel, Rows
from context_agent._support.shipped_models import shipped_reader
from context_agent._support.weight_files import weight_file
from context_agent.errors import ConfigError, reason_of

MAX_FILE_BYTES = 100_000
ADAPTER_FORMAT = "ctx1-pruner-1"
CORRECTION = "correction"
"""The name of the tensor in the file."""


@dataclass(frozen=True, slots=True)
class AdaptedReader:
    """A reader whose log-odds are corrected by a linear function of its output rows.

    Attributes:
        correction: A weight for each number of a row, followed by a constant, shape (width + 1,).
        reader: The reader to correct.
    """

    correction: NDArray[np.float32]
    reader: PairModel

    @property
    def width(self) -> int:
        """The length of each row."""
        return self.reader.width

    def encode_pairs(self, pairs: Sequence[tuple[str, str]]) -> Rows:
        """Return a row for each pair, shape (n_pairs, width), with corrected log-odds in the first column."""
        rows = self.reader.encode_pairs(pairs).copy()
        if len(rows):
            rows[:, 0] += rows @ self.correction[:-1] + self.correction[-1]
        return rows

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> AdaptedReader:
        """Return the shipped reader with the correction that a file contains.

        Raises:
            ConfigError: If `file` cannot be read, or if `ctx1 train pruner` did not write it for this reader.
        """
        from safetensors import SafetensorError, safe_open

        reader = shipped_reader()
        remedy = "Make it with `ctx1 train pruner`."
        try:
            if Path(file).stat().st_size > MAX_FILE_BYTES:
                raise ConfigError(f"{file} is too large for an adapted pruner. {remedy}")
            with safe_open(file, framework="numpy") as opened:
                metadata = opened.metadata() or {}
                correction = np.asarray(opened.get_tensor(CORRECTION), dtype=np.float32)
        except OSError as error:
            raise ConfigError(f"cannot read the adapted pruner {file} ({reason_of(error)}). {remedy}") from error
        except (SafetensorError, TypeError, ValueError) as error:
            raise ConfigError(f"{file} is not an adapted pruner ({error}). {remedy}") from error
        if metadata.get("format") != ADAPTER_FORMAT or metadata.get("reader") != reader.name:
            raise ConfigError(f"{file} was made for another reader. {remedy}")
        if correction.shape != (reader.width + 1,) or not np.isfinite(correction).all():
            raise ConfigError(f"{file} has a damaged correction of shape {correction.shape}. {remedy}")
        return cls(correction, reader)

    def to_bytes(self) -> bytes:
        """Return the contents of a file that `load` can read."""
        metadata = {"format": ADAPTER_FORMAT, "reader": getattr(self.reader, "name", "")}
        return weight_file({CORRECTION: self.correction}, metadata)
