"""A model endpoint that stores every reply, never sends the same request twice, and stays below a spending cap.

Every reply is appended to a file and synced to disk before it is used. A request that has a stored reply is not sent,
so a killed run that is started again repeats only the unanswered requests and sees the same replies.

Room for a call is reserved before it is sent, by an upper bound: a prompt has at most as many tokens as the request has
bytes, and the request limits the reply. So the cap holds however many calls run at once. When a call returns, what it
used replaces its reservation.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from context_agent._support.http import BACKGROUND, Endpoint, Refusal
from context_agent._support.http_body import Events
from context_agent._support.journal import AppendLog
from context_agent._support.worker_pool import CallParent
from context_agent.errors import ConfigError, DataError, ServerError
from context_agent.policies.chat.replies import Reply, read_reply, rejected_key_message, usage_bounds
from context_agent.synth_data.stages import StageHalted

MOST_FAILURES = 8
"""Failed calls in a row, each after all its retries, that end the run: the server is down."""
MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """Price of a million input and output tokens, in the currency of the cap."""

    input: float = 0.0
    output: float = 0.0

    def cost(self, prompt: int, completion: int) -> float:
        """Return the cost of this many tokens."""
        return (prompt * self.input + completion * self.output) / MILLION


@dataclass(frozen=True, slots=True)
class SpendingCap:
    """The most that all runs with the same reply cache may spend together. None means no limit."""

    cost: float | None = None
    tokens: int | None = None
    calls: int | None = None


class CapReached(StageHalted):
    """The next call could exceed the spending cap."""


@dataclass(slots=True)
class SpendingClaim:
    """Tokens reserved for a call; `settle` replaces the bound by what it used."""

    prompt: int
    completion: int
    calls: int = 0

    def settle(self, prompt: int, completion: int) -> None:
        """Sets the tokens that the call used."""
        self.prompt, self.completion, self.calls = prompt, completion, 1


class CostLedger:
    """The tokens of all calls, and the claims of those in progress. For use in one event loop."""

    def __init__(self, prices: TokenPrices | None = None, cap: SpendingCap | None = None) -> None:
        """Raises `ConfigError` for negative numbers, and for a cap on cost without prices."""
        self.prices = prices or TokenPrices()
        self.cap = cap or SpendingCap()
        amounts = (self.prices.input, self.prices.output, self.cap.cost or 0, self.cap.tokens or 0, self.cap.calls or 0)
        if min(amounts) < 0:
            raise ConfigError(f"prices and caps must not be negative; got {amounts}")
        if self.cap.cost is not None and not (self.prices.input or self.prices.output):
            raise ConfigError(
                "a cap on cost needs prices: give the cost of a million input and output tokens (--price-in, "
                "--price-out)"
            )
        self.calls = self.prompt = self.completion = 0
        self.reused = 0
        """Replies of this run that came from the cache."""
        self._claims: list[SpendingClaim] = []
        self._changed = asyncio.Condition()

    @property
    def cost(self) -> float:
        """The cost of the finished calls."""
        return self.prices.cost(self.prompt, self.completion)

    def add(self, prompt: int, completion: int) -> None:
        """Adds a call of an earlier run."""
        self._enter(SpendingClaim(prompt, completion, calls=1))

    @asynccontextmanager
    async def reserve(self, prompt: int, completion: int) -> AsyncIterator[SpendingClaim]:
        """Reserves room for a call of at most this many tokens.

        Waits while calls in progress hold the room, and raises `CapReached` if waiting cannot free enough. A claim that
        is not settled costs nothing: its call failed.
        """
        claim = SpendingClaim(prompt, completion)
        async with self._changed:
            while not self._fits(claim):
                if not self._claims:
                    raise CapReached(self._cap_message(claim))
                await self._changed.wait()
            self._claims.append(claim)
        try:
            yield claim
        finally:
            # Before anything is awaited, so that a cancelled call leaves no claim behind.
            self._claims.remove(claim)
            if claim.calls:
                self._enter(claim)
            async with self._changed:
                self._changed.notify_all()

    def to_json(self) -> dict[str, Any]:
        """Return the totals for a report, with `cost` if there are prices."""
        totals: dict[str, Any] = {
            "calls": self.calls,
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "reused": self.reused,
        }
        return {**totals, "cost": round(self.cost, 6)} if self.prices != TokenPrices() else totals

    def _enter(self, claim: SpendingClaim) -> None:
        self.calls += claim.calls
        self.prompt += claim.prompt
        self.completion += claim.completion

    def _fits(self, claim: SpendingClaim) -> bool:
        prompt = self.prompt + claim.prompt + sum(active.prompt for active in self._claims)
        completion = self.completion + claim.completion + sum(active.completion for active in self._claims)
        within = self.cap.tokens is None or prompt + completion <= self.cap.tokens
        within = within and (self.cap.calls is None or self.calls + len(self._claims) < self.cap.calls)
        return within and (self.cap.cost is None or self.prices.cost(prompt, completion) <= self.cap.cost)

    def _cap_message(self, claim: SpendingClaim) -> str:
        calls = f"{self.calls}" if self.cap.calls is None else f"{self.calls} of {self.cap.calls:,}"
        spent = f"{self.prompt + self.completion:,} tokens in {calls} calls"
        if self.cap.cost is not None:
            spent += f" for {self.cost:.4f} of {self.cap.cost:g}"
        if self.cap.tokens is not None:
            spent += f" of {self.cap.tokens:,}"
        return (
            f"the cap is reached: {spent} are spent, and the next call could use {claim.prompt + claim.completion:,} "
            "tokens. Raise the cap and run the same command again: stored replies are not requested again"
        )


class ReplyCache:
    """Replies by request, in an append-only JSONL file that is locked while it is open."""

    def __init__(self, path: Path) -> None:
        """Reads the stored replies. Raises `DataError` if the file is damaged or another process has it open."""
        self.path = path
        self._log = AppendLog(path, busy=DataError(f"another process is using {path}: wait until it ends"))
        self._replies: dict[str, tuple[Events, int, int]] = {}
        try:
            for row in self._log.contents.records:
                self._replies[row["key"]] = (row["events"], int(row["prompt"]), int(row["completion"]))
        except (ValueError, KeyError, TypeError) as error:
            self._log.close()
            raise DataError(
                f"{path}:{len(self._replies) + 1}: not a stored reply ({error}); delete the line or the file, and its "
                "requests are sent again"
            ) from None

    def __len__(self) -> int:
        return len(self._replies)

    def token_counts(self) -> list[tuple[int, int]]:
        """Prompt and completion tokens of each stored reply."""
        return [(prompt, completion) for _, prompt, completion in self._replies.values()]

    def get(self, key: str) -> Events | None:
        """Return the reply to a request, None if there is none."""
        reply = self._replies.get(key)
        return None if reply is None else reply[0]

    def put(self, key: str, events: Events, prompt: int, completion: int) -> None:
        """Stores a reply; it is on disk when this returns."""
        self._log.append({"key": key, "prompt": prompt, "completion": completion, "events": list(events)})
        self._replies[key] = (events, prompt, completion)

    def close(self) -> None:
        """Closes the file and releases its lock."""
        self._log.close()


class CachedEndpoint(Endpoint):
    """A model server whose replies are cached, counted and capped. For use in one event loop."""

    def __init__(self, base_url: str, *, ledger: CostLedger, replies: ReplyCache, **options: Any) -> None:
        """`options` are those of `Endpoint`. The cached replies count towards the cap."""
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
        """As `Endpoint.post`, from the cache if it has the reply. Nothing is streamed here, so `show` gets nothing.

        Raises `StageHalted` if the cap is reached, the server refuses the key or the model, or the server is down.
        """
        key = request_key(path, body)
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:  # the second of two equal requests at once finds the reply of the first
            events = self._replies.get(key)
            if events is not None:
                self.ledger.reused += 1
            else:
                events = await self._fetch(key, path, body, read, until)
        return self.redact_value(read(events))

    def answer(self, request: tuple[str, Mapping[str, Any]]) -> Future[Events]:
        """Return the events of the reply to a request that `RemoteEndpoint` sent; from any thread.

        All calls are then made in one background event loop.
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
        """Raises `StageHalted` for a failure that the next row would meet again."""
        if isinstance(error, Refusal):
            if error.status in (401, 403):
                raise StageHalted(f"{self.base_url}: {rejected_key_message(error, self.api_key_env)}") from None
            if error.status in (402, 404):
                raise StageHalted(str(error)) from None
            return
        self._failures += 1
        if self._failures >= MOST_FAILURES:
            raise StageHalted(f"{self._failures} calls in a row failed, the last one with: {error}") from None


class RemoteEndpoint(Endpoint):
    """The model server as a worker process sees it: the process with the pool makes its calls, by `CachedEndpoint`.

    So one cache and one cap hold for all workers, and a row that is repeated, since its worker died, finds the replies
    that were paid. A worker needs neither the key nor a way to the server.
    """

    def __init__(self, base_url: str, *, call: CallParent, **options: Any) -> None:
        """`call` sends a request to the other process; `options` are those of `Endpoint`."""
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
        """As `CachedEndpoint.post`."""
        return read(await asyncio.wrap_future(self._call((path, dict(body)))))


def _checked_events(body: Mapping[str, Any], events: Events) -> Events:
    """Return the events. Raises `MalformedResponse` if they have no reply."""
    read_reply(events, body)
    return events


def request_key(path: str, body: Mapping[str, Any]) -> str:
    """Return the digest of a request, without the server's address."""
    text = json.dumps([path, body], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _used_tokens(reply: Reply, prompt: int) -> tuple[int, int]:
    """Tokens of prompt and reply as the server reported them, else upper bounds."""
    written = len(f"{reply.text}{reply.reasoning}{reply.calls or ''}".encode())
    return reply.usage.get("prompt_tokens", prompt), reply.usage.get("completion_tokens", written)
