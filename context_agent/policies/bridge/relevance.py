"""The relevance of the candidates, judged by the networks, the reader, late interaction and the trees.

During the search, the networks score the candidates, and the reader's judgment corrects the scores of the best ones. At
the end, the trees weigh all of this with late interaction, and a reranker of the caller counts as much as they do. The
calibration turns the result into probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from context_agent._support.onnx import PairModel
from context_agent.policies.bridge.candidates import Floats, Notes, document_rows
from context_agent.policies.bridge.features import TEXT_FEATURES, TextFeatures, direct_features, relevance_guess
from context_agent.policies.bridge.links import LINK_FEATURES, Links
from context_agent.policies.bridge.networks import INPUTS, READING, Network, Scorer
from context_agent.policies.bridge.ranking import (
    RERANKED,
    Judgments,
    asked_order,
    compared_rows,
    identifier_odds,
    late_scores,
    ranking_features,
    with_late_interaction,
    with_reranker,
)
from context_agent.policies.bridge.reader import Readings, read_odds, reading_features
from context_agent.policies.bridge.score_calibration import (
    Evidence,
    sigmoid,
    stopping_features,
)
from context_agent.retrieval.corpus import Corpus, RerankedCorpus
from context_agent.retrieval.rerankers import HitReranker

MOST_OPEN = 0.2
"""The share of a question with names that the best passage may leave open if more searches are to be spared."""


class Cosines:
    """The similarities between queries and candidates.

    The corpus computes each similarity once. If the corpus has no useful vectors, the similarities are NaN.
    """

    def __init__(self, notes: Notes, corpus: Corpus) -> None:
        self._notes = notes
        self._corpus = corpus
        self._trusted = _dense_weight(corpus) > 0
        self._by_query: dict[str, Floats] = {}

    def of(self, query: str) -> Floats:
        """Return the query's cosine with each candidate, shape (n_candidates,)."""
        cosines = self._by_query.get(query, np.zeros(0, dtype=np.float32))
        fresh = [candidate.id for candidate in self._notes.candidates[len(cosines) :]]
        if fresh:
            new = self._corpus.similarity(query, fresh) if self._trusted else np.full(len(fresh), np.nan)
            cosines = self._by_query[query] = np.concatenate([cosines, new.astype(np.float32)])
        return cosines

    def rest(self, parents: Sequence[int]) -> Floats:
        """Return the cosine of each parent's query with each candidate, shape (n_parents, n_candidates).

        The query is the parent's title and the terms that it leaves open.
        """
        notes = self._notes
        passages = [notes.candidates[row].passage for row in parents]
        return np.stack([self.of(f"{passage.bare} {notes.question.rest(passage)}") for passage in passages])


