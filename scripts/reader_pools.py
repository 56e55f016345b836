"""Candidate passages of questions, from which the reader learns. They are collected once and drawn many times.

A pool has what several searches find for one question: the embedded policy, hybrid search, and each retriever alone. So
its wrong passages are those that a ranking must separate from the right ones. `PoolCollector` makes pools, and `Draws`
makes groups of pairs from them.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from context_agent._support.question_files import load_questions
from context_agent.budget import Budget
from context_agent.harness.profile import default
from context_agent.harness.rendering import Renderer
from context_agent.policies.bridge import BridgePolicy
from context_agent.policies.bridge.candidates import AnalyzedPassage, AnalyzedQuestion, WordWeights, analyze_question
from context_agent.policies.bridge.reader import ReaderInput
from context_agent.pruning.reading import EVIDENCE
from context_agent.retrieval.chunker import DEFAULT_CHUNK_TOKENS, chunk_document
from context_agent.retrieval.embedders import Embedder
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.tokens import HarmonyCounter
from context_agent.train.bridge.episodes import play
from context_agent.types import Chunk, Document, Question

HYBRID, AGENT = "hybrid", "agent"
"""The names of two rankings. The others have the names of their retrievers or embedders."""
HYBRID_DEPTH = 50
"""The number of passages of hybrid search in a pool for measuring."""
HYBRID_KEPT, AGENT_KEPT, OTHER_DEPTH = 24, 24, 12
"""The numbers of passages in a pool for training: of hybrid search, of the policy, and of each retriever."""

GROUP = 8
"""The number of passages in a group."""
MOST_RIGHT, MOST_PARTIAL = 3, 2
"""The maximum numbers of passages in a group that answer, and that answer in part."""
UNJUDGED_LEAD, LEAD_SHARE, TAIL, TAIL_SHARE = 2, 0.7, 12, 0.4
"""The weights of passages that no judge graded.

A passage among the first `UNJUDGED_LEAD` of a ranking may well be an answer, so it has the weight `LEAD_SHARE`. A
passage that is not among the first `TAIL` of any ranking has the weight `TAIL_SHARE`. All others have the weight 1.
"""
JUDGED_SHARE = 2.0
"""The weight of a passage that a judge found wrong."""
WITHOUT_EVIDENCE = {False: 0.6, True: 0.3}
"""The probability that a group has the question alone, for questions with one gold document and with several."""
WITHHELD = 0.25
"""The probability that a gold passage is missing from the evidence."""
LEAD_LIKELIHOOD, UNRANKED = 0.3, 100
"""The probability of the first passage of a ranking that the policy did not judge, and the rank of a passage without
one.
"""
NOISE = 1.0
"""The standard deviation of the noise on the log-odds that order the evidence."""
KEYWORDS, MOST_KEYWORDS = 0.15, 7
"""The probability that a question becomes keywords, and the maximum number of keywords."""
HOPS = frozenset({"musique", "2wiki", "hotpotqa", "newsfacts", "chains"})
HOPS_SHARE, BALANCED, EXPONENT = 2.0, 250, 0.75
"""Parameters of a set's share of the draws.

