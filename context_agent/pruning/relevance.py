"""Judges of the relevance of a conversation's passages to its task. A pruner finds a judge by its name.

`reader` is a small network that learned from labeled results of tools. Its features compare the words of a passage and
their meaning with the task (`features`). A careful pruner adds sentence embeddings of the most likely passages, and a
thorough one of whole passages. The shipped cross-encoder then reads the few passages whose relevance is still
undecided.

The other judges are baselines. `age` prefers the latest passages, `bm25` compares the words of the task alone,
`embedding` compares embeddings, and `random` draws the scores.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from reprlib import repr as brief
from typing import Any

import numpy as np
from numpy.typing import NDArray

from context_agent._support.arguments import items_of
from context_agent._support.onnx import PairModel
from context_agent._support.shipped_models import shipped_minilm, shipped_reader
from context_agent._support.text_cache import TextCache
from context_agent.errors import ConfigError
from context_agent.pruning import reading
from context_agent.pruning.blocks import Passage
from context_agent.pruning.features import QuickFeatures, goal_words, matrix, odds_columns, similarity_columns, standard
from context_agent.pruning.goal import Goal
from context_agent.pruning.log_messages import log_messages
from context_agent.pruning.network import shipped_network
from context_agent.pruning.units import PLAIN_FORMS, VARIABLE, plain, plain_text, units
from context_agent.pruning.words import PassageWords, Scores, is_naming, labeled, query_of, term_id, terms, unit_rows
from context_agent.text.sentences import loose_sentences

MIN_COMPARED, MAX_COMPARED, TOKENS_COMPARED = 48, 128, 160
"""Bounds on the number of gists whose embeddings are compared with the task, and the tokens for each of them.

The same number of units is compared.
"""
MIN_READ, MAX_READ, TOKENS_READ = 12, 28, 600
"""Bounds on the number of texts that the reader reads, and the tokens for each such text."""
GIST_CHARACTERS, READ_CHARACTERS, LINE_CHARACTERS = 160, 200, 100
"""Maximum number of characters of a passage to compare, a passage to read, and a sentence that is read with it."""
COMPARED_CHARACTERS = 240
"""Maximum number of characters of a unit to compare."""
WHOLE_CHARACTERS, ALL_CHARACTERS = 900, 128_000
"""Maximum number of characters of a passage that is compared whole, and of all such passages of a conversation."""
LEAST_COUNTED = 100
"""A shorter passage counts as this many characters, because every text takes the model some time."""
SIZE_WEIGHT = 0.6
"""The weight of the logarithm of a passage's tokens, which is subtracted from its score. A short passage costs less."""
PRIOR_WEIGHT = 0.75
"""The weight of the sum of standard scores beside the network's score.

The sum helps in domains without labeled results.
"""
MIN_TASK_SHARE = 0.1
"""The share of the weight of the task's words that a part of a passage must have to be about the task."""
READER_WEIGHT = SIMILARITY_WEIGHT = 2
"""The weights of the reader and of similarity in the sum of standard scores.

Each counts as much as words and meaning together.
"""
MIN_RESEMBLANCE = 0.4
"""The cosine from which a passage resembles a restored passage."""
MAX_RESTORED = 16
"""The number of restored passages that others are compared with. The latest ones are taken."""
MOST_DENSE = 16
"""Maximum number of dense passages that are judged like others."""
QUESTION_CHARACTERS = 20_000
"""Maximum number of characters of the task that the models read."""
Vector = NDArray[np.float32]
EMBEDDINGS = TextCache[Vector](8_192)
ODDS = TextCache[float](16_384)
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
    """Return the judge, changed to score binary and dense passages below all others. They are then removed first.

    The dense passages that share the most words with the goal are judged like others.
    """

    @wraps(judge)
    def judge_readable(passages: Sequence[Passage], goal: Goal, **options: Any) -> Scores:
        unread = _unread(passages, goal)
        rows = [row for row in range(len(passages)) if row not in unread]
        if len(rows) == len(passages):
            return judge(passages, goal, **options)
        staying = frozenset(number for number, row in enumerate(rows) if row in goal.staying)
        readable = judge([passages[row] for row in rows], replace(goal, staying=staying), **options)
        scores = np.full(len(passages), (readable.min() if rows else 0.0) - 1)
        scores[rows] = readable
        return scores

    return judge_readable


