"""The HTTP client for chat, token, embedding, reranker and judge calls.

An `Endpoint` has an address and the rules for requests to it. The rules say which key is sent (`credentials`), how keys
are removed from what comes back (`redaction`), and how large a response may be (`http_body`). They also say how long a
request may take, how many run at once, and when it is retried (tenacity). An endpoint reads JSON and server-sent events
without knowing their meaning. Coroutines use `post` and `get`. Threads use `post_sync`, which runs the same code on a
background event loop. A deadline therefore holds even if a server sends its headers slowly.

Redirects are never followed, because they could carry a key and a question to another host.
"""

from __future__ import annotations

import asyncio
import html
import json
import math
import random
import re
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any, NoReturn, TypeVar
from weakref import WeakKeyDictionary

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_before_delay

from context_agent._support.arguments import real_number, whole_number
from context_agent._support.credentials import (
    OPENAI,
    Vendor,
    checked_address,
    key_variable,
    read_key,
    secrets_in,
    shown_address,
)
from context_agent._support.event_loops import BACKGROUND, SharedSemaphore
from context_agent._support.http_body import (
    ACCEPTED_ENCODING,
    Allowance,
    Events,
    MalformedResponse,
    ResponseTooLarge,
    WebPageReceived,
    is_event_stream,
    read_bytes,
    read_error,
    read_events,
    read_json,
    response_limit,
)
from context_agent._support.redaction import SHORTEST_IN_ERRORS, SHORTEST_IN_REPLIES, Redactor
from context_agent._support.unread_bytes import close_unread
from context_agent.errors import ConfigError, ServerError, reason_of
from context_agent.text.normalization import well_formed

__all__ = ["API_KEY_ENV", "BASE_URL", "Endpoint", "Events", "MalformedResponse", "Refusal", "policy_address"]

T = TypeVar("T")
_Client = tuple[httpx.AsyncClient, AsyncGenerator[None, None]]
"""A client, and the generator that closes it when its event loop ends."""

BASE_URL = "http://localhost:8000/v1"
"""The default address of a vLLM server."""
API_KEY_ENV = "CTX1_API_KEY"
"""The environment variable for the policies' key.

It is not `OPENAI_API_KEY`, because a key for one host must not go to any address that is set.
"""
CONNECT_SECONDS = 10.0
LONGEST_BACKOFF = 30.0
"""The longest pause between two tries, in seconds. A `Retry-After` may request a longer one."""
LONGEST_RETRY_AFTER = 600.0
"""The longest `Retry-After` that is obeyed, in seconds.

A server that requests a longer pause has no quota left, so the caller decides whether to wait.
"""
KEEP_ALIVE_SECONDS = 4.0
"""Seconds after which an idle connection is closed. Uvicorn, which most model servers use, closes it after 5 s."""
STREAM_TIMEOUTS = 10
"""The longest duration of a stream, in timeouts. Each pause in a stream may last one timeout."""
FIRST_CONTACT_RETRIES = 2
"""Retries for a server that never answered.

They are few, so that a wrong address is reported soon, but enough to wait for a restart.
"""
LONGEST_MESSAGE = 600
"""Maximum number of characters of a server's message that an error quotes."""
_TITLE = re.compile(r"<title>([^<]{1,300})</title>", re.IGNORECASE)
_MISWRITTEN_CALL = ("failed to call a function", "tool call validation failed")
"""Phrases in Groq's refusal of a call that its model wrote wrongly. Another try may give a right one."""
_PERMANENT = ("does not support tools", "requires --jinja", "context size", "context length", "request too large")
"""Phrases in an error that show that a retry would fail too."""


def tls_context() -> ssl.SSLContext:
    """Return the TLS settings of a client. It trusts the certificates that `SSL_CERT_FILE` or `SSL_CERT_DIR` names.

    Raises:
        ConfigError: If the certificates cannot be read.
    """
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        raise ConfigError(
            f"the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read ({reason_of(error)}). "
            "Correct the variable, or remove it to trust the usual ones."
        ) from error


