"""Reading of HTTP response bodies within bounds: bytes received, bytes after decompression, and size in memory.

A server can announce a kilobyte and send gigabytes, or compress them a thousandfold. It can also send JSON that takes
forty times the memory of its text when decoded. Every bound is checked while the body arrives, before memory is
allocated for it.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import httpx

from context_agent._support.redaction import Redactor
from context_agent.errors import ConfigError

LIMIT_VARIABLE = "CTX1_MAX_RESPONSE_MB"
DEFAULT_LIMIT_MB = 16
"""The default limit in megabytes.

It is enough for 128 vectors of 4,096 values as text, and for 60,000 streamed tokens.
"""
MEMORY_PER_BYTE = 8
"""Maximum number of bytes of memory that decoded JSON may take for each byte of the limit."""
MEMORY_COSTS = {b"{": 200, b"[": 80, b",": 64, b":": 48}
"""Estimated bytes of memory for each mark of JSON: an object, a list, a value in one of these, a name in an object."""
STRING_COST = 32
"""Estimated least bytes of memory for a string."""
LINES_PER_LIMIT = 4
"""The limit divided by this is the maximum number of bytes that a line of an event stream may have."""
ERROR_BYTES = 1 << 20
"""Maximum number of bytes of an error's body that are read. The rest is ignored, because messages are short."""
PIECE_BYTES = 1 << 16
"""Maximum number of bytes that are decompressed at a time."""
ACCEPTED_ENCODING = "gzip"
"""The only compression that is requested. The standard library can decompress it in bounded steps."""
EXCERPT = 16
"""Maximum number of characters of a malformed body that an error quotes."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""A JSON string, or a string without an end. Possessive quantifiers make the match linear and free of recursion."""

_WEB_PAGE = re.compile(rb"\s*+<(?:!doctype html|html)\b", re.IGNORECASE)

Events = Sequence[Mapping[str, Any]]
"""The contents of a response: the events of a stream, the objects of a JSON list, or one JSON object."""


class MalformedResponse(Exception):
    """A response that is truncated, empty or not JSON. The request is repeated."""


class ResponseTooLarge(Exception):
    """A response beyond a limit. Repeating the request would not help."""


class WebPageReceived(Exception):
    """A web page in place of JSON. The address is wrong, so repeating the request would not help."""


class Allowance:
    """The bytes and the memory that a response may still take.

    Args:
        limit: The limit in bytes. The other bounds are derived from it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._received = self._decoded = limit
        self._memory = limit * MEMORY_PER_BYTE
        self.line = limit // LINES_PER_LIMIT

    def announce(self, length: str) -> None:
        """Check a `Content-Length`, so that a body that is too large is never read."""
        if length.isdecimal() and int(length[:20]) > self._limit:
            raise self.exceeded("the response")

    def receive(self, count: int) -> None:
        """Count bytes that were received."""
        self._received -= count
        if self._received < 0:
            raise self.exceeded("the response")

    def decode(self, count: int) -> None:
        """Count bytes after decompression."""
        self._decoded -= count
        if self._decoded < 0:
            raise self.exceeded("the decompressed response")

    def parse(self, data: bytes | bytearray) -> None:
        """Count the memory that a JSON text takes when it is decoded."""
        size = _decoded_size(data)
        if size > self._memory:  # brackets and commas in strings do not count, but finding the strings is slow
            size = _decoded_size_outside_strings(data, self._memory)
        self._memory -= size
        if self._memory < 0:
            raise self.exceeded("the response, decoded,", self._limit * MEMORY_PER_BYTE)

    def exceeded(self, subject: str, limit: int | None = None) -> ResponseTooLarge:
        """Return the error for a subject that exceeds a limit. By default it is the limit of the response."""
        return ResponseTooLarge(f"{subject} is larger than {_megabytes(limit or self._limit)} MB. {self._remedy}")

    @property
    def _remedy(self) -> str:
        return f"If the server is right, set {LIMIT_VARIABLE} to more than {_megabytes(self._limit)}."


def response_limit() -> int:
    """Return the limit of a successful response in bytes, from the environment variable `CTX1_MAX_RESPONSE_MB`.

    Raises:
        ConfigError: If the variable is not a valid number of megabytes.
    """
    value = os.environ.get(LIMIT_VARIABLE, "").strip() or str(DEFAULT_LIMIT_MB)
    if not value.isdecimal() or not 0 < int(value) <= 1 << 20:
        raise ConfigError(f"{LIMIT_VARIABLE} must be a number of megabytes from 1 to {1 << 20:,}; got {value[:20]!r}")
    return int(value) << 20


def is_event_stream(response: httpx.Response) -> bool:
    """Return True if the response is a stream of server-sent events."""
    return "event-stream" in response.headers.get("content-type", "")


async def read_error(response: httpx.Response) -> bytes:
    """Return the first bytes of an error's body. If reading fails, return what was read before."""
    body = bytearray()
    try:
        async for piece in _pieces(response, Allowance(ERROR_BYTES)):
            body += piece
    except (ResponseTooLarge, MalformedResponse):
        pass
    return bytes(body)