def _unread(passages: Sequence[Passage], goal: Goal) -> set[int]:
    """Return the rows of the passages that nobody reads: encoded text, and dense passages that nothing asks for."""
    dense = [row for row, passage in enumerate(passages) if passage.dense]
    # Shorter words are names of variables, or digits.
    query = {term: weight for term, weight in goal_words(goal).items() if is_naming(term)}
    shared = PassageWords([passages[row] for row in dense]).scores(query)
    asked = {dense[place] for place in np.argsort(-shared, kind="stable")[:MOST_DENSE].tolist() if shared[place] > 0}
    return {row for row, passage in enumerate(passages) if passage.binary or (passage.dense and row not in asked)}


@_of_readable
def by_words(passages: Sequence[Passage], goal: Goal) -> Scores:
    """Judge by words and their meaning, without a model that reads texts.

    Args:
        passages: The passages.
        goal: The goal to judge against.

    Returns:
        The scores, shape (n_passages,).
    """
    return next(stages(passages, goal)).scores if passages else np.zeros(0)


@_of_readable
def by_reading(
    passages: Sequence[Passage], goal: Goal, *, model: PairModel | None = None, whole: bool = False
) -> Scores:
    """Judge by words, meaning, similarity and reader.

    Similarity is computed with all-MiniLM-L6-v2 for the gists of the passages that are most likely by words, and for
    the most likely units. The reader reads the passages that the other features rank nearest to the limit of the room.

    Args:
        passages: The passages.
        goal: The goal to judge against.
        model: A reader to use instead of the shipped one.
        whole: True to compare whole passages instead of gists and units. A gist depends on the task, but a whole text
            does not. In a growing conversation, each passage is therefore embedded once.

    Returns:
        The scores, shape (n_passages,).
    """
    if not passages:
        return np.zeros(0)
    *_, read = stages(passages, goal, model, whole=whole)
    return read.scores


@dataclass(frozen=True, slots=True)
class Stage:
    """The features of the passages at one stage of judging.

    Attributes:
        columns: The features by name, each of shape (n_passages,).
        prior: The sum of the standard scores by words, meaning, similarity and reader, shape (n_passages,).
    """

    columns: dict[str, Scores]
    prior: Scores

    @property
    def scores(self) -> Scores:
        """The network's scores with the prior, shape (n_passages,)."""
        return combined(shipped_network()(matrix(self.columns)), self.columns["tokens"], self.prior)


def combined(learned: Scores, log_tokens: Scores, prior: Scores) -> Scores:
    """Return the network's scores, reduced by the logarithm of the tokens, with the prior. Shape (n_passages,)."""
    return standard(learned - SIZE_WEIGHT * log_tokens) + PRIOR_WEIGHT * standard(prior)


