"""Which passages go: copies and the least relevant first, and no more than the limit asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, permutations

import numpy as np
import pytest

from context_agent.pruning.blocks import Item
from context_agent.pruning.contents import ResultText
from context_agent.pruning.gaps import gaps, runs
from context_agent.pruning.passages import Passage
from context_agent.pruning.selection import (
    Candidate,
    Removals,
    StubCosts,
    copies,
    refill,
    select,
    without_short_runs,
)

COSTS = StubCosts(stub=10, gone=4)
RESULT = ResultText(1, (), "c", "")


def passages(*sizes: int, number: int = 0, group: int = 0) -> list[Candidate]:
    """The passages of one result, with these numbers of tokens."""
    texts = [f"Passage {index} of result {number} in group {group}." for index in range(len(sizes))]
    return [
        Candidate(Passage(text, 0, len(text), group=group, tokens=size), ResultText(1, (), "c", text), number, index)
        for index, (text, size) in enumerate(zip(texts, sizes, strict=True))
    ]


def found(*texts: str) -> list[Candidate]:
    """Passages of one result of the second message."""
    return [
        Candidate(Passage(text, 0, len(text), tokens=50), ResultText(1, (), "c", text), 0, index)
        for index, text in enumerate(texts)
    ]


def chosen(candidates: Sequence[Candidate], limit: int, costs: StubCosts = COSTS) -> set[int]:
    """The rows that are removed so that the passages fit. Earlier passages are less relevant."""
    total = sum(candidate.passage.tokens for candidate in candidates)
    scores = np.arange(len(candidates), dtype=np.float64)
    return select(candidates, scores, {}, set(), total=total, limit=limit, costs=costs)


def test_the_same_text_about_something_else_is_no_copy() -> None:
    """The timeout of staging was removed before all others, because production has the same."""
    copied = replace(found("timeout: 45")[0].passage, label="staging.yml")
    labels = ["production.yml", "staging.yml", "staging.yml"]
    candidates = [
        replace(it, passage=replace(copied, label=label)) for it, label in zip(found(*"abc"), labels, strict=True)
    ]
    assert copies(candidates, set()) == {2: 1}


def test_a_short_passage_is_no_copy() -> None:
    short, long = "Sunny.", "Cloudy."
    candidates = found(short, long, short, long, long)
    assert copies(candidates, set()) == {3: 1, 4: 1}
    assert copies(candidates, {1}) == {4: 3}, "what was removed is not there to be copied"


def remaining(candidates: Sequence[Candidate], removed: set[int], costs: StubCosts) -> int:
    """The tokens of the passages that remain and of the stubs, counted anew."""
    total = sum(item.passage.tokens for row, item in enumerate(candidates) if row not in removed)
    places = [(item.number, item.passage.group) for item in candidates]
    for row in removed:
        joins = row - 1 in removed and places[row] == places[row - 1]
        total += -1 if joins else costs.stub
    for number, frame in costs.frames.items():
        if all(row in removed for row, item in enumerate(candidates) if item.number == number):
            total += costs.gone - costs.stub - frame
    return total


@pytest.mark.parametrize("removed", [set[int](), {1}, {2, 3}])
def test_the_remaining_tokens_are_the_same_whatever_goes_first(removed: set[int]) -> None:
    """Neighbors share a stub. With its last passage a result loses its frame, and a shorter text replaces its stub."""
    candidates = [*passages(50, 60, 70), *passages(40, 30, group=1), *passages(20, 25, number=1)]
    costs = StubCosts(stub=10, gone=4, frames={1: 7})
    before = remaining(candidates, removed, costs)
    for rows in permutations(set(range(7)) - removed, 4):
        removals = Removals(candidates, set(removed), before, costs)
        for row in rows:
            removals.remove(row)
        assert removals.total == remaining(candidates, removed | set(rows), costs), rows


def test_what_fits_exactly_stays() -> None:
    candidates = passages(100, 100, 100)
    assert chosen(candidates, 300) == set()
    assert chosen(candidates, 210) == {0}
    assert chosen(candidates, 209) == {0, 1}


@pytest.mark.parametrize(
    ("frames", "tokens", "goes"),
    [
        # One stub of two stays with the rest of its result.
        ({}, (5, 5, 100), False),
        ({}, (5, 6, 100), True),
        ({0: 30}, (5, 5, 100), False),
        # A result that goes as a whole is replaced by a shorter text, and frees its frame, if the frame can go too.
        ({0: 1}, (2, 1), False),
        ({0: 1}, (2, 2), True),
        ({}, (5, 5), False),
    ],
)
def test_passages_that_are_no_larger_than_their_stub_stay(
    frames: dict[int, int], tokens: tuple[int, ...], goes: bool
) -> None:
    costs = StubCosts(COSTS.stub, COSTS.gone, frames)
    candidates = passages(*tokens)
    removals = Removals(candidates, set(), sum(tokens), costs)
    for row in (0, 1):
        removals.remove(row)
    assert removals.without_short_runs() == ({0, 1} if goes else set())


@pytest.mark.parametrize(
    ("other", "goes"),
    [(passages(8, number=1), False), (passages(8, group=1), False), (passages(8), True)],
)
def test_short_passages_go_if_they_share_a_stub(other: list[Candidate], goes: bool) -> None:
    """Two passages share a stub if they are in one result and in one group."""
    candidates = [*passages(8), *other, *passages(100, group=2), *passages(100, number=1, group=2)]
    assert without_short_runs(candidates, {0, 1}, set(), COSTS) == ({0, 1} if goes else set())


def test_removed_items_share_a_stub_with_the_removed_neighbors_of_their_group() -> None:
    """`gaps` says how many stubs there are. In place of each other one there is a separator, which goes too."""
    outer = Item(0, 160, 1)
    nested = [Item(start, start + 40, 2) for start in (0, 40, 120)]
    spans = [
        *((start, start + 20, 3, (nested[0], outer)) for start in (0, 20)),
        *((start, start + 20, 4, (nested[1], outer)) for start in (40, 60)),
        (80, 120, 2, (outer,)),
        *((start, start + 20, 5, (nested[2], outer)) for start in (120, 140)),
        (160, 200, 1, ()),
    ]
    parts = [Passage("x", start, end, group=group, tokens=20, items=items) for start, end, group, items in spans]
    candidates = [Candidate(part, RESULT, 0, row) for row, part in enumerate(parts)]
    for rows in permutations(range(len(parts)), 5):
        for first in (rows, [row for row in range(len(parts)) if row not in rows]):
            removals = Removals(candidates, set(), 160, COSTS)
            for row in first:
                removals.remove(row)
            stubs = len(gaps(parts, first))
            assert removals.total == 160 - 20 * len(first) + COSTS.stub * stubs - (len(first) - stubs), first
            for row in first:
                removals.put_back(row, 1_000)
            assert removals.total == 160


def test_what_is_around_the_passages_of_an_item_is_removed_with_the_last_of_them() -> None:
    inner, outer = Item(40, 200, 11), Item(0, 400, 12)
    spans = [(60, 100, (inner, outer)), (120, 160, (inner, outer)), (240, 320, (outer,)), (400, 480, ())]
    candidates = [
        Candidate(Passage("x" * 7, start, end, group=group, tokens=(end - start) // 4, items=items), RESULT, 0, group)
        for group, (start, end, items) in enumerate(spans)
    ]
    removals = Removals(candidates, set(), 120, COSTS)
    totals = [removals.total]
    for row in range(4):
        removals.remove(row)
        totals.append(removals.total)
    freed = [before - after + COSTS.stub for before, after in pairwise(totals)]
    # The inner item has 80 characters around its passages, and two stubs of which one remains. The outer one has 160
    # more, and the stub of the third passage beside that of the inner item.
    assert freed == [10, 10 + 20 + COSTS.stub, 20 + 40 + COSTS.stub, 20]
    for row in reversed(range(4)):
        removals.put_back(row, 1_000)
    assert removals.total == 120


def test_a_short_passage_goes_with_the_rest_of_its_item() -> None:
    item = Item(0, 100, 2)
    candidates = [
        Candidate(Passage("x" * 7, 0, 40, group=1, tokens=10, items=(item,)), RESULT, 0, 0),
        Candidate(Passage("y" * 7, 60, 80, group=2, tokens=1, items=(item,)), RESULT, 0, 1),
        Candidate(Passage("z" * 7, 120, 180, group=3, tokens=15), RESULT, 0, 2),
    ]
    removals = Removals(candidates, set(), 26, COSTS)
    removals.remove(1)
    assert removals.without_short_runs() == set()
    removals.remove(0)
    assert removals.without_short_runs() == {0, 1}
    assert without_short_runs(candidates, {0, 1}, set(), COSTS) == {0, 1}
    assert without_short_runs(candidates, {1}, {0}, COSTS) == {1}, "removed before"
    assert without_short_runs(candidates, {1}, set(), COSTS) == set()


@pytest.mark.parametrize("gone", [set[int](), {5}])
def test_putting_back_undoes_a_removal(gone: set[int]) -> None:
    candidates = [*passages(50, 60, 70), *passages(40, 30, group=1), *passages(20, 25, number=1)]
    costs = StubCosts(stub=10, gone=4, frames={1: 7})
    chosen_rows = set(range(7)) - gone
    for rows in permutations(chosen_rows, 3):
        removals = Removals(
            candidates, set(range(7)), remaining(candidates, set(range(7)), costs), costs, set(chosen_rows)
        )
        for row in rows:
            removals.put_back(row, 1_000)
        assert removals.total == remaining(candidates, set(range(7)) - set(rows), costs), rows
        assert removals.chosen == chosen_rows - set(rows)


@pytest.mark.parametrize(
    ("limit", "kept"),
    [
        # Three stubs and the last passage have 130 tokens. The second passage has 40 more than its stub.
        (169, []),
        (170, [1]),
    ],
)
def test_what_fits_in_the_rest_of_the_limit_stays(limit: int, kept: list[int]) -> None:
    candidates = [*passages(300), *passages(50, number=1), *passages(400, number=2), *passages(100, number=3)]
    total = remaining(candidates, {0, 1, 2}, COSTS)
    scores = np.arange(4, dtype=np.float64)
    assert refill(candidates, scores, {0, 1, 2}, set(), total=total, limit=limit, costs=COSTS) == kept


def test_the_most_relevant_of_those_that_fit_stays() -> None:
    candidates = [item for number in range(4) for item in passages(50, number=number)]
    scores = np.array([1.0, 3.0, 2.0, 4.0])
    assert refill(candidates, scores, {0, 1, 2}, set(), total=80, limit=120, costs=COSTS) == [1]
    assert refill(candidates, scores, {0, 1}, {2}, total=80, limit=200, costs=COSTS) == [1, 0], "removed before"


def test_a_copy_stays_removed() -> None:
    candidates = found("The harbor office is closed.", "It rained.", "The harbor office is closed.")
    scores = np.array([3.0, 1.0, 2.0])
    assert refill(candidates, scores, {1, 2}, set(), total=70, limit=200, costs=COSTS) == [1]


def test_of_equally_relevant_passages_the_later_ones_stay() -> None:
    candidates = [item for number in range(40) for item in passages(50, number=number)]
    scores = np.array([0.0, 1.0] * 20)
    total = remaining(candidates, set(range(40)), COSTS)
    kept = refill(candidates, scores, set(range(40)), set(), total=total, limit=total + 5 * 40, costs=COSTS)
    assert kept == [39, 37, 35, 33, 31]


def test_a_passage_that_was_put_back_can_be_removed_again() -> None:
    candidates = [*passages(50, 60, 70), *passages(20, number=1)]
    costs = StubCosts(stub=10, gone=4, frames={0: 7})
    removals = Removals(candidates, {0, 1, 2}, remaining(candidates, {0, 1, 2}, costs), costs, {0, 1, 2})
    removals.put_back(0, 1_000)
    removals.put_back(1, 1_000)
    removals.remove(0)
    assert removals.total == remaining(candidates, {0, 2}, costs)
    removals.remove(1)
    assert removals.total == remaining(candidates, {0, 1, 2}, costs)


def test_a_short_passage_stays_whatever_goes_before_it() -> None:
    item = Item(0, 100, 1)
    candidates = [
        Candidate(Passage("x" * 7, 0, 40, group=1, tokens=10, items=(item,)), RESULT, 0, 0),
        Candidate(Passage("y" * 7, 120, 180, group=2, tokens=15), RESULT, 0, 1),
        Candidate(Passage("z" * 7, 180, 190, group=3, tokens=2), RESULT, 0, 2),
    ]
    removals = Removals(candidates, set(), 27, COSTS)
    removals.remove(0)
    removals.remove(2)
    assert removals.without_short_runs() == {0}


def test_the_tokens_around_an_item_are_whole_numbers() -> None:
    item = Item(0, 51, 1)
    passage = Passage("x" * 7, 0, 40, group=1, tokens=10, items=(item,))
    removals = Removals([Candidate(passage, RESULT, 0, 0)], set(), 100, COSTS)
    removals.remove(0)
    assert removals.total == 100 - 10 + COSTS.stub - 11 // 4


def test_a_run_ends_where_neighbors_share_no_stub() -> None:
    pairs = {(0, 1), (2, 3), (5, 6)}
    assert runs([3, 0, 2, 1, 6], lambda first, second: (first, second) in pairs) == [[0, 1], [2, 3], [6]]
