"""The division of rows into updates and forward passes, and the rule for which rows are fresh enough to train on.

`StepRows` stores the rows of a step in a checkpoint. This module does not import torch.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

from context_agent._support.private_files import open_private
from context_agent._support.small_files import parse_json, read_lines
from context_agent.errors import ConfigError, DataError, PolicyError, reason_of
from context_agent.train.rows import TrainingRow, update_number

MAX_SUBSTEPS = 10_000
"""Largest number of updates per step that a checkpoint may claim to hold."""


SORTED_BATCHES = 50
"""Number of batches whose rows are sorted by length together."""


@dataclass(frozen=True, slots=True)
class WeightedRow:
    """A row and the advantage of its episode.

    Attributes:
        row: The row.
        advantage: The advantage of its episode.
        weights: For each id, the factor by which the advantage is multiplied. Empty if all factors are 1.
        demonstrated: True if an expert chose the ids instead of the policy. The row then has no log-probabilities of a
            sampler.
        lost: True if weights that were lost with an interrupted process sampled some of the ids. The trainer's weights
            of the same update may be others.
    """

    row: TrainingRow
    advantage: float
    weights: tuple[float, ...] = ()
    demonstrated: bool = False
    lost: bool = False

    @property
    def length(self) -> int:
        """Number of ids in the row."""
        return len(self.row.input_ids)


ForwardPass = Sequence[WeightedRow]
"""The rows of one forward pass, padded to the longest of them."""


def inert_row(like: WeightedRow) -> WeightedRow:
    """Return a short row that does not change the weights.

    All ranks must run the same number of forward passes. A rank with too few rows adds such rows.
    """
    row = like.row
    first = TrainingRow(row.input_ids[:2], [0] * len(row.input_ids[:2]), [0.0] * len(row.input_ids[:2]), "", "")
    return WeightedRow(first, 0.0)


def minibatches(items: Sequence[WeightedRow], count: int) -> list[list[WeightedRow]]:
    """Divide rows into `count` parts of about equal length, and keep the rows of an episode together.

    Each episode, the longest first, goes to the part that is shortest so far (greedy number partitioning). The result
    does not depend on the order of the rows.

    Args:
        items: The rows of a step.
        count: Number of parts.

    Returns:
        The rows of each part.

    Raises:
        ConfigError: If `count` is below 1.
    """
    if count < 1:
        raise ConfigError(f"the number of parts that rows are divided into must be at least 1; got {count}")
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
    """Group rows of similar length into forward passes of at most `most_tokens` padded ids.

    A row with more ids gets its own pass. No pass mixes sampled and demonstrated rows, because their losses differ.

    Args:
        items: The rows of an update.
        most_tokens: Largest number of padded ids in a pass. If it is 0, each row gets its own pass. This avoids padding
            and suits long rows.

    Returns:
        The rows of each pass.
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
    """Return an order of rows for an epoch in which each batch has rows of similar length.

    Rows are shuffled, then sorted within stretches of `SORTED_BATCHES` batches, then the full batches are shuffled. The
    batch with the longest row comes first. If that row does not fit in memory, training fails at once. Rows that fill
    no batch are a part of the last stretch, so the batch that they leave incomplete has its shortest rows.

    Args:
        lengths: The length of each row.
        size: Number of rows of a batch.
        seed: The seed of the run.
        epoch: The epoch. Seed and epoch determine the order.

    Returns:
        The indices of the rows.
    """
    rng = random.Random(f"{seed}:{epoch}")
    order = rng.sample(range(len(lengths)), len(lengths))
    batches: list[list[int]] = []
    in_full = len(order) // size * size
    for start, end in pairwise([*range(0, max(1, in_full), size * SORTED_BATCHES), len(order)]):
        ordered = sorted(order[start:end], key=lambda index: -lengths[index])
        batches += [ordered[at : at + size] for at in range(0, len(ordered), size)]
    short = [batch for batch in batches if len(batch) < size]
    full = [batch for batch in batches if len(batch) == size]
    rng.shuffle(full)
    longest = max(lengths, default=0)
    full.sort(key=lambda batch: lengths[batch[0]] < longest)
    return [index for batch in (*full, *short) for index in batch]


