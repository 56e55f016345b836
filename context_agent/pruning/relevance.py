"""Judges of the relevance of a conversation's passages to its task. A pruner finds a judge by its name.

`reader` compares words, their meaning and sentence embeddings. The shipped cross-encoder then reads the passages whose
relevance is still undecided. The other judges are baselines. `age` prefers the latest passages, `bm25` compares the
words of the task alone, `embedding` compares embeddings, and `random` draws the scores.
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
from context_agent.text.sentences import loose_sentences

MIN_COMPARED, MAX_COMPARED, TOKENS_COMPARED = 128, 320, 60
"""Bounds on the number of texts whose embeddings are compared with the task, and the tokens for each such text."""
MIN_READ, MAX_READ, TOKENS_READ = 32, 56, 250
"""Bounds on the number of texts that the reader reads, and the tokens for each such text."""
GIST_CHARACTERS, READ_CHARACTERS, LINE_CHARACTERS = 160, 200, 100
"""The most characters of a passage to compare, of a passage to read, and of a sentence that is read with it."""
OUTSTANDING = 2.5
"""The standard score by words above which it counts twice.

Such a passage has the id or the names that the task asks for.
"""
MIN_ASKED = 0.1
"""The share of the weight of the task's words that a part of a passage must have to be about the task."""
STEP_WEIGHT = 0.3
"""The weight of a word of the latest step, relative to a word of the task. Each earlier step has half the weight."""
LEADS, LEAD_WEIGHT = 5, 0.3
"""The number of best passages whose rare words are added to the query, and the weight of these words."""
FUSION_RANKS = 10
"""The number added to each rank before fusion. A larger number favors passages with a fair rank in all rankings."""
READER_WEIGHT = SIMILARITY_WEIGHT = 2
"""The weights of the reader and of similarity. Each counts as much as words and meaning together."""
MIN_RESEMBLANCE = 0.4
"""The cosine from which a passage resembles a restored passage."""
MAX_RESTORED = 16
"""The number of restored passages that others are compared with. The latest ones are taken."""
QUESTION_CHARACTERS = 20_000
"""The most characters of the task that the models read."""
_VARIABLE = re.compile(r"(?<![^\W_])\d[\w:.+-]*|\b[0-9a-f]{8,}\b")
"""The parts in which log entries with the same message differ: times, numbers, hashes."""
_LINE_LOCATION = re.compile(r"^[^\s:]{1,200}[:-]\d{1,9}[:-]\s?")
"""The file and the line number at the start of a line that a search in files found."""
_MEMBER_END = re.compile(r",\s*+(?=[\"'{\[])|(?<=[}>])\s*+(?=[{<])")
_MARKS = re.compile(r"[\"'{}\[\]|<>]+")
"""The end of a member of a record, and the marks around its keys and values."""

PLAIN_FORMS = ("text", "string")
"""Forms of passages that are not records."""
Vector = NDArray[np.float32]
STATIC_VECTORS, EMBEDDINGS = TextCache[Vector](8_192), TextCache[Vector](8_192)
ODDS = TextCache[float](16_384)


@dataclass(frozen=True, slots=True)
class Goal:
    """The task and the latest steps of an agent. Passages are judged against them.

    Attributes:
        task: The task of the agent.
        steps: The agent's latest messages, the latest first.
        room: The number of tokens that fit in addition to the passages in `staying`.
        staying: The indices of the passages that stay whatever their score.
    """

    task: str
    steps: tuple[str, ...] = ()
    room: int = 0
    staying: frozenset[int] = frozenset()


Judge = Callable[[Sequence[Passage], Goal], Scores]


def raised(scores: Scores, passages: Sequence[Passage], restored: Sequence[int]) -> Scores:
    """Raise the scores of passages that resemble restored ones, and return the scores.

    A restore shows that the judge scored a passage too low. The more a passage resembles a restored one, the more its
    score rises, by at most the range of the scores.

    Args:
        scores: The scores, shape (n_passages,).
        passages: The passages.
        restored: The indices of the restored passages.
    """
    finite = scores[np.isfinite(scores)]
    if not restored or not len(finite):
        return scores
    resemblance = PassageWords(passages).resemblance([*restored[-MAX_RESTORED:]])
    return scores + np.where(resemblance >= MIN_RESEMBLANCE, resemblance, 0.0) * np.ptp(finite)


