"""How relevant the passages of a conversation are to its task: the judges that a pruner can use, by name.

`reader` compares words, their meaning and sentence embeddings, then lets the shipped cross-encoder read the passages
that these leave undecided. The others are baselines: `age` (the latest
passages), `random`, `bm25` (words of the task alone), `embedding` (similarity to it).

The cross-encoder reads a pair of texts, in the form that it was trained on: `premise`, the question and a line for each
of the best other passages, and `excerpt`, the passage itself, shortened if it is long.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from context_agent._support.onnx import PairModel, shipped_minilm, shipped_reader
from context_agent._support.token_table import load_weights
from context_agent.pruning.blocks import Passage, is_log_entry
from context_agent.text.sentences import loose_sentences

Scores = NDArray[np.float64]
"""A number for each passage, higher for what should stay."""

READ = 96
"""Passages that the reader reads at most."""
COMPARED = 512
"""Texts that are compared with the task by their embeddings at most."""
STEP_WEIGHT = 0.3
"""Weight of a word of the latest step beside one of the task; halved with each step before."""
LEADS, LEAD_WEIGHT = 5, 0.3
"""Best passages whose rare words join the query, and the weight of these."""
FUSION_RANKS = 10
"""Added to each rank: the larger, the more a middling rank in all counts beside a high one in one."""
READER_WEIGHT = SIMILARITY_WEIGHT = 2
"""Weight of the reader's ranking, and of that by similarity: each as much as the words and their meaning together."""
ALIKE = 0.4
"""Cosine from which a passage resembles a restored one."""
MAX_RESTORED = 16
"""Restored passages that others are compared with, the latest ones."""
K1, B = 1.2, 0.75
_STEM = 6
"""Letters of a word that count: a stemmer that knows no language."""
SHORTEST_PLURAL = 3
"""Letters of a word that an `s` at the end makes a plural, or a form of a verb, must exceed."""
_TERM = re.compile(
    r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\d_A-Za-z]+"
)
"""A word, a part of an identifier in camel or snake case, a number, a character of a script without spaces."""
_VARIABLE = re.compile(r"(?<![^\W_])\d[\w:.+-]*|\b[0-9a-f]{8,}\b")
"""What differs between entries of a log that say the same: times, numbers, hashes."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What passages are judged against: the task and the latest steps, the latest first.

    `room` are the tokens that fit besides the passages that are `staying`, by index, whatever their score.
    """

    task: str
    steps: tuple[str, ...] = ()
    room: int = 0
    staying: frozenset[int] = frozenset()


Judge = Callable[[Sequence[Passage], Goal], Scores]


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    """Return the part of a word that its inflections share, without knowing the language."""
    word = word.lower()
    if len(word) > SHORTEST_PLURAL and word.endswith("s") and word[-2] not in "siu":
        word = word[:-1]
    return word[:_STEM]


def terms(text: str) -> list[str]:
    """Return the words of a text as they are compared."""
    return [*map(_stem, _TERM.findall(text))]


