"""Each model has the price of its own name, and a wrong price table is refused by its field."""

from __future__ import annotations

from pathlib import Path

import pytest

from context_agent.errors import ConfigError
from context_agent.integrations.server.price_table import PriceTable


def test_a_model_is_found_by_the_longest_name_that_is_its_own() -> None:
    table = PriceTable.read()
    assert table.price("us.anthropic.claude-opus-4-5-20251101-v1:0") == table.models["claude-opus-4-5"]
    assert table.price("openai/GPT-5-mini-2025-08-07") == table.models["gpt-5-mini"]
    assert table.price("foo3") is None
    assert table.price("claude-opus-4-20250514") == table.models["claude-opus-4"]
    assert table.price("claude-opus-4-6") == table.models["claude-opus-4-6"]
    assert table.price("gpt-5.2-2025-12-11") == table.models["gpt-5.2"]
    assert table.price("gpt-5-codex") == table.models["gpt-5"]
    assert PriceTable(models={"tiny": table.models["o3"]}).price("tiny-2") == table.models["o3"]


@pytest.mark.parametrize("model", ["gpt-5.9", "gpt-55", "claude-opus-4-9", "claude-opus-4-9-20270101", "o33"])
def test_a_newer_version_has_no_price_of_an_older_one(model: str) -> None:
    assert PriceTable.read().price(model) is None


NAMES = {
    "claude-opus-4-6": "claude-opus-4-6",
    "claude-sonnet-4-6": "claude-sonnet-4-6",
    "claude-sonnet-4-6[1m]": "claude-sonnet-4-6",
    "claude-haiku-4-5-20251001": "claude-haiku-4-5",
    "claude-opus-4-5@20251101": "claude-opus-4-5",
    "global.anthropic.claude-sonnet-4-5-20250929-v1:0": "claude-sonnet-4-5",
    "vertex_ai/claude-opus-4-6@default": None,
    "anthropic/claude-opus-4.6": "claude-opus-4-6",
    "anthropic/claude-3.7-sonnet:thinking": "claude-3-7-sonnet",
    "claude-3-7-sonnet-latest": "claude-3-7-sonnet",
    "gpt-5.4-2026-03-05": "gpt-5.4",
    "gpt-5.4-pro-2026-03-05": "gpt-5.4-pro",
    "gpt-5.4-mini": "gpt-5.4-mini",
    "gpt-5.3-codex": "gpt-5.3-codex",
    "gpt-5.2-codex": "gpt-5.2-codex",
    "gpt-5.2-chat-latest": "gpt-5.2-chat",
    "gpt-5.1-codex-max": "gpt-5.1-codex-max",
    "gpt-5.1-codex-mini": "gpt-5.1-codex-mini",
    "gpt-5-search-api": None,
    "gpt-oss-120b": None,
    "gpt-4o-audio-preview": None,
    "gpt-4o-2024-05-13": "gpt-4o-2024-05-13",
    "gpt-4o-2024-08-06": "gpt-4o",
    "ft:gpt-4o-2024-08-06": None,
    "ft:gpt-4.1-mini-2025-04-14:acme::abc": None,
    "chatgpt-4o-latest": None,
    "o1-mini": None,
    "o1-mini-2024-09-12": None,
    "AIDC-AI/Marco-o1": None,
    "o1-preview-2024-09-12": "o1",
    "o3-deep-research-2025-06-26": "o3-deep-research",
    "azure/o4-mini-2025-04-16": "o4-mini",
    "models/gemini-3.1-pro-preview": "gemini-3.1-pro",
    "gemini-3-flash-preview": "gemini-3-flash",
    "gemini-2.5-flash-lite-preview-09-2025": "gemini-2.5-flash-lite",
    "gemini-2.5-flash-image": None,
    "gemini-2.5-flash-preview-tts": None,
    "deepseek/deepseek-r1-distill-o3-mini-8b": None,
}
"""Names that providers use, and the name in the table whose price they have."""


@pytest.mark.parametrize("model", NAMES)
def test_a_model_has_the_price_of_its_own_name_and_no_others(model: str) -> None:
    table = PriceTable.read()
    key = NAMES[model]
    assert table.price(model) == (None if key is None else table.models[key])


@pytest.mark.parametrize("repeated", [":1", "-v2.0:7", "@2024-05", "-latest", "[1m]"])
def test_a_long_model_name_is_compared_in_linear_time(repeated: str) -> None:
    """A pattern that reads each version in two ways would never end."""
    name = f"o1{repeated * 1_000}"
    assert PriceTable.read().price(f"{name}_") is None
    assert PriceTable.read().price(name[: name.rindex(repeated)]) == PriceTable.read().models["o1"]


def test_every_name_of_the_table_has_its_own_price() -> None:
    table = PriceTable.read()
    assert {name: table.price(name) for name in table.models} == table.models


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models = 3", "models: "),
        ('[models]\n"m" = { input = -1, cached = 0 }', "models.m.input"),
        ('[models]\n"m" = { input = nan, cached = 0 }', "models.m.input"),
        ('[models]\n"m" = { input = 1, cache = 0 }', "models.m.cache"),
        ('[models]\n"m" = { input = true, cached = 0 }', "models.m.input"),
        ('[models]\n"m" = { input = "1", cached = 0 }', "models.m.input"),
        ("models", "not valid TOML"),
    ],
)
def test_a_wrong_price_table_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "prices.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"prices\.toml") as error:
        PriceTable.read(tmp_path / "prices.toml")
    assert message in str(error.value)
