"""The newest and the oldest edition. If a question asks for one, the texts of a series are ordered by their ages.

A search by words or by meaning cannot find the latest minutes or the current version of a policy, because the texts of
a series are alike and the question does not name the date. So the policy reads the ages of the texts, searches for
editions beyond those that it has seen, and lets the texts of a series exchange their places.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import numpy as np

from context_agent.policies.bridge.candidates import Floats, Notes
from context_agent.policies.bridge.networks import document_rows
from context_agent.text.editions import AskedEdition, Edition, asked_edition, edition
from context_agent.text.words import key

BEST_DOCUMENTS = 5
"""How many of the best documents tell which series the question is about."""
SEARCHED_SERIES, ROUNDS = 2, 3
"""How many series are searched for other editions, and in how many turns."""
BEST_TEXTS, SAME_COVERAGE = 5, 0.75
"""A text is relevant if it has this share of the question's words that one of the best texts of its series has."""
GENERAL_KEYS = frozenset(
    map(
        key,
        "agreed attend change contain decide decision discuss happen include meet meeting mention new report".split(),
    )
)
"""The keys of words that a question about a meeting or a release has, and that name no subject of its text."""
NEAR_SCORE = 0.05
"""The share of the best score that a relevant text has, if the titles do not say that the texts are a series."""
YEARS_BEYOND, RELEASES_BEYOND = 3, (1, 2, 3, 5, 8, 13)
"""How far beyond the editions that were seen the searches look."""
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
Series = tuple[str, str]
"""The words and the kind of a series."""


class Editions:
    """The series among the candidates of one episode whose question asks for the newest or the oldest edition."""

    def __init__(self, notes: Notes, asked: AskedEdition) -> None:
        self._notes = notes
        self._asked = asked
        self._named = edition(notes.question.text, "", {})
        """The dates or the version that the question names. Only editions of these count."""
        self._rounds = 0
        self._reached: dict[Series, Edition] = {}
        """The edition beyond which each series was searched."""

    @classmethod
    def of(cls, notes: Notes) -> Self | None:
        """Return the series for the question of the notes. If it asks for no edition, return None."""
        asked = asked_edition(notes.question.text)
        return cls(notes, asked) if asked else None

    def queries(self, scores: Floats) -> list[str]:
        """Return the searches of a turn for editions beyond those that the best series have among the candidates.

        If the last search for a series brought no such edition, the series is not searched again.

        Args:
            scores: The scores of the candidates, shape (n_candidates,).

        Returns:
            Two queries for each series: one for other editions, and one for the question in the edition that is last
            so far.
        """
        if self._rounds == ROUNDS:
            return []
        queries: list[str] = []
        for series, rows in self._best_series(scores):
            last = self._in_order(rows)[0]
            reached = self._edition(last)
            if self._reached.get(series) == reached:
                continue
            self._reached[series] = reached
            title = series[0] or " ".join(self._notes.question.terms)
            queries.append(f"{title} {' '.join(self._beyond(reached))}")
            queries.append(f"{' '.join(self._notes.question.terms)} {self._notes.candidates[last].passage.bare}")
        self._rounds += 1
        return queries

    def reordered(self, scores: Floats) -> Floats:
        """Return the scores in the order that also counts the age.

        The texts of a series exchange their scores. The last edition that is about as relevant as the best text comes
        first, the best text second, and the last edition of all third. Other relevant texts follow by their ages.

        Args:
            scores: The scores of the candidates, shape (n_candidates,).

        Returns:
            The new scores, shape (n_candidates,).
        """
        exchanged = scores.copy()
        for (title, _), rows in self._series().items():
            by_score = sorted(rows, key=lambda row: -scores[row])
            alike = by_score if title else [row for row in by_score if scores[row] >= NEAR_SCORE * scores[by_score[0]]]
            relevant = self._in_order(self._relevant(alike, title))
            order = list(dict.fromkeys([relevant[0], by_score[0], self._in_order(rows)[0], *relevant, *by_score]))
            exchanged[order] = np.sort(scores[rows])[::-1]
        return exchanged

    def _relevant(self, by_score: list[int], title: str) -> list[int]:
        """Return the rows of a series that cover the question about as well as its best ones do.

        The scores cannot tell, because they lower texts that are like a better one. The words in all titles of the
        series and those that ask for an edition do not count.
        """
        question = self._notes.question
        passages = [self._notes.candidates[row].passage for row in by_score]
        said = GENERAL_KEYS.union(map(key, title.split()), map(key, self._asked.words))
        weights = np.where([one in said for one in question.keys], 0, question.weight)
        covered = [float(question.coverage(passage) @ weights) for passage in passages]
        least = SAME_COVERAGE * max(covered[:BEST_TEXTS])
        return [row for row, one in zip(by_score, covered, strict=True) if one >= least]

    def _series(self) -> dict[Series, list[int]]:
        """Return the rows of each series with several editions among the candidates."""
        series: dict[Series, list[int]] = {}
        for row, candidate in enumerate(self._notes.candidates):
            found = candidate.edition
            if found and (not self._named or self._named.includes(found)):
                series.setdefault((found.series, found.kind), []).append(row)
        return {one: rows for one, rows in series.items() if len({self._edition(row).age for row in rows}) > 1}

    def _best_series(self, scores: Floats) -> list[tuple[Series, list[int]]]:
        best = document_rows(self._notes, scores)[:BEST_DOCUMENTS]
        series = [(one, rows) for one, rows in self._series().items() if not set(best).isdisjoint(rows)]
        return sorted(series, key=lambda it: min(best.index(row) for row in it[1] if row in best))[:SEARCHED_SERIES]

    def _in_order(self, rows: list[int]) -> list[int]:
        """Return the rows with the asked edition first. Those of the same age keep their order."""
        return sorted(rows, key=lambda row: self._edition(row).age, reverse=self._asked.which == "newest")

    def _edition(self, row: int) -> Edition:
        found = self._notes.candidates[row].edition
        assert found is not None
        return found

    def _beyond(self, reached: Edition) -> Iterator[str]:
        """Yield names of editions that may follow this one, or that may precede it if the oldest is asked for."""
        step = 1 if self._asked.which == "newest" else -1
        if reached.kind == "date":
            year, month, _ = reached.age
            if month:
                months = MONTHS[month - 1 :] if step > 0 else MONTHS[:month]
                yield from (f"{name} {year}" for name in months)
            yield from (str(year + step * ahead) for ahead in range(YEARS_BEYOND + 1))
            return
        first, second, third, *_ = reached.age
        for ahead in (step * it for it in RELEASES_BEYOND):
            yield from (
                f"{first}.{second}.{third + ahead}" * (third + ahead > 0),
                f"{first}.{second + ahead}" * (second + ahead >= 0),
                f"{first + ahead}.0 {first + ahead}" * (first + ahead >= 0),
            )