def trained_tokens(items: Iterable[WeightedRow]) -> int:
    """Return the number of sampled ids that the rows train."""
    return sum(item.row.trained for item in items)


def row_age(row: TrainingRow, update: int) -> int:
    """Return the number of updates since the oldest weights that sampled the row. If the row's version is not a
    number, return 0.
    """
    sampled_at = update_number(row.policy_version)
    return 0 if sampled_at is None else update - sampled_at


def fresh_rows(rows: Sequence[WeightedRow], update: int, staleness: int) -> list[WeightedRow]:
    """Return the rows that are at most `staleness` updates old. Demonstrated rows have no age and always stay.

    Args:
        rows: The rows of an update.
        update: The number of the update.
        staleness: The highest age that is trained on, in updates.

    Returns:
        The rows that are fresh enough.

    Raises:
        PolicyError: If all sampled rows are too old. The sampling engine then no longer receives new weights.
    """
    ages = [row_age(item.row, update) for item in rows if not item.demonstrated]
    if ages and min(ages) > staleness:
        raise PolicyError(
            f"all {len(ages)} rows of update {update} are more than {staleness} updates old, up to {max(ages)}, so "
            "the engine did not receive new weights. Check its server, or raise loss.staleness."
        )
    return [item for item in rows if item.demonstrated or row_age(item.row, update) <= staleness]


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows of each update of a step.

    If a checkpoint is written between two updates of a step, it stores these rows. A resumed run then does not sample
    the step again.

    Attributes:
        step: The step. -1 if there are no rows.
        substeps: The rows of each update of the step.
    """

    step: int = -1
    substeps: Sequence[Sequence[WeightedRow]] = field(default_factory=list)

    def save(self, folder: Path, rank: int) -> None:
        """Write the rows of a rank to a checkpoint folder, one line per row."""
        with open_private(_rows_file(folder, rank), "w", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps({"number": self.step, "parts": len(self.substeps)}) + "\n")
            for index, rows in enumerate(self.substeps):
                for item in rows:
                    line = [index, item.advantage, item.weights, item.demonstrated, item.lost, asdict(item.row)]
                    file.write(json.dumps(line, separators=(",", ":")) + "\n")

    @staticmethod
    def load(folder: Path, rank: int, ranks: int = 1) -> StepRows:
        """Return the rows that `save` wrote, bit by bit.

        If there are none, or if another number of ranks wrote them, return empty rows.

        Raises:
            DataError: If the file is damaged.
        """
        path = _rows_file(folder, rank)
        if len(list(folder.glob("rollouts-*.jsonl"))) != ranks or not path.is_file():
            return StepRows()
        try:
            with path.open(encoding="utf-8") as file:
                lines = read_lines(file)
                head = parse_json(next(lines))
                substeps = _empty_substeps(head["parts"])
                for line in lines:
                    index, advantage, weights, demonstrated, lost, row = parse_json(line)
                    item = WeightedRow(TrainingRow(**row), advantage, tuple(weights), demonstrated, lost)
                    substeps[index].append(item)
            return StepRows(int(head["number"]), substeps)
        except (OSError, ValueError, TypeError, KeyError, IndexError, OverflowError, StopIteration) as error:
            raise DataError(
                f"cannot read the rollouts {path} ({type(error).__name__}: {reason_of(error)}). Delete the "
                "checkpoint to resume from the one before."
            ) from error


def _empty_substeps(count: object) -> list[list[WeightedRow]]:
    if not (isinstance(count, int) and 0 <= count <= MAX_SUBSTEPS):
        raise ValueError(f"the header has the impossible number of parts {count!r}")
    return [[] for _ in range(count)]


def _rows_file(folder: Path, rank: int) -> Path:
    return folder / f"rollouts-{rank}.jsonl"