class RelevanceJudgment:
    """The scoring of candidates.

    The first network scores each candidate alone. The second also uses the links to the best candidates. Then the
    reader's judgment is combined with these scores.
    """

    def __init__(self, notes: Notes, corpus: Corpus, scorer: Scorer | None, reader: PairModel) -> None:
        self.notes = notes
        self._scorer = scorer
        self._calibration, self._head, self._ranker = (
            (scorer.calibration, scorer.head, scorer.ranker) if scorer else (None, None, None)
        )
        self._readings = Readings(notes, reader)
        self._text = TextFeatures(notes)
        self._links = Links(notes)
        self._cosines = Cosines(notes, corpus)
        self._corpus = corpus
        self.corpus_size = corpus.count()
        """The number of chunks in the corpus, for the calibration."""
        self.rows: Floats = np.zeros((0, len(INPUTS["second"])), dtype=np.float32)
        """The second network's inputs at the last scoring."""
        self._odds = np.zeros(0, dtype=np.float32)
        """The second network's log-odds, shape (n,)."""
        self._late = np.zeros(0, dtype=np.float32)
        """Late interaction in the final ranking, shape (n,). From a scoring to the next final ranking, empty."""

    def scores(self) -> Floats:
        """Return the probability that each candidate belongs to the answer, shape (n_candidates,)."""
        if not len(self.notes):
            return np.zeros(0, dtype=np.float32)
        if self._scorer is None:
            return self._guess()
        self._late = self._late[:0]
        networks = self._scorer.networks
        first_inputs = self.first_inputs()
        self.rows = self.second_inputs(first_inputs, networks["first"](first_inputs))
        self._odds = networks["second"].logits(self.rows)
        return self._combined(networks)

    def read(self, scores: Floats) -> Floats:
        """Let the reader read the best candidates, and return the new scores, shape (n_candidates,).

        `scores` are the current scores of the same candidates. If there are no weights, they are returned unchanged.
        """
        if self._scorer is None or not len(scores):
            return scores
        if len(self._odds) < len(scores):
            self.scores()
        self._readings.update(scores)
        return self._combined(self._scorer.networks)

    def read_alone(self) -> None:
        """Let the reader read candidates with the question alone, without evidence.

        It reads the candidates that the networks rank best, and the candidates that the search found first.
        """
        if self._scorer is not None:
            self._readings.read_alone(asked_order(self.notes, self._odds))

    def combined_scores(self) -> Floats:
        """Return the networks' scores after the last scoring or reading, shape (n_candidates,)."""
        networks = self._scorer.networks if self._scorer else {}
        return self._combined(networks) if networks else self._guess()

    def coverage(self) -> Floats:
        """Return how well each candidate covers each term of the question, shape (n_candidates, n_terms)."""
        return self._text.rows()[1]

    def ranking_scores(self, scores: Floats, compared: int) -> Floats:
        """Return the scores of the final ranking, given the scores of the same candidates.

        If there is no ranker, the scores do not change. The trees rank the candidates without late interaction first,
        and again with that of the `compared` best candidates.
        """
        if self._ranker is None or not len(scores):
            return scores
        inputs, added = self.ranking_inputs(), identifier_odds(self.notes)
        self._late = late_scores(self.notes, compared_rows(self._ranker(inputs) + added, compared))
        return sigmoid(self._ranker(with_late_interaction(inputs, self._late)) + added)

    def reranked(self, scores: Floats) -> Floats:
        """Return the scores after the judgment of the corpus's reranker, shape (n_candidates,).

        Without a reranker, the scores do not change. One that counts the order of a search is left out, because the
        candidates come from several searches. Raise `RerankerError` if the reranker fails.
        """
        reranker = self._corpus.reranker if isinstance(self._corpus, RerankedCorpus) else None
        if reranker is None or isinstance(reranker, HitReranker) or not len(scores):
            return scores
        ids = [self.notes.candidates[row].id for row in compared_rows(scores, RERANKED).tolist()]
        chunks = self._corpus.get(ids)
        if not chunks:  # They were deleted since the search.
            return scores
        rows = np.array([self.notes.rows[chunk.id] for chunk in chunks])
        hops = np.array([self.notes.candidates[row].hop for row in rows.tolist()])
        return with_reranker(scores, rows, self._corpus.rerank(self.notes.question.text, chunks), hops)

    def late_interaction(self, scores: Floats, compared: int) -> Floats:
        """Return the late interaction of the `compared` best candidates with the question, shape (n_candidates,).

        The other candidates have NaN, unless the final ranking compared them.
        """
        late = self._late if len(self._late) else np.full_like(scores, np.nan)
        rows = compared_rows(scores, compared)
        return np.fmax(late, late_scores(self.notes, rows[np.isnan(late[rows])]))

    def suffices(self) -> float:
        """Return the probability that more searches would not improve the final ranking. If it is unknown, return 0."""
        calibration, ranker = self._calibration, self._ranker
        if calibration is None or calibration.stopping is None or ranker is None or not len(self._odds):
            return 0.0
        rows = self.ranking_inputs()
        scores = sigmoid(ranker(rows) + identifier_odds(self.notes))
        question = self.notes.question
        named = float(question.weight[question.in_name].sum())
        # Another passage often says what the question says beside its names and the best passage does not.
        open_share = 1 - float(self.coverage()[int(scores.argmax())] @ question.weight)
        if named > 0 and open_share > MOST_OPEN:
            return 0.0
        best = scores[document_rows(self.notes, scores)]
        return calibration.suffices(stopping_features(rows, best.tolist(), named))

    def ranking_inputs(self, *, read: bool = True) -> Floats:
        """Return the ranker's inputs after the last scoring, shape (n_candidates, len(RANKING)).

        If `read` is false, the reader's inputs are left out.
        """
        combined = said = alone = np.full(len(self._odds), np.nan, dtype=np.float32)
        if read and self._readings and self._scorer is not None:
            combined = self._scorer.networks[READING].logits(self.reading_inputs(self._odds))
        if read:
            said, alone = self._read_odds(), self._alone_odds()
        judgments = Judgments(self._odds, combined, said, alone)
        cosines = self._cosines.of(self.notes.question.text)
        return ranking_features(self.notes, self.rows, cosines, judgments, corpus_size=self.corpus_size)

    def _combined(self, networks: Mapping[str, Network]) -> Floats:
        """Return the scores, shape (n_candidates,).

        They combine the second network's log-odds with the reader's judgment.
        """
        return networks[READING](self.reading_inputs(self._odds)) if self._readings else sigmoid(self._odds)

    def reading_inputs(self, odds: Floats) -> Floats:
        """Return the inputs of the network `READING`, shape (n_candidates, len(READINGS)).

        They depend on the second network's log-odds.
        """
        return reading_features(self.notes, odds, self._read_odds())

    def evidence(self, scores: Floats, *, read: bool = True) -> Floats:
        """Return the features of the evidence from the candidates' scores. There must be at least one candidate.

        If `read` is false, return the features as in an episode without the reader.
        """
        unknown = np.full(len(scores), np.nan, dtype=np.float32)
        # The reader does not know that two notations are one date or code.
        renoted = identifier_odds(self.notes, only_renoted=True)
        heard = np.fmax(self._read_odds(), self._alone_odds()) + renoted if read else unknown
        late = self._late if len(self._late) else unknown
        text, coverage = self._text.rows()
        cosines, words = self._cosines.of(self.notes.question.text), text[:, TEXT_FEATURES.index("bm25")]
        question = self.notes.question
        size = self.corpus_size
        return Evidence(
            question.weight, question.in_name, coverage, scores, cosines, words, late, heard, size
        ).features()

    def unread_scores(self) -> Floats:
        """Return the scores of the last scoring without the reader, shape (n_candidates,).

        Late interaction counts if the final ranking used it.
        """
        if self._ranker is None:
            return sigmoid(self._odds)
        inputs = self.ranking_inputs(read=False)
        return sigmoid(self._ranker(with_late_interaction(inputs, self._late) if len(self._late) else inputs))

    def _read_odds(self) -> Floats:
        """Return the reader's log-odds, shape (n_candidates,). A candidate that the reader did not read has NaN."""
        return read_odds(self._readings.rows(), self._head)

    def _alone_odds(self) -> Floats:
        """Return the reader's log-odds with the question alone, shape (n_candidates,).

        A candidate that the reader did not read has NaN.
        """
        return read_odds(self._readings.rows_alone(), self._head)

    def calibrated(self, scores: Floats) -> tuple[float | None, Floats]:
        """Return the confidence that the corpus answers the question.

        Also return each candidate's probability, shape (n_candidates,).

        If there is no calibration, return None and the unchanged scores.
        """
        if self._calibration is None:
            return None, scores
        confidence = self._calibration.confidence(self.evidence(scores)) if len(scores) else 0.0
        return confidence, self._calibration.probabilities(scores, confidence)

    def _guess(self) -> Floats:
        """Return scores by a rule of thumb.

        A candidate is as good as its words, or nearly as good as the candidates that link to it.
        """
        text, coverage = self._text.rows()
        guess = relevance_guess(text, self._cosines.of(self.notes.question.text))
        links = self._links.features(guess, coverage, self._cosines.rest)
        return np.maximum(guess, np.minimum(0.85, links[:, LINK_FEATURES.index("link_score")]))

    def first_inputs(self) -> Floats:
        """Return the first network's inputs, shape (n_candidates, len(DIRECT))."""
        text, _ = self._text.rows()
        question = self.notes.question
        clause_cosines = np.stack([self._cosines.of(clause) for clause in question.clauses], axis=1)
        return direct_features(self.notes, text, self._cosines.of(question.text), self._text.clauses(), clause_cosines)

    def second_inputs(self, first_inputs: Floats, scores: Floats) -> Floats:
        """Return the second network's inputs, shape (n_candidates, len(DIRECT + LINK_FEATURES)).

        They depend on the first network's scores.
        """
        _, coverage = self._text.rows()
        return np.concatenate([first_inputs, self._links.features(scores, coverage, self._cosines.rest)], axis=1)


def _dense_weight(corpus: Corpus) -> float:
    """Return the weight of the corpus's vectors by the corpus's calibration. If it has no calibration, return 1."""
    weights = getattr(getattr(corpus, "calibration", None), "weights", {})
    return float(weights.get("dense", 1.0))
