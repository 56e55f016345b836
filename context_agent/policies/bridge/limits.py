"""The limits that a question sets for numbers with a unit, such as `under 50 euros` or `at least 16 GB`.

A search by words or by meaning cannot compare numbers. So records that are within the limits exchange their places
with those that are about as relevant and outside. Other texts keep their places, because a rule about orders above 500
euros also answers a question about 800 euros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from context_agent.policies.bridge.candidates import Floats, Notes
from context_agent.policies.bridge.editions import falling, relevant_rows
from context_agent.text.asked_limits import Limit, asked_limits
from context_agent.text.quantities import Quantity, record_quantities
from context_agent.text.words import key


class Limits:
    """The limits in the question of one episode, and the quantities of the records that it found."""

    def __init__(self, notes: Notes, limits: Sequence[Limit]) -> None:
        self._notes = notes
        self._limits = limits
        self._stated: dict[str, list[Quantity]] = {}
        """The quantities that have a limit, by the id of their chunk."""

    @classmethod
    def of(cls, notes: Notes) -> Self | None:
        """Return the limits in the question of the notes. If it sets none, return None."""
        limits = asked_limits(notes.question.text)
        return cls(notes, limits) if limits else None

    def read(self, chunk_id: str, text: str, metadata: Mapping[str, object]) -> None:
        """Read the quantities of a candidate."""
        dimensions = {limit.dimension for limit in self._limits}
        if stated := [one for one in record_quantities(text, metadata) if one.dimension in dimensions]:
            self._stated[chunk_id] = stated

    def reordered(self, scores: Floats) -> Floats:
        """Return the scores in the order that also counts the limits.

        Args:
            scores: The scores of the candidates, shape (n_candidates,).

        Returns:
            The new scores, shape (n_candidates,).
        """
        stated = {self._notes.rows[chunk_id]: quantities for chunk_id, quantities in self._stated.items()}
        by_score = sorted(stated, key=lambda row: -scores[row])
        said = frozenset[str]().union(*(limit.words for limit in self._limits))
        rows = relevant_rows(self._notes, by_score, said)
        fits = {row: self._fit(stated[row]) for row in rows}
        scores = scores.copy()
        if len(set(fits.values())) > 1:
            scores[sorted(rows, key=lambda row: -fits[row])] = falling(scores[rows])
        return scores

    def _fit(self, stated: Sequence[Quantity]) -> int:
        """Return 2 if quantities are in the limits, 1 if the right ones may be, and 0 if they are not.

        Those beside words of the same part of the question count. If there are none, those beside other words of the
        question count, and otherwise all, such as the price and the deposit for `under 50 euros`.
        """
        fit = 2
        asked = self._notes.question.key_set.difference(*(map(key, limit.words) for limit in self._limits))
        for limit in self._limits:
            same = [one for one in stated if one.dimension == limit.dimension]
            near = [one for one in same if not asked.isdisjoint(limit.beside & one.beside)]
            beside = near or [one for one in same if not asked.isdisjoint(one.beside)] or same
            met = [limit.includes(one) for one in beside]
            fit = min(fit, all(met) + any(met) if met else fit)
        return fit
