from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from context_agent.errors import ConfigError, PolicyError
from context_agent.train.batches import (
    StepRows,
    WeightedRow,
    forward_passes,
    fresh_rows,
    inert_row,
    minibatches,
    row_age,
    trained_tokens,
)
from context_agent.train.rows import TrainingRow


def weighted_row(length: int, episode: str, advantage: float = 1.0) -> WeightedRow:
    return WeightedRow(TrainingRow([1] * length, [0] + [1] * (length - 1), [0.0] * length, episode, "g"), advantage)


row_lists = st.lists(st.tuples(st.integers(2, 60), st.integers(0, 9)), min_size=1, max_size=40).map(
    lambda pairs: [weighted_row(length, f"e{episode}") for length, episode in pairs]
)


@given(row_lists, st.integers(1, 6))
def test_shares_keep_every_row_once_and_an_episode_together(items: list[WeightedRow], count: int) -> None:
    parts = minibatches(items, count)
    assert len(parts) == count
    assert sorted(id(item) for part in parts for item in part) == sorted(id(item) for item in items)
    owners = [{item.row.episode_id for item in part} for part in parts]
    assert sum(map(len, owners)) == len(set().union(*owners))


def test_shares_are_of_like_length_and_do_not_depend_on_the_order() -> None:
    items = [weighted_row(10 + number, f"e{number}") for number in range(20)]
    loads = [sum(item.length for item in part) for part in minibatches(items, 4)]
    assert max(loads) - min(loads) <= 30
    shuffled = random.Random(1).sample(items, len(items))
    assert minibatches(shuffled, 4) == minibatches(items, 4)


@given(row_lists, st.integers(0, 200))
def test_a_pass_holds_its_bound_unless_a_row_alone_passes_it(items: list[WeightedRow], most: int) -> None:
    batches = forward_passes(items, most)
    assert sorted(id(item) for batch in batches for item in batch) == sorted(id(item) for item in items)
    assert all(len(batch) == 1 or len(batch) * max(i.length for i in batch) <= most for batch in batches)


def test_a_pass_has_no_sampled_row_beside_a_demonstrated_one() -> None:
    items = [replace(weighted_row(5, f"e{number}"), demonstrated=number % 2 == 0) for number in range(6)]
    assert [{item.demonstrated for item in batch} for batch in forward_passes(items, 20)] == [{False}, {True}]


def test_without_a_bound_every_row_goes_alone() -> None:
    assert [len(batch) for batch in forward_passes([weighted_row(5, "a"), weighted_row(5, "b")])] == [1, 1]


def test_an_inert_row_trains_nothing() -> None:
    assert trained_tokens([inert_row(weighted_row(50, "a"))]) == 0
    assert inert_row(weighted_row(50, "a")).length == 2


def test_rows_of_another_number_of_ranks_are_sampled_again(tmp_path: Path) -> None:
    for rank in range(2):
        StepRows(3, [[weighted_row(5, f"r{rank}")]]).save(tmp_path, rank)
    assert StepRows.load(tmp_path, 1, 2).step == 3
    for rank, ranks in ((0, 1), (0, 3), (2, 3)):
        assert StepRows.load(tmp_path, rank, ranks).step == -1


def test_zero_parts_are_refused() -> None:
    with pytest.raises(ConfigError, match="must be at least 1"):
        minibatches([weighted_row(5, "a")], 0)


def versions(*names: str) -> list[WeightedRow]:
    return [WeightedRow(TrainingRow([1, 2], [0, 1], [0.0, -1.0], f"e{name}", "g", name), 1.0) for name in names]


def test_rows_past_the_bound_are_left_out() -> None:
    fresh = fresh_rows(versions("10", "7", "6", "0"), 10, 3)
    assert [item.row.policy_version for item in fresh] == ["10", "7"]
    assert row_age(versions("a-model")[0].row, 10) == 0


def test_the_run_stops_if_no_row_is_fresh() -> None:
    with pytest.raises(PolicyError, match="all 2 rows of update 10 are more than 3 updates old, up to 9"):
        fresh_rows(versions("1", "2"), 10, 3)
    assert fresh_rows(versions(), 10, 3) == []
