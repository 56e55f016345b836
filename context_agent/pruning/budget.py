"""Token budgets: the window of an episode with its thresholds, and the budget for another agent's tool results."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from context_agent._support.arguments import real_number, whole_number
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


_SHARE = re.compile(r"(\d{1,3}(?:\.\d{1,6})?) ?%")
_FRACTION = re.compile(r"0?\.\d{1,12}")
_COUNT = re.compile(r"\d{1,3}(?:,\d{3}){1,4}|\d{1,4}(?:_\d{3}){1,4}|\d{1,15}")


@dataclass(frozen=True, slots=True)
class PruneBudget:
    """The tokens of tool results that a conversation keeps, as a number or as a share of all tokens.

    Attributes:
        count: The number of tokens, or 0 if the budget is a share.
        share: The share of the tokens, between 0 and 1, or 0 if the budget is a number.
    """

    count: int = 0
    share: float = 0.0

    @classmethod
    def of(cls, value: object) -> PruneBudget:
        """Return the budget in the form that a user wrote.

        Args:
            value: A number of tokens (`8000`, `"8,000"`), or a share (`0.25`, `"25%"`).

        Raises:
            ConfigError: If the value is neither.
        """
        if isinstance(value, PruneBudget):
            return value
        number = _number(value)
        if isinstance(number, float) and 0 < number < 1:
            return cls(share=number)
        if number is not None and 1 <= number < math.inf and number == int(number):
            return cls(count=int(number))
        raise ConfigError(
            "the budget must be a number of tokens of at least 1, such as 8000, or a share of the tokens of tool "
            f"results, such as 0.25 or '25%'; got {value!r}"
        )

    def tokens(self, total: int) -> int:
        """Return how many tokens of tool results the conversation keeps. The number is at least 1.

        Args:
            total: The tokens of all tool results.
        """
        return self.count or max(1, int(self.share * total))

    def __str__(self) -> str:
        return f"{self.count:,} tokens" if self.count else f"{self.share:.4g} of the tokens"


def _number(value: object) -> int | float | None:
    if isinstance(value, str):
        text = value.strip()
        if share := _SHARE.fullmatch(text):
            return float(share[1]) / 100 if float(share[1]) < 100 else None
        if _COUNT.fullmatch(text):
            return int(text.replace(",", "").replace("_", ""))
        return float(text) if _FRACTION.fullmatch(text) else None
    try:
        return real_number(value, "budget")
    except ConfigError:
        return None
