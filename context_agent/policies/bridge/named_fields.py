"""The metadata that a question names, such as the status of a ticket or the person it is assigned to.

The retrievers search titles and texts. If a table has a column of text, its other columns are metadata. A question for
the open tickets about a pump then finds open and closed ones alike. So those with a field that the question names
exchange their places with those that are about as relevant and have the words nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from context_agent.policies.bridge.candidates import Floats, Notes
from context_agent.policies.bridge.score_exchange import MOST_LIFTED, descending, relevant_rows
from context_agent.text.quantities import inner_fields
from context_agent.text.words import key, words

_LONGEST_VALUE = 80
"""Maximum number of characters of a value that names something. A longer one is prose."""
_PLACES = frozenset("/\\")
"""Characters of paths and addresses, whose words name no property of a text."""


class NamedFields:
    """The words of one episode's question that the metadata of its candidates have."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._weights = dict(zip(notes.question.keys, notes.question.weight.tolist(), strict=True))
        self._fields: dict[int, frozenset[str]] = {}
        """The keys of these words, by row of the notes."""

    def read(self, metadata: Mapping[str, object]) -> None:
        """Read the metadata of the last candidate of the notes."""
        if found := self._notes.question.key_set.intersection(_value_keys(metadata)):
            self._fields[len(self._notes) - 1] = found

    def reordered(self, scores: Floats) -> Floats:
        """Return the scores in the order that also counts the named fields.

        A text that has such a word itself keeps its place. Of the others, the first ones get nearly the best score,
        because texts that repeat a better one have a score of 0.

        Args:
            scores: The scores of the candidates, shape (n_candidates,).

        Returns:
            The new scores, shape (n_candidates,).
        """
        found = [one.passage.keys for one in self._notes.candidates]
        named = frozenset[str]().union(*(keys - found[row] for row, keys in self._fields.items()))
        if not named:
            return scores
        by_score = sorted(range(len(scores)), key=lambda row: -scores[row])
        relevant = relevant_rows(self._notes, by_score, frozenset())
        rows = [row for row in relevant if named.isdisjoint(found[row])]
        keys = {row: sorted(named.intersection(self._fields.get(row, ()))) for row in rows}
        weights = {row: sum(self._weights[one] for one in keys[row]) for row in rows}
        most = max(weights.values(), default=0.0)
        if min(weights.values(), default=0.0) == most:
            return scores
        scores = scores.copy()
        order = sorted(rows, key=lambda row: -weights[row])
        scores[order] = descending(scores[rows], min(list(weights.values()).count(most), MOST_LIFTED))
        return scores


def _value_keys(metadata: Mapping[str, object]) -> Iterator[str]:
    """Yield the keys of the words in short values. Those of paths, addresses and numbers do not count."""
    for item in metadata.items():
        for _, value in inner_fields(*item):
            if isinstance(value, str) and len(value) <= _LONGEST_VALUE and _PLACES.isdisjoint(value):
                yield from (key(word) for word in words(value) if not word.isdigit())
