"""Links between candidates. They show which likely candidates name another candidate, and which names to look up next.

A link leads from a parent to a child whose title is in the parent's text. Each pair is compared once in an episode. A
lookup is a search for a name that one of the best passages contains. The name is the bridge to the next hop. The query
also has the question's words that this passage does not cover.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from context_agent.policies.bridge.candidates import AnalyzedPassage, AnalyzedQuestion, Floats, Notes
from context_agent.text.names import Mention
from context_agent.text.words import CALENDAR_WORDS, STOP_WORDS, key, words

NDArrayInt = NDArray[np.int64]

PARENTS = 12
"""How many of the best candidates are used as parents."""
CONTEXT_CHARACTERS = 60
"""Characters on both sides of a name that describe its relation."""
NEIGHBOR_WORDS = 8
"""Words on both sides of a name that describe its relation."""
SHORTENED = (0.8, 0.5)
"""The strength of a link by a name's first and last word, and by its last two words."""
_SHARED = 3

LINK_FEATURES = (
    "logit", "score_rank", "score_gap", "parent_score", "parent_place", "link", "link_position", "link_relation",
    "link_count", "parent_mentions", "rest_covered", "rest_weighted", "union", "gain", "names_parent",
    "names_parent_score", "shared", "shared_score", "same_title_score", "parent_title_asked", "link_score", "link_sum",
    "parents", "parent_coverage", "linked", "linked_score", "child_link", "child_relation", "child_rest",
    "uncovered", "marginal", "best", "second", "third", "path", "rest_cosine", "rest_cosine_z",
)  # fmt: skip
"""Names of the link features, in order."""

RestCosines = Callable[[Sequence[int]], Floats]
"""Maps the rows of parents to the cosine of every candidate with "parent's title + its open terms", shape (P, n)."""

PAIR = ("strength", "position", "relation", "count", "back", "back_relation", "shared", "same")
"""Features of a parent and a candidate: the link, the link back, rare words in common, an equal title."""


@dataclass(slots=True)
class _Row:
    """A parent.

    It has the weights of the words in the parent's names, and the pair features, shape (len(PAIR), n_candidates).
    """

    words: dict[str, float]
    values: Floats


class Links:
    """The pair features of one episode. With the scores, they determine the link features of the candidates."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._rows: dict[int, _Row] = {}

    def features(self, scores: Floats, coverage: Floats, rest: RestCosines) -> Floats:
        """Return the link features, shape (n_candidates, len(LINK_FEATURES)).

        `scores` are probabilities, shape (n_candidates,). `coverage` has shape (n_candidates, n_terms).
        """
        order = np.argsort(-scores, kind="stable")
        parents = order[:PARENTS]
        pairs = _Pairs(self._notes, parents, scores, coverage, [self._row(int(p)) for p in parents])
        columns = {**_own(scores, order), **pairs.parent_columns(), **pairs.best_columns(), **pairs.child_columns()}
        columns |= _set_columns(self._notes.question, scores, order, coverage)
        cosines = rest([int(p) for p in parents])
        spread = cosines.std(axis=1, keepdims=True) + 1e-6
        columns["rest_cosine_z"] = pairs.chosen((cosines - cosines.mean(axis=1, keepdims=True)) / spread)
        columns["rest_cosine"] = pairs.chosen((cosines - cosines.max(axis=1, keepdims=True)) / spread)
        return np.stack([np.broadcast_to(columns[name], len(scores)) for name in LINK_FEATURES], axis=1).astype(
            np.float32
        )

    def _row(self, parent: int) -> Floats:
        row = self._rows.get(parent)
        if row is None:
            row = self._rows[parent] = _Row(self._name_words(parent), np.zeros((len(PAIR), 0), dtype=np.float32))
        fresh = [self._pair(parent, row.words, child) for child in range(row.values.shape[1], len(self._notes))]
        if fresh:
            row.values = np.concatenate([row.values, np.array(fresh, dtype=np.float32).T], axis=1)
        return row.values

    def _pair(self, parent: int, name_words: dict[str, float], child: int) -> tuple[float, ...]:
        """Return the features in `PAIR`."""
        if child == parent:
            return (*NO_LINK, 0.0, 0.0, 0.0, 0.0)
        source, target = self._notes.candidates[parent].passage, self._notes.candidates[child].passage
        shared = _shared(name_words, target)
        if target.full_title == source.full_title:
            return (*NO_LINK, 0.0, 0.0, shared, float(bool(source.full_title)))
        forward, back = self._link(source, target), self._link(target, source)
        return (*forward, back[0], back[2], shared, 0.0)

    def _link(self, parent: AnalyzedPassage, child: AnalyzedPassage) -> tuple[float, float, float, float]:
        """Return the link. If the child's title has only words that most chunks have, return no link."""
        matched = link(self._notes.question, parent, child)
        return NO_LINK if matched[0] and self._notes.weights.names_nothing(child.title.split()) else matched

    def _name_words(self, parent: int) -> dict[str, float]:
        """Return the weights of the words in the passage's names, except those of the question."""
        passage = self._notes.candidates[parent].passage
        names = {word for mention in passage.mentions for word in mention.name.split()} | set(passage.title_words)
        skip = STOP_WORDS | CALENDAR_WORDS
        rare = sorted(w for w in names if len(w) > 2 and key(w) not in self._notes.question.key_set and w not in skip)
        weights = self._notes.weights.learn(rare)
        return {word: weights[word] for word in rare}