def _of_readable(judge: Callable[..., Scores]) -> Callable[..., Scores]:
    """Return the judge, changed to score binary passages below all others. They are then removed first."""

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

    BM25 compares the words of the task and of the latest steps. In a second pass, the rare words of the best passages
    are added to the query. Meaning is the cosine similarity of summed static word vectors to those of the task. It
    finds passages that answer the task in other words.

    Args:
        passages: The passages.
        goal: The goal to judge against.

    Returns:
        The scores, shape (n_passages,).
    """
    return _Words.of(passages, goal).scores


@dataclass(frozen=True, slots=True)
class _Words:
    """The result of judging by words.

    Attributes:
        scores: The score of each passage, shape (n_passages,).
        standard: The sum of the standard scores by words and by meaning, shape (n_passages,).
        weights: The weight of each word for the goal.
        asked: The weight of each word of the task.
    """

    scores: Scores
    standard: Scores
    weights: dict[int, float]
    asked: dict[int, float]

    @classmethod
    def of(cls, passages: Sequence[Passage], goal: Goal) -> _Words:
        words = PassageWords(passages)
        query = _query(goal)
        alone = words.scores(query)
        leads = [row for row in np.argsort(-alone, kind="stable")[:LEADS].tolist() if alone[row] > 0]
        query |= {term: LEAD_WEIGHT for row in leads for term in words.rare_terms(row) if term not in query}
        meaning = _meaning(passages, goal.task)
        scores = _reciprocal(_order(words.scores(query))) + _reciprocal(_order(meaning))
        asked = words.term_weights(query_of([(goal.task, 1.0)]))
        said = _standard(alone)
        standard = said + np.maximum(0.0, said - OUTSTANDING) + _standard(meaning)
        return cls(scores, standard, words.term_weights(query), asked)


def _query(goal: Goal) -> dict[int, float]:
    """Return the words of the goal with their weights. The words of the task count most."""
    steps = [(step, STEP_WEIGHT * 0.5**age) for age, step in enumerate(goal.steps)]
    return query_of([*reversed(steps), (goal.task, 1.0)])


def _meaning(passages: Sequence[Passage], task: str) -> Scores:
    """Return the cosine of each passage's summed word vectors with those of the task, shape (n_passages,)."""
    return _cosines(STATIC_VECTORS.values([task, *map(labeled, passages)], load_weights().sums))


def _cosines(vectors: Sequence[Vector] | Vector) -> Scores:
    """Return the cosine of the first row with each other row. The cosine of a row of zeros is 0."""
    rows = np.asarray(vectors)
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return np.asarray(rows[1:] @ rows[0], dtype=np.float64)


def _order(scores: NDArray[np.floating]) -> list[int]:
    """Return the rows from the highest score to the lowest. Rows with equal scores keep their order."""
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return order


def _reciprocal(ranking: Sequence[int]) -> Scores:
    """Return the reciprocal rank of each row in a ranking of all rows."""
    scores = np.empty(len(ranking))
    scores[ranking] = 1 / (FUSION_RANKS + np.arange(len(ranking)))
    return scores


def _standard(values: Scores) -> Scores:
    """Return the standard scores of the values: their distances from the mean, in standard deviations."""
    return (values - values.mean()) / (values.std() + 1e-9) if len(values) else values


