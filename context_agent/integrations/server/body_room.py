"""The room for the bodies of requests. A server that reads many large bodies at once refuses further ones."""

from __future__ import annotations

from context_agent.integrations.server.errors import Problem

BODY_ROOM = 512_000_000
"""Bytes that the bodies of all requests may have together until their answers begin."""


class BodyRoom:
    """The bytes that a server has for the bodies of its requests. Only one event loop may use it."""

    def __init__(self, size: int) -> None:
        self.size = self.free = size


class HeldBody:
    """The part of the room that the body of one request takes."""

    def __init__(self, room: BodyRoom) -> None:
        self._room, self._held = room, 0

    def grow(self, size: int) -> None:
        """Take the room for further bytes of the body.

        Raises:
            Problem: If the bodies of all requests would have too many bytes.
        """
        if size > self._room.free:
            message = f"the bodies of all current requests have more than {self._room.size:,} bytes. Try again later."
            raise Problem(503, "too_many_bytes", message, headers={"Connection": "close", "Retry-After": "1"})
        self._room.free -= size
        self._held += size

    def release(self) -> None:
        """Give the room back. Releasing twice does nothing."""
        self._room.free += self._held
        self._held = 0
