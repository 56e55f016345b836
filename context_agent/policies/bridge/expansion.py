"""Which names in the best passages are worth a search: the bridges to the next hop.

A lookup searches a name together with the words of the question that its passage leaves open. N is the number of names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from context_agent.policies.bridge.candidates import Floats, Notes, Passage
from context_agent.policies.bridge.links import AROUND, NEIGHBOURS
from context_agent.policies.bridge.text import Mention, key, words

READ = 8
"""Best candidates whose names are considered."""
_LEADING = frozenset("by of in at to with".split())

FIXED = (
    "position", "relation", "words", "weight", "in_question", "capitals", "is_title", "digits", "quoted", "left_open",
    "compares", "asks_who", "asks_role", "asks_kin", "parent_asked", "parent_coverage", "names", "first_sentence",
    "after_preposition", "overlap", "hop",
)  # fmt: skip
EXPANSION = (*FIXED, "parent_score", "parent_place", "seen", "parents", "asked")
"""Names of a lookup's features, in order."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """A name to search: its folded words, how it is written, and the row of the candidate it stands in."""

    name: str
    surface: str
    parent: int

    @property
    def bare(self) -> str:
        """The name without its article: lookups of equal bare names find the same."""
        return self.name.removeprefix("the ")

    def query(self, notes: Notes) -> str:
        """The name and what its passage leaves open."""
        rest = notes.question.rest(notes.candidates[self.parent].passage)
        return f"{self.surface} {rest}" if rest else self.surface


class Expansion:
    """The lookups that an episode could make; what of their features never changes is computed once."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._known: dict[int, tuple[list[Lookup], list[list[float]]]] = {}

    def lookups(self, scores: Floats, done: AbstractSet[Lookup]) -> tuple[list[Lookup], Floats]:
        """The lookups not done yet from the best candidates, and their features, shape (N, len(EXPANSION))."""
        best = [int(row) for row in np.argsort(-scores, kind="stable")[:READ]]
        parents = Counter(lookup.name for row in best for lookup in self._of(row)[0])
        asked = Counter(lookup.name for lookup in done)
        seen = {candidate.passage.title for candidate in self._notes.candidates}
        found: list[Lookup] = []
        rows: list[list[float]] = []
        for place, row in enumerate(best):
            for lookup, fixed in zip(*self._of(row), strict=True):
                if lookup in done:
                    continue
                name = lookup.name
                found.append(lookup)
                rows.append([*fixed, scores[row], place, name in seen, parents[name], asked[name]])
        return found, np.array(rows, dtype=np.float32).reshape(-1, len(EXPANSION))

    def _of(self, row: int) -> tuple[list[Lookup], list[list[float]]]:
        known = self._known.get(row)
        if known is None:
            passage = self._notes.candidates[row].passage
            named = [mention for mention in passage.mentions if mention.name != passage.title]
            if passage.title:
                named.insert(0, Mention(-1, passage.bare, passage.title))
            self._notes.weights.learn([word for mention in named for word in mention.name.split()])
            known = [Lookup(one.name, one.surface, row) for one in named], [self._fixed(row, one) for one in named]
            self._known[row] = known
        return known

    def _fixed(self, row: int, mention: Mention) -> list[float]:
        """The features in `FIXED`. A title is a mention without a place in the text."""
        notes, passage = self._notes, self._notes.candidates[row].passage
        question, known = notes.question, notes.weights.learn(())
        name = mention.name.split()
        coverage = question.coverage(passage)
        relation, after = _context(notes, passage, mention)
        compares, who, _, _, role, kin, *_ = question.cues
        left = sum(w for w, k in zip(question.weight.tolist(), question.keys, strict=True) if k not in passage.keys)
        capitals = [part[:1].isupper() for part in mention.surface.split()]
        return [
            max(mention.start, 0) / (len(passage.text) + 1),
            relation,
            len(name),
            sum(known[word] for word in name),
            f" {mention.name} " in question.padded,
            sum(capitals) / max(len(capitals), 1),
            mention.start < 0,
            any(map(str.isdigit, mention.name)),
            mention.start > 0 and passage.text[mention.start - 1] in '"“',
            left,
            *(compares, who, role, kin),
            bool(passage.padded_title) and passage.padded_title in question.padded,
            float(coverage @ question.weight),
            len(passage.mentions),
            0 <= mention.start < passage.first_sentence,
            after,
            sum(f" {word} " in question.padded for word in name) / max(len(name), 1),
            notes.candidates[row].hop,
        ]


def _context(notes: Notes, passage: Passage, mention: Mention) -> tuple[float, float]:
    """Weight of the question's terms beside the mention, and whether a preposition leads to it."""
    if mention.start < 0:
        return 0.0, 0.0
    before = words(passage.text[max(0, mention.start - AROUND) : mention.start])[-NEIGHBOURS:]
    end = mention.start + len(mention.surface)
    after = words(passage.text[end : end + AROUND])[:NEIGHBOURS]
    skip = frozenset(map(key, mention.name.split())) | passage.bare_keys
    near = notes.question.near(frozenset(map(key, before + after)), skip)
    return near, float(bool(before) and before[-1] in _LEADING)


def promise_guess(features: Floats) -> Floats:
    """The worth of lookups for a policy without weights, shape (N,)."""
    column = EXPANSION.index
    rarity = np.minimum(features[:, column("weight")], 20) / 20
    worth = features[:, column("parent_score")] * (0.2 + features[:, column("relation")]) * rarity
    return np.asarray(worth * (1 - features[:, column("in_question")]), dtype=np.float32)
