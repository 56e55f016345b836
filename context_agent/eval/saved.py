"""Trajectories that a run keeps: written inside its own folder, moved to the user's when their question is done.

A question that is asked again, because its process was killed, so leaves one trajectory and not a cut one beside it.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

UNFINISHED = "unfinished"
"""Where in the run's folder trajectories lie while they are written."""

Key = tuple[str, str, int, int, str]
"""Benchmark, system, window, seed, question: the key of a record."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """`folder` is where the user wants them, `run` the folder of the run, which one evaluation alone writes to."""

    folder: Path
    run: Path

    @property
    def unfinished(self) -> Path:
        """The root of what is being written."""
        return self.run / UNFINISHED

    def keep(self, key: Key) -> tuple[str, ...]:
        """Moves what was written for a question, whole or cut, and gives the paths as seen from the run's folder."""
        kept = []
        for path in self._written(key):
            target = self.folder / path.relative_to(self.unfinished)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target)
            kept.append(Path(os.path.relpath(target, self.run)).as_posix())
        return tuple(kept)

    def drop(self, key: Key) -> None:
        """Removes what was written for a question that is asked again."""
        for path in self._written(key):
            path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Removes what a run that was killed left."""
        shutil.rmtree(self.unfinished, ignore_errors=True)

    def _written(self, key: Key) -> list[Path]:
        """The question's trajectories by rollout, sub-agents' last. The folder holds a handful: those under way."""
        benchmark, system, window, seed, question = key
        found = []
        for path in cell(of_benchmark(self.unfinished, benchmark), system, window, seed).glob("*.jsonl"):
            header = _header(path)
            if header.get("question_id") == question:
                found.append((header.get("parent") is not None, header.get("seed", 0), path))
        return [path for *_, path in sorted(found)]


def of_benchmark(root: Path, benchmark: str) -> Path:
    """The folder of a benchmark's trajectories."""
    return root / benchmark.replace("/", "-")


def cell(folder: Path, system: str, window: int, seed: int) -> Path:
    """The folder of a system's trajectories under one window and seed, below that of the benchmark."""
    return folder / system / f"{window}-{seed}"


def _header(path: Path) -> dict[str, object]:
    """The first line; nothing where that was cut."""
    try:
        with path.open("rb") as lines:
            return dict(json.loads(lines.readline()))
    except (OSError, ValueError, TypeError):
        return {}
