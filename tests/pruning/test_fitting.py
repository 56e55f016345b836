"""The choice of passages to remove, so that the rest and its stubs fit."""

from __future__ import annotations

import re

import pytest

from context_agent.pruning.protection import Protection
from tests.support.conversations import rendered
from tests.support.long_conversation import conversation, noises, pruner, search


def test_each_round_releases_twice_as_much_as_the_round_before(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(Protection, "release", lambda self, scores, excess: asked.append(excess) or len(asked) < 4)
    errors = [search(200 + number, noises(number * 9, 3), is_error=True) for number in range(40)]
    report = pruner(400).prune(rendered("anthropic", [*errors, search(90, noises(950, 11))])).report
    (limit,) = re.findall(r"tokens of tool results stay, (\d+) fit", report.warnings[-1])
    assert asked == [(report.tokens_after - int(limit)) * 2**number for number in range(4)]


def test_a_choice_that_fits_exactly_releases_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    excesses: list[int] = []
    monkeypatch.setattr(Protection, "release", lambda self, scores, excess: bool(excesses.append(excess)))
    errors = [search(200 + number, noises(number * 9, 3), is_error=True) for number in range(9)]
    turns = rendered("anthropic", [*errors, *conversation("done")])
    sizes = {pruner(budget).prune(turns).report.tokens_after - budget for budget in range(412, 424)}
    assert 0 in sizes
    assert all(excess > 0 for excess in excesses)
