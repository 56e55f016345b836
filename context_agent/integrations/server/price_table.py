"""The prices of models, by which a report estimates what pruning saved.

`prices.toml` in this folder has the prices of usual models. A file of the user replaces them.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from context_agent._support.small_files import parse_toml, read_toml
from context_agent._support.validation import explain, validate_plain
from context_agent.errors import ConfigError, reason_of

MILLION = 1_000_000
_VERSION_SUFFIX = r"(?:[-@:](?:v?\d+(?:\.\d+)*|latest|preview|exp|thinking)|\[1m\])*"
"""What may follow a model's name without changing its price. Each text matches in one way, so matching is linear."""


class ModelPrice(BaseModel):
    """The prices of a million input tokens: not cached, read from the prefix cache, and written to the cache."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0, allow_inf_nan=False)
    cached: float = Field(ge=0, allow_inf_nan=False)
    write: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    def saved(self, withheld: int, cached_lost: int) -> float:
        """Return the price of the tokens that were not sent, minus the cost of the lost cached tokens."""
        write = self.input if self.write is None else self.write
        return (withheld * self.cached - cached_lost * max(0.0, write - self.cached)) / MILLION


class PriceTable(BaseModel):
    """The prices of models in one currency. A key is the name of a model."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    currency: str = Field(default="USD", max_length=20)
    models: dict[str, ModelPrice]

    @classmethod
    def read(cls, file: Path | None = None) -> PriceTable:
        """Return the table in a TOML file. Defaults to the file of this package.

        Raises:
            ConfigError: If the file is not a valid price table.
        """
        name = "prices.toml" if file is None else str(file)
        try:
            if file is None:
                text = (files("context_agent.integrations.server") / "prices.toml").read_text(encoding="utf-8")
                return validate_plain(TypeAdapter(cls), parse_toml(text))
            return validate_plain(TypeAdapter(cls), read_toml(file))
        except OSError as error:
            raise ConfigError(
                f"cannot read the prices in {name} ({reason_of(error)}). Pass an existing TOML file with --prices."
            ) from error
        except ValidationError as error:
            raise ConfigError(
                f"{name} is not a price file ({explain(error)}). The docs of `ctx1 proxy` show a price file."
            ) from error
        except ValueError as error:
            raise ConfigError(f"{name} is not valid TOML ({error}). Correct the file.") from error

    def price(self, model: str) -> ModelPrice | None:
        """Return the price under the longest key that is the model's name. If there is none, return None.

        A provider may precede the name, and a version or a date may follow it. Any other word after it names another
        model, such as o1-mini, which often has another price. If a key ends in a version, a further part of a version
        names another model, too.
        """
        found = [name for name in self.models if re.search(_key_pattern(name.lower()), model.lower())]
        return self.models[max(found, key=len)] if found else None


def _key_pattern(key: str) -> str:
    """Return the pattern of a model's name that has the price of this key.

    Providers write 4.5 and 4-5 for the same version. A date such as 20250807 or 2025-08-07 may follow a version.
    """
    whole_version = r"(?!-\d{1,2}(?![\da-z]))" if key[-1:].isdigit() else ""
    spelled = re.sub(r"(?<=\d)(?:\.|\\-|\\\.)(?=\d)", "[.-]", re.escape(key))
    return rf"(?:^|[/.]|(?<!^ft):){spelled}{whole_version}{_VERSION_SUFFIX}$"
