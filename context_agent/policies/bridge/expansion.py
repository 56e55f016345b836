"""Lookups: searches for names in the best passages, the bridges to the next hop.

A lookup searches a name together with the question's words that its passage does not cover. N is the number of names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from context_agent.policies.bridge.candidates import AnalyzedPassage, Floats, Notes
from context_agent.policies.bridge.links import AROUND, NEIGHBOURS
from context_agent.policies.bridge.text import Mention, key, words

PARENTS = 8
"""Best candidates whose names are considered."""
_LEADING = frozenset("by of in at to with".split())

FIXED = (
    "position", "relation", "words", "weight", "in_question", "capitals", "is_title", "digits", "quoted", "left_open",
    "compares", "asks_who", "asks_role", "asks_kin", "parent_asked", "parent_coverage", "names", "first_sentence",
    "after_preposition", "overlap", "hop", "rarity",
)  # fmt: skip
EXPANSION = (*FIXED, "parent_score", "parent_place", "seen", "parents", "asked")
"""Names of a lookup's features, in order."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """A name to search: its folded words, the name as written, and the row of the candidate that contains it."""

    name: str
    surface: str
    parent: int

    @property
    def bare(self) -> str:
        """The name without its article: lookups with equal bare names return the same."""
        return self.name.removeprefix("the ")

    def query(self, notes: Notes) -> str:
        """The name and the terms that its passage does not cover."""
        return f"{self.surface} {notes.question.rest(notes.candidates[self.parent].passage)}".rstrip()


class Expansion:
    """The possible lookups of an episode. Their fixed features are computed once."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._by_row: dict[int, tuple[list[Lookup], list[list[float]]]] = {}

    def lookups(self, scores: Floats, done: AbstractSet[Lookup]) -> tuple[list[Lookup], Floats]:
        """The lookups from the best candidates that are not done yet, and their features, shape (N, len(EXPANSION))."""
        best = [int(row) for row in np.argsort(-scores, kind="stable")[:PARENTS]]
        parents = Counter(lookup.name for row in best for lookup in self._of(row)[0])
        done_names = Counter(lookup.name for lookup in done)
        titles = {candidate.passage.title for candidate in self._notes.candidates}
        lookups: list[Lookup] = []
        features: list[list[float]] = []
        for rank, row in enumerate(best):
            for lookup, fixed in zip(*self._of(row), strict=True):
                if lookup not in done:
                    name = lookup.name
                    lookups.append(lookup)
                    features.append([*fixed, scores[row], rank, name in titles, parents[name], done_names[name]])
        return lookups, np.array(features, dtype=np.float32).reshape(-1, len(EXPANSION))

    def _of(self, row: int) -> tuple[list[Lookup], list[list[float]]]:
        """The lookups from one candidate, with their fixed features."""
        if row not in self._by_row:
            passage = self._notes.candidates[row].passage
            names = [mention for mention in passage.mentions if mention.name != passage.title]
            if passage.title:
                names.insert(0, Mention(-1, passage.bare, passage.title))
            weights = self._notes.weights
            weights.learn([word for mention in names for word in mention.name.split()])
            names = [mention for mention in names if not weights.names_nothing(mention.name.split())]
            lookups = [Lookup(mention.name, mention.surface, row) for mention in names]
            self._by_row[row] = lookups, [self._fixed(row, mention) for mention in names]
        return self._by_row[row]

    def _fixed(self, row: int, mention: Mention) -> list[float]:
        """The features in `FIXED`. A title is a mention with a negative start."""
        notes, passage = self._notes, self._notes.candidates[row].passage
        question, weights = notes.question, notes.weights.learn(())
        name = mention.name.split()
        coverage = question.coverage(passage)
        relation, after = _context(notes, passage, mention)
        compares, who, _, _, role, kin, *_ = question.cues
        weighted = zip(question.weight.tolist(), question.keys, strict=True)
        uncovered = sum(weight for weight, key in weighted if key not in passage.keys)
        capitals = [part[:1].isupper() for part in mention.surface.split()]
        return [
            max(mention.start, 0) / (len(passage.text) + 1),
            relation,
            len(name),
            sum(weights[word] for word in name),
            f" {mention.name} " in question.padded,
            sum(capitals) / max(len(capitals), 1),
            mention.start < 0,
            any(map(str.isdigit, mention.name)),
            mention.start > 0 and passage.text[mention.start - 1] in '"“「『《〈',
            uncovered,
            *(compares, who, role, kin),
            bool(passage.padded_title) and passage.padded_title in question.padded,
            float(coverage @ question.weight),
            len(passage.mentions),
            0 <= mention.start < passage.first_sentence,
            after,
            sum(f" {word} " in question.padded for word in name) / max(len(name), 1),
            notes.candidates[row].hop,
            notes.weights.rarity(name),
        ]


def _context(notes: Notes, passage: AnalyzedPassage, mention: Mention) -> tuple[float, float]:
    """Weight of the question's terms near the mention, and whether a preposition precedes it."""
    if mention.start < 0:
        return 0.0, 0.0
    before = words(passage.text[max(0, mention.start - AROUND) : mention.start])[-NEIGHBOURS:]
    end = mention.start + len(mention.surface)
    after = words(passage.text[end : end + AROUND])[:NEIGHBOURS]
    skip = frozenset(map(key, mention.name.split())) | passage.bare_keys
    near = notes.question.near(frozenset(map(key, before + after)), skip)
    return near, float(bool(before) and before[-1] in _LEADING)


def promise_guess(features: Floats) -> Floats:
    """The promise of lookups for a policy without weights, shape (N,)."""
    column = EXPANSION.index
    rarity = np.minimum(features[:, column("weight")], 20) / 20
    worth = features[:, column("parent_score")] * (0.2 + features[:, column("relation")]) * rarity
    return np.asarray(worth * (1 - features[:, column("in_question")]), dtype=np.float32)
