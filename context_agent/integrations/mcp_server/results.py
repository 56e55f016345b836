"""What the tools answer: as data, whose shape is each tool's output schema, and as text that a model reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

from context_agent._support.markers import escape_markers
from context_agent.harness.rendering import one_line
from context_agent.integrations.extras import extra
from context_agent.integrations.faces import Passage as Shown
from context_agent.integrations.functions import shown
from context_agent.integrations.server.answers import Answer
from context_agent.types import Chunk, Hit, Metadata

with extra("mcp"):
    from mcp.types import CallToolResult, TextContent

NOTHING = "Nothing was found."
MOST_TOKENS = 8_192
"""Tokens of a document that one `read` returns, unless its first chunk alone has more."""

Entries = dict[str, str | int | float | bool | None]
"""Metadata as JSON can say it."""


class Passage(BaseModel):
    """A passage that earned its document the place in the ranking."""

    id: str = Field(description="the chunk's id")
    text: str
    score: float


class Document(BaseModel):
    """A ranked document, with the passages that speak for it, best first."""

    id: str
    title: str
    score: float
    justification: str = Field(description="why it is here, where the policy says so; else empty")
    metadata: Entries
    passages: list[Passage]


class Retrieved(BaseModel):
    """What a search in several steps came to, best document first."""

    documents: list[Document]
    complete: bool = Field(description="false where a limit or a failure cut the search short")
    stop_reason: str
    error: str | None = Field(description="what kind of failure cut the search short, if one did")
    turns: int
    tokens: int = Field(description="tokens ever placed in the search's context")
    seconds: float
    request_id: str = Field(description="names this call in the server's log, and when it is judged")
    trajectory: str | None = Field(description="the recorded search's id, where the server records")


class FoundPassage(BaseModel):
    """A passage as a single search or grep brings it up."""

    id: str = Field(description="the chunk's id")
    document_id: str
    title: str
    text: str
    score: float = Field(description="orders the passages of one result")
    metadata: Entries


class Found(BaseModel):
    """Passages, best first; of a grep, in the corpus's order."""

    passages: list[FoundPassage]


class Read(BaseModel):
    """A document's text, or the part of it that fits one answer."""

    id: str
    title: str
    metadata: Entries
    text: str
    first_chunk: int = Field(description="number of the first chunk in this part, from 0")
    chunks: int = Field(description="chunks of the whole document")
    next_chunk: int | None = Field(description="where to read on: first_chunk of the next call; null at the end")


def retrieved(answer: Answer) -> CallToolResult:
    """The result of the agent's search."""
    result = answer.result
    documents = [
        Document(
            id=one.id,
            title=one.title,
            score=one.score,
            justification=one.justification,
            metadata=_entries(one.metadata),
            passages=[Passage(id=chunk.id, text=chunk.text, score=chunk.score) for chunk in one.chunks],
        )
        for one in result.documents
    ]
    data = Retrieved(
        documents=documents,
        complete=answer.complete,
        stop_reason=result.stop_reason,
        error=answer.error,
        turns=result.turns,
        tokens=result.tokens,
        seconds=round(answer.seconds, 4),
        request_id=answer.request_id,
        trajectory=answer.trajectory,
    )
    said = "\n\n".join(answer.passages()) or NOTHING
    if not answer.complete:
        said += f"\n\n(The search was cut short: {answer.error or result.stop_reason}.)"
    return _result(said, data)


def found(hits: Sequence[Hit]) -> CallToolResult:
    """The result of one search or grep."""
    passages = [
        FoundPassage(
            id=hit.chunk.id,
            document_id=hit.chunk.document_id,
            title=hit.chunk.title,
            text=hit.chunk.text,
            score=hit.score,
            metadata=_entries(hit.chunk.metadata),
        )
        for hit in hits
    ]
    said = [
        shown(rank, Shown(one.id, one.document_id, one.title, one.text, one.score, rank))
        for rank, one in enumerate(passages, start=1)
    ]
    return _result("\n\n".join(said) or NOTHING, Found(passages=passages))


def read(chunks: Sequence[Chunk], first: int) -> CallToolResult:
    """A document from its chunk number `first` on, as far as one answer goes. `first` is one of its chunks."""
    part = [chunks[first]]
    for chunk in chunks[first + 1 :]:
        if sum(one.tokens for one in part) + chunk.tokens > MOST_TOKENS:
            break
        part.append(chunk)
    following = first + len(part)
    data = Read(
        id=chunks[0].document_id,
        title=chunks[0].title,
        metadata=_entries(chunks[0].metadata),
        text=text_of(part),
        first_chunk=first,
        chunks=len(chunks),
        next_chunk=following if following < len(chunks) else None,
    )
    said = f"{one_line(data.title)} (id: {one_line(data.id)})\n{escape_markers(data.text)}".lstrip()
    if data.next_chunk is not None:
        said += f"\n\n(Chunks {first} to {following - 1} of {len(chunks)}; read on with first_chunk={following}.)"
    return _result(said, data)


def text_of(chunks: Sequence[Chunk]) -> str:
    """Neighbouring chunks as one text: what two share stands once, what was left out between two is a line break."""
    parts: list[str] = []
    end = 0
    for chunk in chunks:
        # Chunks that others made may lack offsets: all of them begin at 0.
        shared = end - chunk.start if parts and chunk.start else 0
        parts += ["\n"] if parts and shared <= 0 else []
        parts.append(chunk.text[max(0, shared) :])
        end = max(end, chunk.end)
    return "".join(parts)


def _entries(metadata: Metadata) -> Entries:
    """Chroma may hold numbers that are not finite, and others' lists, which come as text."""
    return {key: _entry(value) for key, value in metadata.items()}


def _entry(value: Any) -> str | int | float | bool | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _result(said: str, data: BaseModel) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=said)], structured_content=data.model_dump(mode="json")
    )
