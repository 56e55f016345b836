"""Features of a candidate by its company: which likely candidates name it, what they leave open, what they share.

A link goes from a parent to a child whose title stands in the parent's text. Each pair is looked at once an episode.
P is the number of parents looked at, n the number of candidates, T the number of question terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from context_agent.policies.bridge.candidates import Floats, Notes, Passage, Question
from context_agent.policies.bridge.text import MONTHS, STOP, key

NDArrayInt = NDArray[np.int64]

PARENTS = 12
"""Best candidates that are looked at as parents."""
AROUND = 60
"""Characters on both sides of a name that tell its relation."""
NEIGHBOURS = 8
"""Words on both sides of a name that tell its relation."""
SHORTENED = (0.8, 0.5)
"""Strength of a link by a name's first and last word, and by its last two."""
_SHARED = 3

LINKS = (
    "logit", "score_rank", "score_gap", "parent_score", "parent_place", "link", "link_position", "link_relation",
    "link_count", "parent_mentions", "rest_covered", "rest_weighted", "union", "gain", "names_parent",
    "names_parent_score", "shared", "shared_score", "same_title_score", "parent_title_asked", "link_score", "link_sum",
    "parents", "parent_coverage", "linked", "linked_score", "child_link", "child_relation", "child_rest",
    "uncovered", "marginal", "best", "second", "third", "path", "rest_cosine", "rest_cosine_z",
)  # fmt: skip
"""Names of the link features, in order."""

RestCosines = Callable[[Sequence[int]], Floats]
"""Parents' rows -> cosine of every candidate with "parent's title + what it leaves open", shape (P, n)."""


PAIR = ("strength", "position", "relation", "count", "named", "named_relation", "shared", "same")
"""What a parent has to do with a candidate: its link to it, the link back, rare words in common, an equal title."""


@dataclass(slots=True)
class _Row:
    """One parent: the weights of its telling words, and its pair features with each candidate, (len(PAIR), n)."""

    words: dict[str, float]
    values: Floats


class Links:
    """Pair features of one episode, and the candidates' link features that follow from them and the scores."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._rows: dict[int, _Row] = {}

    def features(self, scores: Floats, coverage: Floats, rest: RestCosines) -> Floats:
        """Shape (n, len(LINKS)). `scores` are probabilities, shape (n,); `coverage` has shape (n, T)."""
        order = np.argsort(-scores, kind="stable")
        parents = order[:PARENTS]
        pairs = _Pairs(self._notes, parents, scores, coverage, [self._row(int(p)) for p in parents])
        columns = {**_own(scores, order), **pairs.parent_columns(), **pairs.best_columns(), **pairs.child_columns()}
        columns |= _set_columns(self._notes.question, scores, order, coverage)
        cosines = rest([int(p) for p in parents])
        spread = cosines.std(axis=1, keepdims=True) + 1e-6
        columns["rest_cosine_z"] = pairs.chosen((cosines - cosines.mean(axis=1, keepdims=True)) / spread)
        columns["rest_cosine"] = pairs.chosen((cosines - cosines.max(axis=1, keepdims=True)) / spread)
        return np.stack([np.broadcast_to(columns[name], len(scores)) for name in LINKS], axis=1).astype(np.float32)

    def _row(self, parent: int) -> Floats:
        row = self._rows.get(parent)
        if row is None:
            row = self._rows[parent] = _Row(self._telling(parent), np.zeros((len(PAIR), 0), dtype=np.float32))
        fresh = [self._pair(parent, row.words, at) for at in range(row.values.shape[1], len(self._notes))]
        if fresh:
            row.values = np.concatenate([row.values, np.array(fresh, dtype=np.float32).T], axis=1)
        return row.values

    def _pair(self, parent: int, telling: dict[str, float], at: int) -> tuple[float, ...]:
        """The features in `PAIR`."""
        mine, other = self._notes.candidates[parent].passage, self._notes.candidates[at].passage
        if at == parent:
            return (*NO_LINK, 0.0, 0.0, 0.0, 0.0)
        if other.full_title == mine.full_title:
            return (*NO_LINK, 0.0, 0.0, _shared(telling, other), float(bool(mine.full_title)))
        forward, back = link(self._notes.question, mine, other), link(self._notes.question, other, mine)
        return (*forward, back[0], back[2], _shared(telling, other), 0.0)

    def _telling(self, parent: int) -> dict[str, float]:
        """The weights of the words in the passage's names, without the question's own."""
        passage, asked = self._notes.candidates[parent].passage, self._notes.question.key_set
        every = {word for mention in passage.mentions for word in mention.name.split()} | set(passage.title_words)
        kept = sorted(w for w in every if len(w) > 2 and key(w) not in asked and w not in STOP and w not in MONTHS)
        known = self._notes.weights.learn(kept)
        return {word: known[word] for word in kept}


NO_LINK = (0.0, math.nan, 0.0, 0.0)


def link(question: Question, parent: Passage, child: Passage) -> tuple[float, float, float, float]:
    """Strength in 0..1, place in the text in 0..1, weight of the question's terms beside it, and how often."""
    title = child.padded_title
    if not title:
        return NO_LINK
    at, strength = parent.padded.find(title), 1.0
    if at < 0:
        for short, strength in zip(child.short_titles, SHORTENED, strict=False):  # noqa: B007 - kept for later
            if (at := parent.padded.find(short)) >= 0:
                break
        if at < 0:
            return NO_LINK
    before = parent.padded[max(0, at - AROUND) : at + 1].split()[-NEIGHBOURS:]
    end = at + len(title) - 1
    after = parent.padded[end : end + AROUND].split()[:NEIGHBOURS]
    relation = question.near(frozenset(map(key, before + after)), child.bare_keys | parent.bare_keys)
    return strength, at / len(parent.padded), relation, float(parent.padded.count(title))


