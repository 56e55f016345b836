"""The final ranking for a question that asks for several documents.

`with_feedback` is for documents of one kind. They are written alike, but the question often fits one of them better
than the others. So the best documents serve as a second question (Rocchio, "Relevance Feedback in Information
Retrieval", 1971). A question about names follows links to texts of other kinds, so the more of it is in names, the less
the resemblance counts.

`with_comparisons` counts late interaction with the question beside the scores. The trees know it for the best
candidates only, and a question for several documents has more of them.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import chain

import numpy as np

from context_agent.policies.bridge.candidates import Floats, Notes, document_rows
from context_agent.policies.bridge.features import standard
from context_agent.policies.bridge.novelty import STOP_KEYS
from context_agent.policies.bridge.score_calibration import log_odds

FEEDBACK_DOCUMENTS = 3
"""How many of the best documents the other candidates are compared with."""
KEPT_DOCUMENTS = 5
"""How many of the best documents keep their places, because a text of another kind may be needed too."""
RESEMBLANCE_WEIGHT = 1.5
"""Log-odds that count as much as one standard deviation of the resemblance, for a question without names."""
COMPARISON_WEIGHT = 2.0
"""Log-odds that count as much as one standard deviation of late interaction."""


def with_feedback(notes: Notes, scores: Floats, trusted: Floats) -> Floats:
    """Return the scores in the order that also counts how far a candidate resembles the best ones.

    The candidates exchange their scores, so the highest score is still the highest, and the calibration still fits. If
    the question does not ask for documents of one kind, the scores are returned unchanged.

    Args:
        notes: The candidates.
        scores: Their scores, shape (n_candidates,).
        trusted: The scores that choose the best documents, shape (n_candidates,). Repeats and echoes of the question
            have low ones.

    Returns:
        The new scores, shape (n_candidates,).
    """
    question = notes.question
    if not question.asks_for_group or not len(notes):
        return scores
    weight = RESEMBLANCE_WEIGHT * (1 - float(question.weight[question.in_name].sum()))
    kept = document_rows(notes, trusted)[:KEPT_DOCUMENTS]
    best = kept[:FEEDBACK_DOCUMENTS]
    fused = log_odds(scores) + weight * standard(_resemblance(notes, best, trusted[best]))
    return _exchanged(scores, fused, kept)


def with_comparisons(notes: Notes, scores: Floats, trusted: Floats, late: Floats) -> Floats:
    """Return the scores in the order that also counts late interaction with the question.

    The candidates exchange their scores, as in `with_feedback`.

    Args:
        notes: The candidates.
        scores: Their scores, shape (n_candidates,).
        trusted: The scores that choose the documents that keep their places, shape (n_candidates,).
        late: The candidates' late interaction, shape (n_candidates,). It is NaN where it was not computed, which counts
            as the lowest.

    Returns:
        The new scores, shape (n_candidates,).
    """
    late = np.where(np.isfinite(late), late, np.nanmin(late))
    fused = log_odds(scores) + COMPARISON_WEIGHT * standard(late)
    return _exchanged(scores, fused, document_rows(notes, trusted)[:KEPT_DOCUMENTS])


def _exchanged(scores: Floats, fused: Floats, kept: list[int]) -> Floats:
    """Return the scores in the order of `fused`, shape (n_candidates,). The rows in `kept` come first."""
    fused[kept] = fused.max() + np.arange(len(kept), 0, -1)
    order = np.argsort(-fused, kind="stable")
    exchanged = np.empty_like(scores)
    exchanged[order] = np.sort(scores)[::-1]
    return exchanged


def _resemblance(notes: Notes, best: list[int], weights: Floats) -> Floats:
    """Return the cosine of each candidate's text with the weighted sum of the best texts, shape (n_candidates,).

    A text is the set of its content words. A word in fewer candidates weighs more.
    """
    texts = [candidate.passage.text_keys - STOP_KEYS for candidate in notes.candidates]
    frequency = Counter(chain.from_iterable(texts))
    squares = {word: math.log1p(len(texts) / count) ** 2 for word, count in frequency.items()}
    # An exact sum does not depend on the order of a set, which differs between processes.
    lengths = [max(math.sqrt(math.fsum(squares[word] for word in text)), 1e-9) for text in texts]
    cosines = [
        math.fsum(
            weight * math.fsum(squares[word] for word in text & texts[row]) / (length * lengths[row])
            for row, weight in zip(best, weights.tolist(), strict=True)
        )
        for text, length in zip(texts, lengths, strict=True)
    ]
    return np.array(cosines, dtype=np.float32)
