"""The choice of the least relevant passages, by the tokens that they and their stubs take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

import numpy as np

from context_agent.pruning.blocks import Item, Passage
from context_agent.pruning.contents import ResultText
from context_agent.pruning.gaps import runs
from context_agent.pruning.words import Scores

CHARACTERS_A_TOKEN = 4
"""The characters that count as a token around the passages of an item."""
SHORTEST_COPY = 7
"""Minimum number of characters of a passage that counts as a copy of an earlier one."""


ItemKey = tuple[int, Item]
"""The number of a result, and an item of a list in it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A passage in its conversation.

    Attributes:
        passage: The passage.
        source: The result that it belongs to.
        number: The number of the result.
        index: The index of the passage in the result.
    """

    passage: Passage
    source: ResultText
    number: int
    index: int

    @property
    def items(self) -> list[ItemKey]:
        """The items of lists that the passage is a part of, the innermost first, each with the number of the result."""
        return [(self.number, item) for item in self.passage.items]


def copies(candidates: Sequence[Candidate], removed: AbstractSet[int]) -> dict[int, int]:
    """Return the rows whose text occurs earlier in the conversation, with the row where it occurs first.

    A text with another label is no copy, because it is about something else, such as the settings of another stage.
    """
    first: dict[tuple[str, str], int] = {}
    rows: dict[int, int] = {}
    for row, candidate in enumerate(candidates):
        if row not in removed and len(candidate.passage.text) >= SHORTEST_COPY:
            source = first.setdefault((candidate.passage.label, candidate.passage.text), row)
            if source != row:
                rows[row] = source
    return rows


@dataclass(frozen=True, slots=True)
class StubCosts:
    """Estimates of the tokens that stubs take.

    Attributes:
        stub: The tokens of a stub between two passages that stay.
        gone: The tokens of the text that replaces a result without remaining passages.
        frames: The tokens around the passages of a result, by the number of the result. They are removed with the last
            of its passages.
    """

    stub: int = 16
    gone: int = 16
    frames: Mapping[int, int] = field(default_factory=dict)


FULL_STUBS = StubCosts()


def _around_items(candidates: Iterable[Candidate], stub: int) -> dict[ItemKey, int]:
    """Return an estimate of the tokens that are removed with the last passage of an item, beside the passage itself.

    They are those between its passages, and those of all stubs but one. What is in an inner item counts there.
    """
    spans: Counter[ItemKey] = Counter()
    groups: dict[ItemKey, set[int]] = {}
    outer: dict[ItemKey, ItemKey] = {}
    for candidate in candidates:
        passage, keys = candidate.passage, candidate.items
        outer.update(pairwise(keys))
        for key, group in zip(keys, (passage.group, *(item.group for item in passage.items)), strict=False):
            spans[key] += passage.end - passage.start
            groups.setdefault(key, set()).add(group)
    between = {key: key[1].end - key[1].start - covered for key, covered in spans.items()}
    own = dict(between)
    for inner, around in outer.items():
        own[around] -= between[inner]
    return {key: own[key] // CHARACTERS_A_TOKEN + (len(groups[key]) - 1) * stub for key in own}


@dataclass(slots=True)
class Removals:
    """A set of passages to remove, with a count of the tokens that remain and an estimate of the stubs."""

    candidates: Sequence[Candidate]
    removed: set[int]
    total: int
    costs: StubCosts = FULL_STUBS
    chosen: set[int] = field(default_factory=set)
    _left: Counter[int] = field(init=False)
    _left_in: Counter[ItemKey] = field(init=False)
    _around: dict[ItemKey, int] = field(init=False)
    _rows: dict[ItemKey, tuple[int, int]] = field(init=False)

    def __post_init__(self) -> None:
        left = [candidate for row, candidate in enumerate(self.candidates) if row not in self.removed]
        self._left = Counter(candidate.number for candidate in left)
        self._left_in = Counter(key for candidate in left for key in candidate.items)
        self._around = _around_items(self.candidates, self.costs.stub)
        self._rows = {}
        for row, candidate in enumerate(self.candidates):
            for key in candidate.items:
                self._rows[key] = self._rows.get(key, (row, row))[0], row

    def remove(self, row: int) -> None:
        """Remove the passage in this row."""
        candidate = self.candidates[row]
        self.removed.add(row)
        self.chosen.add(row)
        self._left[candidate.number] -= 1
        self._left_in.subtract(candidate.items)
        self.total -= self._freed(row)

    def put_back(self, row: int, limit: int) -> bool:
        """Keep the passage in this row after all, if the rest then has at most `limit` tokens.

        Returns:
            True if it stays.
        """
        candidate, total = self.candidates[row], self.total + self._freed(row)
        if total > limit:
            return False
        self.total = total
        self.removed.remove(row)
        self.chosen.remove(row)
        self._left[candidate.number] += 1
        self._left_in.update(candidate.items)
        return True

    def _freed(self, row: int) -> int:
        """Return the tokens that are free only because the passage in this row is removed."""
        candidate, costs = self.candidates[row], self.costs
        freed = candidate.passage.tokens - costs.stub
        # The separator between two removed neighbors is removed too. It has about one token.
        freed += self._joined(row, row, candidate.passage.group) * (costs.stub + 1)
        for key in self._gone_items(row):
            freed += self._around[key] + self._joined(*self._rows[key], key[1].group) * (costs.stub + 1)
        if not self._left[candidate.number] and candidate.number in costs.frames:
            freed += costs.frames[candidate.number] + costs.stub - costs.gone
        return freed

    def _gone_items(self, row: int) -> Iterator[ItemKey]:
        """Yield the items that a removed passage is in and that have no passages left, the innermost first."""
        return takewhile(lambda key: not self._left_in[key], self.candidates[row].items)

    def _joined(self, first: int, last: int, group: int) -> int:
        """Return the number of neighbors whose stubs are joined with the stub of these rows, which are removed."""
        number = self.candidates[first].number
        return sum(
            other in self.removed
            and self.candidates[other].number == number
            and (
                self.candidates[other].passage.group == group
                or any(item.group == group for _, item in self._gone_items(other))
            )
            for other in (first - 1, last + 1)
        )

    def _share_stub(self, row: int, other: int) -> bool:
        first, second = self.candidates[row], self.candidates[other]
        return first.number == second.number and first.passage.group == second.passage.group

    def without_short_runs(self) -> set[int]:
        """Return the chosen rows, without runs that free fewer tokens than their stub costs."""
        rows = set(self.chosen)
        for run in runs(self.removed, self._share_stub):
            if any(not self._left_in[key] for key in self.candidates[run[0]].items):
                continue
            number = self.candidates[run[0]].number
            is_gone = not self._left[number] and number in self.costs.frames
            cost = self.costs.gone - self.costs.frames[number] if is_gone else self.costs.stub
            if sum(self.candidates[row].passage.tokens for row in run) <= cost:
                rows -= set(run)
        return rows


def select(
    candidates: Sequence[Candidate],
    scores: Scores,
    staying: Mapping[int, str],
    removed: AbstractSet[int],
    *,
    total: int,
    limit: int,
    costs: StubCosts = FULL_STUBS,
) -> set[int]:
    """Return the rows to remove so that the tool results fit.

    Copies come first, then the passages with the lowest scores. Of passages with equal scores, the earlier one is
    removed first.

    Args:
        candidates: All passages of the conversation.
        scores: Their scores, shape (n_passages,).
        staying: The rows that stay whatever their score, with the reasons.
        removed: The rows that were removed before.
        total: The tokens of the tool results.
        limit: The tokens that may remain.
        costs: Estimates of what stubs cost.
    """
    removals = Removals(candidates, set(removed), total, costs)
    repeated = copies(candidates, removed)
    order = [*repeated, *(row for row in np.argsort(scores, kind="stable").tolist() if row not in repeated)]
    for row in order:
        if removals.total <= limit:
            break
        if row not in staying and row not in removed:
            removals.remove(row)
    return removals.without_short_runs()


def refill(
    candidates: Sequence[Candidate],
    scores: Scores,
    chosen: AbstractSet[int],
    removed: AbstractSet[int],
    *,
    total: int,
    limit: int,
    costs: StubCosts = FULL_STUBS,
) -> list[int]:
    """Return the chosen rows that fit in the rest of the limit together, the most relevant first.

    The last passage that `select` chooses is often larger than the excess. A smaller passage then fits in its place.
    Copies stay removed.

    Args:
        candidates: All passages of the conversation.
        scores: Their scores, shape (n_passages,).
        chosen: The rows that `select` chose.
        removed: The other rows that are removed.
        total: The tokens that remain without the chosen and the removed rows.
        limit: The tokens that may remain.
        costs: Estimates of what stubs cost.
    """
    removals = Removals(candidates, {*removed, *chosen}, total, costs, set(chosen))
    repeated = copies(candidates, removed)
    order = reversed(np.argsort(scores, kind="stable").tolist())
    return [row for row in order if row in chosen and row not in repeated and removals.put_back(row, limit)]


def without_short_runs(
    candidates: Sequence[Candidate], chosen: AbstractSet[int], removed: AbstractSet[int], costs: StubCosts
) -> set[int]:
    """Return the chosen rows, without runs that free fewer tokens than their stub costs.

    Args:
        candidates: All passages of the conversation.
        chosen: The rows to remove.
        removed: The rows that were removed before.
        costs: Estimates of what stubs cost.
    """
    return Removals(candidates, {*removed, *chosen}, 0, costs, set(chosen)).without_short_runs()
