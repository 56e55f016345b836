"""The editions that a question asks for, such as the newest one or those since 2020. They come first in their series.

A search by words or by meaning cannot find the latest minutes or the versions since 2.4, because the texts of a series
are alike and the question does not name their dates. So the policy reads the ages of the texts, searches for editions
that it has not seen, and lets the texts of a series exchange their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self

from context_agent.policies.bridge.candidates import Floats, Notes, document_rows
from context_agent.policies.bridge.score_exchange import BEST_TEXTS, MOST_LIFTED, descending, relevant_rows
from context_agent.text.asked_editions import AgeRange, AskedEditions, asked_editions
from context_agent.text.editions import Edition

BEST_DOCUMENTS = 5
"""How many of the best documents tell which series the question is about."""
SEARCHED_SERIES, ROUNDS = 2, 3
"""How many series are searched for other editions, and in how many turns."""
GENERAL_WORDS = frozenset(
    "agreed attend change contain decide decision discuss entry happen include meet meeting mention new note report"
    " write written wrote".split()
)
"""Words that a question about a meeting or a release has, and that name no subject of its text."""
LINKING_WORDS = frozenset("a an and at for in of on the".split())
"""Words that titles of one series may have or not, as in `Minutes of the council` and `Council minutes`."""
DIRECTIONS = ("from", "to")
"""Words that give the order of a title a meaning, as in `Trains from Bonn to Rome`."""
NEAR_SCORE = 0.05
"""The share of the best score that a relevant text has, if the titles do not say that the texts are a series."""
YEARS_BEYOND, RELEASES_BEYOND = 3, (1, 2, 3, 5, 8, 13)
"""How far beyond the editions that were seen the searches look."""
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
MOST_NAMES = 12
"""Maximum number of months, years or versions of a range that a search names."""
Series = tuple[str, str]
"""The words and the kind of a series."""


class Editions:
    """The series among the candidates of one episode whose question asks for certain editions."""

    def __init__(self, notes: Notes, asked: AskedEditions) -> None:
        self._notes = notes
        self._asked = asked
        self._rounds = self._read = 0
        self._known: dict[int, Edition] = {}
        """The editions of the first `_read` candidates, by row."""
        self._reached: dict[Series, Edition] = {}
        """The edition beyond which each series was searched."""

    @classmethod
    def of(cls, notes: Notes) -> Self | None:
        """Return the series for the question of the notes. If it asks for no edition, return None."""
        asked = asked_editions(notes.question.text)
        return cls(notes, asked) if asked else None

    def queries(self, scores: Floats) -> list[str]:
        """Return the searches of a turn for the asked editions of the best series.

        If the newest or the oldest edition is asked for, these are editions beyond those among the candidates.
        If the question asks for a longer time or for several versions, these are the editions of that. If it just
        names one date or version, there are no searches, because the words of the question suffice. If the last search
        for a series brought no edition beyond the others, the series is not searched again.

        Args:
            scores: The scores of the candidates, shape (n_candidates,).

        Returns:
            Two queries for each series: one for the names of editions, and one for the question in the edition that is
            last so far.
        """
        if self._rounds == ROUNDS or self._asked.is_named:
            return []
        queries: list[str] = []
        for series, rows in self._best_series(scores):
            inside = self._inside(rows)
            last = self._in_order(inside or rows)[0]
            reached = self._edition(last)
            if self._reached.get(series) == reached:
                continue
            self._reached[series] = reached
            title = series[0] or " ".join(self._notes.question.terms)
            queries.append(f"{title} {' '.join(self._names(reached))}")
            queries.append(f"{' '.join(self._notes.question.terms)} {self._notes.candidates[last].passage.bare}")
        self._rounds += 1
        return queries

    def reordered(self, scores: Floats) -> Floats:
        """Return the scores in the order that also counts the age.

        The texts of a series exchange their scores. If one edition is asked for, the last one that is about as relevant
        as the best text comes first, the best text second, and the last edition of all third. Other relevant texts
        follow by their ages. If the last few are asked for, the relevant ones of these come first, and then the others
        of them. If the texts of a time or of some versions are asked for, they come first by their scores. The best
        text of the series is then at least second, since the notes of version 5.1 may say what was wrong before 5.1.

        If several editions may be asked for, the relevant ones get nearly the best score of the series. Texts that
        repeat a better one have a score of 0, and would come behind other files. A series that covers less of the
        question than another text does not rise.

        Args:
            scores: The scores of the candidates, shape (n_candidates,).

        Returns:
            The new scores, shape (n_candidates,).
        """
        scores = scores.copy()
        for (title, _), rows in self._series().items():
            by_score = sorted(rows, key=lambda row: -scores[row])
            alike = by_score if title else [row for row in by_score if scores[row] >= NEAR_SCORE * scores[by_score[0]]]
            inside = self._inside(alike)
            if not inside or not (self._asked.which or self._is_divided(rows, title)):
                continue
            if self._asked.which and self._asked.count == 1:
                lifted: list[int] = []
                relevant = self._in_order(self._relevant(inside, title))
                first = [relevant[0], inside[0], self._in_order(self._inside(rows))[0], *relevant, *inside]
            else:
                relevant = self._relevant(inside if self._asked.which else by_score, title)
                lifted = [row for row in inside if row in relevant][:MOST_LIFTED]
                lifted = lifted if self._covers(lifted) else []
                first = [*relevant, *inside] if self._asked.which else [inside[0], by_score[0], *lifted, *inside]
            order = list(dict.fromkeys([*first, *by_score]))
            level = 1 + max((order.index(row) for row in lifted), default=0)
            scores[order] = descending(scores[rows], level)
        return scores

    def _inside(self, rows: list[int]) -> list[int]:
        """Return the rows of a series whose editions are asked for, in the same order.

        If one edition is asked for, all in the ranges count, because the newest one may be silent on the subject.
        """
        inside = [row for row in rows if self._asked.includes(self._edition(row))]
        if self._asked.which and self._asked.count > 1:
            ages = dict.fromkeys(self._edition(row).age for row in self._in_order(inside))
            asked = set(list(ages)[: self._asked.count])
            inside = [row for row in inside if self._edition(row).age in asked]
        return inside

    def _is_divided(self, rows: list[int], title: str) -> bool:
        """Return True if the named time or versions tell the texts of a series apart.

        They do so if some texts are outside, and if most texts say their age. If the question just names one date or
        version, the titles must say that the texts are a series.
        """
        editions = [self._edition(row) for row in rows]
        known = sum(all(one.compares(edition) for one in self._asked.ranges) for edition in editions)
        is_series = bool(title) or not self._asked.is_named
        return is_series and 2 * known >= len(rows) and not all(map(self._asked.includes, editions))

    def _relevant(self, by_score: list[int], title: str) -> list[int]:
        """Return the rows of a series that cover the question about as well as its best ones do.

        The words in all titles of the series and those that ask for an edition do not count.
        """
        said = self._asked.words.union(title.split(), GENERAL_WORDS)
        return relevant_rows(self._notes, by_score, said, None if self._asked.count > 1 else BEST_TEXTS)

    def _covers(self, rows: list[int]) -> bool:
        """Return True if one of the rows covers the question about as well as any text that was found does."""
        everything = list(range(len(self._notes.candidates)))
        said = self._asked.words | GENERAL_WORDS
        return not set(rows).isdisjoint(relevant_rows(self._notes, everything, said, None))

    def _series(self) -> dict[Series, list[int]]:
        """Return the rows of each series with several editions among the candidates.

        Titles with the same words are one series, such as `Minutes of the council` and `Council minutes`. The texts of
        equal titles are a series if their ages are elsewhere, as in `Minutes` with a field `date`. As the titles need
        not be written alike, all texts whose titles have no age, or nothing but an age, are one more series, the last
        one. Its title is "".
        """
        titles: dict[frozenset[str], str] = {}
        series: dict[Series, list[int]] = {}
        untitled: dict[Series, list[int]] = {}
        for row, found in self._editions().items():
            title_words = frozenset(found.series.split()) - LINKING_WORDS
            if not title_words or not title_words.isdisjoint(DIRECTIONS):
                title_words = frozenset([found.series])
            title = titles.setdefault(title_words, found.series)
            series.setdefault((title, found.kind), []).append(row)
            if not (found.series and found.is_titled):
                untitled.setdefault(("", found.kind), []).append(row)
        series = {one: rows for one, rows in series.items() if one[0]} | untitled
        return {one: rows for one, rows in series.items() if len({self._edition(row).age for row in rows}) > 1}

    def _best_series(self, scores: Floats) -> list[tuple[Series, list[int]]]:
        best = document_rows(self._notes, scores)[:BEST_DOCUMENTS]
        series = [(one, rows) for one, rows in self._series().items() if not set(best).isdisjoint(rows)]
        return sorted(series, key=lambda it: min(best.index(row) for row in it[1] if row in best))[:SEARCHED_SERIES]

    def _in_order(self, rows: list[int]) -> list[int]:
        """Return the rows with the newest edition first, or the oldest if that is asked for.

        Those of the same age keep their order.
        """
        return sorted(rows, key=lambda row: self._edition(row).age, reverse=self._asked.which != "oldest")

    def _editions(self) -> dict[int, Edition]:
        """Return the editions by row. If a text doesn't say its age, another text of its document may."""
        candidates = self._notes.candidates
        if len(candidates) != self._read:
            by_document = {one.document_id: one.edition for one in reversed(candidates) if one.edition}
            found = ((row, one.edition or by_document.get(one.document_id)) for row, one in enumerate(candidates))
            self._known = {row: edition for row, edition in found if edition}
            self._read = len(candidates)
        return self._known

    def _edition(self, row: int) -> Edition:
        return self._editions()[row]

    def _names(self, reached: Edition) -> Iterator[str]:
        """Yield names of editions that may be asked for, given the last one that was reached."""
        for named in self._asked.ranges:
            if named.kind == reached.kind:
                yield from _dates_of(named) if named.kind == "date" else _versions_of(named)
        if self._asked.which:
            yield from self._beyond(reached)

    def _beyond(self, reached: Edition) -> Iterator[str]:
        """Yield names of editions that may follow this one, or that may precede it if the oldest is asked for."""
        is_newest = self._asked.which == "newest"
        step = 1 if is_newest else -1
        if reached.kind == "date":
            year, month, *_ = reached.age
            if month:
                months = MONTHS[month - 1 :] if is_newest else MONTHS[:month]
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