class PassageWords:
    """The words of a conversation's passages. A word is rare if it is rare among these."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.counts = [Counter(terms(f"{passage.label} {passage.text}")) for passage in passages]
        self._frequency = Counter(term for count in self.counts for term in count)
        sizes = np.array([count.total() for count in self.counts], dtype=np.float64)
        self._norms = K1 * (1 - B + B * sizes / max(1.0, sizes.mean() if len(sizes) else 1.0))

    def rarity(self, term: str) -> float:
        """BM25's inverse document frequency (Robertson & Zaragoza, 2009)."""
        frequency = self._frequency[term]
        return math.log1p((len(self.counts) - frequency + 0.5) / (frequency + 0.5))

    def scores(self, query: Mapping[str, float]) -> Scores:
        """BM25 of each passage for a query of weighted words, shape (n,)."""
        weights = {term: weight * self.rarity(term) for term, weight in query.items() if term in self._frequency}
        scores = np.zeros(len(self.counts))
        for row, (count, norm) in enumerate(zip(self.counts, self._norms, strict=True)):
            shared = weights.keys() & count.keys()
            scores[row] = sum(weights[term] * count[term] * (K1 + 1) / (count[term] + norm) for term in shared)
        return scores

    def rare_terms(self, row: int) -> list[str]:
        """Return the words of a passage that are in at most one of eight passages, the rarest first."""
        most = max(2, len(self.counts) // 8)
        rare = [term for term in self.counts[row] if 2 <= self._frequency[term] <= most and len(term) > 2]
        return sorted(rare, key=lambda term: (self._frequency[term], term))

    def resemblance(self, rows: list[int]) -> Scores:
        """Return the cosine of each passage with the nearest of these rows by their words, rare ones first; 0 to 1."""
        squares = {term: self.rarity(term) ** 2 for term in self._frequency}
        norms = np.sqrt([sum(map(squares.__getitem__, count)) or 1.0 for count in self.counts])
        columns = {term: column for column, term in enumerate({term for row in rows for term in self.counts[row]})}
        has = np.zeros((len(self.counts), len(columns)), dtype=np.float32)
        for row, count in enumerate(self.counts):
            has[row, [columns[term] for term in count.keys() & columns.keys()]] = 1.0
        shared = has @ (has[rows] * np.array([squares[term] for term in columns], dtype=np.float32)).T
        return np.asarray((shared / norms[:, None] / norms[rows]).max(axis=1), dtype=np.float64)


def raised(scores: Scores, passages: Sequence[Passage], restored: Sequence[int]) -> Scores:
    """Return the scores, raised for passages that resemble restored ones: a restore says that they were judged wrong.

    The more a passage resembles one of them, the higher it rises, by at most the range of the scores.
    """
    finite = scores[np.isfinite(scores)]
    if not restored or not len(finite):
        return scores
    alike = PassageWords(passages).resemblance([*restored[-MAX_RESTORED:]])
    return scores + np.where(alike >= ALIKE, alike, 0.0) * np.ptp(finite)


def _of_readable(judge: Callable[..., Scores]) -> Callable[..., Scores]:
    """Return the judge for what can be read. Binary passages score below all others, so they go first."""

    @wraps(judge)
    def judge_readable(passages: Sequence[Passage], goal: Goal, *models: PairModel | None) -> Scores:
        rows = [row for row, passage in enumerate(passages) if not passage.binary]
        if len(rows) == len(passages):
            return judge(passages, goal, *models)
        staying = frozenset(number for number, row in enumerate(rows) if row in goal.staying)
        readable = judge([passages[row] for row in rows], replace(goal, staying=staying), *models)
        scores = np.full(len(passages), (readable.min() if rows else 0.0) - 1)
        scores[rows] = readable
        return scores

    return judge_readable


@_of_readable
def by_words(passages: Sequence[Passage], goal: Goal) -> Scores:
    """Words and their meaning, fused by reciprocal rank (Cormack et al., 2009).

    Words count by BM25: those of the task and the latest steps, then also what the best passages name. Meaning is the
    cosine similarity of summed static word vectors to the task, for a task in other words than its answer.
    """
    return _Words.of(passages, goal).scores


@dataclass(frozen=True, slots=True)
class _Words:
    """The result of judging by words: the score of each passage, and the weight of each word for the goal."""

    scores: Scores
    weights: dict[str, float]

    @classmethod
    def of(cls, passages: Sequence[Passage], goal: Goal) -> _Words:
        words = PassageWords(passages)
        query = _query(goal)
        scores = words.scores(query)
        leads = [row for row in np.argsort(-scores, kind="stable")[:LEADS].tolist() if scores[row] > 0]
        named = Counter(term for row in leads for term in words.rare_terms(row))
        query |= {term: LEAD_WEIGHT for term in named if term not in query}
        scores = _reciprocal(_order(words.scores(query))) + _reciprocal(_order(_meaning(passages, goal.task)))
        return cls(scores, {term: weight * words.rarity(term) for term, weight in query.items()})


def _meaning(passages: Sequence[Passage], task: str) -> Scores:
    """Cosine similarity of the summed word vectors to those of the task, shape (n,)."""
    return _cosines(load_weights().sums([task, *(f"{passage.label} {passage.text}" for passage in passages)]))


def _cosines(rows: NDArray[np.float32]) -> Scores:
    """Return the cosine of each row but the first with the first, 0 for a row of zeros."""
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return np.asarray(rows[1:] @ rows[0], dtype=np.float64)


def _order(scores: NDArray[np.floating]) -> list[int]:
    """Return the rows from the highest score to the lowest, equal ones in their order."""
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return order


def _reciprocal(ranking: Sequence[int]) -> Scores:
    """For each row of a ranking of all rows, the reciprocal of its rank."""
    scores = np.empty(len(ranking))
    scores[ranking] = 1 / (FUSION_RANKS + np.arange(len(ranking)))
    return scores


def _query(goal: Goal) -> dict[str, float]:
    """Return the words of the goal with their weights."""
    query: dict[str, float] = {}
    for age, step in reversed([*enumerate(goal.steps)]):
        query |= dict.fromkeys(terms(step), STEP_WEIGHT * 0.5**age)
    return query | dict.fromkeys(terms(goal.task), 1.0)


@_of_readable
def by_reading(passages: Sequence[Passage], goal: Goal, model: PairModel | None = None) -> Scores:
    """Words, meaning, reader and similarity, fused by reciprocal rank; `model` replaces the shipped reader.

    Similarity is that of all-MiniLM-L6-v2. Passages that any of them ranks high stay, so a domain that the reader does
    not know is left to the others. At most `READ` passages are read: those that the others put nearest to the limit of
    what fits.
    """
    words = _Words.of(passages, goal)
    scores = words.scores + SIMILARITY_WEIGHT * _reciprocal(_order(_similarity(passages, words, goal.task)))
    order = _order(scores)
    open_rows = [row for row in order if row not in goal.staying]
    undecided = _undecided([passages[row].tokens for row in open_rows], goal.room)
    rows = open_rows[undecided]
    pairs = [(_premise(goal.task, passages, words, order, row), _excerpt(passages[row], words.weights)) for row in rows]
    odds = (model or shipped_reader()).encode_pairs(pairs)[:, 0] if pairs else np.zeros(0)
    read = [rows[rank] for rank in _order(odds)]
    staying = [row for row in order if row in goal.staying]
    ranking = [*open_rows[: undecided.start], *read, *open_rows[undecided.stop :], *staying]
    return scores + READER_WEIGHT * _reciprocal(ranking)


def _similarity(passages: Sequence[Passage], words: _Words, task: str) -> Scores:
    """Return the cosine of each passage with the task by all-MiniLM-L6-v2; -1 beyond `COMPARED` texts, the best by
    words.
    """
    rows: dict[str, list[int]] = {}
    for row in _order(words.scores):
        text = _excerpt(passages[row], words.weights)
        if text in rows or len(rows) < COMPARED:
            rows.setdefault(text, []).append(row)
    similar = np.full(len(passages), -1.0)
    for cosine, same in zip(_cosines(shipped_minilm().encode([_question(task), *rows])), rows.values(), strict=True):
        similar[same] = cosine
    return similar


def _undecided(sizes: Sequence[int], room: int) -> slice:
    """Return the ranks around the one at which the passages, in order of their scores, fill the room."""
    if len(sizes) <= READ:
        return slice(0, len(sizes))
    fitting = int(np.searchsorted(np.cumsum(sizes), room))
    start = min(max(0, fitting - READ // 2), len(sizes) - READ)
    return slice(start, start + READ)


def _premise(task: str, passages: Sequence[Passage], words: _Words, order: Sequence[int], row: int) -> str:
    """Return the first text of the reader's input: the task, then the best sentences of the best other passages."""
    others = [passages[other] for other in order[: EVIDENCE + 1] if other != row]
    return premise(_question(task), ((passage.label, _best_sentence(passage, words.weights)) for passage in others))


def _best_sentence(passage: Passage, weights: Mapping[str, float]) -> str:
    return max(loose_sentences(passage.text), key=lambda sentence: _covered(sentence, weights), default="")


def _question(task: str) -> str:
    """Return the task; of a long one its questions."""
    if len(task.split()) > QUESTION_WORDS and (
        questions := [line for line in loose_sentences(task) if line.endswith("?")]
    ):
        task = " ".join(questions)
    return task[:QUESTION_CHARACTERS]


def _excerpt(passage: Passage, weights: Mapping[str, float]) -> str:
    """Return the second text of the reader's input: the passage, shortened to what covers most of the goal's words.

    The entry of a log goes without what differs between entries that say the same.
    """
    text = _VARIABLE.sub(" ", passage.text) if is_log_entry(passage.text) else passage.text
    sentences = loose_sentences(text)
    return excerpt(passage.label, text, sentences, [_covered(sentence, weights) for sentence in sentences])


def _covered(sentence: str, weights: Mapping[str, float]) -> float:
    return sum(weights.get(term, 0.0) for term in set(terms(sentence)))


@_of_readable
def by_bm25(passages: Sequence[Passage], goal: Goal) -> Scores:
    """BM25 of the words of the task."""
    return PassageWords(passages).scores(dict.fromkeys(terms(goal.task), 1.0))


@_of_readable
def by_embedding(passages: Sequence[Passage], goal: Goal) -> Scores:
    """Cosine similarity to the task, by all-MiniLM-L6-v2."""
    return _cosines(shipped_minilm().encode([goal.task, *(f"{passage.label} {passage.text}" for passage in passages)]))


def by_age(passages: Sequence[Passage], goal: Goal) -> Scores:
    """Return the later a passage, the higher."""
    return np.arange(len(passages), dtype=np.float64)


def at_random(passages: Sequence[Passage], goal: Goal) -> Scores:
    """Return a number drawn from the passage's text, so that it never changes."""
    return np.array([_digest_number(passage.text) for passage in passages], dtype=np.float64)


def _digest_number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=6).digest())


JUDGES: dict[str, Judge] = {
    "reader": by_reading,
    "age": by_age,
    "random": at_random,
    "bm25": by_bm25,
    "embedding": by_embedding,
}


def custom(strategy: Callable[[Sequence[Passage], str], Iterable[float]]) -> Judge:
    """Return the judge for a function (passages, task) -> scores."""

    def judge(passages: Sequence[Passage], goal: Goal) -> Scores:
        return np.asarray([float(score) for score in strategy(passages, goal.task)], dtype=np.float64)

    return judge


EVIDENCE = 2
"""Other passages that the reader sees."""
QUESTION_CHARACTERS = 20_000
"""Characters of the task that the models get."""
QUESTION_WORDS, TITLE_WORDS, SENTENCE_WORDS, EXCERPT_WORDS = 50, 8, 18, 80
"""Most words of the question, of a title, of a sentence of another passage, and of the passage itself."""


def premise(question: str, evidence: Iterable[tuple[str, str]]) -> str:
    """Return the first text; `evidence` has a title, which may be empty, and a sentence for each of the other
    passages.
    """
    lines = [_line(title, ": ", cut(sentence, SENTENCE_WORDS)) for title, sentence in islice(evidence, EVIDENCE)]
    return " | ".join([cut(question, QUESTION_WORDS), *lines])


def excerpt(title: str, text: str, sentences: Sequence[str], worth: Sequence[float]) -> str:
    """Return the second text. A long passage is cut to its first sentence and those of the highest `worth`, in
    order.
    """
    words = text.split()
    short = " ".join(words) if len(words) <= EXCERPT_WORDS else _worthiest(sentences, worth)
    return _line(title, ". ", short)


def _worthiest(sentences: Sequence[str], worth: Sequence[float]) -> str:
    chosen, room = {0}, EXCERPT_WORDS - len(sentences[0].split())
    for row in sorted(range(1, len(sentences)), key=lambda row: -worth[row]):
        size = len(sentences[row].split())
        if size <= room:
            chosen.add(row)
            room -= size
    return cut(" ".join(sentences[row] for row in sorted(chosen)), EXCERPT_WORDS)


def _line(title: str, mark: str, text: str) -> str:
    return f"{cut(title, TITLE_WORDS)}{mark}{text}" if title else text


def cut(text: str, words: int) -> str:
    """Return the first words of a text, with single spaces."""
    return " ".join(text.split(maxsplit=words)[:words])
