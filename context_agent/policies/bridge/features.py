"""Features of candidates.

They say how well a candidate matches the question, and what it adds to the question and to better candidates.

All features except the cosine come from the text, so they work on a corpus whose BM25 or vectors are useless. Only the
final ranking (`ranking`) also uses the ranks and scores of the searches, so the search depends on no retriever. Cosines
are relative to those of the other candidates, because embedders differ in how similar unrelated texts are.

`Novelty` protects against repeated passages. Anyone who may add documents can add passages that repeat a question, and
no other passage has more of the question's words. Copies of one passage take the places of other passages. A candidate
therefore counts by what it adds, as in maximal marginal relevance (Carbonell and Goldstein, SIGIR 1998). Each better
candidate that says the same divides its score by ten. Candidates that mostly repeat the question, quote it, or restate
a long one all say the same. A near-duplicate that does not repeat the question is ranked above near-duplicates that
repeat it. Up to four issues of one text, such as the reports of four quarters, each keep their place.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from context_agent.policies.bridge.candidates import AnalyzedPassage, AnalyzedQuestion, Floats, Notes
from context_agent.text.words import STOP_WORDS, key

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


COMPARED = 24
"""How many of the best candidates have their texts compared."""
REPEATED = 0.1
"""The factor on a score for each better candidate that says the same."""
COVERED = 0.75
"""The share of the question's content words that an echo has."""
KEYWORDS = 2
"""Maximum number of content words of a search by keywords. A passage with just these words answers it."""
ECHO = 0.6
"""The share of an echo's content words that are the question's."""
LONG_QUESTION = 6
"""Number of a question's content words that no passage has close together by chance. Such text is an echo."""
SHINGLE = 3
"""Words of a shingle (Broder, "On the resemblance and containment of documents", 1997)."""
MOST_ISSUES = 4
"""How many issues of one text, such as the reports of four quarters, each keep a place. Further ones count as repeats.

Otherwise anyone could fill a ranking with copies of a text that differ in a number.
"""
CONTAINED = 0.8
"""The share of the shorter text's shingles that a near-duplicate has."""
CONTAINED_WITH_TITLE = 0.5
"""That share for two documents with the same title."""

STOP_KEYS = frozenset(map(key, STOP_WORDS))
"""The keys of words that say nothing about the subject of a text."""

Shingle = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Content:
    """A candidate's text compared with the question.

    It has the text's shingles, its share of the question's words, and whether it is an echo of the question.
    """

    shingles: frozenset[Shingle]
    repeated: float
    added: int
    """How many content words are not the question's."""
    is_echo: bool


