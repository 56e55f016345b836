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
from context_agent.text.quantities import Limit, Quantity, asked_limits, record_quantities
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
        scores = scores.copy()
        if inside := [row for row in rows if self._are_met(stated[row])]:
            order = list(dict.fromkeys([*inside, *rows]))
            scores[order] = falling(scores[rows])
        return scores

    def _are_met(self, stated: Sequence[Quantity]) -> bool:
        """Return True if quantities are in the limits. Those beside words of the question count, if there are any."""
        for limit in self._limits:
            asked = self._notes.question.key_set.difference(map(key, limit.words))
            same = [one for one in stated if one.dimension == limit.dimension]
            beside = [one for one in same if not asked.isdisjoint(one.beside)]
            if same and not any(limit.includes(one.amount) for one in beside or same):
                return False
        return True
