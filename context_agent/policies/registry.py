"""A policy by name, with options from flags, a config file and the environment: what the command line opens.

Values given go before the environment's. The environment has addresses and names; a key is read, when a request is
sent, from the variable that `api_key_env` names, and is no option.
"""

from __future__ import annotations

import difflib
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

from context_agent.errors import ConfigError
from context_agent.harness.policy import Policy

Kind = Literal["bridge", "chat", "tokens"]
ENVIRONMENT = {
    "base_url": "CTX1_BASE_URL",
    "model": "CTX1_MODEL",
    "api_key_env": "CTX1_API_KEY_ENV",
}
"""Options of the server policies that the environment may hold."""


def load_policy(kind: Kind | str, **options: Any) -> Policy:
    """The policy `bridge`, `chat` or `tokens`; an option that is None counts as not given.

    `bridge` takes `weights`, a file; `chat` what `ChatPolicy` takes; `tokens` what `policies.tokens.served` takes.
    Raises `ConfigError` for another kind, an option that the kind does not have, or one that cannot work.
    """
    table: dict[str, Callable[[dict[str, Any]], Policy]] = {"bridge": _bridge, "chat": _chat, "tokens": _tokens}
    if kind not in table:
        raise ConfigError(f"no policy {kind!r}: choose one of {', '.join(table)}")
    return table[kind]({name: value for name, value in options.items() if value is not None})


def from_environment(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with the environment's where they are not given."""
    found = {name: os.environ[variable] for name, variable in ENVIRONMENT.items() if os.environ.get(variable)}
    return {**found, **given}


def _bridge(given: dict[str, Any]) -> Policy:
    from context_agent.policies.bridge import BridgePolicy

    _check("bridge", given, {"weights"})
    return BridgePolicy.load(given["weights"]) if "weights" in given else BridgePolicy()


def _chat(given: dict[str, Any]) -> Policy:
    from context_agent.policies.chat.policy import ChatPolicy

    _check("chat", given, _names(ChatPolicy))
    options = from_environment(given)
    return ChatPolicy(_model(options), **options)


def _tokens(given: dict[str, Any]) -> Policy:
    """A model behind vLLM: gpt-oss's format, or the chat template of the `tokenizer` named."""
    from context_agent.policies.tokens.policy import served

    _check("tokens", given, _names(served))
    options = from_environment(given)
    return served(_model(options), **options)


def _names(made: Callable[..., object]) -> set[str]:
    return set(inspect.signature(made).parameters)


def _model(options: dict[str, Any]) -> str:
    """Takes the model's name out of the options."""
    name = options.pop("model", None)
    if not name:
        raise ConfigError(f"name the model, as the server lists it: --model, or {ENVIRONMENT['model']}")
    return str(name)


def _check(kind: str, given: Mapping[str, Any], known: set[str]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; it takes {', '.join(sorted(known))}"
            raise ConfigError(f"the {kind} policy has no option {name!r}{hint}")
