"""Calibration of scores into two probabilities.

The first is the probability that the corpus answers the question. The second is the probability that a candidate
belongs to the evidence.

Scores can be compared within a question but not between questions. Logistic models, fitted by
`train.bridge.calibration_fit`, turn them into probabilities (Platt, 1999). The first model uses a few features of the
evidence and estimates whether the corpus answers the question. The second turns each candidate's score into a
probability, using the first model's result, and keeps the order of the candidates. The third estimates, after the first
turn, whether further searches would improve the ranking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from context_agent.policies.bridge.candidates import Floats
from context_agent.policies.bridge.ranking import RANKING, correlation, lead

EVIDENCE = (
    "log_covered", "size", "names_unseen", "named", "best_named", "covered_named", "size_named", "best", "rare_covered",
    "agreement", "cosine_lead", "late", "read",
)  # fmt: skip
"""Features of the evidence.

- `log_covered`: the logarithm of the share of the question's terms, by weight, that likely candidates cover,
  because the step from nothing to a little matters most.
- `size`: the logarithm of the number of the corpus's chunks, since among more of them one is good by chance.
- `names_unseen`: the share of the terms that is in names and that no candidate covers.
- `named`: the share that is in names; times the log-odds of the best candidate, times the share covered, and times
  `size`.
- `best`: the log-odds of the best candidate.
- `rare_covered`: the largest share of the question's rarest terms that a likely candidate covers.
- `agreement`: the correlation of the cosines with the words over the candidates. `cosine_lead`: how far the best
  cosine is above the others, in their spread. They say how well this corpus is searched for this question.
- `late`: the highest late interaction of a candidate with the question.
- `read`: the reader's highest log-odds, NaN if it read nothing.

A question without names finds its answer in other words: at equal scores it has an answer more often than one about
somebody. One document can be all of the evidence, so the scores of the others are not a feature."""
RARE_TERMS = 3
"""How many terms of a question count as its rarest."""
LIMIT = 8.0
"""Log-odds are clipped to this size, because larger ones say no more."""
SMALL_CORPUS = 300
"""A corpus with fewer chunks counts as one of this size."""
LEAST_COVERED = 0.02
"""Added to the covered share before its logarithm is taken, so that the logarithm is finite."""
COVERED = 0.5
"""Minimum coverage of a term that a candidate contains, by itself or by a related word."""
CERTAIN = 1e-9
"""Minimum distance of a probability from 0 and 1."""
LIKELY = 0.5
"""A document with at least this score is more likely evidence than not."""
LEAST_SLOPE = 1e-2
"""The smallest factor of a candidate's log-odds. It keeps the order of the candidates."""


def log_odds(probabilities: Floats) -> Floats:
    """Return the logarithm of p / (1 - p)."""
    inside = np.clip(probabilities.astype(np.float64), CERTAIN, 1 - CERTAIN)
    return np.asarray(np.log(inside / (1 - inside)), dtype=np.float32)


