"""What the embedded policy thinks of the candidates it has seen: one probability each, refreshed as more come."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from context_agent.policies.bridge.features import Worded, direct, relevance_guess
from context_agent.policies.bridge.links import LINKS, Links
from context_agent.policies.bridge.notes import Notes
from context_agent.policies.bridge.passage import Floats
from context_agent.policies.bridge.scorer import INPUTS, Scorer
from context_agent.retrieval.protocol import Corpus


class Cosines:
    """Similarities of queries with the candidates, each asked of the corpus once; NaN without useful vectors."""

    def __init__(self, notes: Notes, corpus: Corpus) -> None:
        self._notes = notes
        self._corpus = corpus
        self._trusted = _dense_weight(corpus) > 0
        self._known: dict[str, Floats] = {}

    def of(self, query: str) -> Floats:
        """The query's cosine with each candidate, shape (n,)."""
        known = self._known.get(query, np.zeros(0, dtype=np.float32))
        fresh = [candidate.id for candidate in self._notes.candidates[len(known) :]]
        if fresh:
            found = self._corpus.similarity(query, fresh) if self._trusted else np.full(len(fresh), np.nan)
            known = self._known[query] = np.concatenate([known, found.astype(np.float32)])
        return known

    def rest(self, parents: Sequence[int]) -> Floats:
        """The cosine of "parent's title and what it leaves open" with each candidate, shape (P, n)."""
        notes = self._notes
        passages = [notes.candidates[row].passage for row in parents]
        return np.stack([self.of(f"{one.bare} {notes.question.rest(one)}") for one in passages])


class RelevanceJudgement:
    """Scores an episode's candidates: by themselves first, then in the company of the best."""

    def __init__(self, notes: Notes, corpus: Corpus, scorer: Scorer | None) -> None:
        self._notes = notes
        self._scorer = scorer
        self._worded = Worded(notes)
        self._links = Links(notes)
        self._cosines = Cosines(notes, corpus)
        self.rows: Floats = np.zeros((0, len(INPUTS["second"])), dtype=np.float32)
        """The second network's inputs when the candidates were last scored by it."""

    def scores(self) -> Floats:
        """The probability of each candidate to belong to the answer, shape (n,)."""
        if not len(self._notes):
            return np.zeros(0, dtype=np.float32)
        if self._scorer is None:
            return self._guess()
        networks = self._scorer.networks
        direct_rows = self.direct()
        self.rows = self.in_company(direct_rows, networks["first"](direct_rows))
        return networks["second"](self.rows)

    def _guess(self) -> Floats:
        """A rule of thumb: a candidate is as good as its words, or nearly as good as what names it beside them."""
        worded, coverage = self._worded.rows()
        guess = relevance_guess(self._notes, worded, self._cosines.of(self._notes.question.text))
        links = self._links.features(guess, coverage, self._cosines.rest)
        return np.maximum(guess, np.minimum(0.85, links[:, LINKS.index("link_score")]))

    def direct(self) -> Floats:
        """The first network's inputs, shape (n, len(DIRECT))."""
        worded, _ = self._worded.rows()
        return direct(self._notes, worded, self._cosines.of(self._notes.question.text))

    def in_company(self, direct_rows: Floats, scores: Floats) -> Floats:
        """The second network's inputs, given the first's scores, shape (n, len(DIRECT + LINKS))."""
        _, coverage = self._worded.rows()
        return np.concatenate([direct_rows, self._links.features(scores, coverage, self._cosines.rest)], axis=1)


def _dense_weight(corpus: Corpus) -> float:
    """The trust in the corpus's vectors, where it has measured that."""
    weights = getattr(getattr(corpus, "calibration", None), "weights", {})
    return float(weights.get("dense", 1.0))