The share is proportional to the number of its questions, at most `BALANCED`, to the power of `EXPONENT`. For sets in
`HOPS`, it is multiplied by `HOPS_SHARE`.
"""


@dataclass(frozen=True, slots=True)
class PoolPassage:
    """A passage of a pool.

    `score` is the policy's probability. If the policy did not see the passage, it is 0. `ranks` maps the name of each
    ranking that has the passage to its rank.
    """

    document: str
    title: str
    text: str
    score: float
    ranks: dict[str, int]


@dataclass(frozen=True, slots=True)
class Pool:
    """A question with the passages that were found, and the ids of its gold documents.

    `idf` has the weights of its terms. `grades` are judges' grades of documents, from 0 to 2.
    """

    source: str
    id: str
    question: str
    idf: dict[str, float]
    gold: tuple[str, ...]
    passages: tuple[PoolPassage, ...]
    grades: dict[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, line: str) -> Pool:
        """Return the pool in a line of a file."""
        row = json.loads(line)
        passages = tuple(PoolPassage(**item) for item in row.pop("passages"))
        return cls(**row | {"gold": tuple(row["gold"])}, passages=passages)

    def analyzed(self, question: str | None = None) -> AnalyzedQuestion:
        """Return the question as the policy analyzes it. `question` is another wording of it.

        A term without a weight counts as rare.
        """
        rare = max(self.idf.values(), default=1.0)
        weights = lambda words: np.array([self.idf.get(word, rare) for word in words], dtype=np.float32)  # noqa: E731
        return analyze_question(question or self.question, weights)

    def ranking(self, name: str) -> list[PoolPassage]:
        """Return the passages of a ranking, in its order."""
        return sorted((passage for passage in self.passages if name in passage.ranks), key=lambda p: p.ranks[name])


def read_pools(files: Iterable[Path]) -> list[Pool]:
    """Return the pools in these files."""
    return [Pool.parse(line) for file in files for line in file.read_text("utf-8").split("\n") if line]


def load_chunks(folder: Path) -> list[Chunk]:
    """Return the set's documents, divided into chunks as for an index."""
    counter = HarmonyCounter()
    chunks: list[Chunk] = []
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            document = Document(row["id"], row["text"], row["title"])
            chunks += chunk_document(document, size=DEFAULT_CHUNK_TOKENS, counter=counter, overlap=0)
    return chunks


def questions_of(folder: Path, split: str) -> list[Question]:
    """Return a set's questions of a split, from `queries.SPLIT.jsonl` or from the rows of `questions.jsonl`."""
    if (file := folder / f"queries.{split}.jsonl").is_file():
        return [question for question in load_questions(file) if question.gold]
    if not (file := folder / "questions.jsonl").is_file():
        return []
    rows = [json.loads(line) for line in file.read_text("utf-8").split("\n") if line]
    chosen = {row["id"] for row in rows if row["split"] == split}
    return [question for question in load_questions(file) if question.id in chosen]