async def read_bytes(response: httpx.Response, allowance: Allowance) -> bytearray:
    """Return the whole body, decompressed.

    Raises:
        ResponseTooLarge: If the body exceeds the allowance.
        MalformedResponse: If it cannot be decompressed.
    """
    allowance.announce(response.headers.get("content-length", ""))
    body = bytearray()
    async for piece in _pieces(response, allowance):
        body += piece
    return body


async def read_events(
    response: httpx.Response, redactor: Redactor, show: Callable[[Any], None] = lambda event: None
) -> Events:
    """Return the JSON objects of a response, without secrets.

    Args:
        response: The response.
        redactor: The redactor that removes the secrets.
        show: A function that is called with each event of a stream as it arrives.

    Raises:
        ResponseTooLarge: If the body exceeds the limit.
        MalformedResponse: If the body is empty or does not consist of JSON objects.
    """
    if is_event_stream(response):
        events = []
        async for event in _stream(response, Allowance(response_limit()), redactor):
            events.append(event)
            show(event)
    else:
        value = await read_json(response, redactor)
        events = value if isinstance(value, list) else [value]
    if not events:
        raise MalformedResponse("the server sent an empty response")
    for event in events:
        if not isinstance(event, dict):
            raise MalformedResponse(f"the server must send a JSON object; got {type(event).__name__}")
    return events


async def read_json(response: httpx.Response, redactor: Redactor) -> Any:
    """Return the JSON value of a response, without secrets.

    Raises:
        ResponseTooLarge: If the body exceeds the limit.
        MalformedResponse: If the body is not JSON.
    """
    allowance = Allowance(response_limit())
    return _parse(await read_bytes(response, allowance), allowance, redactor)


async def _stream(response: httpx.Response, allowance: Allowance, redactor: Redactor) -> AsyncIterator[Any]:
    async for line in _lines(response, allowance):
        data = line.strip().removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
        if data == b"[DONE]":
            return
        if data:
            yield _parse(data, allowance, redactor)


async def _lines(response: httpx.Response, allowance: Allowance) -> AsyncIterator[bytes]:
    """Yield the lines of a stream, copying each byte once.

    Only a line feed ends a line. The `aiter_lines` of httpx would also split at U+2028 inside a string.
    """
    parts: list[bytes] = []
    length = 0
    async for piece in _pieces(response, allowance):
        head, *rest = piece.split(b"\n")
        parts.append(head)
        length += len(head)
        if length > allowance.line:
            raise allowance.exceeded("a line of the event stream", allowance.line)
        if rest:
            yield b"".join(parts)
            for line in rest[:-1]:
                yield line
            parts, length = [rest[-1]], len(rest[-1])


async def _pieces(response: httpx.Response, allowance: Allowance) -> AsyncIterator[bytes]:
    """Yield the body, decompressed in pieces of bounded size. httpx would decompress a whole packet at once."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in ("gzip", "x-gzip"):
        pieces = _gunzip(response, allowance)
    elif encoding in ("", "identity"):
        pieces = _raw(response, allowance)
    else:
        raise MalformedResponse(f"the server sent the encoding {encoding[:20]!r}, which was not requested")
    async for piece in pieces:
        allowance.decode(len(piece))
        yield piece


async def _raw(response: httpx.Response, allowance: Allowance) -> AsyncIterator[bytes]:
    async for data in response.aiter_raw():
        allowance.receive(len(data))
        yield data


async def _gunzip(response: httpx.Response, allowance: Allowance) -> AsyncIterator[bytes]:
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        async for data in _raw(response, allowance):
            rest = data
            while rest and not decompressor.eof:
                yield decompressor.decompress(rest, PIECE_BYTES)
                rest = decompressor.unconsumed_tail
        yield decompressor.flush()
    except zlib.error as error:
        raise MalformedResponse(f"the server sent broken gzip data ({error})") from None
    if not decompressor.eof:
        raise MalformedResponse("the server sent truncated gzip data")


def _parse(data: bytes | bytearray, allowance: Allowance, redactor: Redactor) -> Any:
    allowance.parse(data)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        start = redactor.text(data[:ERROR_BYTES].decode("utf-8", "replace"))[:EXCERPT]
        if _WEB_PAGE.match(data):
            raise WebPageReceived(
                f"the server must send JSON, but it sent a web page, which begins with {start!r}. Check the address "
                "and its path"
            ) from None
        raise MalformedResponse(f"the server must send JSON; its response begins with {start!r}") from None
    redactor.redact_json(value)
    return value


def _decoded_size(data: bytes | bytearray) -> int:
    """Return an estimate of the memory that decoded JSON takes, without the characters of its strings."""
    return sum(cost * data.count(mark) for mark, cost in MEMORY_COSTS.items())


def _decoded_size_outside_strings(data: bytes | bytearray, bound: int) -> int:
    """Return the same estimate without the marks inside strings. Counting stops above `bound`."""
    size, end = 0, 0
    for number, string in enumerate(_STRING.finditer(data)):
        size += _decoded_size(data[end : string.start()])
        end = string.end()
        if size > bound or number * STRING_COST > bound:
            return bound + 1
    return size + _decoded_size(data[end:])


def _megabytes(size: int) -> str:
    return f"{size / (1 << 20):g}"
