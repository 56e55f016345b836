"""The queue that admits work: a number of slots, and a bounded line of work that waits for one."""

from __future__ import annotations

import asyncio
from collections import deque


class QueueFull(Exception):
    """The queue has no room for another search."""


class AdmissionQueue:
    """Lets `slots` searches run and `queue` searches wait, first come, first served. Used from one event loop."""

    def __init__(self, slots: int, queue: int) -> None:
        self.slots, self.queue = slots, queue
        self.running = 0
        self.empty = asyncio.Event()
        """Set while nothing runs; then nothing waits either."""
        self.empty.set()
        self._queued: deque[Ticket] = deque()

    @property
    def waiting(self) -> int:
        """Tickets that wait for a slot."""
        return len(self._queued)

    def enter(self) -> Ticket:
        """Return a ticket, which must be left in any case. Raises `QueueFull`."""
        ticket = Ticket(self)
        if self.running < self.slots:
            self._start(ticket)
        elif self.waiting < self.queue:
            self._queued.append(ticket)
        else:
            raise QueueFull
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Frees the slot of the ticket, or removes it from the queue. Idempotent."""
        if ticket.left:
            return
        ticket.left = True
        if not ticket.turn.is_set():
            self._queued.remove(ticket)
            return
        self.running -= 1
        if self._queued:
            self._start(self._queued.popleft())
        elif not self.running:
            self.empty.set()

    def _start(self, ticket: Ticket) -> None:
        self.running += 1
        self.empty.clear()
        ticket.turn.set()


class Ticket:
    """An entry of the queue; `turn` is set when its search may run."""

    def __init__(self, admission: AdmissionQueue) -> None:
        self.turn = asyncio.Event()
        self.left = False
        self._admission = admission

    def leave(self) -> None:
        """See `AdmissionQueue.leave`."""
        self._admission.leave(self)
