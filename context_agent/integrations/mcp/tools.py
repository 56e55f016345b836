"""The tools, and the documents as resources. Each call has an id in the log; what goes wrong says how to mend it."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, Field

from context_agent._support.extras import extra
from context_agent.agent import DEFAULT_K, Progress
from context_agent.errors import ConfigError, ContextAgentError, PatternError
from context_agent.harness.profile import one_line
from context_agent.integrations.functions import shown
from context_agent.integrations.passages import Passage as Shown
from context_agent.pruning.view import Text, TurnClosed
from context_agent.retrieval.corpus import Corpus, Where
from context_agent.tokens import escape_markers
from context_agent.types import Chunk, Hit, Metadata

with extra("mcp"):
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
    from mcp.types import CallToolResult, TextContent

    from context_agent.integrations.server.observability import REQUEST_ID, log, request_id
    from context_agent.integrations.server.responses import Answer, Problem, problem_of
    from context_agent.integrations.server.service import Admitted, Asked, Service

T = TypeVar("T")
MOST = 50
"""Documents or passages that a call may ask for."""
LONGEST = 20_000
"""Characters of a question, a query or an id."""
Words = Annotated[str, Field(min_length=1, max_length=LONGEST)]
Count = Annotated[int, Field(ge=1, le=MOST, description=f"how many at most, 1 to {MOST}")]
Filter = Annotated[
    dict[str, Any] | None,
    Field(description='only documents whose metadata fit, in Chroma\'s syntax, e.g. {"year": {"$gte": 2020}}'),
]
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


class Tools:
    """The functions behind the tools; their docstrings are what a model reads."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def retrieve(
        self,
        question: Annotated[Words, Field(description="the question, complete and in words")],
        context: Context[Any, Any],
        k: Count = DEFAULT_K,
        where: Filter = None,
    ) -> Annotated[CallToolResult, Retrieved]:
        """Answer one question with ranked documents and the passages that speak for them. Searches in several steps by
        itself, follows what it finds and drops what does not help, so ask the whole question, even where it takes
        several facts."""
        with _call("retrieve", context, where):
            _need(question, "question")
            admitted = self._service.admit(Asked(question, k, "mcp", where))
            try:
                answer = await self._answer(admitted, context)
            finally:
                admitted.leave()
            return retrieved(answer)

    async def search(
        self,
        query: Annotated[Words, Field(description="what to look for, in a few words or a question")],
        context: Context[Any, Any],
        k: Count = DEFAULT_K,
        where: Filter = None,
    ) -> Annotated[CallToolResult, Found]:
        """Search the documents once, by meaning and by words, and return the best passages."""
        with _call("search", context, where):
            _need(query, "query")
            return found(await self._ask(lambda corpus: corpus.search(query, limit=k, where=where), where))

    async def grep(
        self,
        pattern: Annotated[Words, Field(description="a regular expression in RE2's syntax; (?i) ignores case")],
        context: Context[Any, Any],
        k: Count = DEFAULT_K,
        where: Filter = None,
    ) -> Annotated[CallToolResult, Found]:
        """Find passages whose text matches a regular expression: names, numbers, exact wording."""
        with _call("grep", context, where):
            return found(await self._ask(lambda corpus: corpus.grep(pattern, limit=k, where=where), where))

    async def read(
        self,
        document_id: Annotated[Words, Field(description="the id of a document, or of one of its chunks")],
        context: Context[Any, Any],
        first_chunk: Annotated[int, Field(ge=0, description="where to begin: next_chunk of the part before")] = 0,
    ) -> Annotated[CallToolResult, Read]:
        """Read a document. A long one comes in parts."""
        with _call("read", context):
            chunks = await self._chunks(document_id)
            if not chunks:
                raise ToolError(f"there is no document {document_id[:80]!r}: take an id from another tool's result")
            if first_chunk >= len(chunks):
                raise ToolError(f"the document has {len(chunks)} chunks: first_chunk is at most {len(chunks) - 1}")
            return read(chunks, first_chunk)

    async def document(self, document_id: str) -> str:
        """A document as a resource: its whole text."""
        chunks = await self._chunks(document_id)
        if not chunks:
            raise ResourceNotFoundError(f"there is no document {document_id[:80]!r}")
        return text_of(chunks)

    async def _answer(self, admitted: Admitted, context: Context[Any, Any]) -> Answer:
        """The answer; a notification of progress after each turn. A client that gives up ends the search."""
        turns = 0
        async with aclosing(self._service.stream(admitted)) as stream:
            async for item in stream:
                if isinstance(item, Answer):
                    return item
                if isinstance(item.event, TurnClosed):
                    turns += 1
                    await context.report_progress(turns, message=_progress(turns, item))
        raise AssertionError("a stream ends with its answer")

    async def _chunks(self, document_id: str) -> list[Chunk]:
        def chunks(corpus: Corpus) -> list[Chunk]:
            owner = [] if (found := corpus.read(document_id)) else corpus.get([document_id])
            return corpus.read(owner[0].document_id) if owner else found

        return await self._ask(chunks)

    async def _ask(self, work: Callable[[Corpus], T], where: Where | None = None) -> T:
        """Runs a single step on the corpus in a thread, so that no step keeps the server from hearing its clients."""
        async with self._service.step("mcp", where) as corpus:
            return await asyncio.to_thread(work, corpus)


def _progress(turns: int, progress: Progress) -> str:
    view = progress.view
    actions = (one.action for one in reversed(view.segments) if isinstance(one, Text) and one.action is not None)
    names = ", ".join(dict.fromkeys(call.name for call in next(actions).calls))
    return f"turn {turns}: {names}; {len(view.blocks)} passages in view, {view.tokens:,} tokens"


@contextmanager
def _call(name: str, context: Context[Any, Any], where: Where | None = None) -> Iterator[None]:
    """Around one call: its id and its line in the log, and failures as errors that the model can read."""
    token = REQUEST_ID.set(request_id((context.headers or {}).get("x-request-id")))
    began, outcome = time.perf_counter(), "cancelled"
    try:
        yield
        outcome = "done"
    except (ToolError, Problem, PatternError, ConfigError) as error:
        outcome = "refused"
        raise ToolError(error.message if isinstance(error, Problem) else str(error)) from error
    except ContextAgentError as error:
        outcome = "failed"
        log("failed", logging.WARNING, tool=name, reason=str(error))
        told = problem_of(error, where)
        raise ToolError(told.message if told else "the search failed; the server's log says why") from error
    except Exception:
        outcome = "failed"
        raise
    finally:
        log("call", tool=name, outcome=outcome, seconds=round(time.perf_counter() - began, 4))
        REQUEST_ID.reset(token)


def _need(text: str, name: str) -> None:
    if not text.strip():
        raise ToolError(f"the {name} is empty: say in words what to look for")


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
