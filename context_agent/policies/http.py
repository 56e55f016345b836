"""Requests to a model server: one client an event loop, a limit on what runs at once, retries, a deadline.

Knows JSON and server-sent events, and nothing of chat. The key is read from the environment for each request; it is
kept nowhere, and cut out of whatever a server says before anybody reads it.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import httpx

from context_agent.errors import ConfigError, PolicyError
from context_agent.policies.slots import Slots

T = TypeVar("T")
Events = Sequence[Mapping[str, Any]]
"""What a server answered: the events of a stream, or one whole body."""

_Client = tuple[httpx.AsyncClient, AsyncGenerator[None, None]]
"""A client, and the generator that closes it when its event loop ends."""

BASE_URL = "http://localhost:8000/v1"
"""Where vLLM listens unless told otherwise."""
API_KEY_ENV = "CTX1_API_KEY"
"""No common name such as `OPENAI_API_KEY`: a key for one host must not go to whatever address is set."""
CONNECT_SECONDS = 10.0
LONGEST_PAUSE = 30.0
"""Seconds; a `Retry-After` may ask for more."""
KEEP_ALIVE_SECONDS = 4.0
"""Below the 5 s after which uvicorn, and so most model servers, closes an idle connection."""
FIRST_CONTACT_RETRIES = 2
"""Retries for a server that never answered: a wrong address should be told soon, a restart is waited for."""
LONGEST_MESSAGE = 600
"""Characters of a server's words that an error quotes."""
SHORTEST_KEY = 4
"""Characters; a shorter word guards nothing, and cutting it out would spoil the message."""
_LASTING = ("does not support tools", "requires --jinja", "context size", "context length")
"""Words in a 5xx that no retry will change."""


class Refusal(PolicyError):
    """The server answered, and will not do it however often it is asked."""

    def __init__(self, url: str, status: int, message: str) -> None:
        super().__init__(f"{url} refused the request (HTTP {status}): {message or 'no reason given'}")
        self.status = status
        self.message = message


class Broken(Exception):
    """An answer that is not what was asked for: cut, empty or no JSON. Asked again, as after a lost connection."""


class _Transient(Exception):
    def __init__(self, what: str, *, after: float = 0.0, unreached: bool = False) -> None:
        super().__init__(what)
        self.after = after
        self.unreached = unreached