class Refusal(ServerError):
    """An error response that a retry does not fix.

    Attributes:
        status: The HTTP status.
        message: The server's message, without keys.
    """

    def __init__(self, url: str, status: int, message: str) -> None:
        super().__init__(f"{url} refused the request (HTTP {status}): {message or 'no reason given'}")
        self.status = status
        self.message = message


class _TransientError(Exception):
    """A failure that a retry may fix. `retry_after` is the pause in seconds that the server requests, or 0."""

    def __init__(self, message: str, *, retry_after: float = 0.0, unreachable: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.unreachable = unreachable


class Endpoint:
    """A server's address, and the rules for requests to it. Threads, event loops and episodes may share an endpoint.

    Args:
        base_url: The address of the server.
        api_key_env: The environment variable with the key. If it is None, a key goes only to the vendor's own host.
        vendor: The vendor whose API the server speaks.
        timeout: Maximum number of seconds for a whole response, or for each pause of a stream.
        retries: How often a failed request is repeated.
        backoff: The first pause between tries, in seconds. It doubles with each try.
        concurrency: Maximum number of requests at a time.
        longest_retry_after: The longest `Retry-After` that is obeyed, in seconds. A longer one ends the call.

    Raises:
        ConfigError: If the address or one of the numbers is invalid.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key_env: str | None,
        vendor: Vendor = OPENAI,
        timeout: float = 300.0,
        retries: int = 6,
        backoff: float = 0.5,
        concurrency: int = 32,
        longest_retry_after: float = LONGEST_RETRY_AFTER,
    ) -> None:
        timeout, backoff = real_number(timeout, "timeout"), real_number(backoff, "backoff")
        retries, concurrency = whole_number(retries, "retries"), whole_number(concurrency, "concurrency")
        if timeout <= 0 or retries < 0 or backoff < 0 or concurrency < 1:
            raise ConfigError(
                "timeout must be positive, retries and backoff must not be negative, and concurrency must be at least "
                f"1; got timeout = {timeout}, retries = {retries}, backoff = {backoff}, concurrency = {concurrency}"
            )
        self._url = checked_address(base_url)
        self.base_url = shown_address(self._url)
        self.api_key_env = key_variable(self._url, api_key_env, vendor)
        self._vendor = vendor
        self.timeout = timeout
        self.retries = retries
        self.backoff = backoff
        self._longest_retry_after = longest_retry_after
        self._semaphore = SharedSemaphore(concurrency)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _Client] = WeakKeyDictionary()
        self._reached = False

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r})"

    @property
    def host(self) -> str:
        """The server's host name or IP address, without its port."""
        return self._url.host

    def add_header(self, name: str, value: str) -> None:
        """Send a header with all later requests."""
        self._vendor = replace(self._vendor, headers={**self._vendor.headers, name: value})

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        read: Callable[[Events], T],
        *,
        until: float = math.inf,
        show: Callable[[Any], None] | None = None,
    ) -> T:
        """Send a POST request, and return the value that `read` makes of the response.

        Args:
            path: The path below the endpoint's address.
            body: The JSON body.
            read: A function that reads the events of the response. It may raise `MalformedResponse` to repeat the
                request.
            until: The event loop's time after which no retry starts.
            show: A function that is called with each event of a stream as it arrives. If a stream breaks after its
                first event, the request is not repeated. Keys are removed from each event, but a key may span several
                events.

        Raises:
            Refusal: If the server answers with an error that a retry does not fix.
            ServerError: If the retries are used up, or the response is too large or a web page.
        """

        shown = False

        def show_event(event: Any) -> None:
            nonlocal shown
            if show is not None and isinstance(event, dict) and not _reported_error(event):
                shown = True
                show(event)

        async def receive(response: httpx.Response) -> T:
            if shown:
                raise ServerError(
                    f"{self._shown(path)}: the answer was incomplete after {self.timeout:g} s. Try again, or raise the "
                    "timeout."
                )
            try:
                return self.redact_value(read(await self._events(response, path, show_event)))
            except (httpx.HTTPError, MalformedResponse, _TransientError) as error:
                if not shown:
                    raise
                raise ServerError(
                    f"{self._shown(path)}: the answer ended early ({_describe(error)}). Try again."
                ) from None

        return await self._request("POST", path, _encoded(body), receive, until)

    async def get(self, path: str, *, until: float = math.inf) -> Mapping[str, Any]:
        """Return the JSON object at a path. A path that begins with two slashes starts at the host's root.

        The errors are those of `post`.
        """

        async def receive(response: httpx.Response) -> Mapping[str, Any]:
            return (await self._events(response, path))[0]

        return await self._request("GET", path, None, receive, until)

    def json_sync(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send the body in a POST request, and return the JSON value of the response.

        Without a body, send a GET request. Any thread may call this method. It raises the same errors as `post`.
        """

        async def receive(response: httpx.Response) -> Any:
            return await read_json(response, self._redactor(SHORTEST_IN_REPLIES))

        content = None if body is None else _encoded(body)
        return BACKGROUND.run(self._request("GET" if body is None else "POST", path, content, receive, math.inf))

    def post_sync(self, path: str, body: Mapping[str, Any], read: Callable[[Events], T]) -> T:
        """Send a POST request as `post` does, for code without an event loop. Any thread may call this method."""
        return BACKGROUND.run(self.post(path, body, read))

    def command(self, path: str, body: Mapping[str, Any]) -> None:
        """Send a POST request and ignore the response, which need not be JSON.

        Any thread may call this method. The errors are those of `post`.
        """

        async def receive(response: httpx.Response) -> None:
            await read_bytes(response, Allowance(response_limit()))

        BACKGROUND.run(self._request("POST", path, _encoded(body), receive, math.inf))

    def close(self) -> None:
        """Close the connections of the synchronous methods. A later call opens new ones."""
        if self._clients:
            BACKGROUND.run(self.aclose())

    async def aclose(self) -> None:
        """Close the connections of the running event loop now. Otherwise they close when the loop ends."""
        _, closing = self._clients.pop(asyncio.get_running_loop(), (None, None))
        if closing is not None:
            await closing.aclose()

    def redacted(self, text: str) -> str:
        """Return a server's text for an error message, without keys."""
        return self._redactor(SHORTEST_IN_ERRORS).text(text)

    def redacted_reply(self, text: str) -> str:
        """Return a part of a reply without keys. If the part contains only a piece of a key, the piece stays."""
        return self._redactor(SHORTEST_IN_REPLIES).text(text)

    def redact_value(self, value: T) -> T:
        """Return a value that was read from stored events, without keys. See `Redactor.redact_value`."""
        return self._redactor(SHORTEST_IN_REPLIES).redact_value(value)

    def _redactor(self, shortest: int) -> Redactor:
        return Redactor([read_key(self.api_key_env), *secrets_in(self._url)], shortest)

    # Retries ------------------------------------------------------------------------------------------------------

    async def _request(
        self,
        method: str,
        path: str,
        content: bytes | None,
        receive: Callable[[httpx.Response], Awaitable[T]],
        until: float,
    ) -> T:
        """Send the request until it succeeds, fails permanently, or runs out of tries or time."""

        async def attempt() -> T:
            return await self._send(method, path, content, receive)

        def give_up(state: RetryCallState) -> NoReturn:
            raise self._final_error(path, state, remaining) from None

        def stop(state: RetryCallState) -> bool:
            return self._exhausted(state) or before_deadline(state)

        remaining = until - asyncio.get_running_loop().time()
        before_deadline = stop_before_delay(remaining)

        retrying = AsyncRetrying(
            sleep=asyncio.sleep,
            retry=retry_if_exception_type(_TransientError),
            wait=self._pause,
            stop=stop,
            retry_error_callback=give_up,
        )
        result: T = await retrying(attempt)
        return result

    def _pause(self, state: RetryCallState) -> float:
        """Return the seconds before the next try: exponential with jitter, and at least what the server requests."""
        longest = min(LONGEST_BACKOFF, self.backoff * 2.0 ** (state.attempt_number - 1))
        return max(_failure(state).retry_after, longest * random.uniform(0.5, 1.0))

    def _exhausted(self, state: RetryCallState) -> bool:
        """Return True if no tries are left, or if the server requests too long a pause."""
        error = _failure(state)
        unknown = error.unreachable and not self._reached
        retries = min(self.retries, FIRST_CONTACT_RETRIES) if unknown else self.retries
        return state.attempt_number > retries or error.retry_after > self._longest_retry_after

    def _final_error(self, path: str, state: RetryCallState, remaining: float) -> ServerError:
        """Return the error for the last try. `remaining` is the number of seconds that there were for all tries."""
        error, tries, elapsed = _failure(state), state.attempt_number, state.seconds_since_start or 0.0
        hint = ". Check that the server is running at this address." if error.unreachable else ""
        if error.retry_after and tries <= self.retries:
            late = elapsed + state.upcoming_sleep >= remaining
            bound = "past the deadline" if late else f"longer than the maximum of {self._longest_retry_after:g} s"
            hint = f". The server asks to wait {error.retry_after:.0f} s, which is {bound}. Try again later."
        spent = f"{tries} {'try' if tries == 1 else 'tries'} in {elapsed:.1f} s"
        return ServerError(f"{self._shown(path)}: {self.redacted(str(error))} ({spent}){hint}")

    # One try ------------------------------------------------------------------------------------------------------

    async def _send(
        self, method: str, path: str, content: bytes | None, receive: Callable[[httpx.Response], Awaitable[T]]
    ) -> T:
        url, seconds = self._resolved(path), self.timeout
        async with self._semaphore:
            try:
                client = await self._client()
                await close_unread(client._transport_for_url(url))  # noqa: SLF001 (a proxy of the environment has its own)
                async with (
                    asyncio.timeout(seconds) as deadline,
                    client.stream(method, url, content=content, headers=self._headers()) as response,
                ):
                    self._reached = True
                    if is_event_stream(response):
                        seconds *= STREAM_TIMEOUTS
                        deadline.reschedule(asyncio.get_running_loop().time() + seconds)
                    if not response.is_success:
                        raise self._failed(response, await read_error(response), path)
                    return await receive(response)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                raise _TransientError(f"cannot connect ({_describe(error)})", unreachable=True) from None
            except httpx.TimeoutException:
                raise _TransientError(f"no answer within {self.timeout:g} s") from None
            except TimeoutError:
                raise _TransientError(f"no answer within {seconds:g} s") from None
            except httpx.HTTPError as error:
                raise _TransientError(f"the connection failed ({_describe(error)})") from None
            except MalformedResponse as error:
                raise _TransientError(str(error)) from None
            except RecursionError:
                raise _TransientError("the response is nested too deeply") from None
            except (ResponseTooLarge, WebPageReceived) as error:
                raise ServerError(f"{self._shown(path)}: {error}") from None

    async def _events(
        self, response: httpx.Response, path: str, show: Callable[[Any], None] = lambda event: None
    ) -> Events:
        """Return the JSON objects of the response. Raise an error that a server reports with a successful status."""
        events = await read_events(response, self._redactor(SHORTEST_IN_REPLIES), show)
        for event in events:
            if error := _reported_error(event):
                code = error.get("code") if isinstance(error, dict) else None
                status = code if isinstance(code, int) and 400 <= code < 600 else 500
                message = self._message(error_message({"error": error}))
                raise self._error(status, message, response.headers, path)
        return events

    def _failed(self, response: httpx.Response, body: bytes, path: str) -> Exception:
        message = self._message(error_message(_decoded(body)))
        if response.has_redirect_location:
            target = self._message(response.headers["location"])
            message = f"it redirects to {target}, and redirects are not followed. Pass the final address."
        return self._error(response.status_code, message, response.headers, path)

    def _message(self, text: str) -> str:
        return self.redacted(text)[:LONGEST_MESSAGE]

    def _error(self, status: int, message: str, headers: Mapping[str, str], path: str) -> Exception:
        words = message.lower()
        transient = status in {408, 425, 429} or (status >= 500 and status not in {501, 505})
        miswritten = status == 400 and any(phrase in words for phrase in _MISWRITTEN_CALL)
        if miswritten or (transient and not any(phrase in words for phrase in _PERMANENT)):
            return _TransientError(f"HTTP {status}: {message}", retry_after=retry_after(headers))
        return Refusal(self._shown(path), status, message)

    def _headers(self) -> dict[str, str]:
        key = read_key(self.api_key_env)
        if not key.isascii() or not key.isprintable():
            raise ServerError(
                f"the key in ${self.api_key_env} has characters that an HTTP header cannot have. Correct the variable."
            )
        headers = {"Content-Type": "application/json", "Accept-Encoding": ACCEPTED_ENCODING}
        return headers | self._vendor.request_headers(key)

    # Addresses and connections ------------------------------------------------------------------------------------

    def _resolved(self, path: str) -> httpx.URL:
        """Return the address of a path, always on the endpoint's own host.

        The query of the endpoint's address is kept.
        """
        base, mark, query = self._url.raw_path.partition(b"?")
        if path.startswith("//"):
            base = path[1:].encode()
        elif path:
            base = base.rstrip(b"/") + path.encode()
        return self._url.copy_with(raw_path=base + mark + query)

    def _shown(self, path: str) -> str:
        return shown_address(self._resolved(path))

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """The TLS settings, loaded once for all event loops. Loading the certificates takes longer than a request."""
        return tls_context()

    async def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        client, _ = self._clients.get(loop, (None, None))
        if client is None:
            client = httpx.AsyncClient(
                timeout=httpx.Timeout(self.timeout, connect=min(CONNECT_SECONDS, self.timeout), pool=None),
                limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_SECONDS),
                verify=self._tls,
                follow_redirects=False,
            )
            closing = self._closing(loop, client)
            self._clients[loop] = (client, closing)
            await anext(closing)
        return client

    async def _closing(self, loop: asyncio.AbstractEventLoop, client: httpx.AsyncClient) -> AsyncGenerator[None, None]:
        """Close the client when the event loop ends.

        When `asyncio.run` ends a loop, it closes the loop's async generators, and this is the only hook. A client that
        stayed open would keep sockets of a loop that has ended.
        """
        try:
            yield
        finally:
            if self._clients.get(loop, (None, None))[0] is client:
                del self._clients[loop]
            await client.aclose()