def sigmoid(logits: Floats) -> Floats:
    """Return the probabilities for log-odds."""
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -30, 30))), dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence that an episode found.

    Attributes:
        weight: The weight of each term of the question, shape (n_terms,).
        in_name: True for a term that is in a name, shape (n_terms,).
        coverage: How well each candidate covers each term, shape (n_candidates, n_terms).
        scores: The scores of the candidates, shape (n_candidates,).
        cosines: The candidates' cosine similarities to the question, shape (n_candidates,). An unknown value is NaN.
        words: How well the candidates' words match the question, shape (n_candidates,). An unknown value is NaN.
        late: Late interaction of the candidates with the question, shape (n_candidates,). An unknown value is NaN.
        read: The reader's log-odds, shape (n_candidates,). A candidate that the reader did not read has NaN.
        chunks: The number of chunks in the corpus.
    """

    weight: Floats
    in_name: NDArray[np.bool_]
    coverage: Floats
    scores: Floats
    cosines: Floats
    words: Floats
    late: Floats
    read: Floats
    chunks: int

    def features(self) -> Floats:
        """Return the features in `EVIDENCE`, shape (len(EVIDENCE),)."""
        best = float(np.clip(log_odds(self.scores).max(), -LIMIT, LIMIT))
        likely = self.coverage * self.scores[:, None]
        covered = float(likely.max(axis=0) @ self.weight)
        unseen = self.in_name & (self.coverage.max(axis=0) < COVERED)
        size = float(np.log(max(self.chunks, SMALL_CORPUS)))
        named = float(self.weight[self.in_name].sum())
        rare = np.argsort(-self.weight, kind="stable")[:RARE_TERMS]
        rare_weight = float(self.weight[rare].sum()) + 1e-6
        values = {
            "log_covered": np.log(covered + LEAST_COVERED),
            "size": size,
            "names_unseen": self.weight[unseen].sum(),
            "named": named,
            "best_named": best * named,
            "covered_named": covered * named,
            "size_named": size * named,
            "best": best,
            "rare_covered": float((likely[:, rare] @ self.weight[rare]).max()) / rare_weight,
            "agreement": np.nan_to_num(correlation(self.cosines, self.words)),
            "cosine_lead": lead(self.cosines),
            "late": np.nanmax(self.late) if np.isfinite(self.late).any() else 0.0,
            "read": np.clip(np.nanmax(self.read), -LIMIT, LIMIT) if np.isfinite(self.read).any() else np.nan,
        }
        return np.array([values[name] for name in EVIDENCE], dtype=np.float32)


@dataclass(frozen=True)
class ScoreCalibration:
    """The coefficients of the three models. Each model's constant comes first.

    Attributes:
        evidence: Shape (2, 1 + len(EVIDENCE)). The first row is for an episode without the reader, the second for an
            episode with it.
        relevance: Shape (3,): the constant, and the factors of the log-odds of the confidence and of the score.
        stopping: Shape (2, 1 + len(STOPPING)), with the same rows as `evidence`. If it is None, an episode never stops
            early.
    """

    evidence: Floats
    relevance: Floats
    stopping: Floats | None = None

    def confidence(self, features: Floats) -> float:
        """Return the probability that the corpus answers the question, from the features of the evidence."""
        constant, *factors = self.evidence[int(np.isfinite(features[-1]))]
        return float(sigmoid(constant + np.nan_to_num(features) @ np.array(factors)))

    def probabilities(self, scores: Floats, confidence: float) -> Floats:
        """Return the probability that each candidate belongs to the evidence, shape (n_candidates,).

        The probabilities have the same order as the scores.
        """
        constant, trust, slope = self.relevance.tolist()
        shift = constant + trust * float(log_odds(np.array([confidence]))[0])
        return sigmoid(shift + max(slope, LEAST_SLOPE) * log_odds(scores))

    def suffices(self, features: Floats) -> float:
        """Return the probability that further searches improve nothing, from the features in `STOPPING`.

        If the episode found no likely candidate, return 0, so that the search goes on.
        """
        if self.stopping is None or features[STOPPING.index("best")] < log_odds(np.array([LIKELY]))[0]:
            return 0.0
        constant, *factors = self.stopping[int(np.isfinite(features[-1]))]
        return float(sigmoid(constant + np.nan_to_num(features) @ np.array(factors)))


STOPPING = (
    "best", "second", "third", "named", "best_named", "compares", "asks_many", "entities", "terms", "uncovered",
    "linked", "size", "agreement", "read",
)  # fmt: skip
"""Features of the first turn that say whether further searches would improve the ranking.

- `best`, `second`, `third`: the log-odds of the best documents. `read`: the reader's highest log-odds on the question
  alone, NaN if it read nothing.
- `uncovered`: the share of the question that the best candidates leave open beside the best. `linked`: the strongest
  link from one candidate to another.
- The others describe the question, the size of the corpus, and how far its retrievers agree."""


def stopping_features(rows: Floats, best: Sequence[float], named: float) -> Floats:
    """Return the features for the decision to stop, in the order of `STOPPING`.

    Args:
        rows: The inputs of the final ranking, shape (n_candidates, len(RANKING)).
        best: The scores of the best documents, best first.
        named: The share of the question that is in names.

    Returns:
        The features, shape (len(STOPPING),).
    """
    column = {name: rows[:, number] for number, name in enumerate(RANKING)}
    odds = np.clip(log_odds(np.array([*best, 0.0, 0.0, 0.0][:3], dtype=np.float32)), -LIMIT, LIMIT).tolist()
    read = column["alone"]
    values = {
        "best": odds[0],
        "second": odds[1],
        "third": odds[2],
        "named": named,
        "best_named": odds[0] * named,
        "uncovered": column["uncovered"].min(),
        "linked": column["link_score"].max(),
        "read": np.clip(np.nanmax(read), -LIMIT, LIMIT) if np.isfinite(read).any() else np.nan,
    }
    of_question = ("compares", "asks_many", "entities", "terms", "size", "agreement")
    values |= {name: np.nan_to_num(column[name][0]) for name in of_question}
    return np.array([values[name] for name in STOPPING], dtype=np.float32)
