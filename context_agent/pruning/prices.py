"""The prices of cached and fresh tokens, which decide whether a prune pays."""

from __future__ import annotations

from dataclasses import dataclass

from context_agent._support.arguments import real_number
from context_agent.errors import ConfigError

MAX_RATIO = 10**12
"""The largest number of requests, and of a price for each fresh token. Beyond it, sums overflow."""


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices that decide whether a prune pays.

    Only the ratios of the prices matter. Without a prefix cache all prices are equal, and every prune pays.

    Attributes:
        fresh: The price of an input token that is not cached.
        cached: The price of a cached input token.
        turns: The number of requests still to come. Each reads the whole conversation.
        write: The price of writing a token to the cache. Defaults to the price of a fresh token. Anthropic charges 1.25
            times the fresh price for five minutes, and twice the fresh price for an hour.
        lifetime: Seconds after which an unused cache is lost. After that everything is read again, so a prune loses
            nothing.

    Raises:
        ConfigError: If `fresh` is not positive, if another number is negative, if `cached` is more than `fresh` or
            `write`, or if `turns` or the ratio of two prices is more than a trillion.
    """

    fresh: float = 1.0
    cached: float = 0.1
    turns: float = 10
    write: float | None = None
    lifetime: float = 300.0

    def __post_init__(self) -> None:
        for name in ("fresh", "cached", "turns", "write", "lifetime"):
            if name != "write" or self.write is not None:
                object.__setattr__(self, name, real_number(getattr(self, name), name))
        if not 0 <= self.cached <= self.fresh or self.fresh <= 0 or self.turns < 0:
            raise ConfigError(
                f"prices must satisfy 0 <= cached <= fresh, fresh > 0 and turns >= 0; got cached = {self.cached}, "
                f"fresh = {self.fresh}, turns = {self.turns}"
            )
        if self.writing < self.cached or self.lifetime < 0:
            raise ConfigError(
                f"prices must satisfy write >= cached and lifetime >= 0; got write = {self.writing}, lifetime = "
                f"{self.lifetime}"
            )
        if self.turns > MAX_RATIO or self.writing / MAX_RATIO > self.fresh:
            raise ConfigError(
                f"prices must satisfy turns <= 1e12 and write <= 1e12 * fresh, or their sums overflow; got turns = "
                f"{self.turns}, write = {self.writing}, fresh = {self.fresh}"
            )

    @property
    def writing(self) -> float:
        """The price of writing a token to the cache."""
        return self.fresh if self.write is None else self.write

    def savings(self, freed: int, *, cold: bool = False) -> float:
        """Return the cost that the freed tokens would have had, in fresh input tokens.

        Args:
            freed: The number of freed tokens.
            cold: True if the cache is lost. This request would then have written the tokens to it.
        """
        return freed * (self.turns * self.cached + (self.writing if cold else 0.0)) / self.fresh

    def loss(self, recomputed: int, *, cold: bool = False) -> float:
        """Return the cost of reading tokens again after their cached prefix changed, in fresh input tokens.

        Args:
            recomputed: The number of tokens to read again.
            cold: True if the cache is lost. The tokens are then read again anyway, so the loss is 0.
        """
        return 0.0 if cold else recomputed * (self.writing - self.cached) / self.fresh
