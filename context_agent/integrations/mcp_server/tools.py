"""The tools, and the documents as resources. Each call has an id in the log; what goes wrong says how to mend it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Annotated, Any, TypeVar

from pydantic import AnyHttpUrl, Field

from context_agent.agent import DEFAULT_K, Progress, SearchAgent
from context_agent.errors import ConfigError, ContextAgentError, PatternError
from context_agent.integrations.extras import extra
from context_agent.integrations.feedback import FeedbackLog
from context_agent.integrations.server.answers import Answer
from context_agent.integrations.server.logs import REQUEST_ID, log, request_id
from context_agent.integrations.server.problems import Problem, problem_of
from context_agent.integrations.server.served import Served
from context_agent.integrations.server.service import Admitted, Asked, Service, Settings
from context_agent.pruning.view import Text
from context_agent.retrieval.protocol import Corpus, Where
from context_agent.trajectory import Counted
from context_agent.types import Chunk
from context_agent.version import __version__

with extra("mcp"):
    from mcp.server import MCPServer
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
    from mcp.server.mcpserver.resources import ResourceSecurity
    from mcp.types import CallToolResult, ToolAnnotations

    from context_agent.integrations.mcp_server import results
    from context_agent.integrations.mcp_server.token import SharedToken

T = TypeVar("T")
NAME = "context-agent"
INSTRUCTIONS = (
    "A corpus of documents. `retrieve` answers one question, also one that takes several facts, by searching in "
    "several steps on its own: ask the whole question and use the documents that come back. `search` (one query), "
    "`grep` (a regular expression) and `read` (a document by id) are single steps. Cite documents by their ids."
)
MOST = 50
"""Documents or passages that a call may ask for."""
LONGEST = 20_000
"""Characters of a question, a query or an id."""
READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)

NO_ISSUER = AnyHttpUrl("http://localhost")
"""The SDK's settings are made for OAuth. Nothing is fetched from there or told of it: the token is known beforehand."""

Words = Annotated[str, Field(min_length=1, max_length=LONGEST)]
Count = Annotated[int, Field(ge=1, le=MOST, description=f"how many at most, 1 to {MOST}")]
Filter = Annotated[
    dict[str, Any] | None,
    Field(description='only documents whose metadata fit, in Chroma\'s syntax, e.g. {"year": {"$gte": 2020}}'),
]


def make_server(agent: SearchAgent, settings: Settings | None = None) -> MCPServer[Any]:
    """An MCP server on an agent, which stays the caller's to close. `settings` hold limits and a token for HTTP."""
    feedback = None if agent.trajectories is None else FeedbackLog(agent.trajectories)
    return server_on(Service(Served(agent), settings or Settings(), feedback))


def server_on(service: Service) -> MCPServer[Any]:
    """An MCP server on a service, for whoever looks after that: see `serving`."""
    token = service.settings.token
    server: MCPServer[Any] = MCPServer(
        NAME,
        title="Context agent",
        instructions=INSTRUCTIONS,
        version=__version__,
        log_level="WARNING",
        # The tools and documents of a server stay the same: nobody needs to hold a connection open for news of them.
        subscriptions=False,
        # The SDK's settings are made for OAuth; nothing is fetched from the issuer, and no metadata are published.
        auth=None if token is None else AuthSettings(issuer_url=NO_ISSUER, resource_server_url=None),
        token_verifier=None if token is None else SharedToken(token),
    )
    tools = Tools(service)
    for tool, title in (
        (tools.retrieve, "Answer a question with documents"),
        (tools.search, "Search once"),
        (tools.grep, "Find a pattern"),
        (tools.read, "Read a document"),
    ):
        server.add_tool(tool, title=title, description=inspect.getdoc(tool), annotations=READ_ONLY)
    server.resource(
        "ctx1://document/{+document_id}",
        name="document",
        title="Document",
        description="The whole text of a document, by its id.",
        mime_type="text/plain",
        # An id is looked up among the corpus's ids; no file is named by it.
        security=ResourceSecurity(exempt_params={"document_id"}),
    )(tools.document)
    return server


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
    ) -> Annotated[CallToolResult, results.Retrieved]:
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
            return results.retrieved(answer)

    async def search(
        self,
        query: Annotated[Words, Field(description="what to look for, in a few words or a question")],
        context: Context[Any, Any],
        k: Count = DEFAULT_K,
        where: Filter = None,
    ) -> Annotated[CallToolResult, results.Found]:
        """Search the documents once, by meaning and by words, and return the best passages."""
        with _call("search", context, where):
            _need(query, "query")
            return results.found(await self._ask(lambda corpus: corpus.search(query, limit=k, where=where), where))

    async def grep(
        self,
        pattern: Annotated[Words, Field(description="a regular expression in RE2's syntax; (?i) ignores case")],
        context: Context[Any, Any],
        k: Count = DEFAULT_K,
        where: Filter = None,
    ) -> Annotated[CallToolResult, results.Found]:
        """Find passages whose text matches a regular expression: names, numbers, exact wording."""
        with _call("grep", context, where):
            return results.found(await self._ask(lambda corpus: corpus.grep(pattern, limit=k, where=where), where))

    async def read(
        self,
        document_id: Annotated[Words, Field(description="the id of a document, or of one of its chunks")],
        context: Context[Any, Any],
        first_chunk: Annotated[int, Field(ge=0, description="where to begin: next_chunk of the part before")] = 0,
    ) -> Annotated[CallToolResult, results.Read]:
        """Read a document. A long one comes in parts."""
        with _call("read", context):
            chunks = await self._chunks(document_id)
            if not chunks:
                raise ToolError(f"there is no document {document_id[:80]!r}: take an id from another tool's result")
            if first_chunk >= len(chunks):
                raise ToolError(f"the document has {len(chunks)} chunks: first_chunk is at most {len(chunks) - 1}")
            return results.read(chunks, first_chunk)

    async def document(self, document_id: str) -> str:
        """A document as a resource: its whole text."""
        chunks = await self._chunks(document_id)
        if not chunks:
            raise ResourceNotFoundError(f"there is no document {document_id[:80]!r}")
        return results.text_of(chunks)

    async def _answer(self, admitted: Admitted, context: Context[Any, Any]) -> Answer:
        """The answer; a notification of progress after each turn. A client that gives up ends the search."""
        turns = 0
        async with aclosing(self._service.stream(admitted)) as stream:
            async for item in stream:
                if isinstance(item, Answer):
                    return item
                if isinstance(item.event, Counted):
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
