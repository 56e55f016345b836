"""What a candidate adds to the question and to better candidates. Repeats share one place in the ranking.

Whoever may add documents can add passages that repeat a question: no other passage has more of its words. Copies of one
passage take the places of the rest. So a candidate counts by what it adds, as in maximal marginal relevance (Carbonell
and Goldstein, SIGIR 1998): each better candidate that says the same divides its score by ten. All candidates that
mostly repeat the question, quote it, or restate a long one, say the same. A near-duplicate that does not do so has the
place before those that do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from context_agent.policies.bridge.candidates import AnalyzedPassage, AnalyzedQuestion, Floats, Notes
from context_agent.policies.bridge.text import STOP, key

COMPARED = 24
"""Best candidates whose texts are compared."""
REPEATED = 0.1
"""Factor on a score for each better candidate that says the same."""
COVERED = 0.75
"""Share of the question's content words that an echo has."""
KEYWORDS = 2
"""Content words at most of a question that is a search by keywords: a passage that has just these answers it."""
ECHO = 0.6
"""Share of an echo's content words that are the question's."""
LONG_QUESTION = 6
"""Content words of a question that no passage has close together by chance: any text around them is an echo."""
SHINGLE = 3
"""Words of a shingle (Broder, "On the resemblance and containment of documents", 1997)."""
CONTAINED = 0.8
"""Share of the shorter text's shingles that a near-duplicate has."""
CONTAINED_WITH_TITLE = 0.5
"""The same for two documents of one title."""

_STOP_KEYS = frozenset(map(key, STOP))

Shingle = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Content:
    """One candidate's text beside the question: shingles, the share of its content words in the question, an echo?"""

    shingles: frozenset[Shingle]
    repeated: float
    added: int
    """Content words that are not the question's."""
    is_echo: bool


class Novelty:
    """The repeats among the candidates of one episode. Each text is compared once."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._question_shingles = _shingles(notes.question.padded.split())
        self._contents: dict[int, _Content] = {}
        self._rows: dict[Shingle, list[int]] = {}
        """The rows of the texts that contain a shingle."""
        self._same: dict[int, set[int]] = {}
        """The rows that say the same as a row."""

    def discounted(self, scores: Floats) -> Floats:
        """The scores, shape (n,), lower for echoes of the question and for repeats of better candidates."""
        best = [int(row) for row in np.argsort(-scores, kind="stable")[:COMPARED]]
        for row in best:
            if row not in self._contents:
                self._compare(row)
        discounted = scores.copy()
        worth = {row: float(scores[row]) * (1 - self._contents[row].repeated) for row in best}
        better: set[int] = set()
        for row in sorted(best, key=lambda row: (self._contents[row].is_echo, -worth[row])):
            content = self._contents[row]
            discounted[row] *= REPEATED ** len(self._same[row] & better)
            if content.is_echo:
                discounted[row] *= content.added / (1 + content.added)
            better.add(row)
        return discounted

    def _compare(self, row: int) -> None:
        """Finds the compared rows that say the same as this one."""
        passage = self._notes.candidates[row].passage
        content = self._contents[row] = self._content(passage)
        overlaps = Counter(earlier for shingle in content.shingles for earlier in self._rows.get(shingle, ()))
        same = {earlier for earlier, shared in overlaps.items() if self._repeats(row, earlier, shared)}
        if content.is_echo:
            same |= {earlier for earlier, compared in self._contents.items() if compared.is_echo}
        document = self._notes.candidates[row].document_id
        self._same[row] = {earlier for earlier in same if self._notes.candidates[earlier].document_id != document}
        for earlier in self._same[row]:
            self._same[earlier].add(row)
        for shingle in content.shingles:
            self._rows.setdefault(shingle, []).append(row)

    def _content(self, passage: AnalyzedPassage) -> _Content:
        question_keys = self._notes.question.key_set
        in_question = passage.keys & question_keys
        content_keys = (passage.keys - _STOP_KEYS) | in_question
        repeated = len(in_question) / max(1, len(content_keys))
        covers = len(question_keys) > KEYWORDS and len(in_question) >= COVERED * len(question_keys)
        shingles = _shingles(passage.words)
        quoted = len(shingles & self._question_shingles) >= COVERED * len(self._question_shingles)
        is_echo = covers and (repeated >= ECHO or quoted or self._restates(passage))
        return _Content(shingles - self._question_shingles, repeated, len(content_keys) - len(in_question), is_echo)

    def _restates(self, passage: AnalyzedPassage) -> bool:
        """Whether a stretch of the text repeats a long question, whatever is around it."""
        question = self._notes.question
        if len(question.key_set) < LONG_QUESTION:
            return False
        width = len(question.padded.split()) * 3 // 2
        text_keys = [key(word) for word in passage.words]
        starts = range(0, max(1, len(text_keys) - width + 1), max(1, width // 4))
        shared = (len(question.key_set.intersection(text_keys[start : start + width])) for start in starts)
        return max(shared) >= COVERED * len(question.key_set)

    def _repeats(self, row: int, earlier: int, shared: int) -> bool:
        """Whether two texts with `shared` common shingles say the same of what the question asks for.

        Versions of one page do not if each of them has words of the question that the other lacks.
        """
        rows = (row, earlier)
        passage, compared = (self._notes.candidates[number].passage for number in rows)
        least = CONTAINED_WITH_TITLE if passage.full_title == compared.full_title else CONTAINED
        if shared < least * min(len(self._contents[number].shingles) for number in rows):
            return False
        keys, compared_keys = (_answering_keys(self._notes.question, text) for text in (passage, compared))
        return not (keys - compared_keys and compared_keys - keys)


def _shingles(words: list[str]) -> frozenset[Shingle]:
    """All runs of `SHINGLE` words; a shorter text is one shingle."""
    if len(words) <= SHINGLE:
        return frozenset({tuple(words)})
    return frozenset(zip(*(words[start:] for start in range(SHINGLE)), strict=False))


def _answering_keys(question: AnalyzedQuestion, passage: AnalyzedPassage) -> frozenset[str]:
    """The question's keys in the title and in the sentences that do not repeat the question."""
    least = COVERED * len(question.key_set)
    sentences = (sentence for sentence in passage.sentences if len(sentence & question.key_set) < least)
    return question.key_set & passage.title_keys.union(*sentences)
