"""Calls between the workers of a server, over Unix sockets in a folder that only their user can open.

Some objects must exist in only one process, such as the memory of a pruned conversation. One worker owns such an
object, and the other workers call the owner. A call is a connection with one JSON value in each direction. A
caller that no longer waits closes the connection, which cancels the call.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from context_agent.errors import ConfigError, reason_of
from context_agent.integrations.server.errors import INTERNAL_ERROR, Problem
from context_agent.integrations.server.json_encoding import encode
from context_agent.integrations.server.logs import REQUEST_ID, log

CALL_QUEUE = 128
"""Calls of other workers that may wait in the kernel."""
SIZE_BYTES = 8
"""The bytes before a request that state its size."""
Handler = Callable[[Any], Awaitable[Any]]
"""A function that answers a request of another worker. Both are JSON values. It may raise `Problem`."""


class WorkerPeers:
    """The workers of a server, from the point of view of one of them. Only one event loop may use the object."""

    def __init__(self, number: int = 0, addresses: Sequence[str] = (), listener: socket.socket | None = None) -> None:
        """Join the workers of a server. Without addresses, this worker is the only one.

        Args:
            number: The number of this worker.
            addresses: The socket addresses of all workers, by number.
            listener: The socket on which this worker receives calls.
        """
        self.number = number
        self.handlers: dict[str, Handler] = {}
        """The calls that this worker answers, by name."""
        self._addresses, self._listener = tuple(addresses), listener

    @property
    def count(self) -> int:
        """The number of workers, including this one."""
        return max(1, len(self._addresses))

    def owner(self, digest: bytes) -> int:
        """Return the number of the worker that owns the object with this digest."""
        return int.from_bytes(digest, "big") % self.count

    async def call(self, worker: int, name: str, request: Any, *, seconds: float) -> Any:
        """Return the answer of a worker's handler.

        If the worker has died, the call waits for the process that replaces it.

        Raises:
            Problem: If the handler raises it. If no answer arrives within `seconds`, the status is 503.
        """
        if worker == self.number:
            return await self.handlers[name](request)
        try:
            async with asyncio.timeout(seconds):
                reply = await _exchange(self._addresses[worker], [name, REQUEST_ID.get(), request])
        except (OSError, ValueError):  # A time-out is an OSError; a worker that dies leaves an incomplete value.
            message = "the server process that holds this conversation ended or is overloaded. Try again."
            raise Problem(503, "worker_unavailable", message, headers={"Retry-After": "1"}) from None
        if "problem" in reply:
            raise Problem(**reply["problem"])
        return reply["answer"]

    async def call_all(self, name: str, request: Any, *, seconds: float) -> list[Any]:
        """Return the answers of all workers, ordered by number.

        If a worker raises `Problem`, its answer is left out.
        """

        async def answer(worker: int) -> list[Any]:
            with suppress(Problem):
                return [await self.call(worker, name, request, seconds=seconds)]
            return []

        return [item for items in await asyncio.gather(*map(answer, range(self.count))) for item in items]

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Answer the calls of the other workers while the block runs."""
        if self._listener is None:
            yield
            return
        # `start_unix_server` would remove the socket's file at the end, which the next process of this worker needs.
        server = await asyncio.start_server(self._answer, sock=self._listener)
        try:
            yield
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A caller that died sends an incomplete value.
        with closing(writer), suppress(OSError, ValueError, EOFError):
            size = int.from_bytes(await reader.readexactly(SIZE_BYTES), "big")
            name, request_id, request = json.loads(await reader.readexactly(size))
            REQUEST_ID.set(request_id)
            replying = asyncio.create_task(self._reply(name, request))
            leaving = asyncio.create_task(reader.read())
            try:
                await asyncio.wait((replying, leaving), return_when=asyncio.FIRST_COMPLETED)
                if replying.done():
                    writer.write(encode(replying.result()))
                    await writer.drain()
            finally:
                replying.cancel()
                leaving.cancel()

    async def _reply(self, name: str, request: Any) -> dict[str, Any]:
        try:
            return {"answer": await self.handlers[name](request)}
        except Problem as problem:
            return {"problem": asdict(problem)}
        except Exception as error:  # noqa: BLE001 (the caller answers its client; the stack trace is here)
            log("unexpected", logging.ERROR, error=error)
            return {"problem": asdict(INTERNAL_ERROR)}


async def _exchange(address: str, request: Any) -> Any:
    """Send a JSON value, and return the one that comes back. If it is incomplete, raise `ValueError`."""
    reader, writer = await asyncio.open_unix_connection(address)
    with closing(writer):
        content = encode(request)
        writer.write(len(content).to_bytes(SIZE_BYTES, "big") + content)
        return json.loads(await reader.read())


def call_listeners(count: int, stack: ExitStack) -> list[socket.socket]:
    """Return a Unix socket for each worker, in a new folder that the stack removes.

    Raises:
        ConfigError: If no folder for temporary files is writable, or if its path is too long for a socket.
    """
    try:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="ctx1-")))
    except OSError as error:
        raise ConfigError(
            "--workers needs a folder for the sockets of the workers, and no folder for temporary files is writable "
            f"({reason_of(error)}). Set TMPDIR to a folder that is writable."
        ) from error
    listeners = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in range(count)]
    for number, listener in enumerate(listeners):
        try:
            listener.bind(str(folder / str(number)))
        except OSError as error:
            raise ConfigError(
                f"cannot make a socket in {folder} ({reason_of(error)}). Set TMPDIR to a folder with a short path."
            ) from error
        listener.listen(CALL_QUEUE)
    return listeners
