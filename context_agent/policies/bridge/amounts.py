"""The amounts that a question asks for, within limits such as `under 50 euros` or by words such as `cheapest`.

A search by words or by meaning cannot compare numbers. So records that are within the limits exchange their places
with those that are about as relevant and outside, and those with the lowest price come first for `cheapest`. Other
texts keep their places, because a rule about orders above 500 euros also answers a question about 800 euros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from context_agent.policies.bridge.candidates import Floats, Notes
from context_agent.policies.bridge.score_exchange import descending, relevant_rows
from context_agent.text.asked_amounts import Extreme, Limit, asked_extreme, asked_limits
from context_agent.text.quantities import MONEY_FIELDS, Quantity, record_quantities
from context_agent.text.words import key, words


class Amounts:
    """The amounts that the question of one episode asks for, and the quantities of the records that it found."""

    def __init__(self, notes: Notes, limits: Sequence[Limit], extreme: Extreme | None) -> None:
        self._notes = notes
        self._limits = limits
        self._extreme = extreme
        said = [one.words for one in (*limits, extreme) if one]
        self._said = frozenset[str]().union(*said)
        self._asked = notes.question.key_set.difference(map(key, self._said))
        """The keys of the other words of the question."""
        self._stated: dict[str, list[Quantity]] = {}
        """The quantities that may matter, by the id of their chunk."""

    @classmethod
    def of(cls, notes: Notes) -> Self | None:
        """Return the amounts for the question of the notes. If it asks for none, return None."""
        limits, extreme = asked_limits(notes.question.text), asked_extreme(notes.question.text)
        return cls(notes, limits, extreme) if limits or extreme else None

    def read(self, chunk_id: str, text: str, metadata: Mapping[str, object]) -> None:
        """Read the quantities of a candidate."""
        if stated := record_quantities(text, metadata):
            self._stated[chunk_id] = stated

    def reordered(self, scores: Floats) -> Floats:
        """Return the scores in the order that also counts the amounts.

        Args:
            scores: The scores of the candidates, shape (n_candidates,).

        Returns:
            The new scores, shape (n_candidates,).
        """
        stated = {self._notes.rows[chunk_id]: quantities for chunk_id, quantities in self._stated.items()}
        by_score = sorted(stated, key=lambda row: -scores[row])
        rows = relevant_rows(self._notes, [row for row in by_score if self._matters(stated[row])], self._said)
        amounts = self._amounts({row: stated[row] for row in rows})
        rows = [row for row in rows if row in amounts] if amounts else rows
        places = {row: (-self._fit(stated[row]), amounts.get(row, 0.0)) for row in rows}
        scores = scores.copy()
        if len(set(places.values())) > 1:
            scores[sorted(rows, key=places.__getitem__)] = descending(scores[rows])
        return scores

    def _matters(self, stated: Sequence[Quantity]) -> bool:
        """Return True if one of the quantities has a dimension that the question is about."""
        if self._extreme and self._extreme.of:
            return True
        dimensions = {limit.dimension for limit in self._limits}
        dimensions.update(self._extreme.dimensions if self._extreme else ())
        return any(one.dimension in dimensions for one in stated)

    def _amounts(self, stated: Mapping[int, Sequence[Quantity]]) -> dict[int, float]:
        """Return the amount of each row that decides about `cheapest`, so that the lowest one comes first.

        The amounts must be in one field. If several fields have such an amount, it is the one that is named in the
        question, or a price. If this does not tell which one is meant, no amounts are returned.
        """
        if not (extreme := self._extreme):
            return {}
        every = {one for quantities in stated.values() for one in quantities}
        alike = {one for one in every if one.dimension in extreme.dimensions}
        fields = {one.field for one in alike}
        named = {one.field for one in every if not extreme.of.isdisjoint(one.beside)}
        named = named or {one.field for one in alike if not self._asked.isdisjoint(one.beside)}
        prices = {one for one in fields if not MONEY_FIELDS.isdisjoint(words(one))}
        meant = named or prices or fields
        if len(meant) != 1:
            return {}
        found = {row: [one for one in quantities if one.field in meant] for row, quantities in stated.items()}
        if extreme.highest:
            return {row: -max(one.high for one in of_row) for row, of_row in found.items() if of_row}
        return {row: min(one.low for one in of_row) for row, of_row in found.items() if of_row}

    def _fit(self, stated: Sequence[Quantity]) -> int:
        """Return 2 if quantities are in the limits, 1 if the right ones may be, and 0 if they are not.

        Those beside words of the same part of the question count. If there are none, those beside other words of the
        question count, and otherwise all, such as the price and the deposit for `under 50 euros`.
        """
        fit = 2
        for limit in self._limits:
            same = [one for one in stated if one.dimension == limit.dimension]
            near = [one for one in same if not self._asked.isdisjoint(limit.beside & one.beside)]
            beside = near or [one for one in same if not self._asked.isdisjoint(one.beside)] or same
            met = [limit.includes(one) for one in beside]
            fit = min(fit, all(met) + any(met) if met else fit)
        return fit
