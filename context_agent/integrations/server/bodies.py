"""Bodies of requests. They are read within a limit of bytes and of seconds, and validated as JSON."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import Callable, Coroutine
from typing import Any

from pydantic import BaseModel, ValidationError

from context_agent._support.extras import extra
from context_agent.integrations.server.body_room import HeldBody
from context_agent.integrations.server.connections import BODY_TIMEOUT
from context_agent.integrations.server.disconnects import ClientGone
from context_agent.integrations.server.errors import Problem, invalid_body

with extra("serve"):
    from fastapi.routing import APIRoute
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response


_ESCAPE = re.compile(
    rb"\\(?:u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}|(u[Dd][89A-Fa-f][0-9A-Fa-f]{2})|.)", re.DOTALL
)
"""An escape in JSON: a surrogate pair, half of a pair (group 1), or any other. An escaped backslash begins none."""
_MOST_DIGITS = 18
"""A length with more digits is above any limit. Python refuses to read numbers of more than 4,300 digits."""


class JsonRoute(APIRoute):
    """A route that reads the body within the server's limits and validates it before FastAPI does.

    FastAPI alone would read a body of any length. Its errors would name the types of Python instead of the types of
    JSON. The limit in bytes is `max_body` in the state of the application.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function that answers a request."""
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        model = self.body_field.field_info.annotation
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)

        async def handle_json(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json":
                reason = "the body must be JSON. Send it with the header Content-Type: application/json."
                raise Problem(415, "unsupported_media_type", reason)
            if request.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
                reason = "the body must not be compressed. Send it without the header Content-Encoding."
                raise Problem(415, "unsupported_encoding", reason, headers={"Accept-Encoding": "identity"})
            content = await read_body(request, request.app.state.max_body, request.state.held_body)
            # Windows programs write a byte order mark. RFC 8259 lets a parser ignore it, and pydantic's does not.
            content = content.removeprefix(codecs.BOM_UTF8)
            try:
                value = model.model_validate_json(_without_halves(content))
            except ValidationError as error:
                raise invalid_body(error) from None
            return await handle(_ReadRequest(request, content, value))

        return handle_json


def _without_halves(content: bytes) -> bytes:
    r"""Return JSON with the replacement character in place of each escaped half of a surrogate pair.

    JavaScript writes an emoji that was cut in two as such a half, `\\ud83d`, which pydantic refuses.
    """
    if b"\\ud" not in content.lower():
        return content
    return _ESCAPE.sub(lambda match: b"\\ufffd" if match[1] else match[0], content)


class _ReadRequest(Request):
    """A request with a body that was already read and validated."""

    def __init__(self, request: Request, content: bytes, value: BaseModel) -> None:
        super().__init__(request.scope, request.receive)
        self._content, self._value = content, value

    async def body(self) -> bytes:
        return self._content

    async def json(self) -> BaseModel:
        return self._value


async def read_body(request: Request, limit: int, held: HeldBody) -> bytes:
    """Return the body of a request.

    Args:
        request: The request.
        limit: Maximum number of bytes of the body.
        held: The room that the body takes.

    Raises:
        Problem: If the body has more than `limit` bytes, does not arrive in time, or finds no room.
        ClientGone: If the client disconnects first.
    """
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            return await _bounded_body(request, limit, held)
    except TimeoutError:
        message = f"the request's body did not arrive within {BODY_TIMEOUT} s"
        raise Problem(408, "slow_body", message, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise ClientGone from None


async def _bounded_body(request: Request, limit: int, held: HeldBody) -> bytes:
    message = f"the body is larger than {limit:,} bytes. Send less, or raise --max-body of the server."
    too_large = Problem(413, "too_large", message, headers={"Connection": "close"})
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and (len(length) > _MOST_DIGITS or int(length) > limit):
        raise too_large
    body = bytearray()
    async for part in request.stream():
        if len(body) + len(part) > limit:
            raise too_large
        held.grow(len(part))
        body += part
    return bytes(body)
