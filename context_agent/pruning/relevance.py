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
from context_agent.text.sentences import loose_sentences

MIN_COMPARED, MAX_COMPARED, TOKENS_COMPARED = 128, 320, 60
"""Texts that are compared with the task by their embeddings: one for each `TOKENS_COMPARED` tokens, within bounds."""
MIN_READ, MAX_READ, TOKENS_READ = 32, 56, 250
"""Texts that the reader reads: one for each `TOKENS_READ` tokens, within bounds."""
GIST_CHARACTERS, READ_CHARACTERS, LINE_CHARACTERS = 160, 200, 100
"""Most characters of a passage that is compared, of one that is read, and of a sentence of another one beside it."""
OUTSTANDING = 2.5
"""Standard score by words from which it counts twice: such a passage has the id or the names that were asked for."""
MIN_ASKED = 0.1
"""Share of the weight of the task's words from which a part of a passage is about them."""
STEP_WEIGHT = 0.3
"""Weight of a word of the latest step beside one of the task; halved with each step before."""
LEADS, LEAD_WEIGHT = 5, 0.3
"""Best passages whose rare words join the query, and the weight of these."""
FUSION_RANKS = 10
"""Added to each rank: the larger, the more a middling rank in all counts beside a high one in one."""
READER_WEIGHT = SIMILARITY_WEIGHT = 2
"""Weights of the reader and of similarity: each as much as the words and their meaning together."""
MIN_RESEMBLANCE = 0.4
"""Cosine from which a passage resembles a restored one."""
MAX_RESTORED = 16
"""Restored passages that others are compared with, the latest ones."""
QUESTION_CHARACTERS = 20_000
"""Characters of the task that the models get."""
_VARIABLE = re.compile(r"(?<![^\W_])\d[\w:.+-]*|\b[0-9a-f]{8,}\b")
"""What differs between entries of a log that say the same: times, numbers, hashes."""
_LINE_LOCATION = re.compile(r"^[^\s:]{1,200}[:-]\d{1,9}[:-]\s?")
"""The file and the number in front of a line of a search in files."""
_MEMBER_END = re.compile(r",\s*+(?=[\"'{\[])|(?<=[}>])\s*+(?=[{<])")
_MARKS = re.compile(r"[\"'{}\[\]|<>]+")
"""What ends a member of a record, and marks around its keys and values."""

PLAIN_FORMS = ("text", "string")
"""Forms of passages that are no records."""
Vector = NDArray[np.float32]
STATIC_VECTORS, EMBEDDINGS = TextCache[Vector](8_192), TextCache[Vector](8_192)
ODDS = TextCache[float](16_384)


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
    """The result of judging by words.

    Attributes:
        scores: The score of each passage, shape (n,).
        standard: The sum of the standard scores by words and by meaning, shape (n,).
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
        by_words = _standard(alone)
        standard = by_words + np.maximum(0.0, by_words - OUTSTANDING) + _standard(meaning)
        return cls(scores, standard, words.term_weights(query), asked)


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


def _standard(values: Scores) -> Scores:
    """Return the standard scores of the values: their distance from the mean in standard deviations."""
    return (values - values.mean()) / (values.std() + 1e-9) if len(values) else values


@_of_readable
def by_reading(passages: Sequence[Passage], goal: Goal, model: PairModel | None = None) -> Scores:
    """Judge by the sum of the standard scores of words, meaning, similarity and reader.

    A passage that one of them ranks far above the others stays, so a domain that the reader does not know is left to
    the others. Similarity is that of all-MiniLM-L6-v2, for the passages that score best by words. The reader reads the
    passages whose rank by the others is nearest to the limit of what fits.

    Args:
        passages: The passages.
        goal: What they are judged against.
        model: Replaces the shipped reader.
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
    """The passages as the models get them: shortened to what covers most of the goal's words."""

    def __init__(self, passages: Sequence[Passage], words: _Words) -> None:
        self.passages, self._words = passages, words
        self._asked = MIN_ASKED * sum(words.asked.values())
        self._texts: dict[int, str] = {}

    def __getitem__(self, row: int) -> str:
        if row not in self._texts:
            self._texts[row] = _excerpt(self.passages[row], self._words.weights)
        return self._texts[row]

    def gist(self, row: int) -> str:
        """Return the part of a passage that has most of the task's words, and the longest one without what varies."""
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
            # Records of which only numbers differ are compared once.
            said = [part if worth[part] > self._asked else _VARIABLE.sub("", part) for part in said]
        text = " ".join(said)
        return reading.titled(passage.label, ". ", " ".join(text.split()))[:GIST_CHARACTERS]

    @staticmethod
    def distinct(rows: Iterable[int], count: int, text_of: Callable[[int], str]) -> dict[str, list[int]]:
        """Return the first `count` texts of these rows that differ, each with the rows that have it."""
        found: dict[str, list[int]] = {}
        for row in rows:
            text = text_of(row)
            if len(found) < count or text in found:
                found.setdefault(text, []).append(row)
        return found


