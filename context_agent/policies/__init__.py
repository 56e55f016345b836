"""The policies, which decide in an episode. All act through the same view and action.

`load_policy` opens a policy by name, with options from flags, a run file and the environment. The environment holds
only addresses and names, and explicit options replace them. A key is not an option. Each request reads it from the
variable that `api_key_env` names.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from context_agent._support.suggest import closest, suggestion
from context_agent.errors import ConfigError
from context_agent.harness.policy import Policy
from context_agent.harness.profile import Profile, named_profile

Kind = Literal["bridge", "hybrid", "chat", "anthropic", "tokens"]
ENVIRONMENT = {
    "base_url": "CTX1_BASE_URL",
    "model": "CTX1_MODEL",
    "api_key_env": "CTX1_API_KEY_ENV",
}
"""Options of the server policies that the environment may hold."""


def load_policy(kind: Kind | str, **options: Any) -> Policy:
    """Return the policy with this name.

    An option that is None counts as absent.

    Args:
        kind: `bridge`, `hybrid`, `chat`, `anthropic` or `tokens`.
        options: The options of the kind. `hybrid`, a single search for comparison, has no options. `bridge` has
            `weights`, a file, and `effort`. `chat` and `anthropic` have the options of `ChatPolicy` and
            `AnthropicPolicy`. For a packaged model or a folder, `tokens` has the options of `policies.tokens.local`.
            Otherwise it has the options of `policies.tokens.served`.

    Raises:
        ConfigError: If the kind or an option is unknown, or an option is not valid.
    """
    if kind not in get_args(Kind):
        raise ConfigError(f"there is no policy {kind!r}. {suggestion(kind, get_args(Kind))}")
    options = {name: value for name, value in options.items() if value is not None}
    _check(kind, options)
    if kind == "bridge":
        return _bridge(options)
    if kind == "hybrid":
        from context_agent.policies.hybrid import HybridPolicy

        return HybridPolicy()
    maker = _maker(kind, options)
    if "base_url" in inspect.signature(maker).parameters:
        options = from_environment(options)
        if not options.get("model"):
            raise ConfigError(f"the {kind} policy needs a model. Pass --model, or set {ENVIRONMENT['model']}.")
        if kind == "tokens" and "base_url" not in options:
            _check_folder(options["model"])
    return maker(**options)


def _check_folder(model: str) -> None:
    """Raise `ConfigError` if the name of a model is a path in an existing folder, but no folder has this path."""
    parent = Path(model).parent
    if parent.name and parent.is_dir():
        raise ConfigError(
            f"there is no folder {model!r} with a model. Pass the folder of a trained model, or pass --base-url for a "
            "model of this name on a server."
        )


def option_names(kind: Kind | str, options: Mapping[str, Any]) -> list[str]:
    """Return the names of the options of a policy. For `tokens`, they depend on the model among `options`."""
    if kind == "bridge":
        return ["weights", "effort"]
    if kind == "hybrid":
        return []
    return list(inspect.signature(_maker(kind, options)).parameters)


def _maker(kind: str, options: Mapping[str, Any]) -> Callable[..., Policy]:
    """Return the function that makes a policy with a language model."""
    if kind == "tokens":
        from context_agent.policies.tokens import local, served
        from context_agent.policies.tokens.packaged import MODELS

        model = options.get("model")
        in_process = model in MODELS or (isinstance(model, str) and Path(model).is_dir())
        return local if in_process and options.get("base_url") is None else served
    from context_agent.policies.chat import AnthropicPolicy, ChatPolicy

    return AnthropicPolicy if kind == "anthropic" else ChatPolicy


def default_profile(kind: str, model: str | None = None) -> Profile:
    """Return the profile that a policy uses by default. For a packaged model it is `lean`.

    For a trained model in a folder, it is the profile that the model was trained with, with the same number of hits and
    the same share of the window for the results of a call.
    """
    if kind != "tokens" or model is None:
        return named_profile("default")
    from context_agent.policies.tokens.packaged import MODELS
    from context_agent.policies.tokens.trained import trained_model

    if Path(model).is_dir():
        return trained_model(model).about.harness
    return named_profile("lean" if model in MODELS else "default")


def default_window(kind: str, model: str | None = None) -> int | None:
    """Return the window that a policy uses by default.

    For a trained model in a folder, it is the window that the model was trained with. Otherwise return None, which
    means the window of the profile.
    """
    if kind != "tokens" or model is None or not Path(model).is_dir():
        return None
    from context_agent.policies.tokens.trained import trained_model

    return trained_model(model).about.window or None


def from_environment(options: Mapping[str, Any]) -> dict[str, Any]:
    """Add missing options from the environment, and return all options."""
    variables = {name: os.environ.get(variable) for name, variable in ENVIRONMENT.items()}
    return {**{name: value for name, value in variables.items() if value}, **options}


def _bridge(options: dict[str, Any]) -> Policy:
    from context_agent.policies.bridge import BridgePolicy

    effort = options.get("effort")
    return BridgePolicy.load(options["weights"], effort=effort) if "weights" in options else BridgePolicy(effort=effort)


def _check(kind: str, options: Mapping[str, Any]) -> None:
    names = option_names(kind, options)
    for name in options:
        if name not in names:
            near = closest(name, names)
            remedy = f"Did you mean {near!r}?" if near else "Remove it, or choose another policy."
            raise ConfigError(f"the {kind} policy has no option {name!r}. {remedy}")