def judged(pools: Iterable[Pool], banks: Iterable[Path]) -> list[Pool]:
    """Return the pools with the judges' grades in these banks."""
    grades: dict[tuple[str, str], dict[str, int]] = {}
    for file in (file for bank in banks for file in bank.glob("*/labels.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            grades |= {(file.parent.name, row["id"]): row["grades"] for row in map(json.loads, lines)}
    return [replace(pool, grades=grades.get((pool.source, pool.id), {})) for pool in pools]


class PoolCollector:
    """A collector that searches one set in every way. If `agent` is False, a pool has only the full hybrid ranking.

    An episode of the policy takes as long as dozens of searches. So the policy searches only for questions with several
    gold documents.
    """

    def __init__(self, folder: Path, embedder: Embedder, others: Sequence[Embedder], *, agent: bool) -> None:
        self._source, self._agent = folder.name, agent
        self._corpus = MemoryCorpus(load_chunks(folder), embedder=embedder)
        self._weights = WordWeights(self._corpus)
        self._policy, self._renderer = BridgePolicy(effort="fast"), Renderer(default(), HarmonyCounter())
        texts = [chunk.indexed_text for chunk in self._corpus.chunks]
        self._others = [(other, other.embed_documents(texts)) for other in others]

    def pool(self, question: Question) -> Pool:
        """Return the pool of a question."""
        scores: dict[str, float] = {}
        hybrid = self._corpus.search(question.question, k=HYBRID_DEPTH)
        rankings = {HYBRID: [hit.chunk.id for hit in hybrid]}
        if self._agent:
            rankings = {HYBRID: rankings[HYBRID][:HYBRID_KEPT], **self._retrieved(question.question)}
        if self._agent and len(question.gold) > 1:
            actor = asyncio.run(play(question.question, self._corpus, self._policy, Budget(), self._renderer))
            scores = {candidate.id: score for candidate, score in actor.ranked()}
            rankings[AGENT] = list(scores)[:AGENT_KEPT]
        ranks: dict[str, dict[str, int]] = {}
        for name, ranking in rankings.items():
            for rank, chunk_id in enumerate(ranking):
                ranks.setdefault(chunk_id, {})[name] = rank
        chunks = self._corpus.get(list(ranks))
        found = {chunk.document_id for chunk in chunks}
        unseen = (self._corpus.read(document) for document in question.gold if document not in found)
        chunks += [chunk for chunk, *_ in unseen]
        passages = tuple(
            PoolPassage(
                chunk.document_id,
                chunk.title,
                chunk.text,
                round(scores.get(chunk.id, 0.0), 5),
                ranks.get(chunk.id, {}),
            )
            for chunk in chunks
        )
        analyzed = analyze_question(question.question, self._weights)
        idf = dict(zip(analyzed.terms, map(float, analyzed.idf), strict=True))
        return Pool(self._source, question.id, question.question, idf, question.gold, passages)

    def _retrieved(self, question: str) -> dict[str, list[str]]:
        rankings = {
            retriever.name: [chunk_id for chunk_id, _ in retriever.search(question, OTHER_DEPTH)]
            for retriever in self._corpus.retrievers
        }
        for embedder, vectors in self._others:
            order = np.argsort(-(vectors @ embedder.embed_query(question)), kind="stable")[:OTHER_DEPTH]
            rankings[embedder.name] = [self._corpus.chunks[row].id for row in order]
        return rankings


@dataclass(frozen=True, slots=True)
class Pair:
    """An input of the reader, and the grade of its passage.

    The grade is 2 if the passage answers, 1 if it answers in part, and 0 if it is wrong.
    """

    premise: str
    passage: str
    grade: int


def single_pairs(pool: Pool, passages: Iterable[PoolPassage]) -> list[Pair]:
    """Return a pair of each passage with the question alone. Gold passages have the grade 2."""
    texts = ReaderInput(pool.analyzed())
    analyzed = [(passage, _analyzed(passage.title, passage.text)) for passage in passages]
    return [Pair(texts.premise([], a), texts.excerpt(a), 2 * (p.document in pool.gold)) for p, a in analyzed]


class Draws:
    """An endless iterator over groups of pairs. Each set has a fixed share."""

    def __init__(self, pools: Sequence[Pool], seed: int) -> None:
        self._draw = random.Random(seed)
        self._by_source: dict[str, list[Pool]] = {}
        for pool in pools:
            self._by_source.setdefault(pool.source, []).append(pool)
        self._left: dict[str, list[Pool]] = {source: [] for source in self._by_source}

    def shares(self) -> dict[str, float]:
        """Return the share of each set. The shares add up to 1."""
        weights = {
            source: min(len(pools), BALANCED) ** EXPONENT * (HOPS_SHARE if source in HOPS else 1)
            for source, pools in self._by_source.items()
        }
        return {source: weight / sum(weights.values()) for source, weight in weights.items()}

    def __iter__(self) -> Iterator[list[Pair]]:
        """Yield groups without end. Each group belongs to one question."""
        shares = self.shares()
        while True:
            (source,) = self._draw.choices(list(shares), list(shares.values()))
            if not (left := self._left[source]):
                left += self._draw.sample(self._by_source[source], len(self._by_source[source]))
            if len(group := self._group(left.pop())) > 1:
                yield group

    def _group(self, pool: Pool) -> list[Pair]:
        """Return right, partial and wrong passages of a question, all with evidence from the same noisy order."""
        draw = self._draw
        passages = _one_a_document(pool)
        grades = [_grade(pool, passage) for passage in passages]
        right = [row for row, grade in enumerate(grades) if grade == 2]
        partial = [row for row, grade in enumerate(grades) if grade == 1]
        chosen = draw.sample(right, min(MOST_RIGHT, len(right))) + draw.sample(partial, min(MOST_PARTIAL, len(partial)))
        chosen += self._wrong(pool, passages, grades, GROUP - len(chosen))
        texts = ReaderInput(pool.analyzed(self._wording(pool)))
        evidence = self._evidence(pool, passages)
        pairs = []
        for row in chosen:
            passage = _analyzed(passages[row].title, passages[row].text)
            others = (other for other in evidence if other.document != passages[row].document)
            context = [_analyzed(other.title, other.text) for other, _ in zip(others, range(EVIDENCE), strict=False)]
            pairs.append(Pair(texts.premise(context, passage), texts.excerpt(passage), grades[row]))
        return pairs

    def _wrong(self, pool: Pool, passages: Sequence[PoolPassage], grades: Sequence[int], count: int) -> list[int]:
        """Return the rows of wrong passages, drawn by weight without replacement (Efraimidis and Spirakis, 2006)."""
        keys = {
            row: self._draw.random() ** (1 / _wrong_weight(pool, passage))
            for row, passage in enumerate(passages)
            if grades[row] == 0
        }
        return sorted(keys, key=keys.__getitem__, reverse=True)[:count]

    def _evidence(self, pool: Pool, passages: Sequence[PoolPassage]) -> list[PoolPassage]:
        """Return what a search might have found before, best first.

        The order is that of noisy scores, and some of the gold is missing. In some groups there is no evidence.
        """
        if self._draw.random() < WITHOUT_EVIDENCE[len(pool.gold) > 1]:
            return []
        withheld = {document for document in pool.gold if self._draw.random() < WITHHELD}
        kept = [passage for passage in passages if passage.document not in withheld]
        return sorted(kept, key=lambda passage: -_log_odds(_likelihood(passage)) - self._draw.gauss(0, NOISE))

    def _wording(self, pool: Pool) -> str:
        """Return the question, or its rarest words in order, like keywords that people type."""
        if self._draw.random() >= KEYWORDS or len(pool.idf) < 3:
            return pool.question
        rarest = sorted(pool.idf, key=lambda term: -pool.idf[term])[:MOST_KEYWORDS]
        return " ".join(term for term in pool.idf if term in rarest)


def _one_a_document(pool: Pool) -> list[PoolPassage]:
    """Return the most likely passage of each document."""
    order = sorted(pool.passages, key=lambda passage: -_likelihood(passage))
    by_document: dict[str, PoolPassage] = {}
    for passage in order:
        by_document.setdefault(passage.document, passage)
    return list(by_document.values())


def _grade(pool: Pool, passage: PoolPassage) -> int:
    """Return the judge's grade of the passage.

    Gold that a judge found wrong counts as a partial answer, and gold without a grade as an answer. Any other passage
    without a grade counts as wrong.
    """
    if passage.document in pool.gold:
        return max(1, pool.grades.get(passage.document, 2))
    return pool.grades.get(passage.document, 0)


def _wrong_weight(pool: Pool, passage: PoolPassage) -> float:
    rank = _best_rank(passage)
    if passage.document in pool.grades:
        return JUDGED_SHARE
    return LEAD_SHARE if rank < UNJUDGED_LEAD else TAIL_SHARE if rank >= TAIL else 1.0


def _likelihood(passage: PoolPassage) -> float:
    """Return the policy's probability.

    If the policy did not see the passage, return a probability that depends on its best rank.
    """
    return passage.score or LEAD_LIKELIHOOD / (1 + _best_rank(passage))


def _best_rank(passage: PoolPassage) -> int:
    return min(passage.ranks.values(), default=UNRANKED)


def _log_odds(score: float) -> float:
    odds = min(max(score, 1e-4), 1 - 1e-4)
    return float(np.log(odds / (1 - odds)))


@lru_cache(maxsize=20_000)
def _analyzed(title: str, text: str) -> AnalyzedPassage:
    return AnalyzedPassage(title, text)
