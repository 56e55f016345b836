"""Connections of httpx on which a server sent more than its answer."""

from __future__ import annotations

from typing import Any

import httpx


async def close_unread(transport: httpx.AsyncBaseTransport) -> None:
    """Close the idle connections of a transport on which the server sent more than its answer.

    httpcore 1.0 keeps such bytes, and would read them as the answer to the next request. A caller that then sends its
    request at once gets a connection without such bytes.
    """
    # A transport of another kind, such as one for tests, has no pool.
    pool = getattr(transport, "_pool", None)
    while pool and (unread := [connection for connection in pool.connections if _has_unread_bytes(connection)]):
        for connection in unread:
            await connection.aclose()


def _has_unread_bytes(connection: Any) -> bool:
    """Return whether an idle connection of httpcore has read bytes that belong to no answer."""
    if connection.is_closed() or not connection.is_idle():
        return False
    # A connection through a proxy is around another one. httpcore has no public way to what h11 has read.
    while not hasattr(connection, "_h11_state"):
        connection = connection._connection  # noqa: SLF001
    return bool(connection._h11_state.trailing_data[0])  # noqa: SLF001
