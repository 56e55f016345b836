"""The features of passages from which the learned judge computes their scores.

Most features compare a passage with the task: by BM25, by static word vectors, and by the coverage of the task's word
pieces. The others say how long a passage is, and how much of its text occurs elsewhere. Similarity and the reader add
features of the passages that they compare and read. For other passages these features are missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from context_agent._support.text_cache import TextCache
from context_agent.pruning.blocks import Passage
from context_agent.pruning.goal import Goal
from context_agent.pruning.word_pieces import Coverage, coverage, pieces_of
from context_agent.pruning.words import PassageWords, Scores, query_of, unit_rows

STEP_WEIGHT = 0.3
"""The weight of a word of the latest step, relative to a word of the task.

Each earlier step has half the weight of the next one.
"""
MAX_LEADS, LEAD_WEIGHT = 5, 0.3
"""The number of best passages whose rare words are added to the query, and the weight of these words."""
OUTSTANDING_SCORE = 2.5
"""The standard score by words above which it counts twice.

Such a passage has the id or the names that the task asks for.
"""
QUICK_FEATURES = (
    "task_z", "task_top", "task_rank", "query_z", "query_top", "query_rank", "leads_z", "leads_rank", "leads_gain",
    "covered", "step_z", "soft", "soft_z", "exact", "exact_z", "unit", "unit_z", "soft_rank", "unit_rank", "meaning",
    "meaning_z", "meaning_rank", "step_meaning_z", "centroid", "lead_meaning_z", "tokens", "lines", "same_template",
    "rarity", "unique_words", "vocabulary", "paired_words",
)  # fmt: skip
"""Names of the features that need no model, in order."""
MODEL_FEATURES = (
    "gist_cosine", "gist_cosine_z", "gist_cosine_rank", "unit_cosine", "unit_cosine_z", "unit_cosine_rank", "odds",
    "odds_z", "odds_rank", "odds_gap",
)  # fmt: skip
"""Names of the features by similarity and by the reader, in order."""
FEATURES = (*QUICK_FEATURES, *MODEL_FEATURES)
_NUMBER = re.compile(r"(?<!\w)\w*\d[\w.:]*")
TEMPLATES = TextCache[int](16_384)
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class QuickFeatures:
    """The features that need no model, with values that later stages use again.

    Attributes:
        columns: The features by their names in `QUICK_FEATURES`, each of shape (n_passages,).
        coverage: How well the passages and their units cover the task.
        prior: The sum of the standard scores by words and by meaning, shape (n_passages,).
        goal_weights: The weight of each word for the goal.
        task_weights: The weight of each word of the task.
    """

    columns: dict[str, Scores]
    coverage: Coverage
    prior: Scores
    goal_weights: dict[int, float]
    task_weights: dict[int, float]

    @classmethod
    def of(cls, passages: Sequence[Passage], goal: Goal) -> QuickFeatures:
        """Return the features of at least one passage."""
        words = PassageWords(passages)
        task, query = query_of([(goal.task, 1.0)]), goal_words(goal)
        alone = words.scores(query)
        leads = [row for row in np.argsort(-alone, kind="stable")[:MAX_LEADS].tolist() if alone[row] > 0]
        expanded = query | {term: LEAD_WEIGHT for row in leads for term in words.rare_terms(row) if term not in query}
        columns = _by_words(words, task, query, expanded, goal.steps)
        vectors, covered = _by_vectors(columns, passages, goal)
        columns |= vectors | _by_text(words, passages)
        said, meaning = columns["query_z"], columns["meaning_z"]
        prior = said + np.maximum(0.0, said - OUTSTANDING_SCORE) + meaning
        return cls(columns, covered, prior, words.term_weights(expanded), words.term_weights(task))


def goal_words(goal: Goal) -> dict[int, float]:
    """Return the words of the latest steps and of the task with their weights."""
    steps = [(step, STEP_WEIGHT * 0.5**age) for age, step in enumerate(goal.steps)]
    return query_of([*reversed(steps), (goal.task, 1.0)])


def _by_words(
    words: PassageWords,
    task: dict[int, float],
    query: dict[int, float],
    expanded: dict[int, float],
    steps: Sequence[str],
) -> dict[str, Scores]:
    by_task, alone, by_leads = (words.scores(weighted) for weighted in (task, query, expanded))
    by_step = words.scores(query_of([(steps[0], 1.0)])) if steps else np.full(words.size, np.nan)
    return {
        "task_z": standard(by_task),
        "task_top": _of_top(by_task),
        "task_rank": log_rank(by_task),
        "query_z": standard(alone),
        "query_top": _of_top(alone),
        "query_rank": log_rank(alone),
        "leads_z": standard(by_leads),
        "leads_rank": log_rank(by_leads),
        "leads_gain": standard(by_leads - alone),
        "covered": words.coverage(task),
        "step_z": standard(by_step),
    }


def _by_vectors(
    by_words: dict[str, Scores], passages: Sequence[Passage], goal: Goal
) -> tuple[dict[str, Scores], Coverage]:
    steps = Passage("\n".join(goal.steps), 0, 0)
    *pieces, task, step = pieces_of([*passages, Passage(goal.task, 0, 0), steps])
    covered = coverage(pieces, task)
    vectors = unit_rows(np.array([passage.vector for passage in pieces]))
    task_vector, step_vector = unit_rows(np.array([task.vector, step.vector]))
    soft, exact, unit = (it.astype(np.float64) for it in (covered.soft, covered.exact, covered.best_unit))
    meaning = (vectors @ task_vector).astype(np.float64)
    best = np.argsort(-(by_words["query_z"] + standard(meaning)), kind="stable")[:MAX_LEADS]
    columns = {
        "soft": soft,
        "soft_z": standard(soft),
        "exact": exact,
        "exact_z": standard(exact),
        "unit": unit,
        "unit_z": standard(unit),
        "soft_rank": log_rank(soft),
        "unit_rank": log_rank(unit),
        "meaning": meaning,
        "meaning_z": standard(meaning),
        "meaning_rank": log_rank(meaning),
        "step_meaning_z": standard((vectors @ step_vector).astype(np.float64)),
        "centroid": (vectors @ vectors.mean(axis=0)).astype(np.float64),
        "lead_meaning_z": standard((vectors @ vectors[best].mean(axis=0)).astype(np.float64)),
    }
    return columns, covered


def _by_text(words: PassageWords, passages: Sequence[Passage]) -> dict[str, Scores]:
    """Return the features of the length of a passage, and of how much of its text occurs elsewhere."""
    templates = TEMPLATES.values([passage.text for passage in passages], lambda texts: [*map(_template, texts)])
    _, template, counts = np.unique(np.array(templates), return_inverse=True, return_counts=True)
    novelty = words.novelty()
    return {
        "tokens": np.log1p(np.array([passage.tokens for passage in passages], dtype=np.float64)),
        "lines": np.log1p(np.array([passage.text.count("\n") for passage in passages], dtype=np.float64)),
        "same_template": np.log(counts[template]),
        "rarity": novelty.rarity,
        "unique_words": novelty.unique,
        "vocabulary": np.log1p(novelty.words),
        "paired_words": novelty.paired,
    }


def _template(text: str) -> int:
    """Return a number for the text without its numbers."""
    return crc32(_NUMBER.sub("0", text).encode(errors="surrogatepass"))


def similarity_columns(name: str, cosines: Scores) -> dict[str, Scores]:
    """Return the features of cosines with the task. Those of passages that were not compared are NaN."""
    return {name: cosines, f"{name}_z": standard(cosines), f"{name}_rank": log_rank(cosines)}


def odds_columns(odds: Scores) -> dict[str, Scores]:
    """Return the features of the reader's log-odds. Those of passages that were not read are NaN."""
    best = np.nanmax(odds) if np.isfinite(odds).any() else np.nan
    return {"odds": odds, "odds_z": standard(odds), "odds_rank": log_rank(odds), "odds_gap": best - odds}


def matrix(columns: dict[str, Scores]) -> Floats:
    """Return the features as rows, shape (n_passages, n_features). Features that are missing are NaN."""
    missing = np.full(len(columns["tokens"]), np.nan)
    return np.stack([columns.get(name, missing) for name in FEATURES], axis=1).astype(np.float32)


def standard(values: Scores) -> Scores:
    """Return the standard scores of the values: their distances from the mean, in standard deviations.

    NaN stays NaN and does not change the other scores.
    """
    known = np.isfinite(values)
    if not known.any():
        return values
    return np.asarray((values - values[known].mean()) / (values[known].std() + 1e-6))


def log_rank(values: Scores) -> Scores:
    """Return the logarithm of each value's rank, which is 0 for the highest.

    Equal values share a rank. NaN stays NaN.
    """
    known = values[~np.isnan(values)]
    ranks = np.searchsorted(np.sort(-known), -values, side="left")
    return np.where(np.isnan(values), np.nan, np.log1p(ranks))


def _of_top(values: Scores) -> Scores:
    return values / max(float(values.max()), 1e-6)