NO_LINK = (0.0, math.nan, 0.0, 0.0)


def link(
    question: AnalyzedQuestion, parent: AnalyzedPassage, child: AnalyzedPassage
) -> tuple[float, float, float, float]:
    """Return four numbers that describe the link.

    They are its strength (0 to 1), its position in the text (0 to 1), the weight of the question's terms near it, and
    the number of links.
    """
    title = child.padded_title
    start, strength = parent.padded.find(title) if title else -1, 1.0
    for spelling, shortened in zip(child.short_titles, SHORTENED, strict=False):
        if start < 0:
            start, strength = parent.padded.find(spelling), shortened
    if start < 0:
        return NO_LINK
    before = parent.padded[max(0, start - CONTEXT_CHARACTERS) : start + 1].split()[-NEIGHBOR_WORDS:]
    end = start + len(title) - 1
    after = parent.padded[end : end + CONTEXT_CHARACTERS].split()[:NEIGHBOR_WORDS]
    relation = question.near(frozenset(map(key, before + after)), child.bare_keys | parent.bare_keys)
    return strength, start / len(parent.padded), relation, float(parent.padded.count(title))


def _shared(name_words: dict[str, float], target: AnalyzedPassage) -> float:
    """Return the scaled weight of the rarest words that both passages have."""
    shared = target.vocabulary.intersection(name_words)
    return sum(sorted(map(name_words.__getitem__, shared), reverse=True)[:_SHARED]) / 20


def _own(scores: Floats, order: NDArrayInt) -> dict[str, Floats]:
    rank = np.empty(len(scores), dtype=np.float32)
    rank[order] = np.arange(len(scores))
    best = scores[order[:3]].tolist() + [0.0] * 3
    return {
        "logit": np.log(scores + 1e-6) - np.log(1 - scores + 1e-6),
        "score_rank": rank,
        "score_gap": scores - best[0],
        "best": np.float32(best[0]),
        "second": np.float32(best[1]),
        "third": np.float32(best[2]),
    }


def _set_columns(question: AnalyzedQuestion, scores: Floats, order: NDArrayInt, coverage: Floats) -> dict[str, Floats]:
    """Return two weights for each candidate.

    One is the weight of the question's terms that the three best other candidates do not cover. The other is the weight
    of the terms that the candidate adds.
    """
    context = np.zeros((len(scores), coverage.shape[1]), dtype=np.float32)
    for row in order[:3].tolist():
        different = np.arange(len(scores)) != row
        context[different] = np.maximum(context[different], coverage[row])
    return {
        "uncovered": ((1 - context) * question.weight).sum(axis=1),
        "marginal": (np.maximum(coverage - context, 0) * question.weight).sum(axis=1),
    }


