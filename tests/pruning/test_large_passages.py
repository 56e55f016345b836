"""The results that are cut again, because their large passages would leave no room for others."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import pytest

from context_agent.pruning.goal import Goal
from context_agent.pruning.passages import Passage
from context_agent.pruning.pruned_results import ResultRecord
from context_agent.pruning.pruner import LARGE_SHARE
from context_agent.pruning.relevance import READER_JUDGES
from context_agent.pruning.words import Scores
from tests.support.conversations import rendered
from tests.support.long_conversation import pruner, search

BUDGET, LARGE = 100, 20
ROOM = BUDGET - 1
"""What remains beside the last turn, which has one token."""


def cut_again(
    monkeypatch: pytest.MonkeyPatch,
    sizes: Sequence[int],
    scores: Sequence[float],
    *,
    errors: Collection[int] = (),
) -> dict[int, bool]:
    """Prune results of one passage each.

    Returns:
        For each result that was judged, whether it is cut again.
    """
    asked: dict[int, bool] = {}

    def settled(own: ResultRecord, *, is_fine: bool) -> bool:
        asked[int(own.text.split()[0])] = is_fine
        return False

    def judged(passages: Sequence[Passage], goal: Goal) -> Scores:
        return np.array([*scores, 0.0])

    monkeypatch.setattr(ResultRecord, "settle", settled)
    monkeypatch.setitem(READER_JUDGES, "fast", judged)
    texts = [f"{number} ".ljust(4 * size, "x") for number, size in enumerate(sizes)]
    turns = [search(number, text, is_error=number in errors) for number, text in enumerate(texts)]
    pruner(BUDGET).prune(rendered("anthropic", [*turns, search(99, "done")]))
    return asked


@pytest.mark.parametrize(
    ("sizes", "scores", "errors", "is_fine"),
    [
        ([LARGE, 90], [2, 1], (), {0: True, 1: True}),
        ([LARGE - 1, 90], [2, 1], (), {0: False, 1: True}),
        ([60, ROOM - 60, LARGE, LARGE], [4, 3, 2, 1], (), {0: True, 1: True, 2: True, 3: False}),
        ([61, ROOM - 60, LARGE, LARGE], [4, 3, 2, 1], (), {0: True, 1: True, 2: False, 3: False}),
        ([60, ROOM - 60, LARGE, LARGE], [1, 2, 3, 4], (), {0: True, 1: True, 2: True, 3: True}),
        ([30, 60, ROOM - 89, LARGE], [9, 3, 2, 1], {0}, {1: True, 2: False, 3: False}),  # an error takes 30 tokens
        ([30, 60, ROOM - 90, LARGE], [9, 3, 2, 1], {0}, {1: True, 2: False, 3: True}),
    ],
)
def test_large_passages_that_would_stay_are_cut_again(
    sizes: Sequence[int],
    scores: Sequence[float],
    errors: Collection[int],
    is_fine: dict[int, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert LARGE == LARGE_SHARE * BUDGET
    assert cut_again(monkeypatch, sizes, scores, errors=errors) == is_fine


def test_of_equal_scores_the_first_would_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    is_fine = cut_again(monkeypatch, [LARGE] * 40, [1, 2] * 20)
    assert is_fine == {number: number in (1, 3, 5, 7, 9) for number in range(40)}
