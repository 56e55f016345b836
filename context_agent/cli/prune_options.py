"""Options for pruning the conversations of agents, and for the report of what it saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from context_agent.cli.parameters import EXISTING_FILE, OUTPUT_FILE, REQUESTS, SHARE, options_in

if TYPE_CHECKING:
    from context_agent.integrations.server.savings import SavingsReport
    from context_agent.pruning import ContextPruner
    from context_agent.pruning.report import Confirm, RestoredPassage


@options_in("Pruning")
@dataclass(frozen=True, slots=True)
class PruneOptions:
    """The options for pruning the conversations of agents."""

    budget: Annotated[float | str, Parameter(metavar="N")] = 8000
    """Tokens of tool results to keep, or the share of them, e.g. 25%."""
    strategy: Literal["reader", "age", "random", "bm25", "embedding", "none"] = "reader"
    """How passages are judged."""
    effort: Literal["fast", "careful", "thorough"] = "thorough"
    """How the strategy reader judges. fast compares words alone, and careful also compares short texts.

    thorough compares whole passages. It keeps the most evidence, and is slowest.
    """
    adapted: Annotated[Path | None, EXISTING_FILE, Parameter(metavar="FILE.safetensors")] = None
    """Weights for the strategy reader, as `ctx1 train pruner` writes them."""
    turns: Annotated[float, REQUESTS] = 10
    """Expected number of further requests."""
    cached_price: Annotated[float, SHARE] = 0.1
    """Price of a cached input token, as a share of the price of a fresh one. Without a cache, it is 1."""

    def open(
        self,
        confirm: Confirm | None = None,
        confirm_above: int = 0,
        on_restore: Callable[[RestoredPassage], None] | None = None,
    ) -> ContextPruner:
        """Return a pruner.

        Raises:
            ConfigError: If the budget or the file of `adapted` is invalid, or if `adapted` does not fit the strategy.
        """
        from context_agent.pruning import ContextPruner, Prices

        prices = Prices(cached=self.cached_price, turns=self.turns)
        return ContextPruner(
            int(self.budget) if isinstance(self.budget, float) and self.budget.is_integer() else self.budget,
            strategy=self.strategy,
            effort=self.effort,
            adapted=self.adapted,
            prices=prices,
            confirm=confirm,
            confirm_above=confirm_above,
            on_restore=on_restore,
            originals_only=True,
        )


@options_in("Report")
@dataclass(frozen=True, slots=True)
class SavingsOptions:
    """The file for the report of what pruning saved, and the prices of tokens."""

    report: Annotated[Path | None, OUTPUT_FILE, Parameter(metavar="FILE.json")] = None
    """Write the report of the savings to this file every minute and at the end."""
    prices: Annotated[Path | None, EXISTING_FILE, Parameter(metavar="FILE.toml")] = None
    """Prices of models. They replace the prices in the package, which become outdated."""

    def open(self) -> SavingsReport:
        """Return an empty report.

        Raises:
            ConfigError: If the file of prices cannot be read or is invalid.
        """
        from context_agent.integrations.server.price_table import PriceTable
        from context_agent.integrations.server.savings import SavingsReport

        return SavingsReport(PriceTable.read(self.prices))
