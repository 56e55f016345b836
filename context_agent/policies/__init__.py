"""Who decides: the policies. All act through the same view and action.

`load_policy` opens them by name, with options from flags, a run file and the environment. Explicit options override the
environment, which holds addresses and names only. A key is no option: it is read at each request from the variable that
`api_key_env` names.
"""

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

from context_agent._support.suggest import suggestion
from context_agent.errors import ConfigError
from context_agent.harness.policy import Policy

Kind = Literal["bridge", "chat", "anthropic", "tokens"]
ENVIRONMENT = {
    "base_url": "CTX1_BASE_URL",
    "model": "CTX1_MODEL",
    "api_key_env": "CTX1_API_KEY_ENV",
}
"""Options of the server policies that the environment may hold."""


def load_policy(kind: Kind | str, **options: Any) -> Policy:
    """The policy `bridge`, `chat`, `anthropic` or `tokens`. An option that is None counts as absent.

    `bridge` takes `weights`, a file, and `effort` (`careful` or `fast`); `chat` and `anthropic` take the options of
    `ChatPolicy` and `AnthropicPolicy`; `tokens` those of `policies.tokens.served`, or of `policies.tokens.local` for a
    packaged model. Raises `ConfigError` for an unknown kind, and for an unknown or invalid option.
    """
    loaders: dict[str, Callable[..., Policy]] = {
        "bridge": _bridge,
        "chat": _chat,
        "anthropic": _anthropic,
        "tokens": _tokens,
    }
    if kind not in loaders:
        raise ConfigError(f"unknown policy {kind!r}: {suggestion(kind, loaders)}")
    return loaders[kind]({name: value for name, value in options.items() if value is not None})


def default_profile(kind: str, model: str | None = None) -> str:
    """The name of the profile that a policy plays in if none is named: `lean` for a packaged model."""
    if kind != "tokens":
        return "default"
    from context_agent.policies.tokens.packaged import MODELS

    return "lean" if model in MODELS else "default"


def from_environment(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, completed from the environment."""
    variables = {name: os.environ.get(variable) for name, variable in ENVIRONMENT.items()}
    return {**{name: value for name, value in variables.items() if value}, **options}


def _bridge(options: dict[str, Any]) -> Policy:
    from context_agent.policies.bridge import BridgePolicy

    _check("bridge", options, ["weights", "effort"])
    effort = options.get("effort")
    return BridgePolicy.load(options["weights"], effort=effort) if "weights" in options else BridgePolicy(effort=effort)


def _chat(options: dict[str, Any]) -> Policy:
    from context_agent.policies.chat import ChatPolicy

    return _with_server("chat", ChatPolicy, options)


def _anthropic(options: dict[str, Any]) -> Policy:
    from context_agent.policies.chat import AnthropicPolicy

    return _with_server("anthropic", AnthropicPolicy, options)


def _tokens(options: dict[str, Any]) -> Policy:
    from context_agent.policies.tokens import local, served
    from context_agent.policies.tokens.packaged import MODELS

    if options.get("model") in MODELS and "base_url" not in options:
        _check("tokens", options, list(inspect.signature(local).parameters))
        return local(**options)
    return _with_server("tokens", served, options)


def _with_server(kind: str, policy: Callable[..., Policy], options: dict[str, Any]) -> Policy:
    _check(kind, options, list(inspect.signature(policy).parameters))
    options = from_environment(options)
    if not options.get("model"):
        raise ConfigError(f"the {kind} policy needs a model: pass --model, or set {ENVIRONMENT['model']}")
    return policy(**options)


def _check(kind: str, options: Mapping[str, Any], names: list[str]) -> None:
    for name in options:
        if name not in names:
            raise ConfigError(f"the {kind} policy has no option {name!r}: {suggestion(name, names)}")
