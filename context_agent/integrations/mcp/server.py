"""The MCP server with its tools, its resource, and the token that clients must send."""

from __future__ import annotations

import hmac
import inspect
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from pydantic import AnyHttpUrl, AnyUrl, ValidationError

from context_agent._support.extras import extra
from context_agent._support.validation import explain
from context_agent.agent import SearchAgent
from context_agent.integrations.mcp.tools import Tools
from context_agent.integrations.server.service import Service
from context_agent.integrations.server.settings import Settings
from context_agent.version import __version__

with extra("mcp"):
    from mcp.server import MCPServer
    from mcp.server.auth.provider import AccessToken, TokenVerifier
    from mcp.server.auth.settings import AuthSettings
    from mcp.server.lowlevel.helper_types import ReadResourceContents
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
    from mcp.server.mcpserver.resources import ResourceSecurity
    from mcp.types import CallToolResult, InputRequiredResult, ToolAnnotations


SERVER_NAME = "context-agent"
SERVER_INSTRUCTIONS = (
    "A corpus of documents. `retrieve` answers one question, also one that takes several facts, by searching in "
    "several steps on its own: ask the whole question and use the documents that come back. `search` (one query), "
    "`grep` (a regular expression) and `read` (a document by id) are single steps. Cite documents by their ids. "
    "`prune` needs no documents: it removes from a conversation what no longer matters in its tool results."
)
READ_ONLY_HINTS = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
DOCUMENT_PREFIX = "ctx1://document/"
"""The beginning of a document's URI. The id follows."""
NO_ISSUER = AnyHttpUrl("http://localhost")
"""The issuer that the SDK's settings for OAuth require. Nothing is requested from it."""


def make_server(agent: SearchAgent, settings: Settings | None = None) -> MCPServer[Any]:
    """Return an MCP server that offers an agent's tools.

    Args:
        agent: The agent. The caller closes it.
        settings: The limits of the server, and the token that clients must send over HTTP.

    Returns:
        A server of the MCP SDK. You can add tools to it.
    """
    return server_on(Service.of(agent, settings))


def server_on(service: Service) -> MCPServer[Any]:
    """Return an MCP server on a service. The caller follows the service's index and closes it."""
    token = service.settings.token
    server = AgentServer(
        SERVER_NAME,
        title="Context agent",
        instructions=SERVER_INSTRUCTIONS,
        version=__version__,
        log_level="WARNING",
        # The tools and documents never change, so no client needs to hold a connection open for changes.
        subscriptions=False,
        auth=None if token is None else AuthSettings(issuer_url=NO_ISSUER, resource_server_url=None),
        token_verifier=None if token is None else SharedToken(token),
    )
    tools = Tools(service)
    for tool, title in (
        (tools.retrieve, "Answer a question with documents"),
        (tools.search, "Search once"),
        (tools.grep, "Find a pattern"),
        (tools.read, "Read a document"),
        (tools.prune, "Prune a conversation"),
    ):
        server.add_tool(tool, title=title, description=inspect.getdoc(tool), annotations=READ_ONLY_HINTS)
    server.resource(
        DOCUMENT_PREFIX + "{+document_id}",
        name="document",
        title="Document",
        description="The whole text of a document, by its id.",
        mime_type="text/plain",
        # The id is looked up in the corpus; it never names a file.
        security=ResourceSecurity(exempt_params={"document_id"}),
    )(tools.document)
    return server


class AgentServer(MCPServer[Any]):
    """A server of the SDK that takes ids in both spellings and explains invalid arguments in one sentence.

    The sentence does not have the values that the server got.
    """

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool.

        Raises:
            ToolError: If the tool is unknown, if the arguments are invalid, or if the tool refuses the call.
        """
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            invalid = error.__cause__
            if not isinstance(invalid, ValidationError):
                raise
            tools = {tool.name: tool for tool in await self.list_tools()}
            known = ", ".join(tools[name].input_schema["properties"])
            raise ToolError(f"{name}: {explain(invalid)}. The arguments of {name} are {known}.") from invalid

    async def read_resource(
        self, uri: AnyUrl | str, context: Context[Any, Any] | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        """Read a resource. The id in the URI may be percent-encoded or not.

        The ids of files contain percent-encoded characters, such as the space in `my%20notes.md`, and those of records
        may contain `#` and `?`. A client that expands the template leaves them as they are (RFC 6570, section 3.2.3),
        but the SDK decodes the former and does not match the latter.

        Raises:
            ResourceNotFoundError: If there is no such document.
        """
        try:
            return await super().read_resource(uri, context)
        except ResourceNotFoundError:
            document_id = str(uri).removeprefix(DOCUMENT_PREFIX)
            literal = DOCUMENT_PREFIX + quote(document_id, safe="/")
            if literal == str(uri) or document_id == str(uri):
                raise
            return await super().read_resource(literal, context)


class SharedToken(TokenVerifier):
    """A verifier that accepts one bearer token. All clients with the token count as one client."""

    def __init__(self, token: str) -> None:
        # An environment variable may have bytes that are not UTF-8.
        self._token = token.encode(errors="surrogateescape")

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the access that the token grants. For a wrong token, return None.

        The comparison takes constant time.
        """
        is_valid = hmac.compare_digest(token.strip().encode("latin-1", "replace"), self._token)
        return AccessToken(token=token, client_id="shared", scopes=[]) if is_valid else None
