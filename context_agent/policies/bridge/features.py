"""Features of candidates.

They say how well a candidate matches the question. `novelty` says what it adds to better candidates.

All features except the cosine come from the text, so they work on a corpus whose BM25 or vectors are useless. Only the
final ranking (`ranking`) also uses the ranks and scores of the searches, so the search depends on no retriever. Cosines
are relative to those of the other candidates, because embedders differ in how similar unrelated texts are.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from context_agent.policies.bridge.candidates import AnalyzedPassage, AnalyzedQuestion, Floats, Notes
from context_agent.text.words import STOP_WORDS

_YEAR = re.compile(r" (?:1\d{3}|20[0-2]\d) ")
_DATE = re.compile(r" (?:january|february|march|april|may|june|july|august|september|october|november|december) ")
_BORN = re.compile(r" born ")
_DIED = re.compile(r" (?:died|death) ")
_K1, _LENGTH = 1.2, 90.0
"""BM25's saturation, and the number of words in a typical paragraph."""

TEXT_FEATURES = (
    "bm25", "coverage", "coverage_names", "coverage_relations", "coverage_title", "coverage_exact", "pairs",
    "best_sentence", "title_in_question", "title_share", "title_is_entity", "title_words", "title_weight",
    "entities_in_text", "length", "has_year", "has_date", "has_born", "has_died", "title_rarity",
)  # fmt: skip
CUES = ("compares", "asks_who", "asks_when", "asks_where", "asks_role", "asks_kin", "terms", "entities")
CLAUSES = ("clause_coverage", "clause_gap", "clause_rank", "clause_cosine", "clause_cosine_gap")
DIRECT = (
    "cosine_z", "cosine_gap", "bm25_z", "coverage_z", *TEXT_FEATURES, "same_title", "entity_hits", *CUES, *CLAUSES,
)  # fmt: skip
"""Names of the direct features, in order."""


