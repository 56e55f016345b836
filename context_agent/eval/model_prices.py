"""The prices of models, for the metric `money`.

The package ships no prices for it, because they would be outdated within weeks. A price table is a TOML file with
prices per million tokens:

    currency = "USD"

    [models.my-model]
    prompt = 0.10    # tokens that the server reads for the first time
    cached = 0.02    # tokens in its prefix cache; defaults to the prompt price
    sampled = 0.40   # tokens that it writes
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from context_agent._support.small_files import read_toml
from context_agent._support.validation import explain, validate_plain
from context_agent.errors import ConfigError, reason_of

MILLION = 1_000_000
MAX_PRICE = 1e15
"""The highest price of a million tokens. The sum of a much higher one would not be finite."""
ANY_MODEL = "*"
"""The entry of a price table that applies to every model without its own entry."""


class Price(BaseModel):
    """The prices of a model, per million tokens.

    Attributes:
        prompt: The price of tokens that the server reads for the first time.
        sampled: The price of tokens that the model writes.
        cached: The price of prompt tokens in the server's prefix cache. Defaults to the price of `prompt`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: float = Field(ge=0, le=MAX_PRICE)
    sampled: float = Field(ge=0, le=MAX_PRICE)
    cached: float | None = Field(default=None, ge=0, le=MAX_PRICE)

    def of(self, *, prompt: int, cached: int, sampled: int) -> float:
        """Return the price of an episode.

        Args:
            prompt: Tokens that the server reads.
            cached: The number of prompt tokens in the server's prefix cache.
            sampled: Tokens that the model writes.
        """
        cached_price = self.prompt if self.cached is None else self.cached
        return ((prompt - cached) * self.prompt + cached * cached_price + sampled * self.sampled) / MILLION


class _PriceFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    currency: str = "USD"
    models: dict[str, Price]


@dataclass(frozen=True, slots=True)
class ModelPrices:
    """Prices by model, in one currency. The key `*` has the price of every model without its own entry."""

    models: dict[str, Price]
    currency: str = "USD"

    def of(self, model: str) -> Price | None:
        """Return the model's price. If it is unknown, return the price of `*`. If that is unknown too, return None.

        An unknown price is not a price of 0.
        """
        return self.models.get(model) or self.models.get(ANY_MODEL)


def load_prices(path: str | Path) -> ModelPrices:
    """Return the price table in a TOML file.

    Raises:
        ConfigError: If the file cannot be read or is not a price table. The message names the wrong field.
    """
    try:
        content = validate_plain(TypeAdapter(_PriceFile), read_toml(path))
    except OSError as error:
        raise ConfigError(
            f"cannot read the prices in {path} ({reason_of(error)}). Pass a TOML file that exists."
        ) from error
    except ValidationError as error:
        raise ConfigError(
            f"{path} is not a price table ({explain(error)}). A price table has `currency`, and tables [models.NAME] "
            "with `prompt`, `sampled` and optionally `cached`, in units of the currency for a million tokens."
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML ({error}). Correct the file.") from error
    return ModelPrices(content.models, content.currency)
