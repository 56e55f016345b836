"""The adaptation of the pruner's reader to a record of restores, and the measurement of whether it helps.

Only the last layer of the reader changes. A restored passage was needed for its task. Two kinds of passages were not
needed: those with such a label, and passages that were restored for other tasks. The tasks are divided into four parts,
and each part is held out once. The adapted reader is kept only if it orders the passages of held-out tasks better than
the shipped reader does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from context_agent._support.onnx import PairModel, Rows
from context_agent._support.question_files import json_type, read_rows
from context_agent._support.shipped_models import shipped_reader
from context_agent.errors import DataError
from context_agent.eval.probabilities import roc_auc
from context_agent.eval.statistics import Figure
from context_agent.policies.bridge.reader import read_odds
from context_agent.pruning.adapted_reader import AdaptedReader
from context_agent.pruning.blocks import Passage
from context_agent.pruning.relevance import reader_pair
from context_agent.train.bridge.reader_head import fit_head, held_out_loss

MIN_TASKS, MIN_PASSAGES = 12, 40
"""The smallest numbers of tasks and of needed passages from which a reader is trained."""
PARTS, FOLDS = 4, 5
"""Each of the `PARTS` parts of the tasks is held out once. The remaining tasks form `FOLDS` folds that choose the
penalty.
"""
OTHERS = 4
"""Number of passages from other tasks that are added for each needed passage, as passages that were not needed."""
PENALTIES = (300.0, 100.0, 30.0, 10.0)
"""The weight penalties among which cross-validation chooses."""
MAX_TRIES = 1_000
"""Number of passages among which the `OTHERS` of a passage are looked for, if almost all are of one task."""
MAX_PAIRS = 20_000
"""Largest number of pairs of a task and a passage that are trained on."""
PAIRS_AT_ONCE = 256
"""Number of pairs that are read between two reports of the progress."""


@dataclass(frozen=True, slots=True)
class LabeledPassage:
    """A passage of a tool result, and whether its task needed it.

    Attributes:
        task: The text of the task.
        passage: The passage.
        is_needed: True if the task needed the passage.
    """

    task: str
    passage: Passage
    is_needed: bool


@dataclass(frozen=True, slots=True)
class PrunerAdaptation:
    """The adapted reader, and how it compares with the shipped reader.

    Attributes:
        reader: The adapted reader. If it is not better than the shipped reader, it is None.
        tasks: The number of tasks that were trained on.
        needed: The number of needed passages that were trained on.
        left_out: The number of passages of the record that were not trained on, because it is too long.
        held_out: The number of held-out tasks on which the readers were compared. Each task is held out once.
        shipped: The mean AUC of the shipped reader on the held-out tasks: the probability that a needed passage scores
            above one that was not needed.
        adapted: The mean AUC of the adapted reader on the same tasks.
        gain: The mean difference in AUC per task, with its 95% interval.
    """

    reader: AdaptedReader | None
    tasks: int
    needed: int
    left_out: int
    held_out: int
    shipped: float
    adapted: float
    gain: Figure


def read_record(files: Sequence[Path]) -> list[LabeledPassage]:
    """Read labeled passages from JSONL files.

    Args:
        files: Records of `ctx1 proxy --restores`, or labels. Each line has `task` and `text`. It may have `label`, the
            heading of the passage, and `needed`, which is true by default.

    Returns:
        The passages, in the order of the lines.

    Raises:
        DataError: If a file cannot be read, or a field of a line is missing or has the wrong type.
    """
    return [_labeled(row.value, row.location, row.problem) for file in files for row in read_rows(file)]


def _labeled(value: Any, location: str, problem: str) -> LabeledPassage:
    if problem:
        raise DataError(problem)
    if not isinstance(value, dict):
        raise DataError(f"{location} must be an object with task and text; got {json_type(value)}")
    for name, kind in (("task", str), ("text", str), ("label", str), ("needed", bool)):
        if name not in value and name in ("task", "text"):
            raise DataError(f"{location}: the row has no field {name}. Add one.")
        if not isinstance(value.get(name, kind()), kind):
            expected = "boolean" if kind is bool else "string"
            raise DataError(f"{location}: the field {name} must be a {expected}; got {json_type(value[name])}")
    text = value["text"]
    passage = Passage(text, 0, len(text), value.get("label", ""))
    return LabeledPassage(value["task"], passage, value.get("needed", True))


def adapt(
    record: Sequence[LabeledPassage],
    reader: PairModel | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> PrunerAdaptation:
    """Adapt the last layer of the reader to the record, and measure it on held-out tasks.

    Args:
        record: Passages with labels. If there are too many, some that are spread evenly over the record are used.
        reader: The reader to adapt. Defaults to the shipped one.
        report: A function that receives the number of pairs that were read, and the number of all pairs.

    Returns:
        The adapted reader with its comparison to the shipped one.

    Raises:
        DataError: If the record has fewer than `MIN_TASKS` tasks or `MIN_PASSAGES` needed passages, or if no held-out
            task has both needed passages and others.
    """
    used = _at_most(record)
    examples = _with_others(used)
    needed = sum(example.is_needed for example in used)
    tasks = {example.task for example in used if example.is_needed}
    if len(tasks) < MIN_TASKS or needed < MIN_PASSAGES:
        raise DataError(
            f"training needs at least {MIN_PASSAGES} needed passages of {MIN_TASKS} tasks; the record has {needed} of "
            f"{len(tasks)}. Record more restores, or add labels."
        )
    model = reader or shipped_reader()
    rows = np.empty((len(examples), model.width), dtype=np.float32)
    for start in range(0, len(examples), PAIRS_AT_ONCE):
        block = examples[start : start + PAIRS_AT_ONCE]
        rows[start : start + len(block)] = model.encode_pairs([reader_pair(it.task, it.passage) for it in block])
        report(start + len(block), len(examples))
    labels = np.array([example.is_needed for example in examples], dtype=np.float32)
    checksums = [crc32(example.task.encode(errors="surrogatepass")) for example in examples]
    group = np.unique(checksums, return_inverse=True)[1]
    pairs: list[tuple[float, float]] = []
    for part in range(PARTS):
        held_out = group % PARTS == part
        correction = _fitted(rows[~held_out], labels[~held_out], group[~held_out])
        for number in np.unique(group[held_out]):
            own = group == number
            if 0 < labels[own].sum() < own.sum():
                pairs.append((_auc(rows[own], labels[own], None), _auc(rows[own], labels[own], correction)))
    if not pairs:
        raise DataError(
            "no task of the record has both needed and other passages. Add labels of passages that a task does not "
            "need."
        )
    gain = Figure.of([after - before for before, after in pairs])
    adapted_reader = AdaptedReader(_fitted(rows, labels, group), model) if gain.low > 0 else None
    shipped, adapted = (float(np.mean([pair[side] for pair in pairs])) for side in (0, 1))
    left_out = len(record) - len(used)
    return PrunerAdaptation(adapted_reader, len(tasks), needed, left_out, len(pairs), shipped, adapted, gain)


def _fitted(rows: Rows, labels: Rows, group: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the correction of the last layer, shape (width + 1,). Cross-validation over tasks chooses its penalty."""
    fold = group // PARTS % FOLDS
    penalty = min(PENALTIES, key=lambda it: held_out_loss(rows, labels, fold, it))
    correction = fit_head(rows, labels, penalty)
    if correction is None:
        raise ValueError("the penalty must be finite to give a correction")
    return correction


