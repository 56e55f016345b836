"""The tool `read_document`. It shows the chunks of a document that fit in the view."""

from __future__ import annotations

import difflib

from pydantic import Field

from context_agent.harness.tools.tool import (
    LISTED_ID_LENGTH,
    ReadContext,
    ReadTool,
    ToolArguments,
    ToolOutput,
)
from context_agent.pruning.view import Source
from context_agent.retrieval.filters import compile_where
from context_agent.text.markers import escape_markers
from context_agent.types import Chunk, Hit

LONGEST_HINT = 200
"""Characters of an id that is compared with an unknown one. Comparing takes time quadratic in the length."""


class ReadArguments(ToolArguments):
    """Read a document: all its chunks, as far as they fit."""

    doc_id: str = Field(min_length=1, description="the id of a document, or of one of its chunks")


def run(arguments: ReadArguments, context: ReadContext, earlier: int) -> ToolOutput:
    """Return the chunks of a document that were not shown yet, in document order.

    A chunk that the filter of the search excludes does not exist for the policy. A chunk that was shown has passed the
    filter, even if an engine returned it without the metadata that the filter names.
    """
    document_id = arguments.doc_id
    chunks = context.corpus.read(document_id) or _document_around(document_id, context)
    if context.where is not None:
        passes = compile_where(context.where)
        chunks = [chunk for chunk in chunks if chunk.id in context.shown_ids or passes(chunk.metadata)]
    if not chunks:
        return ToolOutput(Source.READ, message=_unknown(document_id, context), mistake="unknown_document")
    new = [chunk for chunk in chunks if chunk.id not in context.shown_ids]
    repeated = tuple(chunk.id for chunk in chunks if chunk.id in context.shown_ids)
    hits = _by_relevance(document_id, new, context)
    return ToolOutput(Source.READ, hits, limit=len(new), repeated_ids=repeated, in_order=True)


def _document_around(chunk_id: str, context: ReadContext) -> list[Chunk]:
    """Return all chunks of the document that a chunk belongs to."""
    chunks = context.corpus.get([chunk_id])
    return context.corpus.read(chunks[0].document_id) if chunks else []


def _unknown(document_id: str, context: ReadContext) -> str:
    short = [name for name in context.surfacing_queries if len(name) <= LONGEST_HINT]
    similar = difflib.get_close_matches(document_id, short)
    hint = f" Similar ids: {', '.join(map(escape_markers, similar))}." if similar else ""
    return f"Error: there is no document {escape_markers(document_id[:LISTED_ID_LENGTH])!r}.{hint}"


def _by_relevance(document_id: str, chunks: list[Chunk], context: ReadContext) -> tuple[Hit, ...]:
    """Return the chunks as hits.

    If not all of them fit, rerank them against the query that first brought up the document.
    """
    if sum(context.renderer.chunk(chunk).tokens for chunk in chunks) <= context.budget.per_call:
        return tuple(Hit(chunk, 1.0 / rank, rank) for rank, chunk in enumerate(chunks, start=1))
    scores = context.corpus.rerank(context.surfacing_queries.get(document_id, context.question), chunks)
    order = sorted(range(len(chunks)), key=lambda i: (-float(scores[i]), i))
    return tuple(Hit(chunks[i], float(scores[i]), rank) for rank, i in enumerate(order, start=1))


TOOL = ReadTool("read_document", ReadArguments, run)
