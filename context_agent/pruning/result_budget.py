"""The number of tokens that the tool results of a conversation keep."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from context_agent._support.arguments import real_number
from context_agent.errors import ConfigError

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
