"""Server-sent events: what an episode does, as it does it; signs of life in between; an end when the client is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Send

from context_agent.agent import Progress
from context_agent.integrations.server.answers import Answer
from context_agent.integrations.server.encoding import encode
from context_agent.pruning.view import Block
from context_agent.trajectory import Acted, Edited, Returned

T = TypeVar("T")
HEARTBEAT = b": alive\n\n"
BUFFERED = 64
"""Events of a search that wait for a slow reader."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Proxies shall neither keep a stream nor hold it back."""


class Gone(Exception):
    """The client hung up."""


class Events(StreamingResponse):
    """A response of events. When it is over `leave` is told whether all were sent, also where none was."""

    def __init__(self, events: AsyncGenerator[bytes], leave: Callable[[bool], None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers=HEADERS)
        self._events, self._leave = events, leave

    async def stream_response(self, send: Send) -> None:
        """Sends the events."""
        whole = False
        try:
            async with aclosing(self._events):
                await super().stream_response(send)
            whole = True
        finally:
            self._leave(whole)


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The outcome of the work. Where the client hangs up first the work is cancelled and `Gone` raised."""
    working, watching = asyncio.create_task(work), asyncio.create_task(_gone(request.receive))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Gone
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def beating(source: AsyncIterator[T], every: float) -> AsyncGenerator[T | None]:
    """The items of the source, and None whenever it was silent for `every` seconds. Leaving it ends the source.

    At most `BUFFERED` items wait for a reader; then the source waits, too.
    """
    queue: asyncio.Queue[tuple[T] | tuple[()]] = asyncio.Queue()
    room = asyncio.Semaphore(BUFFERED)

    async def pump() -> None:
        async for item in source:
            await room.acquire()
            queue.put_nowait((item,))

    pumping = asyncio.create_task(pump())
    pumping.add_done_callback(lambda _: queue.put_nowait(()))
    try:
        while True:
            try:
                async with asyncio.timeout(every):
                    given = await queue.get()
            except TimeoutError:
                yield None
                continue
            if not given:
                break
            room.release()
            yield given[0]
        pumping.result()
    finally:
        pumping.cancel()
        await asyncio.gather(pumping, return_exceptions=True)


def sent(event: str, data: Any) -> bytes:
    """One event as bytes."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), encode(data))


def told(progress: Progress) -> bytes | None:
    """What an episode's event is to a client; None for those that it has no use for."""
    event = progress.event
    match event:
        case Acted():
            calls = [{"name": call.name, "arguments": call.arguments} for call in event.action.calls]
            data = {"calls": calls, "tokens": event.tokens, "context_tokens": progress.view.tokens}
            return _event("turn", progress, event.turn, event.seconds, data)
        case Edited(edit=edit, cost=cost):
            names = {key: one.id for key, one in progress.view.by_key().items()}
            pruned, restored = ([names[key] for key in keys] for keys in (edit.pruned, edit.restored))
            data = {"pruned": pruned, "restored": restored, "freed": cost.freed, "recomputed": cost.recomputed}
            if edit.summaries:
                data["summaries"] = [{"id": one.id, "of": [names[key] for key in one.of]} for one in edit.summaries]
            return _event("edit", progress, event.turn, None, data)
        case Returned():
            chunks = [_chunk(one) for one in event.segments if isinstance(one, Block)]
            data = {"call": event.call, "name": event.name, "mistake": event.mistake, "chunks": chunks}
            return _event("result", progress, event.turn, event.seconds, data)
    return None


def ended(answer: Answer) -> bytes:
    """The last event: what a request without a stream is answered."""
    return sent("end", answer.to_json())


def _event(name: str, progress: Progress, turn: int, seconds: float | None, data: dict[str, Any]) -> bytes:
    timed = {} if seconds is None else {"seconds": round(seconds, 4)}
    return sent(name, {"rollout": progress.rollout, "turn": turn, **data, **timed})


def _chunk(block: Block) -> dict[str, Any]:
    return {
        "id": block.id,
        "document_id": block.document_id,
        "title": block.hit.chunk.title,
        "tokens": block.tokens,
        "rank": block.hit.rank,
    }