def _shared(telling: dict[str, float], other: Passage) -> float:
    vocabulary = other.vocabulary
    found = sorted((weight for word, weight in telling.items() if word in vocabulary), reverse=True)
    return sum(found[:_SHARED]) / 20


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


def _set_columns(question: Question, scores: Floats, order: NDArrayInt, coverage: Floats) -> dict[str, Floats]:
    """What the three best others leave uncovered, and what the candidate adds to them, as weight of the question."""
    n, top = len(scores), [int(row) for row in order[:3]]
    others = np.zeros((n, coverage.shape[1]), dtype=np.float32)
    for row in top:
        mine = np.arange(n) != row
        others[mine] = np.maximum(others[mine], coverage[row])
    return {
        "uncovered": ((1 - others) * question.weight).sum(axis=1),
        "marginal": (np.maximum(coverage - others, 0) * question.weight).sum(axis=1),
    }


class _Pairs:
    """The (P, n) matrices of one scoring, and for each candidate the parent that explains it best."""

    def __init__(
        self, notes: Notes, parents: NDArrayInt, scores: Floats, coverage: Floats, rows: Sequence[Floats]
    ) -> None:
        self._notes, self._parents, self._scores, self._coverage = notes, parents, scores, coverage
        matrices = dict(zip(PAIR, np.stack(rows, axis=1), strict=True))
        self._strength, self._relation, self._shared = (matrices[name] for name in ("strength", "relation", "shared"))
        self._position, self._count, self._same = (matrices[name] for name in ("position", "count", "same"))
        self._named, self._named_relation = matrices["named"], matrices["named_relation"]
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
        """The parent with the strongest link by title, else the one that shares most and leaves most open for it."""
        self._flow = self._parent_score * self._strength * (0.3 + 2 * self._relation + 0.3 * self._rest)
        self._flow[self._self] = 0
        kin = self._parent_score * (self._shared + 0.5 * self._rest + 0.05)
        kin[self._self] = -1
        by_title = np.where(self._self, -1, self._flow).argmax(axis=0)
        columns = np.arange(self._strength.shape[1])
        self._linked = self._strength[by_title, columns] > 0
        self._best = np.where(self._linked, by_title, kin.argmax(axis=0))

    def chosen(self, matrix: Floats) -> Floats:
        """Each candidate's value with its chosen parent, shape (n,)."""
        return np.asarray(matrix[self._best, np.arange(matrix.shape[1])], dtype=np.float32)

    def parent_columns(self) -> dict[str, Floats]:
        """The chosen parent itself."""
        passages = [self._notes.candidates[int(p)].passage for p in self._parents]
        asked = [float(bool(one.padded_title) and one.padded_title in self._notes.question.padded) for one in passages]
        per_parent = {
            "parent_score": self._parent_score[:, 0],
            "parent_place": np.arange(len(passages)),
            "parent_mentions": np.array([len(one.mentions) for one in passages]),
            "parent_title_asked": np.array(asked),
            "parent_coverage": self._covered,
        }
        return {name: np.asarray(values, dtype=np.float32)[self._best] for name, values in per_parent.items()}

    def best_columns(self) -> dict[str, Floats]:
        """The chosen parent's relation to the candidate, and the best relation to any."""
        score, others = self._parent_score, ~self._self
        chosen = self.chosen
        return {
            "link": chosen(self._strength),
            "link_position": chosen(self._position),
            "link_relation": chosen(self._relation),
            "link_count": chosen(self._count),
            "rest_covered": chosen(self._rest),
            "rest_weighted": chosen(self._rest * self._open),
            "union": chosen(self._union),
            "gain": chosen(self._union - self._covered[:, None]),
            "names_parent": chosen(self._named),
            "names_parent_score": (score * self._named * others).max(axis=0),
            "shared": chosen(self._shared),
            "shared_score": (score * self._shared).max(axis=0),
            "same_title_score": (score * self._same).max(axis=0),
            "link_score": self._flow.max(axis=0),
            "link_sum": (score * self._strength).sum(axis=0),
            "parents": (self._strength > 0).sum(axis=0).astype(np.float32),
            "linked": self._linked.astype(np.float32),
            "linked_score": (score * (self._strength > 0)).max(axis=0),
            "path": np.log(chosen(np.broadcast_to(score, self._strength.shape)) + 1e-4)
            + np.log(0.05 + chosen(self._strength)),
        }

    def child_columns(self) -> dict[str, Floats]:
        """The candidate as a parent: its best child by score."""
        n = len(self._scores)
        link_to, rest_of = np.zeros(n, dtype=np.float32), np.zeros(n, dtype=np.float32)
        link_to[self._parents] = (self._scores * self._strength).max(axis=1)
        rest_of[self._parents] = np.where(self._self, 0, self._rest * self._scores).max(axis=1)
        relation = (self._parent_score * self._named_relation).max(axis=0)
        return {"child_link": link_to, "child_rest": rest_of, "child_relation": relation}
