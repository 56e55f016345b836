"""A policy by name, with options from wherever they come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError
from context_agent.policies import load_policy
from context_agent.policies.chat import ChatPolicy
from context_agent.policies.tokens import TokenPolicy


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CTX1_BASE_URL", "CTX1_MODEL", "CTX1_API_KEY_ENV"):
        monkeypatch.delenv(name, raising=False)


def chat(**options: Any) -> ChatPolicy:
    policy = load_policy("chat", **options)
    assert isinstance(policy, ChatPolicy)
    return policy


def test_options_reach_the_policy() -> None:
    policy = chat(model="m", base_url="http://h:1/v1", tools="text", temperature=0.5, timeout=None, concurrency=2)
    assert (policy.model, policy.endpoint.base_url, policy.tool_format) == ("m", "http://h:1/v1", "text")
    assert policy.sampling.temperature == 0.5
    assert policy.endpoint.timeout == 300.0


def test_the_environment_fills_in_and_what_is_given_goes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTX1_BASE_URL", "http://from-environment/v1")
    monkeypatch.setenv("CTX1_MODEL", "env-model")
    monkeypatch.setenv("CTX1_API_KEY_ENV", "OTHER_KEY")
    policy = chat(base_url=None)
    assert (policy.model, policy.endpoint.base_url) == ("env-model", "http://from-environment/v1")
    assert policy.endpoint.api_key_env == "OTHER_KEY"
    assert chat(model="given").model == "given"


def test_tokens_share_the_options_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CTX1_MODEL", "chromadb/context-1")
    policy = load_policy("tokens", temperature=0.7, timeout=9)
    assert isinstance(policy, TokenPolicy)
    assert "chromadb/context-1" in policy.name
    assert policy.temperature == 0.7


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("chta", {}, "Did you mean 'chat'"),
        ("chat", {}, "CTX1_MODEL"),
        ("chat", {"model": "m", "temprature": 1}, "Did you mean 'temperature'"),
        ("chat", {"model": "m", "weights": "x"}, "no option 'weights'"),
        ("tokens", {}, "CTX1_MODEL"),
        ("tokens", {"model": "m", "tools": "text"}, "no option 'tools'"),
        ("bridge", {"base_url": "http://h/v1"}, "no option 'base_url'"),
    ],
)
def test_what_cannot_work_is_refused(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_policy(kind, **options)


def test_the_tokens_policy_takes_the_options_of_its_renderer() -> None:
    policy = load_policy("tokens", model="m", reasoning_effort="low", parallel=True, top_p=0.5)
    assert isinstance(policy, TokenPolicy)
    with pytest.raises(ConfigError, match="Did you mean 'tokenizer'"):
        load_policy("tokens", model="m", tokeniser="m")


def test_a_model_in_a_folder_that_does_not_exist_is_not_looked_for_on_a_server(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no folder .*rewards"):
        load_policy("tokens", model=str(tmp_path / "rewards"))
    assert load_policy("tokens", model="openai/gpt-oss-20b").name
    assert load_policy("tokens", model=str(tmp_path / "rewards"), base_url="http://localhost:1/v1").name
