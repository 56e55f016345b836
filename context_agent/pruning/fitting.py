"""The fitting of a conversation into its limit. The stubs and frames of removed passages also take tokens."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from context_agent.pruning.protection import Protection
from context_agent.pruning.pruned_texts import PrunedTexts, RemovedIds
from context_agent.pruning.selection import FULL_STUBS, Candidate, StubCosts, refill, select, without_short_runs
from context_agent.pruning.stubs import RequestedIds
from context_agent.pruning.words import Scores

MAX_STUB_SHARE = 0.15
"""The share of the limit above which stubs and empty frames become brief if other passages then stay."""
BRIEF_TOKENS, GONE_TOKENS = 8, 5
"""Tokens of a brief stub, and of the text that replaces a result without remaining passages."""
MOST_SKIPPED = 3
"""Maximum number of passages that are left out, because they cost more than estimated, before others replace them."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The passages to remove.

    Attributes:
        names: Their ids, by row.
        ids: Their ids, by the number of the result and the index of the passage.
        brief: The texts with brief stubs, by the number of the result.
    """

    names: Mapping[int, str]
    ids: RemovedIds
    brief: Mapping[int, str]


class Fitting:
    """A search for the passages to remove, so that the rest and its stubs fit into the limit.

    Args:
        texts: The texts of the results, and their tokens.
        candidates: All passages of the conversation.
        removed: The rows that were removed before.
        scores: The scores of the passages, shape (n_passages,).
        protection: The passages that stay. If the rest does not fit, some of them lose their protection.
        limit: The tokens of tool results that may remain.
        last_id: The number of the last id that was given to a passage.
        requests: The ids that messages ask to restore. No passage gets such an id.
    """

    def __init__(
        self,
        texts: PrunedTexts,
        candidates: Sequence[Candidate],
        removed: AbstractSet[int],
        scores: Scores,
        protection: Protection,
        *,
        limit: int,
        last_id: int,
        requests: RequestedIds,
    ) -> None:
        self._texts, self._candidates, self._removed, self._scores = texts, candidates, removed, scores
        self._protection, self._limit, self._last_id, self._requests = protection, limit, last_id, requests

    def choose(self) -> Choice:
        """Choose the passages to remove. If the rest and its stubs do not fit, fewer passages stay protected."""
        factor = 1
        while True:
            choice = self._chosen()
            excess = self._texts.total(self._texts.without(choice.ids, choice.brief)) - self._limit
            # Each round releases twice as much as the round before, so there are few.
            if excess <= 0 or not self._protection.release(self._scores, excess * factor):
                return choice
            factor *= 2

    def _chosen(self) -> Choice:
        """Choose the passages to remove beside the protected ones.

        Stubs are brief only if full stubs take much room, and other passages stay with brief ones.
        """
        rows = self._least_relevant(FULL_STUBS)
        ids = self._choice(rows).ids
        overhead = self._texts.overhead(self._texts.without(ids), ids)
        rows = self._refilled(rows, FULL_STUBS)
        if overhead <= MAX_STUB_SHARE * self._limit:
            return self._choice(rows)
        costs = StubCosts(BRIEF_TOKENS, GONE_TOKENS, self._texts.frames())
        brief_rows = self._refilled(self._least_relevant(costs), costs)
        if brief_rows == rows and self._total_without(rows, FULL_STUBS) <= self._limit:
            return self._choice(rows)
        return self._choice(brief_rows, costs)

    def _least_relevant(self, costs: StubCosts) -> frozenset[int]:
        """Return the rows to remove, the least relevant first.

        The method stops when the rest and its stubs fit, or when nothing more can be removed.
        """
        rows: frozenset[int] = frozenset()
        total, factor = self._total_without(rows, costs), 1
        while total > self._limit:
            # From the third round on, each round frees twice as much as the round before. The number of rounds stays
            # small even if stubs cost more than estimated.
            limit = total - (total - self._limit) * factor
            more = select(
                self._candidates,
                self._scores,
                self._protection.reasons,
                self._removed | rows,
                total=total,
                limit=limit,
                costs=costs,
            )
            if not more and limit <= 0:
                break
            # If all that was chosen frees less than its stubs cost, more has to be chosen.
            factor *= 2 if rows or not more else 1
            rows |= more
            total = self._total_without(rows, costs)
        return rows

    def _refilled(self, rows: frozenset[int], costs: StubCosts) -> frozenset[int]:
        """Return the rows to remove, without those that fit in the rest of the budget.

        Stubs and frames can cost more than estimated. Of the passages that should fit together, those that really fit
        are then kept, the most relevant first, and the next passage stays removed.
        """

        def excess(fewer: frozenset[int]) -> int:
            return self._total_without(fewer, costs) - self._limit

        skipped = frozenset[int]()
        while len(skipped) <= MOST_SKIPPED and (room := -excess(rows)) > 0:
            others = self._removed | skipped
            back = refill(
                self._candidates,
                self._scores,
                rows - skipped,
                others,
                total=self._limit - room,
                limit=self._limit,
                costs=costs,
            )
            fitting = len(back)
            if excess(rows - {*back}) > 0:
                fitting = bisect_left(range(fitting), True, key=lambda last: excess(rows - {*back[: last + 1]}) > 0)
            rows -= {*back[:fitting]}
            if fitting == len(back):
                break
            skipped |= {back[fitting]}
        fewer = frozenset(without_short_runs(self._candidates, rows, self._removed, costs))
        return rows if excess(fewer) > 0 else fewer

    def _total_without(self, rows: frozenset[int], costs: StubCosts) -> int:
        """Return the tokens of the results without the passages in these rows."""
        choice = self._choice(rows, costs)
        return self._texts.total(self._texts.without(choice.ids, choice.brief))

    def _choice(self, rows: Iterable[int], costs: StubCosts = FULL_STUBS) -> Choice:
        """Return the choice of these rows. Unless the stubs are full, it has texts with brief stubs."""
        names = self._names(rows)
        ids: dict[int, dict[int, str]] = {}
        for row, name in names.items():
            ids.setdefault(self._candidates[row].number, {})[self._candidates[row].index] = name
        return Choice(names, ids, {} if costs is FULL_STUBS else self._texts.with_brief_stubs(ids))

    def _names(self, rows: Iterable[int]) -> dict[int, str]:
        """Return new ids for the rows, in order. Ids that a message already asks to restore are skipped."""
        names: dict[int, str] = {}
        number = self._last_id
        for row in sorted(rows):
            number = self._requests.next_free(number + 1)
            names[row] = f"p{number}"
        return names
