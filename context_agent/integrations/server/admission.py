"""The queue that admits work. It has a number of slots, and a limited number of waiting places."""

from __future__ import annotations

import asyncio
from collections import deque


class QueueFull(Exception):
    """The error if every slot is in use and every waiting place is taken."""


class AdmissionQueue:
    """A queue that runs up to `slots` pieces of work at a time and lets up to `places` more wait, in order of arrival.

    Only one event loop may use it.
    """

    def __init__(self, slots: int, places: int) -> None:
        self.slots, self.places = slots, places
        self.running = 0
        self.empty = asyncio.Event()
        """Set while nothing runs. Nothing waits then either."""
        self.empty.set()
        self._waiting: deque[Ticket] = deque()

    @property
    def waiting(self) -> int:
        """The number of tickets that wait for a slot."""
        return len(self._waiting)

    def enter(self) -> Ticket:
        """Return a ticket. The caller must leave it, even after an error.

        Raises:
            QueueFull: If every slot is in use and every waiting place is taken.
        """
        ticket = Ticket(self)
        if self.running < self.slots:
            self._start(ticket)
        elif self.waiting < self.places:
            self._waiting.append(ticket)
        else:
            raise QueueFull
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Free the slot or the waiting place of a ticket. Leaving twice does nothing."""
        if ticket.left:
            return
        ticket.left = True
        if not ticket.turn.is_set():
            self._waiting.remove(ticket)
            return
        self.running -= 1
        if self._waiting:
            self._start(self._waiting.popleft())
        elif not self.running:
            self.empty.set()

    def _start(self, ticket: Ticket) -> None:
        self.running += 1
        self.empty.clear()
        ticket.turn.set()


class Ticket:
    """One piece of work in the queue. The event `turn` is set when the work may run."""

    def __init__(self, admission: AdmissionQueue) -> None:
        self.turn = asyncio.Event()
        self.left = False
        self._admission = admission

    def leave(self) -> None:
        """Free the slot or the waiting place. Leaving twice does nothing."""
        self._admission.leave(self)