def _dates_of(named: AgeRange) -> Iterator[str]:
    """Yield the months or the years of a range, up to `MOST_NAMES`. Of an open range, yield those near its end."""
    first, last = named.least or named.most, named.most or named.least
    year = first[0] - (0 if named.least else YEARS_BEYOND)
    last_year = last[0] + (0 if named.most else YEARS_BEYOND)
    if len(first) > 1 or len(last) > 1:
        months = range(
            first[0] * 12 + (first[1] if len(first) > 1 else 1) - 1, last[0] * 12 + (last[1] if len(last) > 1 else 12)
        )
        yield from (f"{MONTHS[one % 12]} {one // 12}" for one in months[:MOST_NAMES])
    yield from map(str, range(year, last_year + 1)[:MOST_NAMES])


def _versions_of(named: AgeRange) -> Iterator[str]:
    """Yield the ends of a range, and the versions between them that differ in the last number of both."""
    ends = [one for one in (named.least, named.most) if one]
    *same, number = ends[0]
    numbers: Sequence[int] = range(number, number + 3)
    if not named.least:
        numbers = range(max(0, number - 2), number + 1)
    elif len(ends) == 2 and list(ends[1][:-1]) == same:
        numbers = range(number, ends[1][-1] + 1)[:MOST_NAMES]
    yield from (".".join(map(str, one)) for one in ends)
    yield from (".".join(map(str, (*same, one))) for one in numbers)