def _similarity(excerpts: _Excerpts, order: Sequence[int], task: str, count: int) -> Scores:
    """Return the standard score of each passage by its similarity to the task, shape (n,).

    Args:
        excerpts: The passages.
        order: Their rows by their scores, the best first.
        task: The task.
        count: The number of texts that are compared. Passages with other texts are one deviation below the mean.
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
    """Return the texts of the passages around the rank at which they fill the room, each with the rows that have it."""
    fitting = int(np.searchsorted(np.cumsum([excerpts.passages[row].tokens for row in order]), room))
    outward = sorted(range(len(order)), key=lambda rank: abs(2 * rank + 1 - 2 * fitting))
    return excerpts.distinct((order[rank] for rank in outward), count, excerpts.__getitem__)


def reader_pair(task: str, passage: Passage) -> tuple[str, str]:
    """Return a passage beside its task alone, as the reader gets it."""
    return reading.premise(_question(task), ()), _excerpt(passage, query_of([(task, 1.0)]))


def adapted(model: PairModel) -> Judge:
    """Return the judge `reader` with another reader than the shipped one."""
    return lambda passages, goal: by_reading(passages, goal, model)


def _odds(pairs: Sequence[tuple[str, str]], model: PairModel | None) -> Scores:
    """Return the reader's log-odds of each pair, shape (n,)."""
    if model is not None:
        return np.asarray(model.encode_pairs(pairs)[:, 0] if pairs else np.zeros(0), dtype=np.float64)
    by_text = {f"{first}\0{second}": (first, second) for first, second in pairs}
    odds = ODDS.values([*by_text], lambda texts: shipped_reader().encode_pairs([by_text[it] for it in texts])[:, 0])
    return np.array(odds, dtype=np.float64)


def _premise(task: str, passages: Sequence[Passage], words: _Words, order: Sequence[int], row: int) -> str:
    """Return the first text of the reader's input: the task, then the best sentences of the best other passages."""
    others = [passages[other] for other in order[: reading.EVIDENCE + 1] if other != row]
    return reading.premise(
        _question(task), ((passage.label, _best_sentence(passage, words.weights)) for passage in others)
    )


def _best_sentence(passage: Passage, weights: Mapping[int, float]) -> str:
    sentences = loose_sentences(_plain(passage))
    return max(sentences, key=lambda sentence: _covered(sentence, weights), default="")[:LINE_CHARACTERS]


def _question(task: str) -> str:
    """Return the task; of a long one its questions."""
    if len(task.split()) > reading.QUESTION_WORDS and (
        questions := [line for line in loose_sentences(task) if line.endswith("?")]
    ):
        task = " ".join(questions)
    return task[:QUESTION_CHARACTERS]


def _excerpt(passage: Passage, weights: Mapping[int, float]) -> str:
    """Return the passage as the models get it: without marks, shortened to what has most of the goal's words.

    Of equal parts the longer ones stay: in a record they say more than numbers and names.
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
    """Return the text of a passage without what is the same or means nothing in all of its kind."""
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
