"""One-shot searches: a corpus is searched once, without an agent. An evaluation compares the agent with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from context_agent._support.shipped_models import shipped_reader
from context_agent.agent import SearchResult
from context_agent.errors import ConfigError
from context_agent.policies.bridge.candidates import AnalyzedPassage
from context_agent.pruning import reading
from context_agent.pruning.words import terms
from context_agent.retrieval.corpus import CANDIDATES, Corpus
from context_agent.retrieval.fusion import gather, reciprocal_rank_fusion
from context_agent.retrieval.rerankers import LateInteractionReranker
from context_agent.retrieval.retriever import DENSE, SPARSE, Retriever
from context_agent.retrieval.retriever_weights import Calibration
from context_agent.text.names import question_entities
from context_agent.types import Chunk, Question, RankedChunk, RankedDocument

ONE_SHOT = "one_shot"
"""The stop reason of a one-shot system."""
CHUNKS_PER_DOCUMENT = 5
"""The number of chunks that a one-shot search requests for each document of the answer.

It is larger than 1, because several chunks may belong to one document.
"""

Search = Callable[["RetrieverCorpus", str, int], list[str]]
"""A function of a corpus, a question and a depth that returns chunk ids, best first."""


@runtime_checkable
class RetrieverCorpus(Corpus, Protocol):
    """A corpus that gives access to its retrievers, as `MemoryCorpus` and `ChromaCorpus` do."""

    retrievers: list[Retriever]
    calibration: Calibration


def one_shot(search: Search, question: Question, corpus: Corpus, k: int) -> SearchResult:
    """Search once, and return the first `k` documents.

    Raises:
        ConfigError: If the question is empty, or if the corpus does not have the retrievers.
    """
    if not question.question.strip():
        raise ConfigError("the question is empty. Pass its text.")
    if not isinstance(corpus, RetrieverCorpus):
        raise ConfigError(
            f"one-shot systems need a corpus with retrievers, but the corpus {corpus.name} has none. Choose other "
            "systems with --systems."
        )
    ids = search(corpus, question.question, max(CANDIDATES, CHUNKS_PER_DOCUMENT * k))
    documents = _documents(corpus.get(ids), k)
    return SearchResult(question.question, documents, ONE_SHOT, 0, 0, (), id=question.id)


def bm25(corpus: RetrieverCorpus, question: str, depth: int) -> list[str]:
    """Rank chunks by BM25 alone."""
    return _single_retriever(corpus, SPARSE, question, depth)


def dense(corpus: RetrieverCorpus, question: str, depth: int) -> list[str]:
    """Rank chunks by the cosine similarity of embeddings alone."""
    return _single_retriever(corpus, DENSE, question, depth)


def hybrid(corpus: RetrieverCorpus, question: str, depth: int) -> list[str]:
    """Rank chunks by BM25 and dense search, fused by score, without the reranker."""
    return [chunk.id for chunk in gather(corpus.retrievers, corpus.calibration.weights, question, limit=depth)]


def reranked(corpus: RetrieverCorpus, question: str, depth: int) -> list[str]:
    """Rank chunks by BM25 and dense search, fused by score. The reranker then orders the candidates."""
    return [hit.chunk.id for hit in corpus.search(question, k=depth)]


def read(corpus: RetrieverCorpus, question: str, depth: int) -> list[str]:
    """Rank chunks by BM25 and dense search, fused by score. The shipped reader then scores each candidate."""
    chunks = corpus.get(hybrid(corpus, question, depth))
    words = set(terms(question))
    pairs = []
    for chunk in chunks:
        passage = AnalyzedPassage(chunk.title, chunk.text)
        worth = [float(len(words & set(terms(sentence)))) for sentence in passage.sentence_texts]
        excerpt = reading.excerpt(passage.heading, passage.text, passage.sentence_texts, worth)
        pairs.append((reading.premise(question, ()), excerpt))
    odds = shipped_reader().encode_pairs(pairs)[:, 0] if pairs else np.zeros(0)
    return [chunks[row].id for row in np.argsort(-odds, kind="stable").tolist()]


def late(corpus: RetrieverCorpus, question: str, depth: int) -> list[str]:
    """Rank chunks by BM25 and dense search, fused by score. Late interaction then changes the order."""
    chunks = corpus.get(hybrid(corpus, question, depth))
    scores = LateInteractionReranker().score_hits(question, [chunk.indexed_text for chunk in chunks])
    return [chunks[row].id for row in np.argsort(-scores, kind="stable").tolist()]


def subqueries(corpus: RetrieverCorpus, question: str, depth: int) -> list[str]:
    """Search with `hybrid` for the question and for each name in it, and fuse the rankings by reciprocal rank.

    No language model splits the question. The names, quotations and compared options are those that the bridge policy
    finds, so this system corresponds to the agent's first turn.
    """
    queries = dict.fromkeys([question, *question_entities(question)])
    rankings = [hybrid(corpus, query, depth) for query in queries]
    return [item for item, _ in reciprocal_rank_fusion(rankings)]


def _single_retriever(corpus: RetrieverCorpus, name: str, question: str, depth: int) -> list[str]:
    retriever = next((candidate for candidate in corpus.retrievers if candidate.name == name), None)
    if retriever is None:
        raise ConfigError(f"the corpus {corpus.name} has no {name} retriever. Leave that system out of --systems.")
    return [chunk_id for chunk_id, _ in retriever.search(question, depth)]


def _documents(chunks: Sequence[Chunk], k: int) -> tuple[RankedDocument, ...]:
    """Return the first `k` documents of a ranking of chunks, each with its best chunk."""
    best: dict[str, Chunk] = {}
    for chunk in chunks:
        best.setdefault(chunk.document_id, chunk)
    return tuple(
        RankedDocument(chunk.document_id, chunk.title, 1 / rank, (RankedChunk(chunk.id, chunk.text, 1 / rank),))
        for rank, chunk in enumerate(list(best.values())[:k], start=1)
    )
