"""The tools and their results, and documents as resources. Each call has an id in the log.

A result has text that a model reads, and data that fits the tool's output schema. Some clients hand a model both, so
the data repeat no text unless the call asks for it. An error tells the model how to correct the call.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field

from context_agent._support.extras import extra
from context_agent.agent import DEFAULT_K, Progress
from context_agent.errors import ConfigError, ContextAgentError, PatternError
from context_agent.harness.profile import one_line
from context_agent.integrations.functions import NO_PASSAGES, passage_text
from context_agent.integrations.pruning import ConversationPruners
from context_agent.integrations.server.schema import MAX_MESSAGES, PruneAnswer, PruneRequest
from context_agent.pruning.pruner import BUDGET
from context_agent.pruning.view import Text, TurnClosed
from context_agent.retrieval.corpus import Corpus, Where
from context_agent.text.markers import escape_markers
from context_agent.types import Chunk, Hit, Metadata

with extra("mcp"):
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
    from mcp.types import CallToolResult, TextContent

    from context_agent.integrations.server.observability import REQUEST_ID, log, request_id
    from context_agent.integrations.server.responses import Problem, ServedAnswer, problem_of, prune_conversation
    from context_agent.integrations.server.service import AdmittedSearch, SearchRequest, Service

T = TypeVar("T")
MAX_K = 50
"""Documents or passages that a call may request."""
MAX_TEXT = 20_000
"""Characters of a question, a query or an id."""
MAX_TOKENS = 8_192
"""Tokens of a document that one `read` returns, unless its first chunk alone has more."""

BoundedText = Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]
Count = Annotated[int, Field(ge=1, le=MAX_K, description=f"how many at most, 1 to {MAX_K}")]
Filter = Annotated[
    dict[str, Any] | None,
    Field(description='only documents with this metadata, in Chroma\'s syntax, e.g. {"year": {"$gte": 2020}}'),
]
Detail = Annotated[
    Literal["brief", "full"],
    Field(description="full: the structured content has the texts and metadata as well, for programs that read it"),
]
JsonMetadata = dict[str, str | int | float | bool | None]


class RetrievedPassage(BaseModel):
    """A passage of a ranked document; `id` is that of the chunk."""

    id: str
    text: str | None = Field(default=None, description="with detail=full")
    score: float


class RetrievedDocument(BaseModel):
    """A ranked document, with the passages that support it, best first."""

    id: str
    title: str
    score: float
    justification: str | None = Field(
        default=None, description="with detail=full: why the document is relevant, if the policy tells; else empty"
    )
    metadata: JsonMetadata | None = Field(default=None, description="with detail=full")
    passages: list[RetrievedPassage]


class RetrieveResult(BaseModel):
    """The result of a search in several steps, best document first."""

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
    text: str | None = Field(default=None, description="with detail=full")
    score: float = Field(description="orders the passages of one result")
    metadata: JsonMetadata | None = Field(default=None, description="with detail=full")


class PassagesResult(BaseModel):
    """Passages, best first; of a grep, in the corpus's order."""

    passages: list[FoundPassage]


class ReadResult(BaseModel):
    """A document's text, or the part of it that fits one result."""

    id: str
    title: str
    metadata: JsonMetadata | None = Field(default=None, description="with detail=full")
    text: str | None = Field(default=None, description="with detail=full")
    first_chunk: int = Field(description="number of the first chunk in this part, from 0")
    chunks: int = Field(description="number of chunks in the document")
    next_chunk: int | None = Field(description="first_chunk for the next part; null at the end")


