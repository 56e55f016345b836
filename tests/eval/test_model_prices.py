"""The price table of a user is read, and a wrong one is refused by its field."""

from __future__ import annotations

from pathlib import Path

import pytest

from context_agent.errors import ConfigError
from context_agent.eval.model_prices import load_prices

TABLE = """
currency = "EUR"
[models.small]
prompt = 1.0
cached = 0.25
sampled = 4.0
[models."org/large"]
prompt = 2
sampled = 8
"""


def write_prices(folder: Path, text: str) -> Path:
    path = folder / "prices.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_money_sums_the_prices_of_each_kind_of_token(tmp_path: Path) -> None:
    prices = load_prices(write_prices(tmp_path, TABLE))
    small, large = prices.of("small"), prices.of("org/large")
    assert prices.currency == "EUR"
    assert small is not None
    assert large is not None
    assert small.of(prompt=1_000_000, cached=400_000, sampled=10_000) == pytest.approx(0.6 + 0.1 + 0.04)
    assert large.of(prompt=1_000_000, cached=400_000, sampled=0) == pytest.approx(2), (
        "no price for cached: the prompt's"
    )


def test_a_model_without_a_price_has_none_unless_there_is_a_row_for_all(tmp_path: Path) -> None:
    assert load_prices(write_prices(tmp_path, TABLE)).of("other") is None
    price = load_prices(write_prices(tmp_path, '[models."*"]\nprompt = 0\nsampled = 0\n')).of("other")
    assert price is not None
    assert price.of(prompt=5, cached=1, sampled=5) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[models.x]\nprompt = 1\n", "models.x.sampled"),
        ("[models.x]\nprompt = -1\nsampled = 1\n", "models.x.prompt"),
        ("[models.x]\nprompt = nan\nsampled = 1\n", "models.x.prompt"),
        ("[models.x]\nprompt = inf\nsampled = 1\n", "models.x.prompt"),
        ("[models.x]\nprompt = 1e308\nsampled = 1\n", "models.x.prompt"),
        ("[models.x]\nprompt = 1\nsampled = -1\n", "models.x.sampled"),
        ("[models.x]\nprompt = 1\nsampled = 1e308\n", "models.x.sampled"),
        ("[models.x]\nprompt = 1\nsampled = 1\ncached = 1e308\n", "models.x.cached"),
        ("[models.x]\nprompt = 1\nsampled = 1\ncached = -1\n", "models.x.cached"),
        ("valid = 2026\n[models.x]\nprompt = 1\nsampled = 1\n", "valid"),
        ("[models.x]\nprompt = 1\nsampled = 1\nbatch = 2\n", "models.x.batch"),
        ("[models.x]\nprompt = true\nsampled = 1\n", "models.x.prompt"),
        ("[models.x]\nprompt = '1'\nsampled = 1\n", "models.x.prompt"),
        ("[models.x\n", "not valid TOML"),
        ("", "models"),
    ],
)
def test_an_invalid_price_table_is_reported_with_the_field(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_prices(write_prices(tmp_path, text))


def test_a_missing_table_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the prices"):
        load_prices(tmp_path / "none.toml")
