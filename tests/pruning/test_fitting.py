"""The choice of passages to remove, so that the rest and its stubs fit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from context_agent.pruning import fitting
from context_agent.pruning.fitting import BRIEF_TOKENS, GONE_TOKENS, MAX_STUB_SHARE, MOST_SKIPPED, Choice, Fitting
from context_agent.pruning.gaps import runs
from context_agent.pruning.protection import Protection
from context_agent.pruning.selection import FULL_STUBS, Candidate, StubCosts
from context_agent.pruning.stubs import RequestedIds
from tests.support.hand_made_passages import parts, protection

ESTIMATE = FULL_STUBS.stub


@dataclass
class PricedTexts:
    """Stands in for `PrunedTexts`. Each run of removed passages has a stub of `full` or `brief` tokens.

    The rest of the texts has so many tokens that full stubs are a small share of the limit.
    """

    candidates: Sequence[Candidate]
    rest: int
    full: int = ESTIMATE
    brief: int = 8

    def without(self, ids: Mapping[int, Mapping[int, str]], brief: Mapping[int, str] | None = None) -> Any:
        return ids, brief or {}

    def total(self, texts: Any) -> int:
        ids, brief = texts
        left = (it.passage.tokens for it in self.candidates if it.index not in ids.get(it.number, {}))
        return (
            self.rest
            + sum(left)
            + sum(
                (self.brief if number in brief else self.full) * len(runs(gone, lambda *_: True))
                for number, gone in ids.items()
            )
        )

    def overhead(self, texts: Any, ids: Mapping[int, Mapping[int, str]]) -> int:
        return self.full * sum(len(runs(gone, lambda *_: True)) for gone in ids.values())

    def with_brief_stubs(self, ids: Mapping[int, Mapping[int, str]]) -> dict[int, str]:
        return dict.fromkeys(ids, "brief")

    def frames(self) -> dict[int, int]:
        return {}


def results(*sizes: Sequence[int], errors: Collection[int] = ()) -> list[Candidate]:
    """The passages of several results, with these numbers of tokens. The results in `errors` are errors."""
    return [
        part
        for number, tokens in enumerate(sizes)
        for part in parts(*tokens, number=number, errors=range(len(tokens)) if number in errors else ())
    ]


def fitted(
    candidates: Sequence[Candidate],
    limit: int,
    scores: Sequence[float] | None = None,
    *,
    last_id: int = 0,
    request: str = "",
    removed: Collection[int] = (),
    rest: int = 10_000,
    **stubs: int,
) -> Choice:
    """The choice. Of the passages and their stubs, `limit` tokens stay. Earlier ones are less relevant by default."""
    return Fitting(
        PricedTexts(candidates, rest, **stubs),  # type: ignore[arg-type]
        candidates,
        frozenset(removed),
        np.array(range(len(candidates)) if scores is None else scores, dtype=np.float64),
        protection(candidates, limit, removed=removed),
        limit=rest + limit,
        last_id=last_id,
        requests=RequestedIds([request]),
    ).choose()


def test_new_ids_come_after_the_last_one_in_order_and_skip_those_that_are_asked_for() -> None:
    choice = fitted(results([40, 40], [40], [400]), 432, [2, 0, 1, 3], last_id=6, request="restore: p8-p9")
    assert choice == Choice({0: "p7", 1: "p10", 2: "p11"}, {0: {0: "p7", 1: "p10"}, 1: {0: "p11"}}, {})


@pytest.mark.parametrize(("limit", "rows"), [(120, set[int]()), (119, {1}), (96, {1}), (95, {1, 2}), (72, {1, 2})])
def test_the_least_relevant_passages_go_until_the_rest_fits(limit: int, rows: Collection[int]) -> None:
    assert fitted(results([40], [40], [40]), limit, [2, 0, 1]).names.keys() == rows


def test_what_was_removed_before_is_not_removed_again() -> None:
    assert fitted(results([40], [40], [40]), 96, removed={0}).names.keys() == {1}


# Stubs that cost more or less than estimated


@pytest.mark.parametrize(
    ("sizes", "stub", "limit", "limits"),
    [
        ([40] * 10, 40, 300, [300, 300, 200, 0]),
        ([41] * 9, 41, 277, [277, 277, 185, 1, -367]),
        ([10] * 40, 40, 300, [300, 200, 0]),  # too small to be chosen
    ],
)
def test_from_the_third_round_each_asks_for_twice_as_much(
    sizes: Sequence[int], stub: int, limit: int, limits: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stub takes as much as its passage, so the rounds end when nothing is left to choose."""
    asked: list[int] = []
    select = fitting.select

    def recorded(*arguments: Any, **options: Any) -> set[int]:
        asked.append(options["limit"])
        return select(*arguments, **options)

    monkeypatch.setattr(fitting, "select", recorded)
    monkeypatch.setattr(fitting, "MAX_STUB_SHARE", 9)
    fitted(results(*([size] for size in sizes)), limit, rest=0, full=stub)
    assert asked == limits


def test_another_round_goes_on_with_what_was_chosen_before() -> None:
    """Stubs of 30 tokens free 10 each, not 24. The first round removes two passages, the next ones more."""
    choice = fitted(results(*[[40]] * 10), 360, full=30)
    assert choice.names.keys() == {0, 1, 2, 3}


@pytest.mark.parametrize(("limit", "rows"), [(64, {1}), (65, {1}), (63, {0, 1})])
def test_a_smaller_passage_stays_if_it_fits_exactly(limit: int, rows: Collection[int]) -> None:
    choice = fitted(results([17], [71], [31]), limit)
    assert choice.names.keys() == rows


