"""The rollouts of a step while its substeps are trained: kept with a checkpoint that falls between two of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from context_agent._support.files import open_private
from context_agent.errors import DataError
from context_agent.train.batches import Weighted
from context_agent.train.rows import Row


@dataclass(frozen=True, slots=True)
class Buffer:
    """The rows of each substep of step `number`; -1 stands for none."""

    number: int = -1
    parts: Sequence[Sequence[Weighted]] = field(default_factory=list)

    def save(self, folder: Path, rank: int) -> None:
        """Writes the rank's rows, one a line."""
        with open_private(_path(folder, rank), "w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps({"number": self.number, "parts": len(self.parts)}) + "\n")
            for place, part in enumerate(self.parts):
                for item in part:
                    line = [place, item.advantage, item.weights, asdict(item.row)]
                    file.write(json.dumps(line, separators=(",", ":")) + "\n")

    @staticmethod
    def load(folder: Path, rank: int) -> Buffer:
        """What was saved, to the last bit; an empty buffer where nothing was. Raises `DataError`."""
        path = _path(folder, rank)
        if not path.is_file():
            return Buffer()
        try:
            with path.open(encoding="utf-8") as file:
                head = json.loads(next(file))
                parts: list[list[Weighted]] = [[] for _ in range(head["parts"])]
                for line in file:
                    place, advantage, weights, row = json.loads(line)
                    parts[place].append(Weighted(Row(**row), advantage, tuple(weights)))
            return Buffer(int(head["number"]), parts)
        except (OSError, ValueError, TypeError, KeyError, IndexError, StopIteration) as error:
            raise DataError(f"cannot read the rollouts {path}: {type(error).__name__} {error}") from error


def _path(folder: Path, rank: int) -> Path:
    return folder / f"rollouts-{rank}.jsonl"
