"""Work that ends when its client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from context_agent._support.extras import extra

with extra("serve"):
    from starlette.requests import Request


T = TypeVar("T")


class ClientGone(Exception):
    """The error if the client closed the connection before it received the answer."""


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work, unless the client disconnects first.

    Raises:
        ClientGone: If the client disconnected. The work is canceled.
    """
    work_task, disconnect_task = asyncio.create_task(work), asyncio.create_task(_disconnect(request.receive))
    try:
        await asyncio.wait({work_task, disconnect_task}, return_when=asyncio.FIRST_COMPLETED)
        if not work_task.done():
            raise ClientGone
        return work_task.result()
    finally:
        for task in (work_task, disconnect_task):
            task.cancel()
        await asyncio.gather(work_task, disconnect_task, return_exceptions=True)


async def _disconnect(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