def stages(
    passages: Sequence[Passage], goal: Goal, model: PairModel | None = None, *, whole: bool = False
) -> Iterator[Stage]:
    """Yield three stages: by words, then with similarity, then with the reader.

    Args:
        passages: The passages. There is at least one.
        goal: The goal to judge against.
        model: A reader to use instead of the shipped one.
        whole: True to compare whole passages with the task instead of gists and units.
    """
    quick = QuickFeatures.of(passages, goal)
    yield Stage(quick.columns, quick.prior)
    tokens = sum(passage.tokens for passage in passages)
    excerpts = _Excerpts(passages, quick)
    count = min(max(MIN_COMPARED, tokens // TOKENS_COMPARED), MAX_COMPARED)
    if whole:
        gists, by_unit = _whole_cosines(passages, quick, goal.task, count)
    else:
        gists, by_unit = _cosines_with_task(excerpts, quick, goal.task, count)
    columns = quick.columns | similarity_columns("gist_cosine", gists) | similarity_columns("unit_cosine", by_unit)
    similarity = columns["gist_cosine_z"]
    prior = quick.prior + SIMILARITY_WEIGHT * np.where(np.isnan(similarity), -1.0, similarity)
    compared = Stage(columns, prior)
    yield compared
    order = _order(compared.scores)
    count = min(max(MIN_READ, tokens // TOKENS_READ), MAX_READ)
    rows = _undecided(excerpts, [row for row in order if row not in goal.staying], goal.room, count)
    pairs = [(_premise(goal.task, passages, quick.goal_weights, order, same[0]), text) for text, same in rows.items()]
    odds = np.full(len(passages), np.nan)
    for value, same in zip(_odds(pairs, model), rows.values(), strict=True):
        odds[same] = value
    columns = columns | odds_columns(odds)
    yield Stage(columns, prior + READER_WEIGHT * np.nan_to_num(columns["odds_z"]))


def _order(scores: NDArray[np.floating]) -> list[int]:
    """Return the rows from the highest score to the lowest. Rows with equal scores keep their order."""
    order: list[int] = np.argsort(-scores, kind="stable").tolist()
    return order


class _Excerpts:
    """The passages as the models read them, shortened to the parts that cover most of the goal's words."""

    def __init__(self, passages: Sequence[Passage], quick: QuickFeatures) -> None:
        self.passages, self._quick = passages, quick
        self._least_weight = MIN_TASK_SHARE * sum(quick.task_weights.values())
        self._texts: dict[int, str] = {}

    def __getitem__(self, row: int) -> str:
        if row not in self._texts:
            self._texts[row] = _excerpt(self.passages[row], self._quick.goal_weights)
        return self._texts[row]

    def gist(self, row: int) -> str:
        """Return a short text of a passage. It has the part with most of the task's words, and the longest part.

        In a record, a part that is not about the task loses its numbers, so that similar records have the same text.
        """
        passage = self.passages[row]
        parts = loose_sentences(plain_text(passage))
        if not parts:
            return ""
        longest = max(parts, key=len)
        worth = {part: _covered(part, self._quick.task_weights) for part in parts}
        best = max(parts, key=worth.__getitem__)
        said = [
            part
            for part in dict.fromkeys(parts)
            if part is longest or (part is best and worth[part] > self._least_weight)
        ]
        if passage.form not in PLAIN_FORMS:
            # Records that differ only in numbers are compared once.
            said = [part if worth[part] > self._least_weight else VARIABLE.sub("", part) for part in said]
        text = " ".join(said)
        return reading.titled(passage.label, ". ", " ".join(text.split()))[:GIST_CHARACTERS]

    def unit_texts(self) -> tuple[list[str], NDArray[np.int64]]:
        """Return the text of each unit with the label of its passage, and the passage that each unit belongs to."""
        by_passage = [units(passage) for passage in self.passages]
        texts = [
            reading.titled(passage.label, ". ", " ".join(plain(passage, unit).split()))[:COMPARED_CHARACTERS]
            for passage, own in zip(self.passages, by_passage, strict=True)
            for unit in own
        ]
        return texts, np.repeat(np.arange(len(by_passage)), [len(own) for own in by_passage])

    @staticmethod
    def distinct(rows: Iterable[int], count: int, text_of: Callable[[int], str]) -> dict[str, list[int]]:
        """Return the first `count` distinct texts of the rows, each with the rows that have this text."""
        found: dict[str, list[int]] = {}
        for row in rows:
            text = text_of(row)
            if len(found) < count or text in found:
                found.setdefault(text, []).append(row)
        return found


def _cosines_with_task(excerpts: _Excerpts, quick: QuickFeatures, task: str, count: int) -> tuple[Scores, Scores]:
    """Return the cosine of each passage's gist with the task, and the largest cosine of its units.

    A log has few distinct messages. They are compared as a whole, in place of gists and units. They may take as many
    characters as the gists.

    Args:
        excerpts: The passages.
        quick: Their features by words.
        task: The task.
        count: The number of distinct gists to compare, and of distinct units. Those that are most likely by words are
            taken. If nothing of a passage is compared, its cosine is NaN.
    """
    messages = log_messages(excerpts.passages)
    rows = _order(_likely_by_words(quick))
    room = count * GIST_CHARACTERS
    logged = _affordable((row for row in rows if row in messages), messages.__getitem__, room=room)
    logged_tokens = sum(excerpts.passages[row].tokens for row in messages)
    count = round(count * (1 - logged_tokens / max(1, sum(passage.tokens for passage in excerpts.passages))))
    gists = excerpts.distinct((row for row in rows if row not in messages), count, excerpts.gist)
    texts, owners = excerpts.unit_texts()
    likely = (quick.columns["query_z"] + quick.columns["meaning_z"] + quick.columns["soft_z"]) / 2
    order = _order(likely[owners] + standard(quick.coverage.by_unit.astype(np.float64)))
    found = excerpts.distinct((unit for unit in order if owners[unit] not in messages), count, texts.__getitem__)
    by_text = _cosines(task, [*logged, *gists, *found])
    by_gist, by_unit = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    for text, same in logged.items():
        by_gist[same] = by_unit[same] = by_text[text]
    for text, same in gists.items():
        by_gist[same] = by_text[text]
    for text, same in found.items():
        by_unit[owners[same]] = np.fmax(by_unit[owners[same]], by_text[text])
    return by_gist, by_unit


def _whole_cosines(passages: Sequence[Passage], quick: QuickFeatures, task: str, count: int) -> tuple[Scores, Scores]:
    """Return the cosine of each whole passage with the task, and that of its message, each of shape (n_passages,).

    Log entries have messages. Any other passage counts as its own message. In a conversation of more
    than `ALL_CHARACTERS`, the passages that are most likely by words are compared. The cosine of any other passage is
    NaN.

    Args:
        passages: The passages.
        quick: Their features by words.
        task: The task.
        count: The number of gists that take as many characters as the messages may take.
    """
    order = _order(_likely_by_words(quick))
    messages = log_messages(passages)
    logged = _affordable((row for row in order if row in messages), messages.__getitem__, room=count * GIST_CHARACTERS)
    room = ALL_CHARACTERS - sum(map(len, logged))
    whole = _affordable(order, lambda row: labeled(passages[row])[:WHOLE_CHARACTERS], room=room)
    by_text = _cosines(task, [*logged, *whole])
    cosines = np.full(len(passages), np.nan)
    for text, same in whole.items():
        cosines[same] = by_text[text]
    by_unit = cosines.copy()
    for text, same in logged.items():
        by_unit[same] = by_text[text]
    return cosines, by_unit


def _affordable(rows: Iterable[int], text_of: Callable[[int], str], *, room: int) -> dict[str, list[int]]:
    """Return the distinct texts of the rows, each with its rows.

    A text that does not fit into the rest of `room` characters is skipped. Later texts may still fit.
    """
    found: dict[str, list[int]] = {}
    for row in rows:
        text = text_of(row)
        cost = 0 if text in found else max(len(text), LEAST_COUNTED)
        if cost <= room:
            room -= cost
            found.setdefault(text, []).append(row)
    return found


def _cosines(task: str, texts: Iterable[str]) -> dict[str, float]:
    """Return the cosine of each text with the task."""
    distinct = [*dict.fromkeys(texts)]
    asked, *vectors = unit_rows(np.array(EMBEDDINGS.values([_question(task), *distinct], shipped_minilm().encode)))
    return {text: float(vector @ asked) for text, vector in zip(distinct, vectors, strict=True)}


def _likely_by_words(quick: QuickFeatures) -> Scores:
    return quick.columns["leads_z"] + quick.columns["meaning_z"]


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


def _odds(pairs: Sequence[tuple[str, str]], model: PairModel | None) -> Scores:
    """Return the reader's log-odds of each pair, shape (n_pairs,)."""
    if model is not None:
        return np.asarray(model.encode_pairs(pairs)[:, 0] if pairs else np.zeros(0), dtype=np.float64)
    by_text = {f"{first}\0{second}": (first, second) for first, second in pairs}
    odds = ODDS.values([*by_text], lambda texts: shipped_reader().encode_pairs([by_text[it] for it in texts])[:, 0])
    return np.array(odds, dtype=np.float64)


def _premise(
    task: str, passages: Sequence[Passage], weights: Mapping[int, float], order: Sequence[int], row: int
) -> str:
    """Return the first text that the reader gets: the task, and the best sentences of the best other passages."""
    others = [passages[other] for other in order[: reading.EVIDENCE + 1] if other != row]
    return reading.premise(_question(task), ((passage.label, _best_sentence(passage, weights)) for passage in others))


def _best_sentence(passage: Passage, weights: Mapping[int, float]) -> str:
    sentences = loose_sentences(plain_text(passage))
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
    parts = loose_sentences(plain_text(passage))
    if sum(map(len, parts)) > READ_CHARACTERS:
        worth = [_covered(part, weights) + len(part) / READ_CHARACTERS / 1_000 for part in parts]
        chosen, room = set[int](), READ_CHARACTERS
        for row in sorted(range(len(parts)), key=lambda row: -worth[row]):
            if len(parts[row]) <= room or not chosen:
                chosen.add(row)
                room -= len(parts[row]) + 1
        parts = [parts[row][:READ_CHARACTERS] for row in sorted(chosen)]
    return reading.titled(passage.label, ". ", " ".join(parts)[:READ_CHARACTERS])


def _covered(sentence: str, weights: Mapping[int, float]) -> float:
    return sum(weights.get(term, 0.0) for term in set(map(term_id, terms(sentence))))


@_of_readable
def by_bm25(passages: Sequence[Passage], goal: Goal) -> Scores:
    """Judge by BM25 with the words of the task."""
    return PassageWords(passages).scores(query_of([(goal.task, 1.0)]))


@_of_readable
def by_embedding(passages: Sequence[Passage], goal: Goal) -> Scores:
    """Judge by cosine similarity to the task, with embeddings of all-MiniLM-L6-v2."""
    task, *vectors = unit_rows(shipped_minilm().encode([goal.task, *map(labeled, passages)]))
    return np.asarray(np.array(vectors).reshape(-1, len(task)) @ task, dtype=np.float64)


def by_age(passages: Sequence[Passage], goal: Goal) -> Scores:
    """Judge by age. A later passage scores higher."""
    return np.arange(len(passages), dtype=np.float64)


def at_random(passages: Sequence[Passage], goal: Goal) -> Scores:
    """Judge at random. The score is drawn from the passage's text, so it never changes."""
    return np.array([_digest_number(passage.text) for passage in passages], dtype=np.float64)


def _digest_number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=6).digest())


READER_JUDGES: dict[str, Judge] = {
    "fast": by_words,
    "careful": by_reading,
    "thorough": partial(by_reading, whole=True),
}
"""The judges of the strategy `reader`, by effort."""
JUDGES: dict[str, Judge] = {
    "age": by_age,
    "random": at_random,
    "bm25": by_bm25,
    "embedding": by_embedding,
}
"""The judges of the other strategies."""


def custom(strategy: Callable[[Sequence[Passage], str], Iterable[float]]) -> Judge:
    """Return the judge that calls a function (passages, task) -> scores."""

    def judge(passages: Sequence[Passage], goal: Goal) -> Scores:
        scores = [*items_of(strategy(passages, goal.task), "strategy", "a function that returns a list of numbers")]
        try:
            return np.array([*map(float, scores)], dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"the strategy must return a number for each passage; got {brief(scores)}") from error

    return judge
