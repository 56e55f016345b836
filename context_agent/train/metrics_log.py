"""The metrics file of a run: one line of JSON per step. This module does not import torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from context_agent._support.atomic_files import replacing
from context_agent._support.small_files import parse_json, require_files
from context_agent.errors import DataError, reason_of
from context_agent.train.config import Notify

METRICS_FILE = "metrics.jsonl"
"""The metrics file in the folder of a run."""


class MetricsLog:
    """A metrics file that grows by one line per step.

    If a run resumes and will repeat some steps, the lines of these steps are removed. If the process is killed
    meanwhile, the file is as it was. If the disk is full, lines stay in memory until there is space.
    """

    def __init__(self, path: Path, *, first: int = 0) -> None:
        """Open the file. Remove the lines from step `first` on, because this run begins with that step.

        Raises:
            DataError: If a line before the last is damaged.
            OSError: If the file cannot be written.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        lines = [line for line in read_metrics(path) if line["step"] < first] if path.is_file() else []
        with replacing(path, shared=True) as file:
            file.writelines(map(_encoded, lines))
        self._file = path.open("ab", buffering=0)
        self._unwritten = bytearray()

    def add(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Write one line: the step, then the metrics by name."""
        self._unwritten += _encoded({"step": step, **metrics})
        self._write()

    def close(self, note: Notify) -> None:
        """Write the lines that are left, and close the file. If lines are lost, tell `note` how many and why."""
        error = self._write()
        self._file.close()
        if error is not None:
            lost = self._unwritten.count(b"\n")
            note(f"the last {lost} lines of {self.path} are missing, because they could not be written ({error})")

    def _write(self) -> OSError | None:
        """Write the lines that are left. If that fails, return the error."""
        try:
            while self._unwritten:
                # A disk that is almost full takes a part of a line.
                del self._unwritten[: self._file.write(self._unwritten)]
        except OSError as error:
            return error
        return None


def _encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def read_metrics(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a metrics file. An incomplete last line is left out.

    Args:
        path: The file.

    Yields:
        The step and the metrics of each line.

    Raises:
        DataError: If the file cannot be read, or a line before the last is damaged.
    """
    path = Path(path)
    require_files([path])
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot read the metrics {path} ({reason_of(error)}). Check its permissions, or restore it."
        ) from error
    for number, text in enumerate(lines, start=1):
        try:
            line = parse_json(text)
            line["step"] = int(line["step"])
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            if number == len(lines):
                return
            raise DataError(
                f"{path}, line {number}: the line is not a line of metrics ({error}). Restore the file, or delete the "
                "line."
            ) from None
        yield line
