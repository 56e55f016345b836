"""How rows are divided into updates and forward passes, and which are fresh enough to train on. No torch.

`StepRows` are the rows of a step in a checkpoint.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from context_agent._support.journal import open_private
from context_agent._support.small_files import parse_json, read_lines
from context_agent.errors import ConfigError, DataError, PolicyError
from context_agent.train.rows import TrainingRow

MAX_SUBSTEPS = 10_000
"""Updates of one step whose rows a checkpoint holds."""


SORTED_BATCHES = 50
"""Batches whose rows are sorted by length together."""


@dataclass(frozen=True, slots=True)
class WeightedRow:
    """A row and the advantage of its episode. `weights`, one for each id, scale it; none means 1 throughout.

    `demonstrated`: an expert chose its ids, not the policy, so it has no sampler's log-probabilities.
    """

    row: TrainingRow
    advantage: float
    weights: tuple[float, ...] = ()
    demonstrated: bool = False

    @property
    def length(self) -> int:
        """Ids in the row."""
        return len(self.row.input_ids)


ForwardPass = Sequence[WeightedRow]
"""The rows of one forward pass, padded to the longest of them."""


def inert_row(like: WeightedRow) -> WeightedRow:
    """Return a row that trains nothing and costs little: ranks with fewer passes than others run it to keep step."""
    row = like.row
    first = TrainingRow(row.input_ids[:2], [0] * len(row.input_ids[:2]), [0.0] * len(row.input_ids[:2]), "", "")
    return WeightedRow(first, 0.0)


def minibatches(items: Sequence[WeightedRow], count: int) -> list[list[WeightedRow]]:
    """Return the rows in `count` parts of about equal length, an episode's rows together, the same for any order of
    rows.

    The longest episode first, each to the part that is shortest so far (greedy number partitioning).
    """
    if count < 1:
        raise ConfigError(f"rows are shared out over at least one part; got {count}")
    episodes: dict[str, list[WeightedRow]] = {}
    for item in items:
        episodes.setdefault(item.row.episode_id, []).append(item)
    sizes = {episode: sum(item.length for item in rows) for episode, rows in episodes.items()}
    parts: list[list[WeightedRow]] = [[] for _ in range(count)]
    loads = [0] * count
    for episode in sorted(sizes, key=lambda name: (-sizes[name], name)):
        lightest = loads.index(min(loads))
        parts[lightest] += episodes[episode]
        loads[lightest] += sizes[episode]
    return parts


def forward_passes(items: Iterable[WeightedRow], most_tokens: int = 0) -> list[list[WeightedRow]]:
    """Return the rows in passes of at most `most_tokens` padded ids, rows of like length together; a longer row goes
    alone.

    0 puts every row in a pass of its own: no padding, which is what long rows want. No pass has both sampled and
    demonstrated rows, since their losses differ.
    """
    passes: list[list[WeightedRow]] = []
    ordered = sorted(items, key=lambda item: (item.demonstrated, -item.length, item.row.episode_id))
    for item in ordered:
        last = passes[-1] if passes and passes[-1][0].demonstrated == item.demonstrated else None
        if last is not None and (len(last) + 1) * last[0].length <= most_tokens:
            last.append(item)
        else:
            passes.append([item])
    return passes


def order_by_length(lengths: Sequence[int], size: int, *, seed: int, epoch: int) -> list[int]:
    """Return an order of rows for an epoch in which each `size` in a row are of like length; a function of seed and
    epoch.

    Rows are shuffled, sorted within stretches of `SORTED_BATCHES` batches, and the batches shuffled. The one with the
    longest row comes first, so that a row that does not fit in memory fails at once.
    """
    rng = random.Random(f"{seed}:{epoch}")
    order = rng.sample(range(len(lengths)), len(lengths))
    batches: list[list[int]] = []
    for start in range(0, len(order), size * SORTED_BATCHES):
        ordered = sorted(order[start : start + size * SORTED_BATCHES], key=lambda index: -lengths[index])
        batches += [ordered[at : at + size] for at in range(0, len(ordered), size)]
    short = [batch for batch in batches if len(batch) < size]
    full = [batch for batch in batches if len(batch) == size]
    rng.shuffle(full)
    longest = max(lengths, default=0)
    full.sort(key=lambda batch: lengths[batch[0]] < longest)
    return [index for batch in (*full, *short) for index in batch]


def trained_tokens(items: Iterable[WeightedRow]) -> int:
    """Return how many sampled ids the rows train."""
    return sum(item.row.trained for item in items)


def update_number(version: str) -> int | None:
    """Return the update that a policy version is named by; None for any other name."""
    return int(version) if version.isdecimal() else None


def row_age(row: TrainingRow, update: int) -> int:
    """Return the updates since the row's first token was sampled. A version that is not a number has the age 0."""
    sampled_at = update_number(row.policy_version)
    return 0 if sampled_at is None else update - sampled_at


def fresh_rows(rows: Sequence[WeightedRow], update: int, staleness: int) -> list[WeightedRow]:
    """Return the rows that are at most `staleness` updates old. Demonstrated rows have no age.

    Raises `PolicyError` if no sampled row is: then the sampling engine no longer receives new weights.
    """
    ages = [row_age(item.row, update) for item in rows if not item.demonstrated]
    if ages and min(ages) > staleness:
        raise PolicyError(
            f"update {update}: all {len(ages)} rows are more than {staleness} updates old, up to {max(ages)}: the "
            f"engine did not receive new weights"
        )
    return [item for item in rows if item.demonstrated or row_age(item.row, update) <= staleness]


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows of each update of a step, by substep; step -1 means none.

    A checkpoint that falls between two updates of a step holds them, so that the step is not sampled again.
    """

    step: int = -1
    substeps: Sequence[Sequence[WeightedRow]] = field(default_factory=list)

    def save(self, folder: Path, rank: int) -> None:
        """Write the rank's rows, one a line."""
        with open_private(_rows_file(folder, rank), "w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps({"number": self.step, "parts": len(self.substeps)}) + "\n")
            for index, rows in enumerate(self.substeps):
                for item in rows:
                    line = [index, item.advantage, item.weights, item.demonstrated, asdict(item.row)]
                    file.write(json.dumps(line, separators=(",", ":")) + "\n")

    @staticmethod
    def load(folder: Path, rank: int) -> StepRows:
        """Return the rows that were saved, bit by bit; empty if none were. Raises `DataError`."""
        path = _rows_file(folder, rank)
        if not path.is_file():
            return StepRows()
        try:
            with path.open(encoding="utf-8") as file:
                lines = read_lines(file)
                head = parse_json(next(lines))
                substeps = _empty_substeps(head["parts"])
                for line in lines:
                    index, advantage, weights, demonstrated, row = parse_json(line)
                    item = WeightedRow(TrainingRow(**row), advantage, tuple(weights), demonstrated)
                    substeps[index].append(item)
            return StepRows(int(head["number"]), substeps)
        except (OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, StopIteration) as error:
            raise DataError(
                f"cannot read the rollouts {path} ({type(error).__name__}: {error}): delete the checkpoint to resume "
                f"from the one before"
            ) from error


def _empty_substeps(count: object) -> list[list[WeightedRow]]:
    if not (isinstance(count, int) and 0 <= count <= MAX_SUBSTEPS):
        raise ValueError(f"it claims {count!r} parts")
    return [[] for _ in range(count)]


def _rows_file(folder: Path, rank: int) -> Path:
    return folder / f"rollouts-{rank}.jsonl"