class _Pairs:
    """The matrices of one scoring pass, each of shape (n_parents, n_candidates).

    The object also has the parent with the strongest link to each candidate.
    """

    def __init__(
        self, notes: Notes, parents: NDArrayInt, scores: Floats, coverage: Floats, rows: Sequence[Floats]
    ) -> None:
        self._notes, self._parents, self._scores, self._coverage = notes, parents, scores, coverage
        self._pair = dict(zip(PAIR, np.stack(rows, axis=1), strict=True))
        weight, n = notes.question.weight, len(scores)
        self._parent_score = scores[parents][:, None]
        open_weight = (1 - coverage[parents]) * weight
        self._open = open_weight.sum(axis=1, keepdims=True) + 1e-6
        self._rest = open_weight @ coverage.T / self._open
        self._covered = (coverage[parents] * weight).sum(axis=1)
        self._union = (np.maximum(coverage[parents][:, None], coverage) * weight).sum(axis=2)
        self._self = np.zeros((len(parents), n), dtype=bool)
        self._self[np.arange(len(parents)), parents] = True
        self._choose()

    def _choose(self) -> None:
        """Choose the parent with the strongest link by title for each candidate.

        If there is no such link, choose the parent that shares the most rare words with the candidate and leaves the
        most for it to add.
        """
        strength = self._pair["strength"]
        self._flow = self._parent_score * strength * (0.3 + 2 * self._pair["relation"] + 0.3 * self._rest)
        self._flow[self._self] = 0
        similarity = self._parent_score * (self._pair["shared"] + 0.5 * self._rest + 0.05)
        similarity[self._self] = -1
        by_title = np.where(self._self, -1, self._flow).argmax(axis=0)
        self._linked = strength[by_title, np.arange(strength.shape[1])] > 0
        self._best = np.where(self._linked, by_title, similarity.argmax(axis=0))

    def chosen(self, matrix: Floats) -> Floats:
        """Return the value of each candidate and its chosen parent in the matrix, shape (n_candidates,)."""
        return np.asarray(matrix[self._best, np.arange(matrix.shape[1])], dtype=np.float32)

    def parent_columns(self) -> dict[str, Floats]:
        """Return the features of each candidate's chosen parent."""
        passages = [self._notes.candidates[int(p)].passage for p in self._parents]
        question = self._notes.question.padded
        per_parent = {
            "parent_score": self._parent_score[:, 0],
            "parent_place": np.arange(len(passages)),
            "parent_mentions": np.array([len(passage.mentions) for passage in passages]),
            "parent_title_asked": np.array([bool(p.padded_title) and p.padded_title in question for p in passages]),
            "parent_coverage": self._covered,
        }
        return {name: np.asarray(values, dtype=np.float32)[self._best] for name, values in per_parent.items()}

    def best_columns(self) -> dict[str, Floats]:
        """Return the features of the link from the chosen parent, and the best value that any parent has."""
        score, pair, chosen = self._parent_score, self._pair, self.chosen
        strength = pair["strength"]
        return {
            "link": chosen(strength),
            "link_position": chosen(pair["position"]),
            "link_relation": chosen(pair["relation"]),
            "link_count": chosen(pair["count"]),
            "rest_covered": chosen(self._rest),
            "rest_weighted": chosen(self._rest * self._open),
            "union": chosen(self._union),
            "gain": chosen(self._union - self._covered[:, None]),
            "names_parent": chosen(pair["back"]),
            "names_parent_score": (score * pair["back"] * ~self._self).max(axis=0),
            "shared": chosen(pair["shared"]),
            "shared_score": (score * pair["shared"]).max(axis=0),
            "same_title_score": (score * pair["same"]).max(axis=0),
            "link_score": self._flow.max(axis=0),
            "link_sum": (score * strength).sum(axis=0),
            "parents": (strength > 0).sum(axis=0).astype(np.float32),
            "linked": self._linked.astype(np.float32),
            "linked_score": (score * (strength > 0)).max(axis=0),
            "path": np.log(chosen(np.broadcast_to(score, strength.shape)) + 1e-4) + np.log(0.05 + chosen(strength)),
        }

    def child_columns(self) -> dict[str, Floats]:
        """Return features of the candidate as a parent, such as the score of its best child."""
        n = len(self._scores)
        link_to, rest_of = np.zeros(n, dtype=np.float32), np.zeros(n, dtype=np.float32)
        link_to[self._parents] = (self._scores * self._pair["strength"]).max(axis=1)
        rest_of[self._parents] = np.where(self._self, 0, self._rest * self._scores).max(axis=1)
        relation = (self._parent_score * self._pair["back_relation"]).max(axis=0)
        return {"child_link": link_to, "child_rest": rest_of, "child_relation": relation}