@pytest.mark.parametrize(("more", "rows"), [(0, {0, 1}), (1, {0}), (2, {0})])
def test_a_passage_comes_back_only_if_it_really_fits(more: int, rows: Collection[int]) -> None:
    """Stubs take 15 tokens, one less than estimated, so that a passage of 40 takes 25 to come back."""
    choice = fitted(results([90], [40], [400]), 400 + 15 + 15 + 24 + more, full=15)
    assert choice.names.keys() == rows


@pytest.mark.parametrize(("large", "is_back"), [(MOST_SKIPPED, True), (MOST_SKIPPED + 1, False)])
def test_a_few_passages_that_cost_more_than_estimated_are_left_out_for_others(large: int, is_back: bool) -> None:
    """Stubs take 4 tokens, so that a passage of 60 takes 56 to come back, not 44. The room is 50."""
    candidates = results([20], *[[60]] * large, [900])
    choice = fitted(candidates, 900 + 4 * (large + 1) + 50, full=4)
    assert choice.names.keys() == {*range(1, large + 1)} | (set() if is_back else {0})


@pytest.mark.parametrize(
    ("room", "rows"),
    [(35, {0, 1, 2, 3}), (36, {0, 1, 2}), (71, {0, 1, 2}), (72, {0, 1}), (107, {0, 1}), (108, {0})],
)
def test_of_several_passages_that_should_fit_those_that_fit_come_back(room: int, rows: Collection[int]) -> None:
    """Stubs take 4 tokens, so that a passage of 40 takes 36 to come back, not 24. The first is too large."""
    candidates = results([300], [40], [40], [40], [900])
    choice = fitted(candidates, 900 + 4 * 4 + room, full=4)
    assert choice.names.keys() == rows


@pytest.mark.parametrize(("full", "spare", "rows"), [(4, 5, {0}), (4, 6, set()), (4, 7, set()), (20, 1, set())])
def test_what_is_left_of_a_run_stays_if_it_fits(full: int, spare: int, rows: Collection[int]) -> None:
    """The second passage comes back. The first one then frees no more than a stub takes by estimate."""
    candidates = results([10, 60], [200], [400])
    choice = fitted(candidates, 400 + full + full + 60 + spare, full=full)
    assert choice.names.keys() == rows | {2}


@pytest.mark.parametrize(("spare", "rows"), [(5, {0, 1}), (6, set())])
def test_a_run_that_is_no_larger_than_its_stub_stays_if_it_fits(spare: int, rows: Collection[int]) -> None:
    """The third passage comes back. The run before it then takes 6 tokens to come back, but 9 by the first estimate."""
    candidates = results([8, 8, 60], [200], [400])
    choice = fitted(candidates, 400 + 10 + 10 + 60 + spare, full=10)
    assert choice.names.keys() == rows | {3}


def test_what_was_left_out_counts_as_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    others: list[Collection[int]] = []
    refill = fitting.refill

    def recorded(*arguments: Any, **options: Any) -> list[int]:
        others.append(arguments[3])
        return refill(*arguments, **options)

    monkeypatch.setattr(fitting, "refill", recorded)
    fitted(results([40], [20], [60], [900]), 40 + 900 + 4 * 2 + 50, full=4, removed={0})
    assert others == [{0}, {0, 2}]


# Brief stubs


@pytest.mark.parametrize(
    ("limit", "count", "is_brief"),
    [(320, 3, False), (319, 2, True), (316, 2, True), (315, 3, False), (308, 3, False), (307, 3, True)],
)
def test_stubs_become_brief_if_full_ones_take_much_of_the_limit_and_brief_ones_keep_more(
    limit: int, count: int, is_brief: bool
) -> None:
    """Of 320 tokens, three full stubs are exactly the share that they may take."""
    assert MAX_STUB_SHARE * 320 == 3 * ESTIMATE
    choice = fitted(results([40], [40], [40], [260], errors={3}), limit, rest=0)
    assert choice.names.keys() == {*range(count)}
    assert choice.brief == (dict.fromkeys(range(count), "brief") if is_brief else {})


def test_brief_stubs_are_chosen_by_what_they_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: list[StubCosts] = []

    def recorded(call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        costs.append(options["costs"])
        return call(*arguments, **options)

    for name in ("select", "refill"):
        monkeypatch.setattr(fitting, name, partial(recorded, getattr(fitting, name)))
    fitted(results([40], [40], [40], [260]), 319, rest=0)
    assert costs == [FULL_STUBS] * 2 + [StubCosts(BRIEF_TOKENS, GONE_TOKENS)] * 2


# Errors and restored passages that lose their protection


@pytest.mark.parametrize(("limit", "released"), [(136, 0), (135, 1), (134, 2)])
def test_a_choice_that_fits_releases_nothing(limit: int, released: int, monkeypatch: pytest.MonkeyPatch) -> None:
    excesses: list[int] = []
    monkeypatch.setattr(Protection, "release", lambda self, scores, excess: bool(excesses.append(excess)))
    choice = fitted(results([60], [60], [60], errors={1, 2}), limit)
    assert sum(excesses) == released
    assert choice.names == {0: "p1"}


def test_each_round_releases_twice_as_much_as_the_round_before(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(Protection, "release", lambda self, scores, excess: asked.append(excess) or len(asked) < 4)
    fitted(results([60], errors={0}), 50)
    assert asked == [10, 20, 40, 80]


def test_what_was_released_can_be_removed() -> None:
    assert fitted(results([60], [60], [60], errors={0, 1, 2}), 136).names == {0: "p1"}
