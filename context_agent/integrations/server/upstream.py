"""The model server behind a proxy.

An `Upstream` sends requests to it, and an `UpstreamAnswer` is read as it arrives. No redirect is followed, no cookie is
kept and no address is logged.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.util import find_spec
from urllib.request import getproxies, proxy_bypass

import httpx

from context_agent._support.bound_thinking import REFUSED_THINKING
from context_agent._support.credentials import checked_address
from context_agent._support.extras import extra
from context_agent._support.http_client import CONNECT_SECONDS, KEEP_ALIVE_SECONDS, tls_context
from context_agent._support.unread_bytes import close_unread
from context_agent.errors import ConfigError
from context_agent.integrations.server.errors import Problem
from context_agent.integrations.server.headers import RawHeaders, invalid_answer, request_headers, response_headers
from context_agent.integrations.server.logs import log

with extra("serve"):
    from starlette.requests import Request

MAX_ERROR_BYTES = 65_536
"""Bytes of an error in which the proxy looks for the reason."""


class Upstream:
    """A server to which a proxy relays requests.

    Only one event loop may use it.

    Attributes:
        url: The address of the server, without `/v1`.
    """

    def __init__(self, address: str, *, connections: int, pause: float) -> None:
        """Prepare the connections to a server.

        Args:
            address: The address of the server, with or without `/v1` at its end.
            connections: Maximum number of connections.
            pause: Maximum number of seconds that the server may be silent.

        Raises:
            ConfigError: If the address is invalid, or if the environment names a web proxy or certificates that cannot
                be used.
        """
        self.url = upstream_address(address)
        self._web_proxy, self._tls = _environment_proxy(self.url), tls_context()
        self._prefix = _target_prefix(self.url, is_forwarded=self._web_proxy is not None)
        self._limits = httpx.Limits(
            max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=KEEP_ALIVE_SECONDS
        )
        self._timeout = {"connect": CONNECT_SECONDS, "read": pause, "write": pause}
        self._transport: httpx.AsyncHTTPTransport | None = None

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        """Hold the connections to the server while the block runs."""
        # A transport without a client: a client would keep cookies, and log addresses, which may hold a key.
        async with httpx.AsyncHTTPTransport(
            verify=self._tls, limits=self._limits, proxy=self._web_proxy
        ) as self._transport:
            yield
        self._transport = None

    async def send(self, request: Request, body: bytes, *, recoded: bool = False, betas: str = "") -> UpstreamAnswer:
        """Send a client's request, and return when the header of the answer has arrived.

        The path and the query are those that the client sent.

        Args:
            request: The request.
            body: The body to send.
            recoded: True if the body no longer has the content encoding of the request.
            betas: Further features of Anthropic's API.

        Raises:
            Problem: If the server does not answer or its answer is invalid.
        """
        assert self._transport is not None
        await close_unread(self._transport)
        path: bytes = request.scope["raw_path"]
        query: bytes = request.scope["query_string"]
        target = self._prefix + path + (b"?" + query if query else b"")
        outgoing = httpx.Request(
            request.method,
            self.url,
            headers=request_headers(request.headers.raw, recoded=recoded, betas=betas.encode()),
            content=body,
            extensions={"timeout": self._timeout, "target": target},
        )
        try:
            response = await self._transport.handle_async_request(outgoing)
        except httpx.TransportError as error:
            # The error's text may quote the request.
            log("upstream_failed", logging.WARNING, reason=type(error).__name__)
            raise self._unanswered(error) from None
        try:
            if not 200 <= response.status_code < 600:
                raise invalid_answer(f"the status of the answer is {response.status_code}")
            return UpstreamAnswer(response, response_headers(response.headers.raw))
        except Problem:
            await response.aclose()
            raise

    async def has_refused(self, answer: UpstreamAnswer) -> bool:
        """Return True if the answer refuses the thinking of its request. Then close the answer.

        Raises:
            Problem: If the server breaks the connection.
        """
        try:
            refused = await answer.refuses_thinking()
        except BaseException as error:
            await answer.response.aclose()
            if isinstance(error, httpx.TransportError):
                raise self._unanswered(error) from None
            raise
        if refused:
            await answer.response.aclose()
        return refused

    def _unanswered(self, error: httpx.TransportError) -> Problem:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            message = (
                f"{self.url} cannot be reached. Check that the server is running, and that --upstream is its address."
            )
            return Problem(502, "upstream_unreachable", message)
        if isinstance(error, httpx.TimeoutException):
            message = f"{self.url} did not answer within {self._timeout['read']:g} s. Try again, or raise --pause."
            return Problem(504, "upstream_timeout", message)
        return Problem(502, "upstream_failed", f"{self.url} broke the connection. Try again.")


class UpstreamAnswer:
    """The upstream's response before its body arrives, and the header fields for the client."""

    def __init__(self, response: httpx.Response, headers: RawHeaders) -> None:
        self.response, self.headers = response, headers
        self._rest, self._read = response.aiter_raw(), list[bytes]()

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""
        for chunk in self._read:
            yield chunk
        async for chunk in self._rest:
            yield chunk

    async def refuses_thinking(self) -> bool:
        """Return True if the answer says that a thinking block does not fit the conversation."""
        if self.response.status_code != HTTPStatus.BAD_REQUEST:
            return False
        async for chunk in self._rest:
            self._read.append(chunk)
            if sum(map(len, self._read)) > MAX_ERROR_BYTES:
                return False
        encoding = self.response.headers.get("content-encoding", "identity")
        try:
            answer = httpx.Response(HTTPStatus.OK, headers={"content-encoding": encoding}, content=b"".join(self._read))
        except httpx.DecodingError:
            return False
        return REFUSED_THINKING.encode() in answer.content


def upstream_address(address: str) -> httpx.URL:
    """Return the address without `/v1` and without a trailing slash.

    Raises:
        ConfigError: If the address is invalid, or contains a user, a password or a query.
    """
    url = checked_address(address)
    if url.userinfo or url.query:
        raise ConfigError(
            "the server's address must not contain a user, a password or a query. Clients send their keys in headers."
        )
    return url.copy_with(path=url.path.rstrip("/").removesuffix("/v1") or "/")


def _environment_proxy(url: httpx.URL) -> httpx.Proxy | None:
    """Return the proxy for an address from the environment (`HTTPS_PROXY`, or else `ALL_PROXY`, and `NO_PROXY`).

    If there is none, return None. An address without a scheme is one of HTTP, as for other programs.

    Raises:
        ConfigError: If the proxy cannot be used.
    """
    proxies = {} if proxy_bypass(url.host) else getproxies()
    kind = url.scheme if proxies.get(url.scheme) else "all"
    if not (address := proxies.get(kind)):
        return None
    try:
        proxy = httpx.Proxy(address if "://" in address else f"http://{address}")
        if not proxy.url.scheme.startswith("socks") or find_spec("socksio"):
            return proxy
    except (ValueError, httpx.InvalidURL):
        pass
    # The address may contain a password.
    raise ConfigError(
        f"the web proxy in {kind.upper()}_PROXY must begin with http:// or https://, or with socks5:// if the "
        f"package socksio is installed. Correct it, or add {url.host} to NO_PROXY."
    )


def _target_prefix(base: httpx.URL, *, is_forwarded: bool) -> bytes:
    """Return the base path, which comes before a client's path.

    If another proxy forwards a request over HTTP, the prefix starts with the upstream's address.
    """
    path = base.raw_path.rstrip(b"/")
    return b"%b://%b%b" % (base.raw_scheme, base.netloc, path) if is_forwarded and base.scheme == "http" else path
