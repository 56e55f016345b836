"""The weights of retrievers in a corpus, measured with queries that are made from the corpus.

No model is needed.

*Does it work at all?* The test is known-item search: a chunk must come back for some consecutive words of its own text.
A retriever whose vectors belong to another model, or whose ranking is shuffled, finds a chunk no more often than the
chunks that other probes look for. Such a retriever gets weight 0, because its hits would only push good hits down.

*How good is it?* The words of a passage are the wrong test for that. BM25 is best at exact matches, but a user asks in
other words. So calibration looks for related passages. Chunks that share a rare word (a name, a function, a product)
mostly deal with the same subject. The query is the sentence around that word in one of them, and the others must come
back. Each query is asked twice. *With* the word, it is the question of a user who names the subject. *Without* it, it
is the question of a user who describes the subject. Then no retriever can match the word. Each has to find the subject
by its description.

A working retriever's weight is the geometric mean of its odds of finding a related chunk, over both kinds of queries.
The odds are s / (1 - s) for a share of successes s. So a retriever's weight grows with its effect on the odds that a
hit is relevant. Probes share more words with the passages that they look for than a user's questions do. This favors
BM25. So a working retriever has at least `MIN_WORKING_WEIGHT` of the best one's weight.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from context_agent.retrieval.retriever import Retriever
from context_agent.types import Chunk

CALIBRATION_VERSION = 2
"""The version of the measurement. Increment it when the measurement changes.

A corpus then measures again instead of using stored weights.
"""
KNOWN_ITEM_PROBES = 32
"""The number of chunks that calibration searches for by their own words."""
RELATED_PROBES = 48
"""The number of chunks for which calibration searches for related ones, with and without the word that relates them."""
SAMPLED_CHUNKS = 256
"""The number of chunks that are read to make the probes."""
SEARCH_DEPTH = 25
"""A chunk below this rank counts as not found."""
MAX_WORD_FREQUENCY = 8
"""The maximum number of chunks that may contain a word which relates them."""
SMALLEST_CORPUS = 64
"""The minimum number of chunks for a calibration.

In a smaller corpus, even a random ranking finds many chunks. So all retrievers keep weight 1.
"""
MIN_WORKING_WEIGHT = 0.6
"""The minimum weight of a working retriever. The best one has weight 1.

Without this minimum, MiniLM had weight .19 on Debian's policy manual, and the fused recall@5 was .344, against .500 for
MiniLM alone. With the minimum, it is .469. On train questions with static vectors, recall of a single search changes by
at most .001 (`benchmarks/fusion.py` prints the weights).
"""
MIN_STANDARD_ERRORS = 3.0
"""The number of standard errors by which a working retriever's known-item score must exceed chance."""
PASSAGE_WORDS = 16
"""The number of words in a known-item probe."""
MAX_SENTENCE_WORDS = 40
"""The maximum number of words in a sentence that becomes a probe."""
RANDOM_SEED = 0
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s*|\n\s*\n")
Fetch = Callable[[Sequence[str]], Mapping[str, Chunk]]
"""A function that returns the chunks with the given ids. Unknown ids are left out."""


class WordIndex(Protocol):
    """An index of the words in a corpus, such as `Bm25Index`."""

    def search(self, query: str, k: int) -> list[tuple[str, float]]:
        """Return the `k` best texts for a query as (id, score), best first."""

    def analyze(self, text: str) -> list[str]:
        """Return the distinct terms of a text, in order of appearance."""

    def document_frequency(self, terms: Sequence[str]) -> NDArray[np.int64]:
        """Return the number of texts that contain each term, shape (n_terms,)."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A query made from the chunk `source`, and the ids of the chunks that it should find.

    If the source is not relevant itself, it is left out of the ranking.
    """

    query: str
    source: str
    relevant: frozenset[str]


@dataclass(frozen=True, slots=True)
class Probes:
    """The queries of a calibration.

    Attributes:
        known_items: Queries that look for the chunk that they are made from.
        naming: Queries that look for related chunks, with the word that these chunks share.
        describing: The same queries without that word.
    """

    known_items: Sequence[Probe] = ()
    naming: Sequence[Probe] = ()
    describing: Sequence[Probe] = ()


@dataclass(frozen=True, slots=True)
class Calibration:
    """The result of a measurement, by retriever name.

    Attributes:
        mrr: The mean reciprocal rank of the related passages.
        weights: The weight of each retriever. The best one has weight 1.
    """

    mrr: Mapping[str, float]
    weights: Mapping[str, float]


