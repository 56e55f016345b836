"""The token budget of an episode: its window, the two thresholds in it, and the size of a call's results."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from context_agent.errors import ConfigError

WINDOW = 32_768
"""Tokens; the published system's example window."""
RESERVE = 64
"""Tokens kept free after every action, so that its results and the usage line have room."""
RESERVES = 8
"""The smallest window in reserves. The usage line has 3/4 of a reserve."""


class Tier(StrEnum):
    """How full the view is."""

    OPEN = "open"
    """Below the soft threshold: every tool is accepted."""
    SOFT = "soft"
    """At or above it: the policy is advised to prune or finish."""
    HARD = "hard"
    """At or above the hard cutoff: only edits and finishing are accepted."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Sizes in tokens. By default soft = T/2, hard = 3T/4 and per_call = T/8 of the window T (published baseline).

    `reserve` is kept free after every action. A harness with short messages needs less, and so allows smaller windows.
    """

    window: int = WINDOW
    soft: int = 0
    hard: int = 0
    per_call: int = 0
    reserve: int = RESERVE

    def __post_init__(self) -> None:
        for name, default in (
            ("soft", self.window // 2),
            ("hard", self.window * 3 // 4),
            ("per_call", self.window // 8),
        ):
            if not getattr(self, name):
                object.__setattr__(self, name, default)
        if self.reserve < 1:
            raise ConfigError(f"the reserve must be at least 1 token; got {self.reserve}")
        least = RESERVES * self.reserve
        if self.window < least:
            raise ConfigError(f"a window of {self.window} tokens is too small: it needs at least {least}")
        if not 0 < self.soft <= self.hard < self.window - self.reserve:
            raise ConfigError(
                f"thresholds must obey 0 < soft <= hard < window - {self.reserve}; got soft={self.soft}, "
                f"hard={self.hard}, window={self.window}"
            )
        if not 0 < self.per_call <= self.hard:
            raise ConfigError(f"per_call must lie in 1..hard ({self.hard}); got {self.per_call}")

    def resized(self, window: int) -> Budget:
        """A budget with a window of that many tokens, the same reserve, and the default thresholds.

        A call may show as much as before, or up to the hard cutoff if that is less. Raises `ConfigError` for a window
        that is too small for the reserve.
        """
        return Budget(window, per_call=min(self.per_call, window * 3 // 4), reserve=self.reserve)

    def tier(self, tokens: int) -> Tier:
        """The tier of a view of that many tokens."""
        if tokens >= self.hard:
            return Tier.HARD
        return Tier.SOFT if tokens >= self.soft else Tier.OPEN