class Endpoint:
    """A server's address and how patiently it is asked. Safe to share between threads, event loops and episodes."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key_env: str | None,
        timeout: float = 300.0,
        retries: int = 6,
        backoff: float = 0.5,
        concurrency: int = 32,
    ) -> None:
        """`timeout` is seconds for a whole answer, or of silence in a stream. Raises `ConfigError`."""
        if timeout <= 0 or retries < 0 or backoff < 0 or concurrency < 1:
            raise ConfigError(
                f"timeout must be positive, retries and backoff not negative, concurrency at least 1; got "
                f"timeout={timeout}, retries={retries}, backoff={backoff}, concurrency={concurrency}"
            )
        self.base_url = checked_url(base_url)
        self.api_key_env = api_key_env
        self.timeout = timeout
        self.retries = retries
        self.backoff = backoff
        self._slots = Slots(concurrency)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, _Client] = WeakKeyDictionary()
        self._reached = False

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r})"

    async def post(
        self, path: str, body: Mapping[str, Any], read: Callable[[Events], T], *, until: float = math.inf
    ) -> T:
        """What `read` makes of the answer; `until` is the event loop's time after which nothing is tried again.

        Raises `Refusal`, and `PolicyError` when the tries are used up. `read` raises `Broken` to have it asked again.
        """
        # The standard library's default escapes lone surrogates, which no UTF-8 body could hold.
        content = json.dumps(body, separators=(",", ":"), default=str).encode()
        return await self._persist(lambda: self._once("POST", path, content, read), path, until)

    async def get(self, path: str, *, until: float = math.inf) -> Mapping[str, Any]:
        """The JSON object at a path; one that begins with two slashes is the host's own. Raises as `post` does."""
        return await self._persist(lambda: self._once("GET", path, None, lambda events: events[0]), path, until)

    def _url(self, path: str) -> str:
        if path.startswith("//"):
            parts = urlsplit(self.base_url)
            return f"{parts.scheme}://{parts.netloc}{path[1:]}"
        return self.base_url + path

    async def aclose(self) -> None:
        """Closes the running loop's connections now; they close by themselves when the loop ends."""
        _, closing = self._clients.pop(asyncio.get_running_loop(), (None, None))
        if closing is not None:
            await closing.aclose()

    async def _persist(self, attempt: Callable[[], Awaitable[T]], path: str, until: float) -> T:
        loop = asyncio.get_running_loop()
        started, tries = loop.time(), 0
        while True:
            try:
                return await attempt()
            except _Transient as trouble:
                tries += 1
                pause = self._pause(tries, trouble)
                if tries > self._patience(trouble) or loop.time() + pause >= until:
                    raise self._given_up(path, trouble, tries, pause, loop.time() - started) from None
            await asyncio.sleep(pause)

    def _pause(self, tries: int, trouble: _Transient) -> float:
        """Seconds before the next try: exponential with jitter, never less than the server asked for."""
        ceiling = min(LONGEST_PAUSE, self.backoff * 2.0 ** (tries - 1))
        return max(trouble.after, ceiling * random.uniform(0.5, 1.0))

    def _patience(self, trouble: _Transient) -> int:
        unknown = trouble.unreached and not self._reached
        return min(self.retries, FIRST_CONTACT_RETRIES) if unknown else self.retries

    def _given_up(self, path: str, trouble: _Transient, tries: int, pause: float, seconds: float) -> PolicyError:
        what = self.redacted(str(trouble))
        spent = f"{tries} {'try' if tries == 1 else 'tries'} in {seconds:.1f} s"
        hint = "; is the server running, and is this its address?" if trouble.unreached else ""
        if trouble.after and tries <= self.retries:
            hint = f"; it asked to wait {pause:.0f} s, past the deadline"
        return PolicyError(f"{self.base_url}{path}: {what} ({spent}){hint}")

    async def _once(self, method: str, path: str, content: bytes | None, read: Callable[[Events], T]) -> T:
        url = self._url(path)
        headers = {"Content-Type": "application/json", **self._authorization()}
        async with self._slots:
            try:
                client = await self._client()
                async with client.stream(method, url, content=content, headers=headers) as response:
                    async with asyncio.timeout(None if _is_stream(response) else self.timeout):
                        self._reached = True
                        if not response.is_success:
                            raise self._failed(response.status_code, await response.aread(), response.headers, url)
                        return read(await self._events(response, url))
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                raise _Transient(f"cannot connect ({_said(error)})", unreached=True) from None
            except (TimeoutError, httpx.TimeoutException):
                raise _Transient(f"no answer within {self.timeout:g} s") from None
            except httpx.HTTPError as error:
                raise _Transient(f"the connection broke ({_said(error)})") from None
            except Broken as error:
                raise _Transient(str(error)) from None

    async def _events(self, response: httpx.Response, url: str) -> Events:
        if not _is_stream(response):
            events = [_loaded(await response.aread())]
        else:
            events = await _streamed(response)
        if not events:
            raise Broken("the server sent an empty stream")
        for event in events:
            if error := event.get("error"):
                code = error.get("code") if isinstance(error, dict) else None
                status = code if isinstance(code, int) and 400 <= code < 600 else 500
                raise self._failed(status, json.dumps({"error": error}).encode(), response.headers, url)
        return events

    def _failed(self, status: int, body: bytes, headers: Mapping[str, str], url: str) -> Exception:
        message = self.redacted(spoken(body))[:LONGEST_MESSAGE]
        again = status in {408, 425, 429} or (status >= 500 and status not in {501, 505})
        if again and not any(words in message.lower() for words in _LASTING):
            return _Transient(f"HTTP {status}: {message}", after=retry_after(headers))
        return Refusal(url, status, message)

    def redacted(self, text: str) -> str:
        """The text without the key."""
        key = self._key()
        return text.replace(key, "[key]") if len(key) >= SHORTEST_KEY else text

    def _key(self) -> str:
        return os.environ.get(self.api_key_env, "").strip() if self.api_key_env else ""

    def _authorization(self) -> dict[str, str]:
        key = self._key()
        if not key.isascii() or not key.isprintable():
            raise PolicyError(f"the key in ${self.api_key_env} has characters that no HTTP header can hold")
        return {"Authorization": f"Bearer {key}"} if key else {}

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """Loading the certificates takes longer than a request: once for all event loops."""
        return httpx.create_ssl_context()

    async def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        client, _ = self._clients.get(loop, (None, None))
        if client is None:
            client = httpx.AsyncClient(
                timeout=httpx.Timeout(self.timeout, connect=min(CONNECT_SECONDS, self.timeout), pool=None),
                limits=httpx.Limits(keepalive_expiry=KEEP_ALIVE_SECONDS),
                verify=self._tls,
            )
            closing = self._closing(loop, client)
            self._clients[loop] = (client, closing)
            await anext(closing)
        return client

    async def _closing(self, loop: asyncio.AbstractEventLoop, client: httpx.AsyncClient) -> AsyncGenerator[None, None]:
        """Closes the client when the event loop ends.

        A loop that `asyncio.run` ends closes the async generators that it began, and that is the only hook there is:
        a client left open would hold sockets that belong to a dead loop.
        """
        try:
            yield
        finally:
            if self._clients.get(loop, (None, None))[0] is client:
                del self._clients[loop]
            await client.aclose()


def checked_url(base_url: str) -> str:
    """The address without a trailing slash; `/v1` is added to a bare host. Raises `ConfigError`."""
    try:
        parts = urlsplit(base_url.strip())
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise ConfigError(f"the server's address should look like http://localhost:8000/v1; got {_shown(base_url)!r}")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError("the server's address must hold no user, key or query: a key comes from the environment")
    path = parts.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
    return f"{parts.scheme}://{parts.netloc}{path}"


def _shown(url: str) -> str:
    """An address that may be quoted: what stands before an @ could be a password."""
    return url.rpartition("@")[2].partition("?")[0]


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that a server asks to wait, 0 where it does not: `retry-after-ms`, `Retry-After` in seconds or a date."""
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


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None


def spoken(body: bytes) -> str:
    """The words in an error's body, whichever of the usual shapes it has."""
    text = body.decode("utf-8", "replace").strip()
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        found = text
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    said = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
    return " ".join(said.split())


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _is_stream(response: httpx.Response) -> bool:
    return "event-stream" in response.headers.get("content-type", "")


async def _streamed(response: httpx.Response) -> list[Mapping[str, Any]]:
    """The events of a stream. Lines end at a line feed alone: `aiter_lines` would also cut at U+2028 in a string."""
    events: list[Mapping[str, Any]] = []
    rest = b""
    async for part in response.aiter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            data = line.strip().removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
            if data == b"[DONE]":
                return events
            if data:
                events.append(_loaded(data))
    return events


def _loaded(data: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise Broken(f"the server sent no JSON (it begins with {data[:16].decode('utf-8', 'replace')!r})") from None
    if not isinstance(value, dict):
        raise Broken(f"the server sent {type(value).__name__}, not an object")
    return value
