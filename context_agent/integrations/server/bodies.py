"""Bodies of requests: read within a limit of bytes and of seconds."""

from __future__ import annotations

import asyncio

from context_agent._support.extras import extra
from context_agent.integrations.server.connections import BODY_TIMEOUT
from context_agent.integrations.server.disconnects import ClientGone
from context_agent.integrations.server.errors import Problem

with extra("serve"):
    from starlette.requests import ClientDisconnect, Request


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body of at most `limit` bytes. Raises `Problem`, and `ClientGone`."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            return await _bounded_body(request, limit)
    except TimeoutError:
        message = f"the request's body did not arrive within {BODY_TIMEOUT} s"
        raise Problem(408, "slow_body", message, headers={"Connection": "close"}) from None
    except ClientDisconnect:
        raise ClientGone from None


async def _bounded_body(request: Request, limit: int) -> bytes:
    message = f"the body is larger than {limit:,} bytes: send less, or raise --max-body of the server"
    too_large = Problem(413, "too_large", message, headers={"Connection": "close"})
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > limit:
        raise too_large
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise too_large
    return bytes(body)
