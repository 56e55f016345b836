"""A ledger of model calls that keeps their cost below a spending cap.

The ledger reserves room for a call before the call is sent. The reservation is an upper bound: a prompt has at most as
many tokens as the request has bytes, and the request limits the reply. So the cap is never exceeded, even if many calls
run at once. When a call returns, its actual tokens replace the reservation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from context_agent.errors import ConfigError
from context_agent.synth_data.stages import StageHalted

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class TokenPrices:
    """The prices of a million input tokens and a million output tokens, in the currency of the cap."""

    input: float = 0.0
    output: float = 0.0

    def cost(self, prompt: int, completion: int) -> float:
        """Return the cost of this many tokens."""
        return (prompt * self.input + completion * self.output) / MILLION


@dataclass(frozen=True, slots=True)
class SpendingCap:
    """The most that all runs with the same reply cache may spend together. None means no limit.

    Attributes:
        cost: The largest cost, in the currency of the prices.
        tokens: The largest number of input and output tokens.
        calls: The largest number of calls.
    """

    cost: float | None = None
    tokens: int | None = None
    calls: int | None = None


class CapReached(StageHalted):
    """The error for a call that could exceed the spending cap."""


@dataclass(slots=True, eq=False)
class SpendingClaim:
    """The tokens that are reserved for a call. `settle` replaces the upper bound with the actual numbers.

    Two claims of equal size are different claims, because a ledger finds the one that ends by identity.
    """

    prompt: int
    completion: int
    calls: int = 0

    def settle(self, prompt: int, completion: int) -> None:
        """Set the numbers of tokens that the call used."""
        self.prompt, self.completion, self.calls = prompt, completion, 1


class CostLedger:
    """The tokens that finished calls used, and those that are reserved for calls in progress.

    Use a ledger in one event loop only.
    """

    def __init__(self, prices: TokenPrices | None = None, cap: SpendingCap | None = None) -> None:
        """Create an empty ledger.

        Raises:
            ConfigError: If a number is negative, or if a cap on cost comes without prices.
        """
        self.prices = prices or TokenPrices()
        self.cap = cap or SpendingCap()
        amounts = (self.prices.input, self.prices.output, self.cap.cost or 0, self.cap.tokens or 0, self.cap.calls or 0)
        if min(amounts) < 0:
            raise ConfigError(f"prices and caps must not be negative; got {self.prices} and {self.cap}")
        if self.cap.cost is not None and not (self.prices.input or self.prices.output):
            raise ConfigError(
                "a cap on cost needs prices. Pass the price of a million input tokens with --price-in, and the price "
                "of a million output tokens with --price-out."
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
        """Add a call of an earlier run."""
        self._enter(SpendingClaim(prompt, completion, calls=1))

    @asynccontextmanager
    async def reserve(self, prompt: int, completion: int) -> AsyncIterator[SpendingClaim]:
        """Reserve room for a call of at most this many tokens, and yield the claim.

        If calls in progress hold the room, wait for them. If a claim is not settled, the call failed, and it costs
        nothing.

        Raises:
            CapReached: If waiting cannot free enough room.
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
            # This comes before any await, so that a cancelled call leaves no claim behind.
            self._claims.remove(claim)
            if claim.calls:
                self._enter(claim)
            async with self._changed:
                self._changed.notify_all()

    def to_json(self) -> dict[str, Any]:
        """Return the totals for a report. If there are prices, the totals include `cost`."""
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
