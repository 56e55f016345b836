"""The novelty of candidates: which of their texts repeat a better one, or only echo the question.

`Novelty` protects against repeated passages. Anyone who may add documents can add passages that repeat a question, and
no other passage has more of the question's words. Copies of one passage take the places of other passages. A candidate
therefore counts by what it adds, as in maximal marginal relevance (Carbonell and Goldstein, SIGIR 1998). Each better
candidate that says the same divides its score by ten. Candidates that mostly repeat the question, quote it, or restate
a long one all say the same. A near-duplicate that does not repeat the question is ranked above near-duplicates that
repeat it. If the question is a text of several sentences that asks nothing, such as a pasted paragraph, no candidate is
an echo: an attacker cannot foresee such a text, and a user who pastes it looks for it. Up to four
issues of one text, such as the reports of four quarters, each keep their place.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from context_agent.policies.bridge.candidates import AnalyzedPassage, AnalyzedQuestion, Floats, Notes
from context_agent.text.identifiers import Asked
from context_agent.text.sentences import sentences
from context_agent.text.words import STOP_WORDS, key

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
"""Number of a question's content words that no passage has close together by chance. Such text is an echo.

A date or a code counts as one word, because a passage that has one of its words has them all.
"""
PASTED_TEXT = 12
"""Minimum number of content words of a question that is a pasted text."""
QUESTION_MARKS = frozenset("?\uff1f\u061f\u037e")
"""The question marks of Latin, Chinese, Arabic and Greek text."""
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

    It has the text's shingles, its share of the question's words, whether it is an echo of the question, and the
    identifiers of the question that the passage has.
    """

    shingles: frozenset[Shingle]
    repeated: float
    added: int
    """How many content words are not the question's."""
    is_echo: bool
    named: frozenset[Asked]


class Novelty:
    """The repeats among the candidates of one episode. Each text is compared once."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._question_shingles = _shingles(notes.question.padded.split())
        self._is_pasted = _is_pasted(notes.question)
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
            # A passage with an identifier of the question repeats none that lacks it.
            alike = {other for other in better if content.named <= self._contents[other].named}
            repeats = len(self._same[row] & alike) + max(0, len(self._issues[row] & alike) - MOST_ISSUES + 1)
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
            if (self._notes.question.asks_for_several or not (content.is_echo and self._contents[earlier].is_echo))
            and _are_issues(passage, self._notes.candidates[earlier].passage)
        }
        self._same[row], self._issues[row] = others - issues, issues
        for earlier in others:
            (self._issues if earlier in issues else self._same)[earlier].add(row)
        for shingle in content.shingles:
            self._rows.setdefault(shingle, []).append(row)

    def _content(self, passage: AnalyzedPassage) -> _Content:
        question_keys, identifier_keys = self._notes.question.key_set, self._notes.question.identifier_keys
        in_question = passage.keys & question_keys
        content_keys = (passage.keys - STOP_KEYS) | in_question
        # A date or a code says which of many records is meant. To have it is not to repeat the question.
        repeated = len(in_question - identifier_keys) / max(1, len(content_keys - identifier_keys))
        covers = len(question_keys) > KEYWORDS and len(in_question) >= COVERED * len(question_keys)
        shingles = _shingles(passage.words)
        quoted = len(shingles & self._question_shingles) >= COVERED * len(self._question_shingles)
        is_echo = covers and not self._is_pasted and (repeated >= ECHO or quoted or self._restates(passage))
        added = len(content_keys) - len(in_question)
        named = frozenset(
            asked for asked in self._notes.question.identifiers if not passage.identifiers.isdisjoint(asked.spellings)
        )
        return _Content(shingles - self._question_shingles, repeated, added, is_echo, named)

    def _restates(self, passage: AnalyzedPassage) -> bool:
        """Return True if a part of the text repeats a long question, whatever text is around it."""
        question = self._notes.question
        if question.length < LONG_QUESTION:
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
        if self._notes.question.asks_for_several and passage.full_title != compared.full_title:
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


def _is_pasted(question: AnalyzedQuestion) -> bool:
    """Return True if a question is a text of at least two sentences without a question mark."""
    if len(question.key_set) < PASTED_TEXT or not QUESTION_MARKS.isdisjoint(question.text):
        return False
    return len(sentences(question.text)) > 1


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