LOOKUP_PARENTS = 8
"""How many of the best candidates have their names considered."""
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
    """A name to search for.

    It has the folded words, the name as written, and the row of the candidate that contains it.
    """

    name: str
    surface: str
    parent: int

    @property
    def bare(self) -> str:
        """The name without its article. Lookups with equal bare names find the same chunks."""
        return self.name.removeprefix("the ")

    def query(self, notes: Notes) -> str:
        """Return the text to search for: the name, and the question's terms that its passage does not cover."""
        return f"{self.surface} {notes.question.rest(notes.candidates[self.parent].passage)}".rstrip()


class Expansion:
    """The possible lookups of an episode. Their fixed features are computed once."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._by_row: dict[int, tuple[list[Lookup], list[list[float]]]] = {}

    def lookups(self, scores: Floats, done: AbstractSet[Lookup]) -> tuple[list[Lookup], Floats]:
        """Return the lookups that start from the best candidates and were not made yet.

        Also return their features, shape (n_lookups, len(EXPANSION)).
        """
        best = [int(row) for row in np.argsort(-scores, kind="stable")[:LOOKUP_PARENTS]]
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
        """Return the lookups that start from one candidate, with their fixed features."""
        if row not in self._by_row:
            passage = self._notes.candidates[row].passage
            names = [mention for mention in passage.mentions if mention.name != passage.title]
            if passage.title:
                names.insert(0, Mention(-1, passage.bare, passage.title))
            weights = self._notes.weights
            weights.learn([word for mention in names for word in mention.name.split()])
            names = [mention for mention in names if not weights.names_nothing(mention.name.split())]
            lookups = [Lookup(mention.name, mention.surface, row) for mention in names]
            self._by_row[row] = lookups, self._fixed(row, names)
        return self._by_row[row]

    def _fixed(self, row: int, names: Sequence[Mention]) -> list[list[float]]:
        """Return the features in `FIXED` of each name in a candidate."""
        question, passage = self._notes.question, self._notes.candidates[row].passage
        weighted = zip(question.weight.tolist(), question.keys, strict=True)
        uncovered = sum(weight for weight, key in weighted if key not in passage.keys)
        covered = float(question.coverage(passage) @ question.weight)
        return [self._fixed_of(row, mention, uncovered, covered) for mention in names]

    def _fixed_of(self, row: int, mention: Mention, uncovered: float, covered: float) -> list[float]:
        """Return the features in `FIXED`. The start of a mention is negative if the mention is a title.

        `uncovered` and `covered` are the weights of the question's terms that the candidate lacks and covers.
        """
        notes, passage = self._notes, self._notes.candidates[row].passage
        question, weights = notes.question, notes.weights.learn(())
        name = mention.name.split()
        relation, after = _context(notes, passage, mention)
        compares, who, _, _, role, kin, *_ = question.cues
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
            covered,
            len(passage.mentions),
            0 <= mention.start < passage.first_sentence,
            after,
            sum(f" {word} " in question.padded for word in name) / max(len(name), 1),
            notes.candidates[row].hop,
            notes.weights.rarity(name),
        ]


def _context(notes: Notes, passage: AnalyzedPassage, mention: Mention) -> tuple[float, float]:
    """Return the weight of the question's terms near the mention, and whether a preposition precedes it."""
    if mention.start < 0:
        return 0.0, 0.0
    before = words(passage.text[max(0, mention.start - CONTEXT_CHARACTERS) : mention.start])[-NEIGHBOR_WORDS:]
    end = mention.start + len(mention.surface)
    after = words(passage.text[end : end + CONTEXT_CHARACTERS])[:NEIGHBOR_WORDS]
    skip = frozenset(map(key, mention.name.split())) | passage.bare_keys
    near = notes.question.near(frozenset(map(key, before + after)), skip)
    return near, float(bool(before) and before[-1] in _LEADING)


def promise_guess(features: Floats) -> Floats:
    """Return how promising each lookup is, shape (n_lookups,). A policy without weights uses this rule of thumb."""
    column = EXPANSION.index
    rarity = np.minimum(features[:, column("weight")], 20) / 20
    worth = features[:, column("parent_score")] * (0.2 + features[:, column("relation")]) * rarity
    return np.asarray(worth * (1 - features[:, column("in_question")]), dtype=np.float32)
