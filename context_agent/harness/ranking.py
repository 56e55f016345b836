"""Rankings of documents: check a policy's ranking against its final view, and merge rankings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from context_agent.pruning.view import Block, View, named_id
from context_agent.retrieval.fusion import RRF_K, reciprocal_rank_fusion
from context_agent.types import Hit, RankedChunk, RankedDocument, RankedId


@dataclass(frozen=True, slots=True)
class Ranking:
    """A checked ranking.

    Attributes:
        documents: The documents, best first.
        dropped: Why each other id was dropped: `pruned`, `summary` or `unseen`.
    """

    documents: tuple[RankedDocument, ...] = ()
    dropped: tuple[str, ...] = ()


def resolve(
    ranked_ids: Iterable[RankedId], view: View, limit: int, relevance: Mapping[str, float] | None = None
) -> Ranking:
    """Return the documents that a policy ranked, in its order.

    A ranking may cite documents in the final view. A document is in the view if one of its blocks is, or a summary that
    replaces one. It can be cited by document id, by chunk id, or by the label of a block. An id that was pruned or
    never seen is dropped, and so is the id of a summary. A later mention of a document only adds passages.

    Args:
        ranked_ids: The ids that the policy named, best first.
        view: The final view.
        limit: Maximum number of documents.
        relevance: Scores of passages by chunk id. A passage without a score has its document's score.
    """
    citable = view.citable_blocks
    blocks_by_document = _by_document(citable)
    owner = {block.label: block for block in citable} | {block.id: block for block in citable}
    known = owner.keys() | blocks_by_document.keys()
    order: dict[str, tuple[RankedId, list[str]]] = {}
    dropped = []
    for item in ranked_ids:
        name = named_id(item.id, known)
        if name in blocks_by_document:
            order.setdefault(name, (item, []))[1].append(name)
        elif (block := owner.get(name)) is not None:
            order.setdefault(block.document_id, (item, []))[1].append(block.id)
        else:
            dropped.append(_dropped_because(named_id(item.id, ()), view))
    documents = tuple(
        _document(blocks_by_document[document], item, ids, rank, relevance or {})
        for rank, (document, (item, ids)) in enumerate(list(order.items())[:limit], start=1)
    )
    return Ranking(documents, tuple(dropped))


def fallback_ranking(view: View, failed: Ranking, limit: int) -> Ranking:
    """Rank the documents in view without the policy, by the summed reciprocal ranks of their hits."""
    blocks_by_document = _by_document(view.citable_blocks)
    scores = {
        document: sum(1.0 / (RRF_K + block.hit.rank) for block in blocks)
        for document, blocks in blocks_by_document.items()
    }
    best = sorted(scores, key=lambda document: (-scores[document], document))[:limit]
    ranked = [
        _document(blocks_by_document[d], RankedId(d, scores[d]), [], rank, {}) for rank, d in enumerate(best, start=1)
    ]
    return Ranking(tuple(ranked), failed.dropped)


def with_shown_documents(ranking: Ranking, view: View, limit: int) -> Ranking:
    """Return the ranking, followed by the other documents that were shown, pruned or not.

    They are in the order of their first hit, so those of the first search, which is the question's own, come first. The
    ranking must have at least one document.
    """
    named = {document.id for document in ranking.documents}
    shown = _by_document(block for block in (*view.pruned, *view.citable_blocks) if block.document_id not in named)
    order = sorted(shown, key=lambda document: min(block.key for block in shown[document]))
    documents = list(ranking.documents)
    for rank, document in enumerate(order[: limit - len(documents)], start=len(documents) + 1):
        blocks = list({block.id: block for block in shown[document]}.values())
        score = min(1.0 / rank, documents[-1].score)
        documents.append(_document(blocks, RankedId(document, score), [], rank, {}))
    return replace(ranking, documents=tuple(documents))


def _by_document(blocks: Iterable[Block]) -> dict[str, list[Block]]:
    blocks_by_document: dict[str, list[Block]] = {}
    for block in blocks:
        blocks_by_document.setdefault(block.hit.chunk.document_id, []).append(block)
    return blocks_by_document


def _dropped_because(ranked_id: str, view: View) -> str:
    if any(summary.id == ranked_id for summary in view.summaries):
        return "summary"
    return (
        "pruned" if any(ranked_id in (block.id, block.document_id, block.label) for block in view.pruned) else "unseen"
    )


def _document(
    blocks: list[Block], item: RankedId, cited_ids: list[str], rank: int, relevance: Mapping[str, float]
) -> RankedDocument:
    """Return a document of the ranking. Cited passages come first, in their order, then the others by score."""
    place, last = {chunk_id: index for index, chunk_id in enumerate(cited_ids)}, len(cited_ids)

    def order(hit: Hit) -> tuple[float, ...]:
        chunk = hit.chunk
        return place.get(chunk.id, last), -relevance.get(chunk.id, 0.0), -hit.score, chunk.index

    chunks = [hit.chunk for hit in sorted((block.hit for block in blocks), key=order)]
    document_score = item.score if item.score is not None else 1.0 / rank
    first = chunks[0]
    return RankedDocument(
        id=first.document_id,
        title=first.title,
        score=document_score,
        chunks=tuple(RankedChunk(chunk.id, chunk.text, relevance.get(chunk.id, document_score)) for chunk in chunks),
        justification=item.justification,
        metadata=first.metadata,
    )


def fuse(rankings: Sequence[Sequence[RankedDocument]]) -> tuple[RankedDocument, ...]:
    """Merge rankings by the sums of reciprocal ranks. Break ties by id.

    A document gets the passages of all rankings.
    """
    merged = _merged(rankings)
    fused = reciprocal_rank_fusion([[document.id for document in ranking] for ranking in rankings])
    return tuple(_with_score(merged[document_id], score) for document_id, score in fused)


def pool(rankings: Sequence[Sequence[RankedDocument]]) -> tuple[RankedDocument, ...]:
    """Merge rankings by the mean of their scores, which are probabilities. Break ties by id.

    In a ranking that lacks a passage, the passage has the probability 0. A document has the probability of its best
    passage.
    """
    means: defaultdict[str, float] = defaultdict(float)
    for document in chain.from_iterable(rankings):
        for chunk in document.chunks:
            means[chunk.id] += chunk.score / len(rankings)
    pooled = []
    for document in _merged(rankings).values():
        chunks = sorted((replace(chunk, score=means[chunk.id]) for chunk in document.chunks), key=lambda c: -c.score)
        pooled.append(replace(document, score=chunks[0].score, chunks=tuple(chunks)))
    return tuple(sorted(pooled, key=lambda document: (-document.score, document.id)))


def _merged(rankings: Sequence[Sequence[RankedDocument]]) -> dict[str, RankedDocument]:
    """Return the documents by id, each with the passages of all rankings."""
    merged: dict[str, RankedDocument] = {}
    for document in chain.from_iterable(rankings):
        first_ranked = merged.get(document.id)
        merged[document.id] = document if first_ranked is None else _with_passages(first_ranked, document)
    return merged


def _with_score(document: RankedDocument, score: float) -> RankedDocument:
    return replace(document, score=score, chunks=tuple(replace(chunk, score=score) for chunk in document.chunks))


def _with_passages(first_ranked: RankedDocument, later_ranked: RankedDocument) -> RankedDocument:
    chunk_ids = {chunk.id for chunk in first_ranked.chunks}
    added = tuple(chunk for chunk in later_ranked.chunks if chunk.id not in chunk_ids)
    return replace(
        first_ranked,
        chunks=first_ranked.chunks + added,
        justification=first_ranked.justification or later_ranked.justification,
    )
