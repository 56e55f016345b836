"""The exchange of scores among candidates that are about equally relevant.

A rule that reorders the ranking, such as "the newest edition first", gives no scores of its own. It chooses the
candidates that cover the question about equally well, and lets them exchange their scores. The highest score stays the
highest, so the calibration of the scores still fits, and all other candidates keep their places.
"""

from __future__ import annotations

import numpy as np

from context_agent.policies.bridge.candidates import AnalyzedPassage, AnalyzedQuestion, Floats, Notes
from context_agent.text.words import KEY_LENGTH, key

BEST_TEXTS, SAME_COVERAGE = 5, 0.75
"""A text is relevant if it has this share of the question's words that the best text has.

If one edition is asked for, only the first texts of the series by score are compared with.
"""
MOST_LIFTED = 4
"""Maximum number of texts whose score rises to the best one."""
_SHORTEST_STEM = 4
"""The number of letters that a word must have without its ending."""


def relevant_rows(
    notes: Notes, by_score: list[int], said: frozenset[str], compared: int | None = BEST_TEXTS
) -> list[int]:
    """Return the rows that cover the question about as well as the best ones do.

    The scores cannot tell, because they lower texts that are like a better one.

    Args:
        notes: The candidates.
        by_score: The rows, those with the highest scores first.
        said: Words of the question that do not count.
        compared: How many of the first rows are the best ones. By default, a few. If it is None, all.
    """
    said_keys = frozenset(map(key, said))
    weights = np.where([one in said_keys for one in notes.question.keys], 0, notes.question.weight)
    covered = [float(_coverage(notes.question, notes.candidates[row].passage) @ weights) for row in by_score]
    least = SAME_COVERAGE * max(covered[:compared], default=0.0)
    return [row for row, one in zip(by_score, covered, strict=True) if one >= least]


def _coverage(question: AnalyzedQuestion, passage: AnalyzedPassage) -> Floats:
    """Return how well a passage covers each term, shape (n_terms,).

    A short word also counts if it has another ending, as `siana` for `siano`. Its key has the ending, so the keys
    differ. A number or a version only counts as a whole. The keys of long ones have only their first digits.
    """
    texts = f"{passage.padded} {' '.join(passage.title_words)} "
    covered, renoted = question.coverage(passage), question.renoted_keys(passage)
    for row, term in enumerate(question.terms):
        if any(map(str.isdecimal, term)):
            covered[row] = f" {term} " in texts or question.keys[row] in renoted
        elif len(stem := _short_stem(term)) >= _SHORTEST_STEM and f" {stem}" in texts:
            covered[row] = 1
    return covered


def _short_stem(term: str) -> str:
    """Return the first letters of a word, which other forms of it have, too: 4 of 5, 5 of 6 or 7, and otherwise 6."""
    return term[: min(len(term) - 1, KEY_LENGTH - (len(term) <= KEY_LENGTH + 1))]


def descending(scores: Floats, level: int = 1) -> Floats:
    """Return the scores from the highest to the lowest. Of equal scores, each becomes a little higher than the next.

    The first `level` scores count as equal to the highest one.
    """
    rising = np.sort(scores)
    rising[len(rising) - level :] = rising[-1]
    for place in range(1, len(rising)):
        rising[place] = max(rising[place], np.nextafter(rising[place - 1], np.inf))
    return rising[::-1]
