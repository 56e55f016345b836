"""The base of this package's servers. It admits work, and drains before a shutdown."""

from __future__ import annotations

import asyncio
import math
from contextlib import AbstractAsyncContextManager, suppress

from context_agent.harness.deadline import Deadline
from context_agent.integrations.server.admission import AdmissionQueue, QueueFull, Ticket
from context_agent.integrations.server.body_room import BODY_ROOM, BodyRoom
from context_agent.integrations.server.errors import Problem, shutting_down
from context_agent.integrations.server.logs import log
from context_agent.integrations.server.metrics import Metrics
from context_agent.integrations.server.settings import Settings

FINAL_GRACE_SECONDS = 5.0
"""The time for searches to return what they have found, after the grace period."""


class LimitedService:
    """The base of this package's servers. It has settings, metrics, an admission queue, and an orderly shutdown.

    Only one event loop may use it.
    """

    work = "requests"
    """The noun for what is admitted, in messages."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.admission = AdmissionQueue(settings.concurrency, settings.queue)
        self.bodies = BodyRoom(max(BODY_ROOM, settings.max_body))
        self.metrics = Metrics()
        self.draining = False
        self._deadlines: set[Deadline] = set()
        self._typical_seconds = 0.5

    @property
    def ready(self) -> bool:
        """True if the service accepts work."""
        return not self.draining

    def enter(self) -> Ticket:
        """Return a ticket. The caller must leave it, even after an error.

        Raises:
            Problem: If the queue is full, or if the server is shutting down.
        """
        if self.draining:
            raise shutting_down()
        try:
            return self.admission.enter()
        except QueueFull:
            running, waiting = self.admission.running, self.admission.waiting
            wait = min(60, max(1, math.ceil(self._typical_seconds * (waiting + 1) / self.admission.slots)))
            message = f"no place is free ({self.work}: {running} running, {waiting} waiting). Try again in {wait} s."
            raise Problem(429, "queue_full", message, headers={"Retry-After": str(wait)}) from None

    async def wait_for_turn(self, ticket: Ticket, limit: AbstractAsyncContextManager[object]) -> None:
        """Wait until the work of a ticket may run.

        Args:
            ticket: The ticket.
            limit: The limit of the wait. It raises `TimeoutError` in its block.

        Raises:
            Problem: If the time ends in the queue.
        """
        try:
            async with limit:
                await ticket.turn.wait()
        except TimeoutError:
            if self.draining:
                raise shutting_down() from None
            message = "the request waited too long in the queue. Try again later."
            raise Problem(503, "queue_timeout", message, headers={"Retry-After": "1"}) from None

    async def drain(self) -> None:
        """Refuse new work, and return when all admitted work is done.

        If a search still runs after the grace period, it returns its current ranking.
        """
        self.draining = True
        log("draining", running=self.admission.running, waiting=self.admission.waiting)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.grace):
                await self.admission.empty.wait()
            return
        for deadline in list(self._deadlines):
            deadline.expire()
        with suppress(TimeoutError):
            async with asyncio.timeout(FINAL_GRACE_SECONDS):
                await self.admission.empty.wait()
