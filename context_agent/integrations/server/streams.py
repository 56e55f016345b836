"""Server-sent events for the progress of a search and its answer, with heartbeats while nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any, TypeVar

from context_agent._support.extras import extra
from context_agent.agent import Progress
from context_agent.integrations.server.answers import ServedAnswer
from context_agent.integrations.server.errors import Problem
from context_agent.integrations.server.json_encoding import encode
from context_agent.pruning.view import ActionTaken, Block, EditApplied, ToolResult

with extra("serve"):
    from starlette.responses import StreamingResponse
    from starlette.types import Send


HEARTBEAT_SECONDS = 10.0
"""Seconds of silence after which a stream sends a heartbeat."""
HEARTBEAT_COMMENT = b": alive\n\n"
MAX_BUFFERED_EVENTS = 64
"""Events of a search that may wait for a slow reader."""
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Header fields that tell proxies neither to store a stream nor to buffer it."""
T = TypeVar("T")


class EventResponse(StreamingResponse):
    """A response that streams server-sent events.

    When the response ends, it calls `leave`, with True if every event was sent. It calls `leave` even if the stream
    never began.
    """

    def __init__(self, events: AsyncGenerator[bytes], leave: Callable[[bool], None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers=STREAM_HEADERS)
        self._events, self._leave = events, leave

    async def stream_response(self, send: Send) -> None:
        """Send the events."""
        complete = False
        try:
            async with aclosing(self._events):
                await super().stream_response(send)
            complete = True
        finally:
            self._leave(complete)


async def with_heartbeat(source: AsyncIterator[T], every: float) -> AsyncGenerator[T | None]:
    """Yield the items of a source, and None after each `every` seconds of silence.

    At most `MAX_BUFFERED_EVENTS` items wait for the reader. If there are more, the source waits for the reader. Closing
    the generator closes the source.
    """
    queue: asyncio.Queue[tuple[T] | tuple[()]] = asyncio.Queue()
    room = asyncio.Semaphore(MAX_BUFFERED_EVENTS)

    async def pump() -> None:
        async for item in source:
            await room.acquire()
            queue.put_nowait((item,))

    pump_task = asyncio.create_task(pump())
    pump_task.add_done_callback(lambda _: queue.put_nowait(()))
    try:
        while True:
            try:
                async with asyncio.timeout(every):
                    entry = await queue.get()
            except TimeoutError:
                yield None
                continue
            if not entry:
                break
            room.release()
            yield entry[0]
        pump_task.result()
    finally:
        pump_task.cancel()
        await asyncio.gather(pump_task, return_exceptions=True)


def search_events(item: Progress | ServedAnswer) -> Iterator[bytes]:
    """Yield the server-sent event for a step of a search or for its answer.

    If a step has no event for clients, yield nothing.
    """
    if isinstance(item, ServedAnswer):
        yield _event("end", item.to_json())
    elif (event := _progress_event(item)) is not None:
        yield event


def error_event(problem: Problem) -> bytes:
    """Return the server-sent event that ends a failed search."""
    return _event("error", problem.to_json())


def _event(name: str, data: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode(data))


def _progress_event(progress: Progress) -> bytes | None:
    event = progress.event
    match event:
        case ActionTaken():
            calls = [{"name": call.name, "arguments": call.arguments} for call in event.action.calls]
            data = {"calls": calls, "tokens": event.tokens, "context_tokens": progress.view.tokens}
            return _turn_event("turn", progress, event.turn, event.seconds, data)
        case EditApplied(edit=edit, cost=cost):
            ids = {key: block.id for key, block in progress.view.by_key().items()}
            pruned, restored = ([ids[key] for key in keys] for keys in (edit.pruned, edit.restored))
            data = {"pruned": pruned, "restored": restored, "freed": cost.freed, "recomputed": cost.recomputed}
            if edit.summaries:
                data["summaries"] = [
                    {"id": summary.id, "of": [ids[key] for key in summary.of]} for summary in edit.summaries
                ]
            return _turn_event("edit", progress, event.turn, None, data)
        case ToolResult():
            chunks = [_chunk_data(block) for block in event.segments if isinstance(block, Block)]
            data = {"call": event.call, "name": event.name, "mistake": event.mistake, "chunks": chunks}
            return _turn_event("result", progress, event.turn, event.seconds, data)
    return None


def _turn_event(name: str, progress: Progress, turn: int, seconds: float | None, data: dict[str, Any]) -> bytes:
    duration = {} if seconds is None else {"seconds": round(seconds, 4)}
    return _event(name, {"rollout": progress.rollout, "turn": turn, **data, **duration})


def _chunk_data(block: Block) -> dict[str, Any]:
    return {
        "id": block.id,
        "document_id": block.document_id,
        "title": block.hit.chunk.title,
        "tokens": block.tokens,
        "rank": block.hit.rank,
    }