def sample_rows(count: int) -> list[int]:
    """Return the positions of the chunks from which probes are made, in random order.

    If the corpus is too small for calibration, return no positions.
    """
    return (
        [] if count < SMALLEST_CORPUS else random.Random(RANDOM_SEED).sample(range(count), min(count, SAMPLED_CHUNKS))
    )


def probes_of(
    sample: Sequence[str], index: WordIndex, fetch: Fetch, chunk_of: Mapping[str, str] | None = None
) -> Probes:
    """Return the probes made from the sampled chunks.

    Args:
        sample: The ids of the chunks. Those that no longer exist are skipped.
        index: The words of the corpus.
        fetch: A function that returns the chunks with the given ids.
        chunk_of: A mapping from an indexed id to its chunk's id. None means that they are the same.
    """
    generator = random.Random(RANDOM_SEED)
    chunks = list(fetch(sample).values())
    known_items = [
        Probe(_passage(chunk, generator), chunk.id, frozenset({chunk.id})) for chunk in chunks[:KNOWN_ITEM_PROBES]
    ]
    frequencies: dict[str, int] = {}
    drafts = (_draft(chunk, index, chunk_of, generator, frequencies) for chunk in chunks)
    relations = _relations(list(islice(filter(None, drafts), RELATED_PROBES)), fetch)
    naming = [Probe(relation.sentence, relation.source, relation.others) for relation in relations]
    describing = [Probe(relation.description, relation.source, relation.others) for relation in relations]
    return Probes(known_items, naming, describing)


def calibrate(retrievers: Sequence[Retriever], probes: Probes) -> Calibration:
    """Search for every probe with every retriever, and return the weights that follow.

    If there are no probes, no retriever works, or no passages are related, the weights are equal.
    """
    ranks = {retriever.name: _ranks(retriever, probes) for retriever in retrievers}
    working = {retriever.name: _finds_known_items(retriever, probes.known_items) for retriever in retrievers}
    if not any(working.values()):
        working = dict.fromkeys(working, True)
    worth = {name: _mean_odds(kinds) for name, kinds in ranks.items() if working[name]}
    best = max(worth.values(), default=1.0)
    weights = {name: max(value / best, MIN_WORKING_WEIGHT) for name, value in worth.items()}
    mrr = {name: float(np.mean(kinds)) if kinds.size else 0.0 for name, kinds in ranks.items()}
    return Calibration(mrr, dict.fromkeys(ranks, 0.0) | weights)


def _ranks(retriever: Retriever, probes: Probes) -> NDArray[np.float64]:
    """Return the reciprocal ranks of the related probes, shape (2, n_probes).

    The first row has the probes with the word, and the second row those without it.
    """
    return np.stack([reciprocal_ranks(retriever, kind) for kind in (probes.naming, probes.describing)])


def _mean_odds(kinds: NDArray[np.float64]) -> float:
    """Return the geometric mean of the odds over both kinds of probes.

    `kinds` has the reciprocal ranks, shape (2, n_probes).
    """
    return math.exp(sum(math.log(success_odds(ranks)) for ranks in kinds) / len(kinds))


def success_odds(ranks: NDArray[np.float64]) -> float:
    """Return the odds that a search finds a relevant chunk, from the reciprocal ranks of the probes.

    Half a success and half a failure are added, so the odds stay finite. This is Haldane's and Anscombe's correction
    (Anscombe, "On estimating binomial response relations", 1956).
    """
    successes = float(np.count_nonzero(ranks))
    return (successes + 0.5) / (len(ranks) - successes + 0.5)


def reciprocal_ranks(retriever: Retriever, probes: Sequence[Probe]) -> NDArray[np.float64]:
    """Search for each probe and return 1 / rank of its first relevant chunk, shape (n_probes,).

    If no relevant chunk is among the first `SEARCH_DEPTH` hits, the value is 0.
    """
    return np.array([_reciprocal_rank(_ranking(retriever, probe), probe.relevant) for probe in probes], np.float64)


