"""The metrics file of a run: one line of JSON per step. This module does not import torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from context_agent._support.small_files import parse_json
from context_agent.errors import DataError


class MetricsLog:
    """A metrics file that grows by one line per step.

    If a run resumes and will repeat some steps, the lines of these steps are removed.
    """

    def __init__(self, path: Path, *, first: int = 0) -> None:
        """Open the file. Remove the lines from step `first` on, because this run begins with that step."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        lines = [line for line in read_metrics(path) if line["step"] < first] if path.is_file() else []
        self._file = path.open("w", encoding="utf-8", newline="\n")
        for line in lines:
            self._write(line)

    def add(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Write one line: the step, then the metrics by name."""
        self._write({"step": step, **metrics})

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
        self._file.flush()


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
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read the metrics {path} ({error}). Check its permissions, or restore it.") from error
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
