"""The size of the context window of an episode, and its thresholds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from context_agent._support.arguments import whole_number
from context_agent.errors import ConfigError

WINDOW = 32_768
"""The default window in tokens, as in the example of the Context-1 report."""
RESERVE = 64
"""Tokens that stay free after every action, so that its results and the usage line have room."""
MIN_RESERVES = 8
"""The number of reserves that the smallest window holds. The usage line takes 3/4 of a reserve."""


class Tier(StrEnum):
    """The degree to which the view fills its window."""

    OPEN = "open"
    """Below the soft threshold: every tool is accepted."""
    SOFT = "soft"
    """At or above the soft threshold: the policy is advised to prune or finish."""
    HARD = "hard"
    """At or above the hard cutoff: only edits and finishing are accepted."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The sizes that limit an episode, in tokens. The defaults follow the published baseline.

    Attributes:
        window: The context window.
        soft: The threshold from which the policy is advised to prune. Defaults to 1/2 of the window.
        hard: The threshold from which only edits and finishing are accepted. Defaults to 3/4 of the window.
        per_call: Maximum number of tokens that the result of one call may have. Defaults to 1/8 of the window.
        reserve: The number of tokens that stay free after every action. A harness with short messages needs a smaller
            reserve, and can then use smaller windows.

    Raises:
        ConfigError: If the sizes contradict each other or the window is too small for the reserve.

    Example:
        >>> budget = Budget(8_192)
        >>> budget.soft, budget.hard, budget.per_call
        (4096, 6144, 1024)
        >>> budget.tier(5_000)
        <Tier.SOFT: 'soft'>
    """

    window: int = WINDOW
    soft: int = 0
    hard: int = 0
    per_call: int = 0
    reserve: int = RESERVE

    def __post_init__(self) -> None:
        for name in ("window", "soft", "hard", "per_call", "reserve"):
            object.__setattr__(self, name, whole_number(getattr(self, name), name))
        for name, default in (
            ("soft", self.window // 2),
            ("hard", self.window * 3 // 4),
            ("per_call", self.window // 8),
        ):
            if not getattr(self, name):
                object.__setattr__(self, name, default)
        if self.reserve < 1:
            raise ConfigError(f"the reserve must be at least 1 token; got {self.reserve}")
        least = MIN_RESERVES * self.reserve
        if self.window < least:
            raise ConfigError(f"the window must be at least {least} tokens; got {self.window}")
        if not 0 < self.soft <= self.hard < self.window - self.reserve:
            raise ConfigError(
                f"thresholds must satisfy 0 < soft <= hard < window - {self.reserve}; got soft = {self.soft}, hard = "
                f"{self.hard}, window = {self.window}"
            )
        if not 0 < self.per_call <= self.hard:
            raise ConfigError(f"per_call must be from 1 to hard ({self.hard}); got {self.per_call}")

    def resized(self, window: int) -> Budget:
        """Return a budget with another window, the same reserve, and the default thresholds.

        The result of a call may be as large as before, but not larger than the hard threshold.

        Args:
            window: The new window in tokens.

        Returns:
            The new budget.

        Raises:
            ConfigError: If the window is too small for the reserve.
        """
        return Budget(window, per_call=min(self.per_call, window * 3 // 4), reserve=self.reserve)

    def tier(self, tokens: int) -> Tier:
        """Return the tier of a view.

        Args:
            tokens: The tokens of the view.
        """
        if tokens >= self.hard:
            return Tier.HARD
        return Tier.SOFT if tokens >= self.soft else Tier.OPEN
