"""What the calls to a model have cost, and the cap that no call may pass.

Room for a call is claimed before it is sent, by an estimate that it cannot exceed: a token of the prompt is at least a
byte of the request, and the reply is bounded by the request's own limit. So the cap holds however many calls run at
once. What a call really took replaces its claim when it returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from context_agent.errors import ConfigError
from context_agent.synth_data.stages import Halted

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Prices:
    """Money for a million tokens, in whatever currency the cap is in."""

    input: float = 0.0
    output: float = 0.0

    def cost(self, prompt: int, completion: int) -> float:
        """What so many tokens cost."""
        return (prompt * self.input + completion * self.output) / MILLION


@dataclass(frozen=True, slots=True)
class Cap:
    """The most that may be spent, over all runs that share a cache of replies. None stands for no bound."""

    cost: float | None = None
    tokens: int | None = None
    calls: int | None = None


class CapReached(Halted):
    """The next call could pass the cap."""


@dataclass(slots=True)
class Claim:
    """Room held for a call; `settle` says what it took."""

    prompt: int
    completion: int
    calls: int = 0

    def settle(self, prompt: int, completion: int) -> None:
        """Puts what the call took in the place of the estimate."""
        self.prompt, self.completion, self.calls = prompt, completion, 1


class Ledger:
    """The sum of all calls, and the claims of those under way. For the tasks of one event loop."""

    def __init__(self, prices: Prices | None = None, cap: Cap | None = None) -> None:
        """Raises `ConfigError` for negative figures, and for a cap on cost where nothing has a price."""
        self.prices = prices or Prices()
        self.cap = cap or Cap()
        figures = (self.prices.input, self.prices.output, self.cap.cost or 0, self.cap.tokens or 0, self.cap.calls or 0)
        if min(figures) < 0:
            raise ConfigError(f"prices and caps cannot be negative; got {figures}")
        if self.cap.cost is not None and not (self.prices.input or self.prices.output):
            raise ConfigError("a cap on cost needs prices: name what a million input and output tokens cost")
        self.calls = self.prompt = self.completion = 0
        self.reused = 0
        """Replies taken from the cache in this run."""
        self._claims: list[Claim] = []
        self._changed = asyncio.Condition()

    @property
    def cost(self) -> float:
        """What the settled calls have cost."""
        return self.prices.cost(self.prompt, self.completion)

    def add(self, prompt: int, completion: int) -> None:
        """Enters a call of an earlier run."""
        self._enter(Claim(prompt, completion, calls=1))

    @asynccontextmanager
    async def room(self, prompt: int, completion: int) -> AsyncIterator[Claim]:
        """Room for a call of at most so many tokens.

        Waits while calls under way hold what it needs; raises `CapReached` where nothing under way could free enough.
        A claim left without `settle` costs nothing: its call failed.
        """
        claim = Claim(prompt, completion)
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
        return {**told, "cost": round(self.cost, 6)} if self.prices != Prices() else told

    def _enter(self, claim: Claim) -> None:
        self.calls += claim.calls
        self.prompt += claim.prompt
        self.completion += claim.completion

    def _fits(self, claim: Claim) -> bool:
        prompt = self.prompt + claim.prompt + sum(one.prompt for one in self._claims)
        completion = self.completion + claim.completion + sum(one.completion for one in self._claims)
        within = self.cap.tokens is None or prompt + completion <= self.cap.tokens
        within = within and (self.cap.calls is None or self.calls + len(self._claims) < self.cap.calls)
        return within and (self.cap.cost is None or self.prices.cost(prompt, completion) <= self.cap.cost)

    def _words(self, claim: Claim) -> str:
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