class TextFeatures:
    """The features that do not depend on other candidates. They are computed once for each candidate."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._rows: list[list[float]] = []
        self._coverage: list[Floats] = []
        self._in_text: list[list[bool]] = []

    def rows(self) -> tuple[Floats, Floats]:
        """Return the features, shape (n_candidates, len(TEXT_FEATURES)).

        Also return the coverage of each question term, shape (n_candidates, n_terms).
        """
        fresh = self._notes.candidates[len(self._rows) :]
        self._notes.weights.learn([word for candidate in fresh for word in candidate.passage.title_words])
        for candidate in fresh:
            coverage = self._notes.question.coverage(candidate.passage)
            self._coverage.append(coverage)
            self._in_text.append([key in candidate.passage.text_keys for key in self._notes.question.keys])
            self._rows.append(_text_features(self._notes, candidate.passage, coverage))
        return np.array(self._rows, dtype=np.float32), np.stack(self._coverage)

    def clauses(self) -> Floats:
        """Return the share of each clause's weight that the text covers, shape (n_candidates, n_clauses).

        The title does not count. Call `rows` with the same candidates first.
        """
        question = self._notes.question
        weights = (question.in_clause * question.weight).T
        covered = np.array(self._in_text, dtype=np.float32) @ weights
        return np.asarray(covered / (weights.sum(axis=0) + 1e-6), dtype=np.float32)


def direct_features(notes: Notes, text: Floats, cosines: Floats, clauses: Floats, clause_cosines: Floats) -> Floats:
    """Return the direct features, shape (n_candidates, len(DIRECT)).

    `cosines` are the cosines to the question, shape (n_candidates,). `clauses` is the coverage of the question's
    clauses, and `clause_cosines` are the cosines to them, shape (n_candidates, n_clauses). Unknown cosines are NaN.
    """
    n, candidates = len(notes), notes.candidates
    titles = Counter(candidate.passage.full_title for candidate in candidates)
    columns = [
        standard(cosines),
        (cosines - _highest(cosines)) / _spread(cosines),
        standard(text[:, TEXT_FEATURES.index("bm25")]),
        standard(text[:, TEXT_FEATURES.index("coverage")]),
        *text.T,
        np.array([titles[candidate.passage.full_title] for candidate in candidates]),
        np.full(n, (text[:, TEXT_FEATURES.index("title_is_entity")] >= 1).sum()),
        *(np.full(n, cue) for cue in notes.question.cues),
        *_clause_columns(clauses, clause_cosines),
    ]
    return np.stack(columns, axis=1).astype(np.float32)


def _clause_columns(coverage: Floats, cosines: Floats) -> list[Floats]:
    """Return the features in `CLAUSES`.

    They say how well a candidate fits its best clause, and how it compares with the other candidates for that clause.

    If a question joins several facts, each fact has its own passage. A passage counts if it is the best one for a
    single fact, even if it says nothing about the others.
    """
    columns = range(coverage.shape[1])
    spread = [standard(cosines[:, column]) for column in columns]
    fit = np.stack([standard(coverage[:, column]) + np.nan_to_num(spread[column]) for column in columns], axis=1)
    rank = np.argsort(np.argsort(-fit, axis=0, kind="stable"), axis=0).min(axis=1)
    gaps = [(cosines[:, column] - _highest(cosines[:, column])) / _spread(cosines[:, column]) for column in columns]
    return [
        coverage.max(axis=1),
        (coverage - coverage.max(axis=0)).max(axis=1),
        np.log1p(rank, dtype=np.float32),
        np.max(spread, axis=0),
        np.max(gaps, axis=0),
    ]


def standard(values: Floats) -> Floats:
    """Return the values minus their mean, divided by their spread. NaN stays NaN."""
    if not np.isfinite(values).any():
        return values
    return np.asarray((values - np.nanmean(values)) / _spread(values), dtype=np.float32)


def _spread(values: Floats) -> float:
    return float(np.nanstd(values)) + 1e-6 if np.isfinite(values).any() else 1.0


def _highest(values: Floats) -> float:
    return float(np.nanmax(values)) if np.isfinite(values).any() else math.nan


def _text_features(notes: Notes, passage: AnalyzedPassage, coverage: Floats) -> list[float]:
    question, weight = notes.question, notes.question.weight
    text = passage.padded
    return [
        _bm25(question, passage),
        float(coverage @ weight),
        *_split_coverage(question, coverage),
        _share(question, [key in passage.title_keys for key in question.keys]),
        _share(question, [term in passage.vocabulary for term in question.terms]),
        _pairs(question, passage),
        _best_sentence(question, passage),
        float(bool(passage.padded_title) and passage.padded_title in question.padded),
        *_title(notes, passage),
        _entities_in(question, passage),
        math.log1p(len(passage.words)),
        *(float(bool(pattern.search(text))) for pattern in (_YEAR, _DATE, _BORN, _DIED)),
        notes.weights.rarity(passage.title_words),
    ]


def _bm25(question: AnalyzedQuestion, passage: AnalyzedPassage) -> float:
    """Return the BM25 score of the passage for the question, divided by the highest possible score.

    The title counts twice.
    """
    body, title = Counter(passage.words), Counter(passage.title_words)
    frequency = np.array([body[term] + 2 * title[term] for term in question.terms], dtype=np.float32)
    length = (len(passage.words) + len(passage.title_words)) / _LENGTH
    score = question.idf * frequency * (_K1 + 1) / (frequency + _K1 * (0.25 + 0.75 * length))
    return float(score.sum() / max(float(question.idf.sum()), 1e-6))


def _split_coverage(question: AnalyzedQuestion, coverage: Floats) -> tuple[float, float]:
    """Return the coverage of the terms in names, and of the other terms.

    If there are no such terms, the value is NaN.
    """
    parts = []
    for kind in (question.in_name, ~question.in_name):
        total = float(question.weight[kind].sum())
        parts.append(float((coverage * question.weight)[kind].sum()) / total if total > 0 else math.nan)
    return parts[0], parts[1]


def _share(question: AnalyzedQuestion, covered: Sequence[bool]) -> float:
    return float(question.weight[np.array(covered, dtype=bool)].sum())


def _pairs(question: AnalyzedQuestion, passage: AnalyzedPassage) -> float:
    text = f"{passage.padded}{passage.full_title} "
    return sum(pair in text for pair in question.pairs) / len(question.pairs) if question.pairs else 0.0


def _best_sentence(question: AnalyzedQuestion, passage: AnalyzedPassage) -> float:
    best, weights = 0.0, question.weight.tolist()
    in_title = question.key_set & passage.title_keys
    for sentence in passage.sentences:
        rows = sorted(row for key in in_title | (question.key_set & sentence) for row in question.rows[key])
        best = max(best, sum(weights[row] for row in rows))
    return best


def _title(notes: Notes, passage: AnalyzedPassage) -> tuple[float, float, float, float]:
    """Return four features of the title.

    They are the share of its weight that is in the question, whether it is an entity of the question, its number of
    words, and its weight.
    """
    weights = notes.weights.learn(())
    content_words = [word for word in passage.title_words if word not in STOP_WORDS] or passage.title_words
    total = sum(weights[word] for word in content_words)
    shared = sum(weights[word] for word in content_words if f" {word} " in notes.question.padded)
    return shared / max(total, 1e-6), _is_entity(notes.question, passage), len(passage.title_words), total


def _is_entity(question: AnalyzedQuestion, passage: AnalyzedPassage) -> float:
    best = 0.0
    for name in question.names if passage.title else ():
        if name in {passage.title, passage.full_title}:
            return 1.0
        if f" {name} " in f" {passage.title} ":
            best = max(best, 0.6)
        elif f" {passage.title} " in f" {name} ":
            best = max(best, 0.4)
    return best


def _entities_in(question: AnalyzedQuestion, passage: AnalyzedPassage) -> float:
    title = f" {passage.full_title} "
    count = sum(f" {name} " in passage.padded or f" {name} " in title for name in question.names)
    return count / max(len(question.names), 1)


def relevance_guess(text: Floats, cosines: Floats) -> Floats:
    """Return scores between 0 and 0.9, shape (n_candidates,), for a policy without weights."""
    column = TEXT_FEATURES.index
    score = text[:, column("coverage")] + 0.3 * text[:, column("best_sentence")]
    score += 0.8 * text[:, column("title_in_question")] * text[:, column("title_share")]
    score += 0.5 * text[:, column("title_is_entity")] + np.nan_to_num(0.2 * standard(cosines))
    return np.asarray(0.9 * np.exp(3 * (score - score.max())), dtype=np.float32)
