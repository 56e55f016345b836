"""The results of the tools: text that a model reads, and data for programs that ask for it.

Many clients give a model only the data if a result has any, and others give it both. A result therefore has no data
unless the call asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise, takewhile
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from context_agent._support.extras import extra
from context_agent.integrations.functions import NO_PASSAGES
from context_agent.integrations.server.answers import ServedAnswer
from context_agent.integrations.server.schema import PruneAnswer
from context_agent.text.markers import escape_markers, escaped_line
from context_agent.text.passages import passage_text
from context_agent.types import Chunk, Hit, Metadata

with extra("mcp"):
    from mcp.types import CallToolResult, TextContent


MAX_READ_TOKENS = 8_192
"""Tokens of a document that one `read` returns, unless its first chunk alone has more."""
Detail = Annotated[
    Literal["brief", "full"],
    Field(description="full: adds structured content with texts, scores and metadata, for programs that read it"),
]
JsonMetadata = dict[str, str | int | float | bool | None]


class RankedPassage(BaseModel):
    """A passage of a ranked document. `id` is the id of the chunk."""

    id: str
    text: str
    score: float


class RetrievedDocument(BaseModel):
    """A ranked document, and the passages that support it, best first."""

    id: str
    title: str
    score: float
    justification: str = Field(description="why the document is relevant, if the policy tells; else empty")
    metadata: JsonMetadata
    passages: list[RankedPassage]


class RetrieveResult(BaseModel):
    """The result of a search in several steps. The best document comes first."""

    documents: list[RetrievedDocument]
    sufficient: bool | None = Field(description="false if nothing relevant was found: the documents are the nearest")
    confidence: float | None = Field(description="probability that the corpus answers the question, if known")
    complete: bool = Field(description="false if a limit or a failure cut the search short")
    stop_reason: str
    error: str | None = Field(description="what kind of failure cut the search short, if one did")
    turns: int
    tokens: int = Field(description="tokens ever placed in the search's context")
    seconds: float
    request_id: str = Field(description="identifies this call in the server's log and in feedback")
    trajectory: str | None = Field(description="the id of the recorded search, if the server records searches")


class FoundPassage(BaseModel):
    """A passage that a single search or grep returned."""

    id: str = Field(description="the chunk's id")
    document_id: str
    title: str
    text: str
    score: float = Field(description="orders the passages of one result")
    metadata: JsonMetadata


class PassagesResult(BaseModel):
    """Passages, best first. Those of a grep are in the order of the corpus."""

    passages: list[FoundPassage]


class ReadResult(BaseModel):
    """The text of a document, or the part of it that fits into one result."""

    id: str
    title: str
    metadata: JsonMetadata
    text: str
    first_chunk: int = Field(description="number of the first chunk in this part, from 0")
    chunks: int = Field(description="number of chunks in the document")
    next_chunk: int | None = Field(description="first_chunk for the next part; null at the end")


def retrieve_result(answer: ServedAnswer, detail: Detail = "brief") -> CallToolResult:
    """Return the result of the agent's search."""
    result = answer.result
    documents = [
        RetrievedDocument(
            id=document.id,
            title=document.title,
            score=document.score,
            justification=document.justification,
            metadata=_json_metadata(document.metadata),
            passages=[RankedPassage(id=chunk.id, text=chunk.text, score=chunk.score) for chunk in document.chunks],
        )
        for document in result.documents
    ]
    data = RetrieveResult(
        documents=documents,
        sufficient=result.sufficient,
        confidence=result.confidence,
        complete=answer.complete,
        stop_reason=result.stop_reason,
        error=answer.error,
        turns=result.turns,
        tokens=result.tokens,
        seconds=round(answer.seconds, 4),
        request_id=answer.request_id,
        trajectory=answer.trajectory,
    )
    text = answer.text()
    if not answer.complete:
        text += f"\n\n(The search was cut short: {answer.error or result.stop_reason}.)"
    return _result(text, data, detail)


def passages_result(hits: Sequence[Hit], detail: Detail = "brief") -> CallToolResult:
    """Return the result of one search or grep."""
    passages = [
        FoundPassage(
            id=hit.chunk.id,
            document_id=hit.chunk.document_id,
            title=hit.chunk.title,
            text=hit.chunk.text,
            score=hit.score,
            metadata=_json_metadata(hit.chunk.metadata),
        )
        for hit in hits
    ]
    chunks = [hit.chunk for hit in hits]
    texts = [passage_text(rank, chunk.id, chunk.title, chunk.text) for rank, chunk in enumerate(chunks, start=1)]
    return _result("\n\n".join(texts) or NO_PASSAGES, PassagesResult(passages=passages), detail)


def read_result(chunks: Sequence[Chunk], first: int, detail: Detail = "brief") -> CallToolResult:
    """Return as much of a document as fits into one result.

    Args:
        chunks: The chunks of the document.
        first: The number of the first chunk to return, from 0.
        detail: `full` if the result also has data.
    """
    tokens = accumulate(chunk.tokens for chunk in chunks[first:])
    part = chunks[first : first + max(1, sum(1 for _ in takewhile(MAX_READ_TOKENS.__ge__, tokens)))]
    next_chunk, joined = first + len(part), joined_text(part)
    data = ReadResult(
        id=chunks[0].document_id,
        title=chunks[0].title,
        metadata=_json_metadata(chunks[0].metadata),
        text=joined,
        first_chunk=first,
        chunks=len(chunks),
        next_chunk=next_chunk if next_chunk < len(chunks) else None,
    )
    text = f"{escaped_line(data.title)} (id: {escaped_line(data.id)})\n{escape_markers(joined)}".lstrip()
    if data.next_chunk is not None:
        text += f"\n\n(Chunks {first} to {next_chunk - 1} of {len(chunks)}; continue with first_chunk={next_chunk}.)"
    return _result(text, data, detail)


def prune_result(answer: PruneAnswer) -> CallToolResult:
    """Return the conversation as data. The text has only the outcome, because the client has the messages."""
    if (report := answer.report) is None:
        return _result("The passages are back.", answer)
    sizes = f"{report['tokens_after']:,} of {report['tokens_before']:,} tokens of tool results remain"
    return _result("\n".join([f"{report['outcome']}: {sizes}", *report["warnings"]]), answer)


def joined_text(chunks: Sequence[Chunk]) -> str:
    """Join neighboring chunks into one text. Text that chunks share appears once, and a gap becomes a line break."""
    parts = [chunk.text for chunk in chunks[:1]]
    for before, chunk in pairwise(chunks):
        shared = before.end - chunk.start if before.start < chunk.start else 0
        # Offsets of a foreign collection may be missing, and those of an engine count from the start of a passage.
        if shared > 0 and before.text[-shared:] == chunk.text[:shared]:
            parts.append(chunk.text[shared:])
        else:
            parts += ["\n", chunk.text]
    return "".join(parts)


def _json_metadata(metadata: Metadata) -> JsonMetadata:
    """Return the metadata as JSON values. A number that is not finite becomes null, and a list becomes text."""
    return {key: _json_value(value) for key, value in metadata.items()}


def _json_value(value: Any) -> str | int | float | bool | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _result(text: str, data: BaseModel, detail: Detail = "full") -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=data.model_dump(mode="json") if detail == "full" else None,
    )
