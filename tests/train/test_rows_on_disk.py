from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from context_agent.errors import DataError
from context_agent.train import rows
from context_agent.train.rows import (
    ABOUT,
    CHUNK,
    JSONL,
    TrainingRow,
    open_folder,
    order_by_length,
    read_parquet,
    write_row_folder,
)

pytest.importorskip("pyarrow")


def made(count: int) -> Iterator[TrainingRow]:
    rng = random.Random(0)
    for number in range(count):
        length = rng.randrange(2, 40)
        mask = [0, *(int(rng.random() < 0.5) for _ in range(length - 1))]
        logprobs = [-rng.random() if one else 0.0 for one in mask]
        yield TrainingRow([rng.randrange(200_000) for _ in mask], mask, logprobs, f"e{number}", "g", "7")


def test_rows_are_the_same_in_both_forms_to_the_last_bit(tmp_path: Path) -> None:
    rows = list(made(CHUNK * 2 + 3))
    about = write_row_folder(iter(rows), tmp_path, tokenizer="words:9")
    lines = (tmp_path / JSONL).read_text().splitlines()
    assert [TrainingRow(**json.loads(line)) for line in lines] == rows
    assert list(read_parquet(about.parquet)) == rows
    assert about == open_folder(tmp_path)
    assert (about.rows, about.trained) == (len(rows), sum(row.trained for row in rows))
    assert about.longest == max(len(row.input_ids) for row in rows)
    assert about.tokens == sum(len(row.input_ids) for row in rows)


def test_rows_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer is never more than a chunk behind, however many there are."""
    monkeypatch.setattr(rows, "CHUNK", 10)
    taken = 0
    sizes = []

    def counted() -> Iterator[TrainingRow]:
        nonlocal taken
        for row in made(95):
            taken += 1
            sizes.append((taken, (tmp_path / JSONL).stat().st_size))
            yield row

    write_row_folder(counted(), tmp_path, tokenizer="t")
    growth = [size for _, size in sizes]
    assert growth[-1] > growth[len(growth) // 2] >= 0


def test_a_folder_counts_when_it_is_whole(tmp_path: Path) -> None:
    def broken() -> Iterator[TrainingRow]:
        yield from itertools.islice(made(9), 5)
        raise DataError("a trajectory that cannot be read")

    write_row_folder(made(3), tmp_path, tokenizer="t")
    with pytest.raises(DataError, match="a trajectory"):
        write_row_folder(broken(), tmp_path, tokenizer="t")
    assert not (tmp_path / ABOUT).exists()
    with pytest.raises(DataError, match="not written to its end"):
        open_folder(tmp_path)


def test_a_tokenizer_that_disagrees_with_the_rows_is_told(tmp_path: Path) -> None:
    about = write_row_folder(made(3), tmp_path, tokenizer="words:206")
    about.check("words:206")
    with pytest.raises(DataError, match="made by the tokenizer 'words:206', the model's is 'words:207'"):
        about.check("words:207")


def test_an_order_by_length_is_a_function_of_seed_and_epoch() -> None:
    rng = random.Random(1)
    lengths = [rng.randrange(10, 1000) for _ in range(503)]
    order = order_by_length(lengths, 8, seed=3, epoch=1)
    assert sorted(order) == list(range(503))
    assert order == order_by_length(lengths, 8, seed=3, epoch=1)
    assert order != order_by_length(lengths, 8, seed=3, epoch=2)
    assert order != order_by_length(lengths, 8, seed=4, epoch=1)
    assert max(lengths) in [lengths[one] for one in order[:8]]
    padded = sum(8 * max(lengths[one] for one in order[at : at + 8]) for at in range(0, len(order), 8))
    assert padded < 1.1 * sum(lengths)
