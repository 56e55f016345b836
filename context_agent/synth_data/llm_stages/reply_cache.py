"""A model endpoint that stores every reply and never sends the same request twice.

It appends every reply to a file, and syncs the file to disk before the reply is used. A request with a stored reply is
not sent. So a killed run that is started again sends only the unanswered requests, and sees the same replies.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from context_agent._support.event_loops import BACKGROUND
from context_agent._support.http_body import Events
from context_agent._support.http_client import Endpoint, Refusal
from context_agent._support.journal import AppendLog
from context_agent._support.worker_pool import CallParent
from context_agent.errors import DataError, ServerError
from context_agent.policies.chat.refusals import rejected_key_message
from context_agent.policies.chat.replies import Reply, read_reply, usage_bounds
from context_agent.synth_data.llm_stages.ledger import CostLedger
from context_agent.synth_data.stages import StageHalted

MOST_FAILURES = 8
"""The number of consecutive failed calls that ends the run, because the server is then down.

A call has failed if all its retries failed.
"""


class ReplyCache:
    """Replies by request, in an append-only JSONL file that is locked while it is open."""

    def __init__(self, path: Path) -> None:
        """Open the file and read the stored replies.

        Raises:
            DataError: If the file is damaged, or if another process has it open.
        """
        self.path = path
        self._log = AppendLog(path, busy=DataError(f"another process is using {path}. Wait until it ends, or stop it."))
        self._replies: dict[str, tuple[Events, int, int]] = {}
        try:
            for row in self._log.contents.records:
                self._replies[row["key"]] = (row["events"], int(row["prompt"]), int(row["completion"]))
        except (ValueError, KeyError, TypeError) as error:
            self._log.close()
            raise DataError(
                f"{path}:{len(self._replies) + 1}: the line is not a stored reply ({error}). Delete the line or the "
                "file to send its requests again."
            ) from None

    def __len__(self) -> int:
        return len(self._replies)

    def token_counts(self) -> list[tuple[int, int]]:
        """Return the numbers of prompt and completion tokens of each stored reply."""
        return [(prompt, completion) for _, prompt, completion in self._replies.values()]

    def get(self, key: str) -> Events | None:
        """Return the stored reply to a request. If there is none, return None."""
        reply = self._replies.get(key)
        return None if reply is None else reply[0]

    def put(self, key: str, events: Events, prompt: int, completion: int) -> None:
        """Store a reply. When this returns, the reply is on disk."""
        self._log.append({"key": key, "prompt": prompt, "completion": completion, "events": list(events)})
        self._replies[key] = (events, prompt, completion)

    def close(self) -> None:
        """Close the file and release its lock."""
        self._log.close()


class CachedEndpoint(Endpoint):
    """A model server with a reply cache and a ledger, which counts and caps the calls.

    An endpoint is used in one event loop.
    """

    def __init__(self, base_url: str, *, ledger: CostLedger, replies: ReplyCache, **options: Any) -> None:
        """Create an endpoint. The cached replies count toward the cap.

        Args:
            base_url: The server's address.
            ledger: The ledger that counts and caps the calls.
            replies: The reply cache.
            options: The other options of `Endpoint`.
        """
        super().__init__(base_url, **options)
        self.ledger = ledger
        self._replies = replies
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._failures = 0
        for prompt, completion in replies.token_counts():
            ledger.add(prompt, completion)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        read: Any,
        *,
        until: float = math.inf,
        show: Callable[[Any], None] | None = None,
    ) -> Any:
        """Return the reply to a request. If the cache has the reply, no request is sent.

        The arguments are those of `Endpoint.post`. Replies are not streamed, so `show` is never called.

        Raises:
            StageHalted: If the cap is reached, if the server refuses the key or the model, or if the server is down.
        """
        key = request_key(path, body)
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:  # If two equal requests run at once, the second finds the reply of the first.
            events = self._replies.get(key)
            if events is not None:
                self.ledger.reused += 1
            else:
                events = await self._fetch(key, path, body, read, until)
        return self.redact_value(read(events))

    def answer(self, request: tuple[str, Mapping[str, Any]]) -> Future[Events]:
        """Return the events of the reply to a request that a `RemoteEndpoint` sent.

        This can be called from any thread. All calls are made in one background event loop.
        """
        path, body = request
        return BACKGROUND.submit(self.post(path, body, partial(_checked_events, body)))

    async def _fetch(self, key: str, path: str, body: Mapping[str, Any], read: Any, until: float) -> Events:
        prompt, completion = usage_bounds(body)

        def checked(events: Events) -> Events:
            read(events)  # raises `MalformedResponse` before anything is stored, so that the request is retried
            return events

        async with self.ledger.reserve(prompt, completion) as claim:
            try:
                events: Events = await super().post(path, body, checked, until=until)
            except ServerError as error:
                self._count_failure(error)
                raise
            self._failures = 0
            claim.settle(*_used_tokens(read_reply(events, body), prompt))
            self._replies.put(key, events, claim.prompt, claim.completion)
        return events

    def _count_failure(self, error: ServerError) -> None:
        """If the next row would fail in the same way, raise `StageHalted`."""
        if isinstance(error, Refusal):
            if error.status in (401, 403):
                raise StageHalted(f"{self.base_url}: {rejected_key_message(error, self.api_key_env)}") from None
            if error.status in (402, 404):
                raise StageHalted(str(error)) from None
            return
        self._failures += 1
        if self._failures >= MOST_FAILURES:
            raise StageHalted(f"{self._failures} calls in a row failed. The last error is: {error}") from None


class RemoteEndpoint(Endpoint):
    """The model server as a worker process sees it. The process with the pool makes the calls.

    That process uses a `CachedEndpoint`, so one cache and one cap hold for all workers. If a worker dies, its row is
    repeated with the replies that were already paid for. A worker needs neither the key nor access to the server.
    """

    def __init__(self, base_url: str, *, call: CallParent, **options: Any) -> None:
        """Create an endpoint of a worker process.

        Args:
            base_url: The server's address.
            call: The function that sends a request to the process with the pool.
            options: The other options of `Endpoint`.
        """
        super().__init__(base_url, **options)
        self._call = call

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        read: Any,
        *,
        until: float = math.inf,
        show: Callable[[Any], None] | None = None,
    ) -> Any:
        """Return the reply to a request, which the process with the pool sends."""
        return read(await asyncio.wrap_future(self._call((path, dict(body)))))


def _checked_events(body: Mapping[str, Any], events: Events) -> Events:
    """Check that the events contain a reply, and return them.

    Raises:
        MalformedResponse: If they contain none.
    """
    read_reply(events, body)
    return events


def request_key(path: str, body: Mapping[str, Any]) -> str:
    """Return the digest of a request. The server's address is not part of it."""
    text = json.dumps([path, body], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _used_tokens(reply: Reply, prompt: int) -> tuple[int, int]:
    """Return the numbers of prompt and reply tokens that the server reported, or else upper bounds."""
    written = len(f"{reply.text}{reply.reasoning}{reply.calls or ''}".encode())
    return reply.usage.get("prompt_tokens", prompt), reply.usage.get("completion_tokens", written)