def _at_most(record: Sequence[LabeledPassage]) -> list[LabeledPassage]:
    """Return the record, or passages spread evenly over it that make `MAX_PAIRS` pairs at most.

    Each needed passage makes `OTHERS` more pairs. Both kinds of passages keep at least half of the pairs, if there are
    enough, whatever the order of the lines is.
    """
    needed = [position for position, example in enumerate(record) if example.is_needed]
    others = [position for position, example in enumerate(record) if not example.is_needed]
    room = MAX_PAIRS - min(len(others), MAX_PAIRS // 2)
    needed = _spread(needed, room // (1 + OTHERS))
    others = _spread(others, MAX_PAIRS - len(needed) * (1 + OTHERS))
    return [record[position] for position in sorted([*needed, *others])]


def _spread(positions: Sequence[int], most: int) -> list[int]:
    """Return at most `most` of the positions, at even distances."""
    count = min(most, len(positions))
    return [positions[number * len(positions) // count] for number in range(count)]


def _with_others(record: Sequence[LabeledPassage]) -> list[LabeledPassage]:
    """Return the record with passages of other tasks added as not needed."""
    needed = [example for example in record if example.is_needed]
    # A prime that does not divide the length, so the others are visited in a fixed, mixed order.
    stride = 7_919 if len(needed) % 7_919 else 7_907
    examples: list[LabeledPassage] = []
    position = -1
    for example in record:
        examples.append(example)
        if not example.is_needed:
            continue
        position += 1
        visited = (needed[(position + stride * step) % len(needed)] for step in range(1, min(len(needed), MAX_TRIES)))
        fitting = (it for it in visited if it.task != example.task and it.passage.text != example.passage.text)
        examples += [LabeledPassage(example.task, it.passage, is_needed=False) for it in islice(fitting, OTHERS)]
    return examples


def _auc(rows: Rows, labels: Rows, correction: NDArray[np.float32] | None) -> float:
    return roc_auc(read_odds(rows, correction), labels)