@_of_readable
def by_reading(passages: Sequence[Passage], goal: Goal, model: PairModel | None = None) -> Scores:
    """Judge by the sum of the standard scores of words, meaning, similarity and reader.

    If one of them scores a passage far above the others, the passage stays. In a domain that the reader does not know,
    the other scores therefore decide. Similarity is computed with all-MiniLM-L6-v2 for the passages that score best by
    words. The reader reads the passages that the other scores rank nearest to the limit of the room.

    Args:
        passages: The passages.
        goal: The goal to judge against.
        model: A reader to use instead of the shipped one.

    Returns:
        The scores, shape (n_passages,).
    """
    words = _Words.of(passages, goal)
    tokens = sum(passage.tokens for passage in passages)
    excerpts = _Excerpts(passages, words)
    count = min(max(MIN_COMPARED, tokens // TOKENS_COMPARED), MAX_COMPARED)
    scores = words.standard + SIMILARITY_WEIGHT * _similarity(excerpts, _order(words.scores), goal.task, count)
    order = _order(scores)
    count = min(max(MIN_READ, tokens // TOKENS_READ), MAX_READ)
    rows = _undecided(excerpts, [row for row in order if row not in goal.staying], goal.room, count)
    pairs = [(_premise(goal.task, passages, words, order, same[0]), text) for text, same in rows.items()]
    for odds, same in zip(_standard(_odds(pairs, model)), rows.values(), strict=True):
        scores[same] += READER_WEIGHT * odds
    return scores


class _Excerpts:
    """The passages as the models read them, shortened to the parts that cover most of the goal's words."""

    def __init__(self, passages: Sequence[Passage], words: _Words) -> None:
        self.passages, self._words = passages, words
        self._asked = MIN_ASKED * sum(words.asked.values())
        self._texts: dict[int, str] = {}

    def __getitem__(self, row: int) -> str:
        if row not in self._texts:
            self._texts[row] = _excerpt(self.passages[row], self._words.weights)
        return self._texts[row]

    def gist(self, row: int) -> str:
        """Return a short text of a passage. It has the part with most of the task's words, and the longest part.

        In a record, a part that is not about the task loses its numbers, so that similar records have the same text.
        """
        passage = self.passages[row]
        parts = loose_sentences(_plain(passage))
        if not parts:
            return ""
        longest = max(parts, key=len)
        worth = {part: _covered(part, self._words.asked) for part in parts}
        best = max(parts, key=worth.__getitem__)
        said = [
            part for part in dict.fromkeys(parts) if part is longest or (part is best and worth[part] > self._asked)
        ]
        if passage.form not in PLAIN_FORMS:
            # Records that differ only in numbers are compared once.
            said = [part if worth[part] > self._asked else _VARIABLE.sub("", part) for part in said]
        text = " ".join(said)
        return reading.titled(passage.label, ". ", " ".join(text.split()))[:GIST_CHARACTERS]

    @staticmethod
    def distinct(rows: Iterable[int], count: int, text_of: Callable[[int], str]) -> dict[str, list[int]]:
        """Return the first `count` distinct texts of the rows, each with the rows that have this text."""
        found: dict[str, list[int]] = {}
        for row in rows:
            text = text_of(row)
            if len(found) < count or text in found:
                found.setdefault(text, []).append(row)
        return found


def _similarity(excerpts: _Excerpts, order: Sequence[int], task: str, count: int) -> Scores:
    """Return the standard score of each passage's similarity to the task, shape (n_passages,).

    Args:
        excerpts: The passages.
        order: Their rows by their scores, best first.
        task: The task.
        count: The number of distinct texts to compare. A passage with another text scores one deviation below the mean.
    """
    rows = excerpts.distinct(order, count, excerpts.gist)
    vectors = EMBEDDINGS.values([_question(task), *rows], shipped_minilm().encode)
    scores = np.full(len(order), np.nan)
    for cosine, same in zip(_cosines(vectors), rows.values(), strict=True):
        scores[same] = cosine
    is_known = ~np.isnan(scores)
    scores[is_known] = _standard(scores[is_known])
    return np.where(is_known, scores, -1.0)


def _undecided(excerpts: _Excerpts, order: Sequence[int], room: int, count: int) -> dict[str, list[int]]:
    """Return the texts of the passages around the rank at which the room is full.

    Each text has the rows in which it occurs.
    """
    fitting = int(np.searchsorted(np.cumsum([excerpts.passages[row].tokens for row in order]), room))
    outward = sorted(range(len(order)), key=lambda rank: abs(2 * rank + 1 - 2 * fitting))
    return excerpts.distinct((order[rank] for rank in outward), count, excerpts.__getitem__)


def reader_pair(task: str, passage: Passage) -> tuple[str, str]:
    """Return the pair of texts with which the reader judges a passage by its task alone."""
    return reading.premise(_question(task), ()), _excerpt(passage, query_of([(task, 1.0)]))


def adapted(model: PairModel) -> Judge:
    """Return the judge `reader` with `model` instead of the shipped reader."""
    return lambda passages, goal: by_reading(passages, goal, model)


def _odds(pairs: Sequence[tuple[str, str]], model: PairModel | None) -> Scores:
    """Return the reader's log-odds of each pair, shape (n_pairs,)."""
    if model is not None:
        return np.asarray(model.encode_pairs(pairs)[:, 0] if pairs else np.zeros(0), dtype=np.float64)
    by_text = {f"{first}\0{second}": (first, second) for first, second in pairs}
    odds = ODDS.values([*by_text], lambda texts: shipped_reader().encode_pairs([by_text[it] for it in texts])[:, 0])
    return np.array(odds, dtype=np.float64)


def _premise(task: str, passages: Sequence[Passage], words: _Words, order: Sequence[int], row: int) -> str:
    """Return the first text that the reader gets: the task, and the best sentences of the best other passages."""
    others = [passages[other] for other in order[: reading.EVIDENCE + 1] if other != row]
    return reading.premise(
        _question(task), ((passage.label, _best_sentence(passage, words.weights)) for passage in others)
    )


def _best_sentence(passage: Passage, weights: Mapping[int, float]) -> str:
    sentences = loose_sentences(_plain(passage))
    return max(sentences, key=lambda sentence: _covered(sentence, weights), default="")[:LINE_CHARACTERS]


def _question(task: str) -> str:
    """Return the task. If it is long and has questions, return its questions alone."""
    if len(task.split()) > reading.QUESTION_WORDS and (
        questions := [line for line in loose_sentences(task) if line.endswith("?")]
    ):
        task = " ".join(questions)
    return task[:QUESTION_CHARACTERS]


def _excerpt(passage: Passage, weights: Mapping[int, float]) -> str:
    """Return the passage as the models read it: without marks, shortened to the parts with most of the goal's words.

    If parts have equal weight, the longer ones are taken. In a record they say more than numbers and names.
    """
    parts = loose_sentences(_plain(passage))
    if sum(map(len, parts)) > READ_CHARACTERS:
        worth = [_covered(part, weights) + len(part) / READ_CHARACTERS / 1_000 for part in parts]
        chosen, room = set[int](), READ_CHARACTERS
        for row in sorted(range(len(parts)), key=lambda row: -worth[row]):
            if len(parts[row]) <= room or not chosen:
                chosen.add(row)
                room -= len(parts[row]) + 1
        parts = [parts[row][:READ_CHARACTERS] for row in sorted(chosen)]
    return reading.titled(passage.label, ". ", " ".join(parts)[:READ_CHARACTERS])


def _plain(passage: Passage) -> str:
    """Return the text of a passage without marks, log times and line numbers, which carry no meaning."""
    if passage.form not in PLAIN_FORMS:
        return _MARKS.sub(" ", _MEMBER_END.sub("\n", passage.text))
    if is_log_entry(passage.text):
        return _VARIABLE.sub(" ", passage.text)
    first, *lines = passage.text.split("\n")
    return "\n".join([first, *(_LINE_LOCATION.sub("", line) for line in lines)])


def _covered(sentence: str, weights: Mapping[int, float]) -> float:
    return sum(weights.get(term, 0.0) for term in set(map(term_id, terms(sentence))))


@_of_readable
def by_bm25(passages: Sequence[Passage], goal: Goal) -> Scores:
    """Judge by BM25 with the words of the task."""
    return PassageWords(passages).scores(query_of([(goal.task, 1.0)]))


@_of_readable
def by_embedding(passages: Sequence[Passage], goal: Goal) -> Scores:
    """Judge by cosine similarity to the task, with embeddings of all-MiniLM-L6-v2."""
    return _cosines(shipped_minilm().encode([goal.task, *map(labeled, passages)]))


def by_age(passages: Sequence[Passage], goal: Goal) -> Scores:
    """Judge by age. A later passage scores higher."""
    return np.arange(len(passages), dtype=np.float64)


def at_random(passages: Sequence[Passage], goal: Goal) -> Scores:
    """Judge at random. The score is drawn from the passage's text, so it never changes."""
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
    """Return the judge that calls a function (passages, task) -> scores."""

    def judge(passages: Sequence[Passage], goal: Goal) -> Scores:
        return np.asarray([float(score) for score in strategy(passages, goal.task)], dtype=np.float64)

    return judge
