from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from context_agent.errors import DataError
from context_agent.train import row_files
from context_agent.train.batches import order_by_length
from context_agent.train.row_files import ABOUT, CHUNK, JSONL, open_folder, read_parquet, write_row_folder
from context_agent.train.rows import TrainingRow

pytest.importorskip("pyarrow")


def random_rows(count: int) -> Iterator[TrainingRow]:
    rng = random.Random(0)
    for number in range(count):
        length = rng.randrange(2, 40)
        mask = [0, *(int(rng.random() < 0.5) for _ in range(length - 1))]
        logprobs = [-rng.random() if bit else 0.0 for bit in mask]
        yield TrainingRow([rng.randrange(200_000) for _ in mask], mask, logprobs, f"e{number}", "g", "7")


def test_rows_are_the_same_in_both_forms_to_the_last_bit(tmp_path: Path) -> None:
    rows = list(random_rows(CHUNK * 2 + 3))
    folder = write_row_folder(iter(rows), tmp_path, tokenizer="words:9")
    lines = (tmp_path / JSONL).read_text().splitlines()
    assert [TrainingRow(**json.loads(line)) for line in lines] == rows
    assert list(read_parquet(folder.parquet)) == rows
    assert folder == open_folder(tmp_path)
    assert (folder.rows, folder.trained) == (len(rows), sum(row.trained for row in rows))
    assert folder.longest == max(len(row.input_ids) for row in rows)
    assert folder.tokens == sum(len(row.input_ids) for row in rows)


class Ids(list[int]):
    """A list that nobody may copy, not even to write it."""

    def __init__(self, *ids: int) -> None:
        super().__init__(ids)

    def __deepcopy__(self, memo: object) -> Ids:
        raise AssertionError("copied")


def test_the_lists_of_a_row_are_written_without_a_copy(tmp_path: Path) -> None:
    row = TrainingRow(Ids(1, 2), Ids(0, 1), [0.0, -1.0], "e", "g")
    folder = write_row_folder([row], tmp_path, tokenizer="words:9")
    assert next(read_parquet(folder.parquet)).input_ids == [1, 2]


def test_rows_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the file is on the disk before the last row is drawn."""
    monkeypatch.setattr(row_files, "CHUNK", 10)
    sizes = []

    def watched_rows() -> Iterator[TrainingRow]:
        for row in random_rows(95):
            sizes.append((tmp_path / JSONL).stat().st_size)
            yield row

    write_row_folder(watched_rows(), tmp_path, tokenizer="t")
    assert sizes[-1] > 0.5 * (tmp_path / JSONL).stat().st_size


def test_a_folder_counts_when_it_is_whole(tmp_path: Path) -> None:
    def broken_rows() -> Iterator[TrainingRow]:
        yield from itertools.islice(random_rows(9), 5)
        raise DataError("a trajectory that cannot be read")

    write_row_folder(random_rows(3), tmp_path, tokenizer="t")
    with pytest.raises(DataError, match="a trajectory"):
        write_row_folder(broken_rows(), tmp_path, tokenizer="t")
    assert not (tmp_path / ABOUT).exists()
    with pytest.raises(DataError, match="not a complete rows folder"):
        open_folder(tmp_path)


def test_a_tokenizer_that_disagrees_with_the_rows_is_refused(tmp_path: Path) -> None:
    folder = write_row_folder(random_rows(3), tmp_path, tokenizer="words:206")
    folder.check("words:206")
    with pytest.raises(DataError, match="made by the tokenizer 'words:206', but the model has 'words:207'"):
        folder.check("words:207")


def test_an_order_by_length_is_a_function_of_seed_and_epoch() -> None:
    rng = random.Random(1)
    lengths = [rng.randrange(10, 1000) for _ in range(503)]
    order = order_by_length(lengths, 8, seed=3, epoch=1)
    assert sorted(order) == list(range(503))
    assert order == order_by_length(lengths, 8, seed=3, epoch=1)
    assert order != order_by_length(lengths, 8, seed=3, epoch=2)
    assert order != order_by_length(lengths, 8, seed=4, epoch=1)
    assert max(lengths) in [lengths[index] for index in order[:8]]
    padded = sum(8 * max(lengths[index] for index in order[start : start + 8]) for start in range(0, len(order), 8))
    assert padded < 1.1 * sum(lengths)


def test_the_longest_row_comes_first_wherever_it_is_drawn() -> None:
    """403 rows are 50 batches of 8 and 3 further rows, among which the longest is drawn with some seeds."""
    lengths = [99, *[1] * 402]
    assert all(0 in order_by_length(lengths, 8, seed=seed, epoch=0)[:8] for seed in range(300))
    assert order_by_length([3, 4], 8, seed=1, epoch=0) == [1, 0]
    assert order_by_length([], 8, seed=1, epoch=0) == []
