"""From scores to probabilities: that a passage belongs to the evidence, and that the evidence answers the question.

The networks are trained to rank, so their scores are comparable within a question but not between questions. Two
logistic models, fitted by `train.bridge_calibration`, make probabilities of them (Platt, 1999). The first says from a
few features of the evidence whether the corpus answers the question. The second maps the score of each candidate, given
the first; it never changes their order. K is the number of questions, n that of candidates, D that of documents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from context_agent.policies.bridge.candidates import Floats, Notes

EVIDENCE = ("best", "covered", "names_unseen")
"""Features of the evidence: the log-odds of the best candidate; of the question's terms, by weight, the share that
likely candidates cover, and the share that is in names and that no candidate covers. One document can be all of the
evidence, so the others' scores are no feature."""
LIMIT = 8.0
"""Log-odds of the best candidate beyond this say no more."""
COVERED = 0.5
"""Least coverage of a term that a candidate contains, by itself or by a related word."""
CERTAIN = 1e-9
"""Least distance of a probability from 0 and 1."""
LEAST_SLOPE = 1e-2
"""Least factor of a candidate's log-odds, so that calibration keeps the order."""


def log_odds(probabilities: Floats) -> Floats:
    """The logarithm of p / (1 - p)."""
    inside = np.clip(probabilities.astype(np.float64), CERTAIN, 1 - CERTAIN)
    return np.asarray(np.log(inside / (1 - inside)), dtype=np.float32)


def sigmoid(logits: Floats) -> Floats:
    """The probabilities for log-odds."""
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -30, 30))), dtype=np.float32)


def document_rows(notes: Notes, scores: Floats) -> list[int]:
    """The row of the best candidate of each document, best first."""
    best: dict[str, int] = {}
    for row in np.argsort(-scores, kind="stable"):
        best.setdefault(notes.candidates[int(row)].document_id, int(row))
    return list(best.values())


def evidence_features(notes: Notes, scores: Floats, coverage: Floats) -> Floats:
    """The features named in `EVIDENCE`, shape (len(EVIDENCE),), for scores (n,) and the coverage of terms (n, T)."""
    question = notes.question
    best = np.clip(log_odds(scores).max(), -LIMIT, LIMIT)
    covered = (coverage * scores[:, None]).max(axis=0) @ question.weight
    unseen = question.in_name & (coverage.max(axis=0) < COVERED)
    return np.array([best, covered, question.weight[unseen].sum()], dtype=np.float32)


@dataclass(frozen=True)
class ScoreCalibration:
    """The coefficients of both models, each after its constant.

    `evidence` has shape (1 + len(EVIDENCE),). `relevance` has shape (3,): the constant, the factor of the log-odds of
    the confidence, and that of the log-odds of the score.
    """

    evidence: Floats
    relevance: Floats

    def confidence(self, features: Floats) -> float:
        """The probability that the corpus answers the question, by the features of the evidence."""
        return float(sigmoid(self.evidence[0] + features @ self.evidence[1:]))

    def probabilities(self, scores: Floats, confidence: float) -> Floats:
        """The probability that each candidate belongs to the evidence, in the order of the scores, shape (n,)."""
        constant, trust, slope = self.relevance.tolist()
        shift = constant + trust * float(log_odds(np.array([confidence]))[0])
        return sigmoid(shift + max(slope, LEAST_SLOPE) * log_odds(scores))