class Tools:
    """The functions behind the tools; a model reads their docstrings."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._pruners = ConversationPruners()

    async def retrieve(
        self,
        question: Annotated[BoundedText, Field(description="the question, complete and in words")],
        context: Context[Any, Any],
        k: Count = DEFAULT_K,
        where: Filter = None,
        *,
        detail: Detail = "brief",
    ) -> Annotated[CallToolResult, RetrieveResult]:
        """Answer one question with ranked documents and the passages that support them. Searches in several steps by
        itself, follows up on what it finds and drops what does not help, so ask the whole question, even if it takes
        several facts."""
        with _call("retrieve", context, where):
            _require_words(question, "question")
            search = self._service.admit(SearchRequest(question, k, "mcp", where))
            try:
                answer = await self._answer(search, context)
            finally:
                search.leave()
            return retrieve_result(answer, detail)

    async def search(
        self,
        query: Annotated[BoundedText, Field(description="what to look for, in a few words or a question")],
        context: Context[Any, Any],
        k: Count = DEFAULT_K,
        where: Filter = None,
        *,
        detail: Detail = "brief",
    ) -> Annotated[CallToolResult, PassagesResult]:
        """Search the documents once, by meaning and by words, and return the best passages."""
        with _call("search", context, where):
            _require_words(query, "query")
            hits = await self._step(lambda corpus: corpus.search(query, k=k, where=where), where)
            return passages_result(hits, detail)

    async def grep(
        self,
        pattern: Annotated[BoundedText, Field(description="a regular expression in RE2's syntax; (?i) ignores case")],
        context: Context[Any, Any],
        k: Count = DEFAULT_K,
        where: Filter = None,
        *,
        detail: Detail = "brief",
    ) -> Annotated[CallToolResult, PassagesResult]:
        """Find passages whose text matches a regular expression: names, numbers, exact wording."""
        with _call("grep", context, where):
            hits = await self._step(lambda corpus: corpus.grep(pattern, limit=k, where=where), where)
            return passages_result(hits, detail)

    async def read(
        self,
        document_id: Annotated[BoundedText, Field(description="the id of a document, or of one of its chunks")],
        context: Context[Any, Any],
        first_chunk: Annotated[int, Field(ge=0, description="where to start: next_chunk of the previous part")] = 0,
        *,
        detail: Detail = "brief",
    ) -> Annotated[CallToolResult, ReadResult]:
        """Read a document. A long one comes in parts."""
        with _call("read", context):
            chunks = await self._chunks(document_id)
            if not chunks:
                raise ToolError(f"there is no document {document_id[:80]!r}: use an id from another tool's result")
            if first_chunk >= len(chunks):
                raise ToolError(f"the document has {len(chunks)} chunks: first_chunk is at most {len(chunks) - 1}")
            return read_result(chunks, first_chunk, detail)

    async def prune(
        self,
        messages: Annotated[
            list[dict[str, Any]],
            Field(
                max_length=MAX_MESSAGES,
                description="OpenAI's chat messages, items of its Responses API, or Anthropic's messages",
            ),
        ],
        context: Context[Any, Any],
        *,
        task: Annotated[BoundedText | None, Field(description="default: the last user message")] = None,
        budget: Annotated[int, Field(ge=1, description="tokens of tool results to keep")] = BUDGET,
        effort: Annotated[Literal["careful", "fast"], Field(description="fast: without reading")] = "careful",
        restore: Annotated[
            list[str], Field(max_length=1_000, description="ids that stubs name, to bring back; nothing is pruned then")
        ] = [],  # noqa: B006 (it is never changed; the SDK shows it as the default)
    ) -> Annotated[CallToolResult, PruneAnswer]:
        """Remove from an agent's conversation the passages of old tool results that no longer matter for the task, once
        that saves more than the broken prefix cache costs. Stubs name what went; restore brings it back. Use the same
        budget and effort for all turns of a conversation."""
        with _call("prune", context):
            request = PruneRequest(messages=messages, task=task, budget=budget, effort=effort, restore=restore)
            async with self._service.step("mcp"):
                answer = await asyncio.to_thread(prune_conversation, self._pruners, request)
            return prune_result(answer)

    async def document(self, document_id: str) -> str:
        """Return the whole text of a document, as a resource."""
        chunks = await self._chunks(document_id)
        if not chunks:
            raise ResourceNotFoundError(f"there is no document {document_id[:80]!r}")
        return joined_text(chunks)

    async def _answer(self, search: AdmittedSearch, context: Context[Any, Any]) -> ServedAnswer:
        """Return the answer; the client gets a progress notification after each turn. Cancelling it ends the search."""
        turns = 0
        async with aclosing(self._service.stream(search)) as stream:
            async for item in stream:
                if isinstance(item, ServedAnswer):
                    return item
                if isinstance(item.event, TurnClosed):
                    turns += 1
                    await context.report_progress(turns, message=_progress(turns, item))
        raise AssertionError("a stream ends with its answer")

    async def _chunks(self, document_id: str) -> list[Chunk]:
        def read(corpus: Corpus) -> list[Chunk]:
            if chunks := corpus.read(document_id):
                return chunks
            owner = corpus.get([document_id])
            return corpus.read(owner[0].document_id) if owner else []

        return await self._step(read)

    async def _step(self, work: Callable[[Corpus], T], where: Where | None = None) -> T:
        """Runs a single step on the corpus in a thread, so that it does not block the server."""
        async with self._service.step("mcp", where) as corpus:
            return await asyncio.to_thread(work, corpus)


def _progress(turns: int, progress: Progress) -> str:
    view = progress.view
    actions = (text.action for text in reversed(view.segments) if isinstance(text, Text) and text.action is not None)
    names = ", ".join(dict.fromkeys(call.name for call in next(actions).calls))
    return f"turn {turns}: {names}; {len(view.blocks)} passages in view, {view.tokens:,} tokens"


@contextmanager
def _call(name: str, context: Context[Any, Any], where: Where | None = None) -> Iterator[None]:
    """Surrounds one call: sets its id, logs it, and raises failures as errors that the model can read."""
    token = REQUEST_ID.set(request_id((context.headers or {}).get("x-request-id")))
    start, outcome = time.perf_counter(), "cancelled"
    try:
        yield
        outcome = "done"
    except (ToolError, Problem, PatternError, ConfigError) as error:
        outcome = "refused"
        raise ToolError(error.message if isinstance(error, Problem) else str(error)) from error
    except ContextAgentError as error:
        outcome = "failed"
        log("failed", logging.WARNING, tool=name, reason=str(error))
        problem = problem_of(error, where)
        raise ToolError(problem.message if problem else "the search failed; see the server's log") from error
    except Exception:
        outcome = "failed"
        raise
    finally:
        log("call", tool=name, outcome=outcome, seconds=round(time.perf_counter() - start, 4))
        REQUEST_ID.reset(token)


def _require_words(text: str, name: str) -> None:
    if not text.strip():
        raise ToolError(f"the {name} is empty: say in words what to look for")


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
            passages=[RetrievedPassage(id=chunk.id, text=chunk.text, score=chunk.score) for chunk in document.chunks],
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
    """Return a document from its chunk number `first` on, as much as fits one result. `first` is one of its chunks."""
    part = [chunks[first]]
    for chunk in chunks[first + 1 :]:
        if sum(earlier.tokens for earlier in part) + chunk.tokens > MAX_TOKENS:
            break
        part.append(chunk)
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
    text = f"{one_line(data.title)} (id: {one_line(data.id)})\n{escape_markers(joined)}".lstrip()
    if data.next_chunk is not None:
        text += f"\n\n(Chunks {first} to {next_chunk - 1} of {len(chunks)}; continue with first_chunk={next_chunk}.)"
    return _result(text, data, detail)


def prune_result(answer: PruneAnswer) -> CallToolResult:
    """Return the conversation as data; the text has the outcome alone, because the client has the messages."""
    if (report := answer.report) is None:
        return _result("The passages are back.", answer)
    sizes = f"{report['tokens_after']:,} of {report['tokens_before']:,} tokens of tool results remain"
    return _result("\n".join([f"{report['outcome']}: {sizes}", *report["warnings"]]), answer)


def joined_text(chunks: Sequence[Chunk]) -> str:
    """Neighboring chunks as one text: an overlap appears once, and a gap becomes a line break."""
    parts: list[str] = []
    end = 0
    for chunk in chunks:
        # Chunks of foreign collections may lack offsets: then all of them start at 0.
        overlap = end - chunk.start if parts and chunk.start else 0
        parts += ["\n"] if parts and overlap <= 0 else []
        parts.append(chunk.text[max(0, overlap) :])
        end = max(end, chunk.end)
    return "".join(parts)


def _json_metadata(metadata: Metadata) -> JsonMetadata:
    """Return the metadata without what JSON lacks: a number that is not finite becomes null, a list its text."""
    return {key: _json_value(value) for key, value in metadata.items()}


def _json_value(value: Any) -> str | int | float | bool | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


REPEATED: Mapping[str, Any] = {
    "text": True,
    "metadata": True,
    "passages": {"__all__": {"text": True, "metadata": True}},
    "documents": {
        "__all__": {"justification": True, "metadata": True, "passages": {"__all__": {"text": True}}},
    },
}
"""What the data of a brief result lack: the model has it as text, or did not ask for it."""


def _result(text: str, data: BaseModel, detail: Detail = "full") -> CallToolResult:
    left_out = None if detail == "full" else dict(REPEATED)
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        structured_content=data.model_dump(mode="json", exclude=left_out),
    )
