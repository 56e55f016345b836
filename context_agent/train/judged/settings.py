"""Which model judges, by what, how much it may cost, and how far it is trusted: the table `[judge]` of a run's file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from context_agent.errors import ConfigError
from context_agent.synth_data.llm_stages.cached_model import SpendingCap as Cap
from context_agent.synth_data.llm_stages.cached_model import TokenPrices as Prices

SHARED = ("model", "reference", "passages", "characters", "temperature", "max_tokens", "reasoning_effort")
"""What a calibration must have in common with the judge that it vouches for, beside the rubric."""


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """`model` on the server at `base_url`; an empty one stands for no judge.

    `questions` says which are judged. The judge reads the first `passages` of a ranking, each up to so many
    `characters`, and the question's answer where `reference` is set. `rubric` is a TOML file. Prices are for a million
    tokens; one cap must be named (`max_calls`, `max_tokens_total`, `max_cost`), and holds for the whole run, resumed or
    not. After `patience` steps in a row without any verdict the run stops. `calibration` is what `ctx1 train
    judge-check` wrote; `uncalibrated` and `alone` allow a judge without one, and one that is the only gain.
    """

    model: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    questions: Literal["without_gold", "all"] = "without_gold"
    rubric: str | None = None
    reference: bool = True
    passages: int = 8
    characters: int = 1_500
    temperature: float = 0.0
    max_tokens: int = 1_024
    reasoning_effort: str | None = None
    timeout: float = 120.0
    retries: int = 2
    concurrency: int = 8
    price_in: float = 0.0
    price_out: float = 0.0
    max_calls: int | None = None
    max_tokens_total: int | None = None
    max_cost: float | None = None
    patience: int = 3
    calibration: str | None = None
    uncalibrated: bool = False
    alone: bool = False

    def __post_init__(self) -> None:
        for name in ("passages", "characters", "max_tokens", "concurrency", "patience"):
            if getattr(self, name) < 1:
                raise ConfigError(f"judge.{name} must be at least 1; got {getattr(self, name)}")
        if self.temperature < 0:
            raise ConfigError(f"judge.temperature must not be negative; got {self.temperature}")
        if self.model and self.max_calls is None and self.max_tokens_total is None and self.max_cost is None:
            raise ConfigError(
                "say what the judge may cost: judge.max_calls, judge.max_tokens_total, or judge.max_cost and prices"
            )

    @property
    def prices(self) -> Prices:
        """What a million tokens cost."""
        return Prices(self.price_in, self.price_out)

    def cap(self, ranks: int = 1) -> Cap:
        """The cap of one of so many ranks: an equal share, and at least one call or token."""
        tokens, calls = (
            None if one is None else max(1, one // ranks) for one in (self.max_tokens_total, self.max_calls)
        )
        return Cap(None if self.max_cost is None else self.max_cost / ranks, tokens, calls)
