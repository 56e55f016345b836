"""The final ranking: checked against what is really in view, made up from it where the policy gave none, and fused.

A ranking may name only documents that are in the final view, with a block of theirs or through a summary that stands
for one, by document id or by chunk id. An id that was pruned, or never seen, is dropped and counted; so is the id of a
summary, which is no document's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from context_agent.pruning.view import Block, View
from context_agent.types import RankedChunk, RankedDocument, RankedId

RRF_K = 60
"""Constant of reciprocal rank fusion (Cormack et al., 2009), as published for fusing rollouts."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Documents best first, and why the other named ids were dropped: `pruned`, `summary` or `unseen`, one an id."""

    documents: tuple[RankedDocument, ...] = ()
    dropped: tuple[str, ...] = ()


def resolve(ranked_ids: Iterable[RankedId], view: View, limit: int) -> Ranking:
    """The named ids as documents in view, in the order named; later mentions of a document only add passages."""
    citable = view.citable_blocks
    blocks_by_document = _by_document(citable)
    owner = {block.id: block.document_id for block in citable}
    reasons = dict.fromkeys(
        (blocked_id for block in view.pruned for blocked_id in (block.id, block.document_id)), "pruned"
    )
    reasons |= {summary.id: "summary" for summary in view.summaries}
    order: dict[str, tuple[RankedId, list[str]]] = {}
    dropped = []
    for item in ranked_ids:
        document = item.id if item.id in blocks_by_document else owner.get(item.id)
        if document is None:
            dropped.append(reasons.get(item.id, "unseen"))
        else:
            order.setdefault(document, (item, []))[1].append(item.id)
    documents = tuple(
        _document(blocks_by_document[document], item, ids, rank)
        for rank, (document, (item, ids)) in enumerate(list(order.items())[:limit], start=1)
    )
    return Ranking(documents, tuple(dropped))


def fallback_ranking(view: View, failed: Ranking, limit: int) -> Ranking:
    """The best ranking a view defends without its policy: each document by the summed reciprocal ranks of its hits."""
    blocks_by_document = _by_document(view.citable_blocks)
    scores = {
        document: sum(1.0 / (RRF_K + block.hit.rank) for block in blocks)
        for document, blocks in blocks_by_document.items()
    }
    best = sorted(scores, key=lambda document: (-scores[document], document))[:limit]
    ranked = [
        _document(blocks_by_document[d], RankedId(d, scores[d]), [], rank) for rank, d in enumerate(best, start=1)
    ]
    return Ranking(tuple(ranked), failed.dropped)


def fuse(rankings: Sequence[Sequence[RankedDocument]], *, k: int = RRF_K) -> tuple[RankedDocument, ...]:
    """Reciprocal rank fusion of several rollouts' rankings: score(d) = sum of 1 / (k + rank); ties by id."""
    scores: dict[str, float] = {}
    merged: dict[str, RankedDocument] = {}
    for ranking in rankings:
        for rank, document in enumerate(ranking, start=1):
            scores[document.id] = scores.get(document.id, 0.0) + 1.0 / (k + rank)
            first_ranked = merged.get(document.id)
            merged[document.id] = document if first_ranked is None else _with_passages(first_ranked, document)
    best = sorted(scores, key=lambda document: (-scores[document], document))
    return tuple(replace(merged[document], score=scores[document]) for document in best)


def _with_passages(first_ranked: RankedDocument, later_ranked: RankedDocument) -> RankedDocument:
    chunk_ids = {chunk.id for chunk in first_ranked.chunks}
    added = tuple(chunk for chunk in later_ranked.chunks if chunk.id not in chunk_ids)
    return replace(
        first_ranked,
        chunks=first_ranked.chunks + added,
        justification=first_ranked.justification or later_ranked.justification,
    )


def _by_document(blocks: Iterable[Block]) -> dict[str, list[Block]]:
    blocks_by_document: dict[str, list[Block]] = {}
    for block in blocks:
        blocks_by_document.setdefault(block.document_id, []).append(block)
    return blocks_by_document


def _document(blocks: list[Block], item: RankedId, cited_ids: list[str], rank: int) -> RankedDocument:
    """A document of the ranking; passages that were named come first, in that order, then by score."""
    position = {chunk_id: index for index, chunk_id in enumerate(cited_ids)}
    ordered = sorted(blocks, key=lambda b: (position.get(b.id, len(cited_ids)), -b.hit.score, b.hit.chunk.index))
    first = ordered[0].hit.chunk
    return RankedDocument(
        id=first.document_id,
        title=first.title,
        score=item.score if item.score is not None else 1.0 / rank,
        chunks=tuple(RankedChunk(b.id, b.hit.chunk.text, b.hit.score) for b in ordered),
        justification=item.justification,
        metadata=first.metadata,
    )
