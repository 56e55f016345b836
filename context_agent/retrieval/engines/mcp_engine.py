"""The search tool of an MCP server as a search function (extra `mcp`).

McpEngine("http://localhost:8000/mcp", "search_wiki")
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Self

from context_agent._support.event_loops import BACKGROUND
from context_agent._support.extras import extra
from context_agent._support.http_body import LIMIT_VARIABLE, response_limit
from context_agent._support.small_files import parse_json
from context_agent._support.suggest import listed
from context_agent.errors import ConfigError, CorpusError

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, Tool

QUERY_NAMES = ("query", "question", "q", "text", "search", "search_query", "keywords", "input")
"""The usual names of the argument for the query."""
LIMIT_NAMES = ("limit", "k", "top_k", "n", "size", "count", "num_results", "max_results", "n_results")
"""The usual names of the argument for the number of passages."""
LONGEST_CALL = 60.0
"""The time limit of a call of the tool, in seconds. It applies even if the caller would wait longer."""


CONNECT_SECONDS = 30.0
"""The time limit for connecting to a server with an address, and for sending a request, in seconds."""


class McpEngine:
    """A search function that calls one tool of an MCP server.

    It connects at the first call, and again after a broken connection. The tool's schema shows which arguments take the
    query and the number of passages.
    """

    def __init__(self, server: Any, tool: str | None = None, *, arguments: Mapping[str, Any] | None = None) -> None:
        """Prepare the connection.

        Args:
            server: The server, as `mcp.Client` takes it: an address, `StdioServerParameters`, or a server in this
                process.
            tool: The name of the tool. If only one tool has "search" in its name, you may leave it out.
            arguments: Further arguments, which are sent with each call.
        """
        self._server, self._tool_name, self._arguments = server, tool, dict(arguments or {})
        self._session: _Session | None = None
        self.__name__ = tool or "mcp"

    def __call__(self, query: str, limit: int) -> Any:
        """Return the tool's result as hits.

        Raises:
            CorpusError: If the tool fails.
            ConfigError: If the server has no such tool.
        """
        return BACKGROUND.run(self._search(query, limit))

    def close(self) -> None:
        """Close the connection. A later call opens another."""
        BACKGROUND.run(self._disconnect())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _search(self, query: str, limit: int) -> Any:
        session = self._session = self._session or _Session(self._server, self._tool_name)
        with session.in_use():
            try:
                client, tool = await session.opened()
                result = await client.call_tool(tool.name, {**self._arguments, **call_arguments(tool, query, limit)})
            except Exception:
                # The connection may be broken, so the next call opens another. Running calls keep this one.
                session.is_left = True
                if self._session is session:
                    self._session = None
                raise
        return hits_of_result(result)

    async def _disconnect(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()


class _Session:
    """A connection to a server, which calls share. After the engine has left it, it closes with its last call."""

    def __init__(self, server: Any, tool: str | None) -> None:
        self.is_left = False
        self._calls, self._closing = 0, asyncio.Event()
        self._connected: asyncio.Future[tuple[Client, Tool]] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(server, tool))

    async def opened(self) -> tuple[Client, Tool]:
        """Return the client and the tool when the server has answered."""
        # A call that is cancelled does not end the connection for the others.
        return await asyncio.shield(self._connected)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Count a call while the block runs."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if self.is_left and not self._calls:
                self.close()

    def close(self) -> None:
        """Close the connection, also if calls are running."""
        self._closing.set()

    async def _hold(self, server: Any, tool: str | None) -> None:
        """Keep the connection open. The task that opened a client must close it."""
        try:
            with extra("mcp"):
                from mcp import Client
            async with (
                _bounded_transport(server) as transport,
                Client(transport, read_timeout_seconds=LONGEST_CALL) as client,
            ):
                self._connected.set_result((client, search_tool((await client.list_tools()).tools, tool)))
                await self._closing.wait()
        except Exception as error:  # noqa: BLE001 (raised to the callers; once connected, calls report what is wrong)
            if not self._connected.done():
                self._connected.set_exception(error)


@asynccontextmanager
async def _bounded_transport(server: Any) -> AsyncIterator[Any]:
    """Yield the server as `mcp.Client` takes it. If it is an address, its responses have a limit.

    The SDK limits the events of a stream, but reads a response in JSON whatever its size is.
    """
    if not isinstance(server, str):
        yield server
        return
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    limit = response_limit()

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            received = 0
            async for piece in self._stream:
                received += len(piece)
                if received > limit:
                    raise httpx2.StreamError(
                        f"the response is larger than {limit >> 20} MB. If the server is right, set {LIMIT_VARIABLE} "
                        "to a larger number"
                    )
                yield piece

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: httpx2.Response) -> None:
        if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            return
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise httpx2.StreamError("the response is compressed, which was not requested")
        response.stream = Bounded(response.stream)

    async with httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=LONGEST_CALL),
        event_hooks={"response": [bound]},
    ) as http:
        yield streamable_http_client(server, http_client=http)


def search_tool(tools: list[Tool], name: str | None) -> Tool:
    """Return the tool with this name. If `name` is None, return the only tool with "search" in its name.

    If there is no such tool, raise `ConfigError`. The message lists the tools.
    """
    fitting = [tool for tool in tools if tool.name == name or (name is None and "search" in tool.name.lower())]
    if len(fitting) != 1:
        wrong = f"no tool {name!r}" if name else f"{len(fitting)} tools that search"
        names = listed(tool.name for tool in tools)
        remedy = f"Pass tool= with one of {names}." if tools else "It has no other tools. Name another server."
        raise ConfigError(f"the MCP server has {wrong}. {remedy}")
    return fitting[0]


def call_arguments(tool: Tool, query: str, limit: int) -> dict[str, Any]:
    """Return the query and the number of passages under the names that the tool's schema declares.

    Raise `ConfigError` if no argument takes a query.
    """
    declared: dict[str, Any] = tool.input_schema.get("properties") or {}
    required = [name for name in tool.input_schema.get("required") or () if name in declared]
    query_name = next((name for name in QUERY_NAMES if name in declared), required[0] if len(required) == 1 else None)
    if query_name is None:
        raise ConfigError(
            f"no argument of the MCP tool {listed([tool.name])!r} takes a query. Its arguments are {listed(declared)}."
        )
    # This package's own server returns structured content only if it is asked for it.
    detail = {"detail": "full"} if "full" in str(declared.get("detail", "")) else {}
    limit_name = next((name for name in LIMIT_NAMES if name in declared and name != query_name), None)
    if limit_name is None:
        return {query_name: query, **detail}
    return {query_name: query, **detail, limit_name: int(min([limit, *_maxima(declared[limit_name])]))}


def _maxima(schema: Any) -> list[float]:
    """Return the maxima in the schema of a number. An optional number has its own under `anyOf`."""
    schemas = [schema, *(schema.get("anyOf") or ())] if isinstance(schema, Mapping) else []
    maxima = (part.get("maximum") for part in schemas if isinstance(part, Mapping))
    return [maximum for maximum in maxima if isinstance(maximum, int | float)]


def hits_of_result(result: CallToolResult) -> Any:
    """Return the structured result.

    If there is none, parse the texts as JSON. If they are not lists or objects of JSON, return them as passages.

    Raise `CorpusError` if the tool failed.
    """
    texts = [block.text for block in result.content if block.type == "text"]
    if result.is_error:
        raise CorpusError(
            f"the MCP tool failed ({' '.join(texts)[:500] or 'no reason given'}). See the log of the MCP server."
        )
    if any(isinstance(value, Mapping | list) for value in (result.structured_content or {}).values()):
        return result.structured_content
    try:
        values = [parse_json(text) for text in texts]
    except ValueError:
        return texts
    # A number or a word such as true may be the text of a passage.
    if not all(isinstance(value, Mapping | list) for value in values):
        return texts
    return values[0] if len(values) == 1 else values
