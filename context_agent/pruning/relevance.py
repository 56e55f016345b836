"""How relevant the passages of a conversation are to its task: the judges that a pruner can use, by name.

`reader` compares words, their meaning and sentence embeddings, then lets the shipped cross-encoder read the passages
that these leave undecided. The others are baselines: `age` (the latest passages), `random`, `bm25` (words of the task
alone), `embedding` (similarity to it).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps

import numpy as np
from numpy.typing import NDArray

from context_agent._support.onnx import PairModel, shipped_minilm, shipped_reader
from context_agent._support.text_cache import TextCache
from context_agent._support.token_table import load_weights
from context_agent.pruning import reading
from context_agent.pruning.blocks import Passage, is_log_entry
from context_agent.pruning.words import PassageWords, Scores, labeled, query_of, term_id, terms

MAX_READ = 96
"""Passages that the reader reads at most."""
MAX_COMPARED = 512
"""Texts that are compared with the task by their embeddings at most."""
STEP_WEIGHT = 0.3
"""Weight of a word of the latest step beside one of the task; halved with each step before."""
LEADS, LEAD_WEIGHT = 5, 0.3
"""Best passages whose rare words join the query, and the weight of these."""
FUSION_RANKS = 10
"""Added to each rank: the larger, the more a middling rank in all counts beside a high one in one."""
READER_WEIGHT = SIMILARITY_WEIGHT = 2
"""Weight of the reader's ranking, and of that by similarity: each as much as the words and their meaning together."""
MIN_RESEMBLANCE = 0.4
"""Cosine from which a passage resembles a restored one."""
MAX_RESTORED = 16
"""Restored passages that others are compared with, the latest ones."""
QUESTION_CHARACTERS = 20_000
"""Characters of the task that the models get."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_VARIABLE = re.compile(r"(?<![^\W_])\d[\w:.+-]*|\b[0-9a-f]{8,}\b")
"""What differs between entries of a log that say the same: times, numbers, hashes."""

Vector = NDArray[np.float32]
STATIC_VECTORS, EMBEDDINGS = TextCache[Vector](8_192), TextCache[Vector](8_192)


@dataclass(frozen=True, slots=True)
class Goal:
    """What passages are judged against: the task and the latest steps, the latest first.

    Attributes:
        task: What the agent works on.
        steps: What the agent wrote in its latest messages, the latest first.
        room: The number of tokens that fit beside the passages that are `staying`.
        staying: The indices of the passages that stay, whatever their score.
    """

    task: str
    steps: tuple[str, ...] = ()
    room: int = 0
    staying: frozenset[int] = frozenset()


Judge = Callable[[Sequence[Passage], Goal], Scores]


def raised(scores: Scores, passages: Sequence[Passage], restored: Sequence[int]) -> Scores:
    """Return the scores, raised for passages that resemble restored ones: a restore says that they were judged wrong.

    The more a passage resembles one of them, the higher it rises, by at most the range of the scores.

    Args:
        scores: The scores, shape (n,).
        passages: The passages, n of them.
        restored: The indices of those that were restored.
    """
    finite = scores[np.isfinite(scores)]
    if not restored or not len(finite):
        return scores
    resemblance = PassageWords(passages).resemblance([*restored[-MAX_RESTORED:]])
    return scores + np.where(resemblance >= MIN_RESEMBLANCE, resemblance, 0.0) * np.ptp(finite)


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
    """Judge by words and their meaning, fused by reciprocal rank (Cormack et al., 2009).

    Words count by BM25: those of the task and the latest steps, then also what the best passages name. Meaning is the
    cosine similarity of summed static word vectors to the task, for a task in other words than its answer.
    """
    return _Words.of(passages, goal).scores


@dataclass(frozen=True, slots=True)
class _Words:
    """The result of judging by words: the score of each passage, and the weight of each word for the goal."""

    scores: Scores
    weights: dict[int, float]

    @classmethod
    def of(cls, passages: Sequence[Passage], goal: Goal) -> _Words:
        words = PassageWords(passages)
        query = _query(goal)
        scores = words.scores(query)
        leads = [row for row in np.argsort(-scores, kind="stable")[:LEADS].tolist() if scores[row] > 0]
        query |= {term: LEAD_WEIGHT for row in leads for term in words.rare_terms(row) if term not in query}
        scores = _reciprocal(_order(words.scores(query))) + _reciprocal(_order(_meaning(passages, goal.task)))
        return cls(scores, words.term_weights(query))


def _query(goal: Goal) -> dict[int, float]:
    """Return the words of the goal with their weights. The words of the task count most."""
    steps = [(step, STEP_WEIGHT * 0.5**age) for age, step in enumerate(goal.steps)]
    return query_of([*reversed(steps), (goal.task, 1.0)])


def _meaning(passages: Sequence[Passage], task: str) -> Scores:
    """Return the cosine of the summed word vectors of each passage with those of the task, shape (n,)."""
    return _cosines(STATIC_VECTORS.values([task, *map(labeled, passages)], load_weights().sums))


def _cosines(vectors: Sequence[Vector] | Vector) -> Scores:
    """Return the cosine of each row but the first with the first, 0 for a row of zeros."""
    rows = np.asarray(vectors)
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return np.asarray(rows[1:] @ rows[0], dtype=np.float64)


def _order(scores: NDArray[np.floating]) -> list[int]:
    """Return the rows from the highest score to the lowest, equal ones in their order."""
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return order


def _reciprocal(ranking: Sequence[int]) -> Scores:
    """Return for each row of a ranking of all rows the reciprocal of its rank."""
    scores = np.empty(len(ranking))
    scores[ranking] = 1 / (FUSION_RANKS + np.arange(len(ranking)))
    return scores


@_of_readable
def by_reading(passages: Sequence[Passage], goal: Goal, model: PairModel | None = None) -> Scores:
    """Judge by words, meaning, reader and similarity, fused by reciprocal rank; `model` replaces the shipped reader.

    Similarity is that of all-MiniLM-L6-v2. Passages that any of them ranks high stay, so a domain that the reader does
    not know is left to the others. At most `MAX_READ` pairs are read: those that the others rank nearest to the limit
    of what fits.
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
    """Return the cosine of each passage with the task by all-MiniLM-L6-v2, shape (n,).

    Only the best `MAX_COMPARED` texts by words are compared. The others have -1.
    """
    rows: dict[str, list[int]] = {}
    for row in _order(words.scores):
        text = _excerpt(passages[row], words.weights)
        if text in rows or len(rows) < MAX_COMPARED:
            rows.setdefault(text, []).append(row)
    similar = np.full(len(passages), -1.0)
    vectors = EMBEDDINGS.values([_question(task), *rows], shipped_minilm().encode)
    for cosine, same in zip(_cosines(vectors), rows.values(), strict=True):
        similar[same] = cosine
    return similar


