"""An `Endpoint` that never pays for the same request twice, and never past the cap.

Every answer is appended to a file and synced to the disk before anybody reads it. A request that is in the file is not
sent, so a run that was killed and begun again repeats only what had no answer yet, and sees the same answers.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from context_agent.errors import ConfigError, DataError, PolicyError
from context_agent.policies import refusals
from context_agent.policies.http import Endpoint, Events, Refusal
from context_agent.policies.replies import Reply, read_reply
from context_agent.synth_data.stages import StageHalted, lock
from context_agent.synth_data.task import encode_row

T = TypeVar("T")
MOST_FAILURES = 8
"""Calls in a row that are given up, after all their retries, before the run ends: the server is gone."""
UNBOUNDED_REPLY = 32_768
"""Tokens that a reply may take at most where its request does not say."""
_LIMITS = ("max_tokens", refusals.RENAMED)


class ReplyCache:
    """Answers by request, in an append-only JSONL file. Locked while it is open."""

    def __init__(self, path: Path) -> None:
        """Reads what is there; a last line that a kill cut off is cut away.

        Raises `DataError` for another damage, and where another process has the file.
        """
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._known: dict[str, tuple[Events, int, int]] = {}
        self._stream = path.open("a+b")
        lock(self._stream, path)
        self._stream.seek(0)
        data = self._stream.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._stream.truncate(len(whole))
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                row = json.loads(line)
                self._known[row["key"]] = (row["events"], int(row["prompt"]), int(row["completion"]))
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(f"{path}:{number}: no stored reply ({error}); delete the line, or the file") from None

    def __len__(self) -> int:
        return len(self._known)

    def paid(self) -> list[tuple[int, int]]:
        """Tokens of prompt and completion of each stored answer."""
        return [(prompt, completion) for _, prompt, completion in self._known.values()]

    def get(self, key: str) -> Events | None:
        """The answer to a request, None where it has none yet."""
        found = self._known.get(key)
        return None if found is None else found[0]

    def put(self, key: str, events: Events, prompt: int, completion: int) -> None:
        """Stores an answer; it is on the disk when this returns."""
        row = {"key": key, "prompt": prompt, "completion": completion, "events": list(events)}
        self._stream.write(f"{encode_row(row)}\n".encode())
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._known[key] = (events, prompt, completion)

    def close(self) -> None:
        """Closes the file."""
        self._stream.close()


class CachedEndpoint(Endpoint):
    """A model server whose answers are kept, counted and capped. Its calls belong to one event loop."""

    def __init__(self, base_url: str, *, ledger: CostLedger, replies: ReplyCache, **patience: Any) -> None:
        """`patience` is what `Endpoint` takes. What the file holds is entered in the ledger: the cap is on the sum."""
        super().__init__(base_url, **patience)
        self.ledger = ledger
        self._replies = replies
        self._asking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._failures = 0
        for prompt, completion in replies.paid():
            ledger.add(prompt, completion)

    async def post(self, path: str, body: Mapping[str, Any], read: Any, *, until: float = math.inf) -> Any:
        """As `Endpoint.post`, from the file where it has the answer.

        Raises `Halted` when the cap is reached, when the key or the model is refused, and when the server is gone.
        """
        key = request_key(path, body)
        lock = self._asking.setdefault(key, asyncio.Lock())
        async with lock:  # of two equal requests at once, the second finds the answer of the first
            events = self._replies.get(key)
            if events is not None:
                self.ledger.reused += 1
            else:
                events = await self._pay(key, path, body, read, until)
        return read(events)

    async def _pay(self, key: str, path: str, body: Mapping[str, Any], read: Any, until: float) -> Events:
        prompt, completion = token_bounds(body)

        def checked(events: Events) -> Events:
            read(events)  # raises `Broken`, and so is asked again, before anything is stored
            return events

        async with self.ledger.room(prompt, completion) as claim:
            try:
                events: Events = await super().post(path, body, checked, until=until)
            except PolicyError as error:
                self._give_up(error)
                raise
            self._failures = 0
            claim.settle(*_used_tokens(read_reply(events), prompt))
            self._replies.put(key, events, claim.prompt, claim.completion)
        return events

    def _give_up(self, error: PolicyError) -> None:
        """Ends the run for what will not get better with the next row."""
        if isinstance(error, Refusal):
            if error.status in (401, 403):
                raise StageHalted(f"{self.base_url}: {refusals.key_words(error, self.api_key_env)}") from None
            if error.status in (402, 404):
                raise StageHalted(str(error)) from None
            return
        self._failures += 1
        if self._failures >= MOST_FAILURES:
            raise StageHalted(f"{self._failures} calls in a row failed, the last one with: {error}") from None


def request_key(path: str, body: Mapping[str, Any]) -> str:
    """The digest of a request: of all that it asks, and not of where the server stands."""
    text = json.dumps([path, body], sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def token_bounds(body: Mapping[str, Any]) -> tuple[int, int]:
    """The most tokens that a request can have, and that its reply can.

    A vocabulary spends at least a byte a token, and a chat template adds a few tokens a message, fewer than the JSON
    around it has characters.
    """
    prompt = len(json.dumps(body, ensure_ascii=False, default=str).encode(errors="replace"))
    completion = next((body[name] for name in _LIMITS if isinstance(body.get(name), int)), UNBOUNDED_REPLY)
    return prompt, completion


def _used_tokens(reply: Reply, prompt: int) -> tuple[int, int]:
    """Tokens of prompt and reply as the server reported them, else no fewer than there can be."""
    written = len(f"{reply.text}{reply.reasoning}{reply.calls or ''}".encode())
    return reply.usage.get("prompt_tokens", prompt), reply.usage.get("completion_tokens", written)


MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """Money for a million tokens, in whatever currency the cap is in."""

    input: float = 0.0
    output: float = 0.0

    def cost(self, prompt: int, completion: int) -> float:
        """What so many tokens cost."""
        return (prompt * self.input + completion * self.output) / MILLION


@dataclass(frozen=True, slots=True)
class SpendingCap:
    """The most that may be spent, over all runs that share a cache of replies. None stands for no bound."""

    cost: float | None = None
    tokens: int | None = None
    calls: int | None = None


class CapReached(StageHalted):
    """The next call could pass the cap."""


@dataclass(slots=True)
class SpendingClaim:
    """Room held for a call; `settle` says what it took."""

    prompt: int
    completion: int
    calls: int = 0

    def settle(self, prompt: int, completion: int) -> None:
        """Puts what the call took in the place of the estimate."""
        self.prompt, self.completion, self.calls = prompt, completion, 1


class CostLedger:
    """The sum of all calls, and the claims of those under way. For the tasks of one event loop."""

    def __init__(self, prices: TokenPrices | None = None, cap: SpendingCap | None = None) -> None:
        """Raises `ConfigError` for negative figures, and for a cap on cost where nothing has a price."""
        self.prices = prices or TokenPrices()
        self.cap = cap or SpendingCap()
        figures = (self.prices.input, self.prices.output, self.cap.cost or 0, self.cap.tokens or 0, self.cap.calls or 0)
        if min(figures) < 0:
            raise ConfigError(f"prices and caps cannot be negative; got {figures}")
        if self.cap.cost is not None and not (self.prices.input or self.prices.output):
            raise ConfigError("a cap on cost needs prices: name what a million input and output tokens cost")
        self.calls = self.prompt = self.completion = 0
        self.reused = 0
        """Replies taken from the cache in this run."""
        self._claims: list[SpendingClaim] = []
        self._changed = asyncio.Condition()

    @property
    def cost(self) -> float:
        """What the settled calls have cost."""
        return self.prices.cost(self.prompt, self.completion)

    def add(self, prompt: int, completion: int) -> None:
        """Enters a call of an earlier run."""
        self._enter(SpendingClaim(prompt, completion, calls=1))

    @asynccontextmanager
    async def room(self, prompt: int, completion: int) -> AsyncIterator[SpendingClaim]:
        """Room for a call of at most so many tokens.

        Waits while calls under way hold what it needs; raises `CapReached` where nothing under way could free enough.
        A claim left without `settle` costs nothing: its call failed.
        """
        claim = SpendingClaim(prompt, completion)
        async with self._changed:
            while not self._fits(claim):
                if not self._claims:
                    raise CapReached(self._words(claim))
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
        """The ledger as reports show it; `cost` is absent where nothing has a price."""
        told: dict[str, Any] = {
            "calls": self.calls,
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "reused": self.reused,
        }
        return {**told, "cost": round(self.cost, 6)} if self.prices != TokenPrices() else told

    def _enter(self, claim: SpendingClaim) -> None:
        self.calls += claim.calls
        self.prompt += claim.prompt
        self.completion += claim.completion

    def _fits(self, claim: SpendingClaim) -> bool:
        prompt = self.prompt + claim.prompt + sum(one.prompt for one in self._claims)
        completion = self.completion + claim.completion + sum(one.completion for one in self._claims)
        within = self.cap.tokens is None or prompt + completion <= self.cap.tokens
        within = within and (self.cap.calls is None or self.calls + len(self._claims) < self.cap.calls)
        return within and (self.cap.cost is None or self.prices.cost(prompt, completion) <= self.cap.cost)

    def _words(self, claim: SpendingClaim) -> str:
        calls = f"{self.calls}" if self.cap.calls is None else f"{self.calls} of {self.cap.calls:,}"
        spent = f"{self.prompt + self.completion:,} tokens in {calls} calls"
        if self.cap.cost is not None:
            spent += f" for {self.cost:.4f} of {self.cap.cost:g}"
        if self.cap.tokens is not None:
            spent += f" of {self.cap.tokens:,}"
        return (
            f"the cap is reached: {spent} are spent, and the next call could take {claim.prompt + claim.completion:,} "
            "tokens. Raise the cap and run the same command again: nothing that was paid for is asked again"
        )