class Novelty:
    """The repeats among the candidates of one episode. Each text is compared once."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._question_shingles = _shingles(notes.question.padded.split())
        self._contents: dict[int, _Content] = {}
        self._rows: dict[Shingle, list[int]] = {}
        """The rows of the texts that contain each shingle."""
        self._same: dict[int, set[int]] = {}
        """The rows that say the same as a row."""
        self._issues: dict[int, set[int]] = {}
        """The rows that are other issues of a row's text."""

    def discounted(self, scores: Floats) -> Floats:
        """Lower the scores of echoes of the question and of repeats of better candidates.

        Return all scores, shape (n_candidates,).
        """
        best = [int(row) for row in np.argsort(-scores, kind="stable")[:COMPARED]]
        for row in best:
            if row not in self._contents:
                self._compare(row)
        discounted = scores.copy()
        worth = {row: float(scores[row]) * (1 - self._contents[row].repeated) for row in best}
        better: set[int] = set()
        for row in sorted(best, key=lambda row: (self._contents[row].is_echo, -worth[row])):
            content = self._contents[row]
            repeats = len(self._same[row] & better) + max(0, len(self._issues[row] & better) - MOST_ISSUES + 1)
            discounted[row] *= REPEATED**repeats
            if content.is_echo:
                discounted[row] *= content.added / (1 + content.added)
            better.add(row)
        return discounted

    def _compare(self, row: int) -> None:
        """Find the rows compared so far that say the same as this row, and those that are other issues of its text.

        If the question asks for several documents, records of a catalog may have all words of the question.
        """
        passage = self._notes.candidates[row].passage
        content = self._contents[row] = self._content(passage)
        overlaps = Counter(earlier for shingle in content.shingles for earlier in self._rows.get(shingle, ()))
        same = {earlier for earlier, shared in overlaps.items() if self._repeats(row, earlier, shared)}
        if content.is_echo:
            same |= {earlier for earlier, compared in self._contents.items() if compared.is_echo}
        document = self._notes.candidates[row].document_id
        others = {earlier for earlier in same if self._notes.candidates[earlier].document_id != document}
        issues = {
            earlier
            for earlier in others
            if (self._notes.question.asks_many or not (content.is_echo and self._contents[earlier].is_echo))
            and _are_issues(passage, self._notes.candidates[earlier].passage)
        }
        self._same[row], self._issues[row] = others - issues, issues
        for earlier in others:
            (self._issues if earlier in issues else self._same)[earlier].add(row)
        for shingle in content.shingles:
            self._rows.setdefault(shingle, []).append(row)

    def _content(self, passage: AnalyzedPassage) -> _Content:
        question_keys = self._notes.question.key_set
        in_question = passage.keys & question_keys
        content_keys = (passage.keys - STOP_KEYS) | in_question
        repeated = len(in_question) / max(1, len(content_keys))
        covers = len(question_keys) > KEYWORDS and len(in_question) >= COVERED * len(question_keys)
        shingles = _shingles(passage.words)
        quoted = len(shingles & self._question_shingles) >= COVERED * len(self._question_shingles)
        is_echo = covers and (repeated >= ECHO or quoted or self._restates(passage))
        return _Content(shingles - self._question_shingles, repeated, len(content_keys) - len(in_question), is_echo)

    def _restates(self, passage: AnalyzedPassage) -> bool:
        """Return True if a part of the text repeats a long question, whatever text is around it."""
        question = self._notes.question
        if len(question.key_set) < LONG_QUESTION:
            return False
        width = len(question.padded.split()) * 3 // 2
        text_keys = [key(word) for word in passage.words]
        starts = range(0, max(1, len(text_keys) - width + 1), max(1, width // 4))
        shared = (len(question.key_set.intersection(text_keys[start : start + width])) for start in starts)
        return max(shared) >= COVERED * len(question.key_set)

    def _repeats(self, row: int, earlier: int, shared: int) -> bool:
        """Return True if two texts with `shared` common shingles say the same about the subject of the question.

        If each of two versions of a page has words of the question that the other lacks, they do not say the same. If
        their titles differ and the question asks for several documents, they do not say the same either.
        """
        rows = (row, earlier)
        passage, compared = (self._notes.candidates[number].passage for number in rows)
        if self._notes.question.asks_many and passage.full_title != compared.full_title:
            return False
        least = CONTAINED_WITH_TITLE if passage.full_title == compared.full_title else CONTAINED
        if shared < least * min(len(self._contents[number].shingles) for number in rows):
            return False
        keys, compared_keys = (_answering_keys(self._notes.question, text) for text in (passage, compared))
        return not (keys - compared_keys and compared_keys - keys)


def _are_issues(first: AnalyzedPassage, second: AnalyzedPassage) -> bool:
    """Return True if the passages are issues of one text, such as the reports of two quarters or two companies.

    Their titles differ, and their texts have different numbers, besides those of the titles.
    """
    titles = {*first.title_words, *second.title_words}
    numbers, other_numbers = (
        [word for word in passage.words if has_digit(word) and word not in titles] for passage in (first, second)
    )
    return first.full_title != second.full_title and numbers != other_numbers


def has_digit(word: str) -> bool:
    """Return True if a digit of any script is in the word."""
    return any(map(str.isdecimal, word))


def _shingles(words: list[str]) -> frozenset[Shingle]:
    """Return all sequences of `SHINGLE` consecutive words. A shorter text is one shingle."""
    if len(words) <= SHINGLE:
        return frozenset({tuple(words)})
    return frozenset(zip(*(words[start:] for start in range(SHINGLE)), strict=False))


def _answering_keys(question: AnalyzedQuestion, passage: AnalyzedPassage) -> frozenset[str]:
    """Return the question's keys in the title and in the sentences that do not repeat the question."""
    least = COVERED * len(question.key_set)
    sentences = (sentence for sentence in passage.sentences if len(sentence & question.key_set) < least)
    return question.key_set & passage.title_keys.union(*sentences)