def policy_address(base_url: str) -> str:
    """Return a policy server's address without a trailing slash. If the address is only a host, add `/v1`.

    Raises:
        ConfigError: If the address is invalid, or contains a user, a password or a query.
    """
    url = checked_address(base_url)
    if url.userinfo or url.query:
        raise ConfigError(
            "the server's address must not contain a user, a key or a query. Put the key into an environment variable."
        )
    path = url.path.rstrip("/").removesuffix("/chat/completions").removesuffix("/messages") or "/v1"
    return str(url.copy_with(path=path))


def retry_after(headers: Mapping[str, str]) -> float:
    """Return the seconds that a server requests to wait, or 0.

    The headers are `retry-after-ms`, and `Retry-After` in seconds or as a date.
    """
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if (seconds := _number(value)) is not None:
        return seconds
    try:
        when = parsedate_to_datetime(value or "")
    except (ValueError, TypeError, OverflowError):
        return 0.0
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.fromtimestamp(time.time(), UTC)).total_seconds())


def error_message(value: Any) -> str:
    """Return the message in the JSON of an error, in any of the common formats."""
    for key in ("error", "message", "detail"):
        if isinstance(value, dict) and key in value:
            value = value[key]
    message = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(well_formed(message).split())


def _reported_error(event: Mapping[str, Any]) -> Any:
    """Return the error that an event reports, or a false value. OpenRouter reports some errors in the first choice."""
    choices = event.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    return event.get("error") or (choice.get("error") if isinstance(choice, dict) else None)


def _decoded(body: bytes) -> Any:
    """Return the JSON in the body of an error. If it is not JSON, return its text. Of a web page, return the title."""
    text = body.decode("utf-8", "replace").strip()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        title = _TITLE.search(text) if text.startswith("<") else None
        return html.unescape(title[1]) if title else text


def _encoded(body: Mapping[str, Any]) -> bytes:
    """Return the body as JSON. Lone surrogates are escaped, because UTF-8 cannot encode them."""
    return json.dumps(body, separators=(",", ":"), default=str).encode()


def _failure(state: RetryCallState) -> _TransientError:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, _TransientError)
    return error


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__