def _finds_known_items(retriever: Retriever, probes: Sequence[Probe]) -> bool:
    """Return True if a chunk's own words find this chunk more often than the chunks of other probes."""
    if len(probes) < 2:
        return True
    rankings = [_ranking(retriever, probe) for probe in probes]
    scores = np.array([[_reciprocal_rank(ranking, probe.relevant) for probe in probes] for ranking in rankings])
    gains = scores.diagonal() - (scores.sum(axis=1) - scores.diagonal()) / (len(probes) - 1)
    return bool(gains.mean() > MIN_STANDARD_ERRORS * gains.std() / math.sqrt(len(gains)))


def _ranking(retriever: Retriever, probe: Probe) -> list[str]:
    ids = (chunk_id for chunk_id, _ in retriever.search(probe.query, SEARCH_DEPTH + 1))
    return [chunk_id for chunk_id in ids if chunk_id != probe.source or chunk_id in probe.relevant][:SEARCH_DEPTH]


def _reciprocal_rank(ranking: Sequence[str], relevant: frozenset[str]) -> float:
    return next((1 / rank for rank, chunk_id in enumerate(ranking, start=1) if chunk_id in relevant), 0.0)


def _passage(chunk: Chunk, generator: random.Random) -> str:
    """Return 16 consecutive words from a random position in the text."""
    words = chunk.text.split()
    start = generator.randrange(max(1, len(words) - PASSAGE_WORDS + 1))
    # In a script without spaces, a whole text is one word, so only a piece of it is taken.
    return " ".join(words[start : start + PASSAGE_WORDS])[: 12 * PASSAGE_WORDS]


@dataclass(frozen=True, slots=True)
class _Relation:
    """A rare word that relates chunks.

    Attributes:
        source: The id of a chunk that has the word.
        sentence: A sentence of this chunk with the word.
        description: The sentence without the word.
        others: The ids of the other chunks that have the word.
    """

    source: str
    sentence: str
    description: str
    others: frozenset[str]


def _draft(
    chunk: Chunk,
    index: WordIndex,
    chunk_of: Mapping[str, str] | None,
    generator: random.Random,
    frequencies: dict[str, int],
) -> _Relation | None:
    rare_words = _rare_words(chunk, index, frequencies)
    if not rare_words:
        return None
    sentence, term = generator.choice(rare_words)
    indexed_ids = [indexed for indexed, _ in index.search(term, MAX_WORD_FREQUENCY)]
    ids = indexed_ids if chunk_of is None else [chunk_of[indexed] for indexed in indexed_ids if indexed in chunk_of]
    description = " ".join(_without(term, word, index) for word in sentence.split())
    return _Relation(chunk.id, sentence, _spaced(description), frozenset(ids) - {chunk.id})


def _relations(drafts: Sequence[_Relation], fetch: Fetch) -> list[_Relation]:
    """Remove the chunks that repeat the sentence, because words alone would find them. Return the other relations."""
    others = fetch(sorted(frozenset[str]().union(*(draft.others for draft in drafts))))
    texts = {chunk_id: _spaced(chunk.text) for chunk_id, chunk in others.items()}
    relations = [
        replace(
            draft,
            others=frozenset(item for item in draft.others if draft.sentence not in texts.get(item, draft.sentence)),
        )
        for draft in drafts
    ]
    return [relation for relation in relations if relation.others and relation.description]


def _without(term: str, word: str, index: WordIndex) -> str:
    """Return the word without the term. If the word has no other term, return an empty string.

    In a script without spaces, a word has many terms.
    """
    terms = index.analyze(word)
    if term not in terms:
        return word
    return re.sub(re.escape(term), " ", word, flags=re.IGNORECASE) if len(terms) > 1 else ""


def _rare_words(chunk: Chunk, index: WordIndex, frequencies: dict[str, int]) -> list[tuple[str, str]]:
    """Return (sentence, term) for each word of the chunk that also occurs in a few other chunks.

    `frequencies` keeps the frequency of each term. In an index with deleted texts, each one takes a search.
    """
    sentences = (_spaced(part, MAX_SENTENCE_WORDS) for part in _SENTENCE_END.split(chunk.text))
    pairs = [(sentence, term) for sentence in sentences for term in index.analyze(sentence)]
    unknown = list({term: None for _, term in pairs if term not in frequencies})
    frequencies.update(zip(unknown, index.document_frequency(unknown).tolist(), strict=True))
    return [(sentence, term) for sentence, term in pairs if 2 <= frequencies[term] <= MAX_WORD_FREQUENCY]


def _spaced(text: str, words: int | None = None) -> str:
    """Return the text, or its first words, with single spaces."""
    return " ".join(text.split()[:words])