def _undecided(sizes: Sequence[int], room: int) -> slice:
    """Return the ranks around the one at which the passages, in order of their scores, fill the room."""
    if len(sizes) <= MAX_READ:
        return slice(0, len(sizes))
    fitting = int(np.searchsorted(np.cumsum(sizes), room))
    start = min(max(0, fitting - MAX_READ // 2), len(sizes) - MAX_READ)
    return slice(start, start + MAX_READ)


def _premise(task: str, passages: Sequence[Passage], words: _Words, order: Sequence[int], row: int) -> str:
    """Return the first text of the reader's input: the task, then the best sentences of the best other passages."""
    others = [passages[other] for other in order[: reading.EVIDENCE + 1] if other != row]
    return reading.premise(
        _question(task), ((passage.label, _best_sentence(passage, words.weights)) for passage in others)
    )


def _best_sentence(passage: Passage, weights: Mapping[int, float]) -> str:
    return max(_sentences(passage.text), key=lambda sentence: _covered(sentence, weights), default="")


def _question(task: str) -> str:
    """Return the task; of a long one its questions."""
    if len(task.split()) > reading.QUESTION_WORDS and (
        questions := [line for line in _sentences(task) if line.endswith("?")]
    ):
        task = " ".join(questions)
    return task[:QUESTION_CHARACTERS]


def _excerpt(passage: Passage, weights: Mapping[int, float]) -> str:
    """Return the second text of the reader's input: the passage, shortened to what covers most of the goal's words.

    The entry of a log goes without what differs between entries that say the same.
    """
    text = _VARIABLE.sub(" ", passage.text) if is_log_entry(passage.text) else passage.text
    sentences = _sentences(text)
    return reading.excerpt(passage.label, text, sentences, [_covered(sentence, weights) for sentence in sentences])


def _covered(sentence: str, weights: Mapping[int, float]) -> float:
    return sum(weights.get(term, 0.0) for term in set(map(term_id, terms(sentence))))


def _sentences(text: str) -> list[str]:
    return [" ".join(sentence.split()) for sentence in _SENTENCE.split(text) if sentence.strip()]


@_of_readable
def by_bm25(passages: Sequence[Passage], goal: Goal) -> Scores:
    """BM25 of the words of the task."""
    return PassageWords(passages).scores(query_of([(goal.task, 1.0)]))


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
