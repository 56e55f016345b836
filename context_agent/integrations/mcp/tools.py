"""The functions behind the tools, and documents as resources.

Each call has an id in the log. An error tells the model how to correct the call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field

from context_agent._support.event_loops import run_cancellable
from context_agent._support.extras import extra
from context_agent.agent import Progress
from context_agent.errors import ConfigError, ContextAgentError, PatternError
from context_agent.harness.episode import DEFAULT_K
from context_agent.integrations.conversation_pruners import ConversationPruners
from context_agent.integrations.mcp.results import (
    Detail,
    joined_text,
    passages_result,
    prune_result,
    read_result,
    retrieve_result,
)
from context_agent.integrations.server.answers import ServedAnswer
from context_agent.integrations.server.errors import Problem, problem_of
from context_agent.integrations.server.logs import REQUEST_ID, log, request_id
from context_agent.integrations.server.prune_requests import prune_conversation
from context_agent.integrations.server.schema import MAX_MESSAGES, PruneAnswer, PruneRequest
from context_agent.integrations.server.service import AdmittedSearch, SearchRequest, Service
from context_agent.pruning.pruner import DEFAULT_BUDGET
from context_agent.pruning.view import Text, TurnClosed
from context_agent.retrieval.corpus import Corpus
from context_agent.retrieval.filters import Where
from context_agent.types import Chunk

with extra("mcp"):
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError
    from mcp.types import CallToolResult


T = TypeVar("T")
MAX_RESULTS = 50
"""Documents or passages that a call may ask for."""
MAX_TEXT_CHARACTERS = 20_000
"""The length of a question, a query or an id."""
BoundedText = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARACTERS)]
Count = Annotated[int, Field(ge=1, le=MAX_RESULTS, description=f"how many at most, 1 to {MAX_RESULTS}")]
Filter = Annotated[
    dict[str, Any] | None,
    Field(description='only documents with this metadata, in Chroma\'s syntax, e.g. {"year": {"$gte": 2020}}'),
]


class Tools:
    """The functions behind the tools. A model reads their docstrings."""

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
    ) -> CallToolResult:
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
    ) -> CallToolResult:
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
    ) -> CallToolResult:
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
    ) -> CallToolResult:
        """Read a document. A long one comes in parts."""
        with _call("read", context):
            chunks = await self._chunks(document_id)
            if not chunks:
                raise ToolError(f"there is no document {document_id[:80]!r}. Use an id from another tool's result.")
            if first_chunk >= len(chunks):
                raise ToolError(
                    f"first_chunk must be at most {len(chunks) - 1}, the last chunk of the document; got {first_chunk}"
                )
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
        budget: Annotated[int, Field(ge=1, description="tokens of tool results to keep")] = DEFAULT_BUDGET,
        effort: Annotated[
            Literal["fast", "careful", "thorough"],
            Field(description="fast: words alone; careful: short texts; thorough: whole passages, slower"),
        ] = "thorough",
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
                answer = await run_cancellable(prune_conversation, self._pruners, request)
            return prune_result(answer)

    async def document(self, document_id: str, context: Context[Any, Any]) -> str:
        """Return the whole text of a document, as a resource."""
        with _call("document", context, error_class=ResourceError):
            chunks = await self._chunks(document_id)
            if not chunks:
                raise ResourceNotFoundError(
                    f"there is no document {document_id[:80]!r}. Use an id from a tool's result."
                )
            return joined_text(chunks)

    async def _answer(self, search: AdmittedSearch, context: Context[Any, Any]) -> ServedAnswer:
        """Return the answer of a search, and notify the client after each turn. A cancellation ends the search."""
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
        """Run a single step on the corpus in a thread, so it does not block the server."""
        async with self._service.step("mcp", where) as corpus:
            return await asyncio.to_thread(work, corpus)


def _progress(turns: int, progress: Progress) -> str:
    view = progress.view
    actions = (text.action for text in reversed(view.segments) if isinstance(text, Text) and text.action is not None)
    names = ", ".join(dict.fromkeys(call.name for call in next(actions).calls))
    return f"turn {turns}: {names}; {len(view.blocks)} passages in view, {view.tokens:,} tokens"


@contextmanager
def _call(
    name: str,
    context: Context[Any, Any],
    where: Where | None = None,
    *,
    error_class: type[ToolError | ResourceError] = ToolError,
) -> Iterator[None]:
    """Give a call its id, log its outcome, and raise its failures as errors that the client gets to read."""
    token = REQUEST_ID.set(request_id((context.headers or {}).get("x-request-id")))
    start, outcome = time.perf_counter(), "cancelled"
    try:
        yield
        outcome = "done"
    except error_class:
        outcome = "refused"
        raise
    except (Problem, PatternError, ConfigError) as error:
        outcome = "refused"
        raise error_class(error.message if isinstance(error, Problem) else str(error)) from error
    except ContextAgentError as error:
        outcome = "failed"
        log("failed", logging.WARNING, tool=name, reason=str(error))
        problem = problem_of(error, where)
        raise error_class(
            problem.message if problem else "the search failed. The server's log has the reason."
        ) from error
    except Exception:
        outcome = "failed"
        raise
    finally:
        log("call", tool=name, outcome=outcome, seconds=round(time.perf_counter() - start, 4))
        REQUEST_ID.reset(token)


def _require_words(text: str, name: str) -> None:
    if not text.strip():
        raise ToolError(f"the {name} is empty. Say in words what to look for.")
