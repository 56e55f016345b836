"""What `ctx1 wrap` knows of agents: which servers they ask, and what directs them to a proxy.

An agent reads the address of its model server from the environment, from its arguments or from settings in a variable.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from context_agent._support.small_files import parse_json, read_json
from context_agent.errors import ConfigError

OPENCODE_CONFIG = "OPENCODE_CONFIG_CONTENT"
"""The environment variable from which OpenCode reads settings in addition to its files."""
_WEB_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider of models.

    Attributes:
        address: The address of its API, with the path that a client's base address has.
        variables: The environment variables in which clients look for another base address.
        opencode: The provider's name in OpenCode's settings, and the path of a base address there.
        goose: The variable in which Goose looks for the host.
    """

    address: str
    variables: tuple[str, ...]
    opencode: tuple[str, str] = ("", "")
    goose: str = ""


PROVIDERS = (
    Provider(
        "https://api.anthropic.com",
        ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
        ("anthropic", "/v1"),
        "ANTHROPIC_HOST",
    ),
    Provider(
        "https://api.openai.com/v1",
        ("OPENAI_BASE_URL", "OPENAI_API_BASE", "AIDER_OPENAI_API_BASE"),
        ("openai", "/v1"),
        "OPENAI_HOST",
    ),
    Provider(
        "https://generativelanguage.googleapis.com",
        ("GOOGLE_GEMINI_BASE_URL",),
        ("google", "/v1beta"),
        "GOOGLE_HOST",
    ),
)
CHATGPT = Provider("https://chatgpt.com/backend-api/codex", ())
"""The server that answers Codex after a login with a ChatGPT plan."""
CODE_ASSIST = Provider("https://cloudcode-pa.googleapis.com", ("CODE_ASSIST_ENDPOINT",))
"""The server that answers Gemini CLI after a login with Google."""
NOT_REACHED = {
    "codex": "Codex's settings may name another model_provider. Check them.",
    "gemini": "Gemini CLI uses it only after a login with a key or with Google. Choose one with /auth, or "
    'write {"security": {"auth": {"selectedType": "gemini-api-key"}}} to ~/.gemini/settings.json.',
    "goose": "only the providers anthropic, openai and google of Goose use it. Choose one with `goose configure`.",
    "opencode": "only the providers anthropic, openai and google of OpenCode use it. Choose one of them.",
}
"""The likely reason why no request of an agent reached the proxy."""


def servers_of(agent: str, upstream: str | None) -> dict[Provider, str]:
    """Return the base address of the model server that answers the requests to each provider."""
    servers: dict[Provider, str] = {}
    providers = list(PROVIDERS)
    if _uses_chatgpt_plan(agent, upstream):
        providers.append(CHATGPT)
    if Path(agent).name == "gemini" and upstream is None:
        providers.append(CODE_ASSIST)
    for provider in providers:
        path = "/v1" if provider.address.endswith("/v1") else ""
        own = _own_address(provider, agent) if upstream is None else upstream.rstrip("/").removesuffix("/v1") + path
        servers[provider] = own.rstrip("/")
    return servers


def _own_address(provider: Provider, agent: str) -> str:
    """Return a provider's base address in the environment, or else its address.

    Raises:
        ConfigError: If a variable has an address that cannot be used.
    """
    from context_agent.integrations.server.upstream import upstream_address

    is_goose = Path(agent).name == "goose" and bool(provider.goose)
    for name in (provider.goose, *provider.variables) if is_goose else provider.variables:
        if address := os.environ.get(name, "").strip():
            try:
                upstream_address(address)
            except ConfigError as error:
                raise ConfigError(f"{name} cannot be used: {error}") from error
            has_path = name != provider.goose or not provider.address.endswith("/v1")
            return address if has_path else f"{address.rstrip('/')}/v1"
    return provider.address


def variables_of(addresses: Mapping[Provider, str], agent: str) -> dict[str, str]:
    """Return the environment variables that direct an agent to the proxies."""
    variables = {name: address for provider, address in addresses.items() for name in provider.variables}
    if Path(agent).name == "goose":
        variables |= {provider.goose: address.removesuffix("/v1") for provider, address in addresses.items()}
    variables |= _proxy_exceptions()
    if Path(agent).name == "opencode":
        variables[OPENCODE_CONFIG] = _opencode_settings(addresses, os.environ.get(OPENCODE_CONFIG, ""))
    return variables


def _proxy_exceptions() -> dict[str, str]:
    """Return the variables that keep an agent's requests to this machine away from a proxy in its environment.

    If the environment has no proxy, return nothing. Clients read the names in small or in capital letters.
    """
    if not any(os.environ.get(name) or os.environ.get(name.lower()) for name in _WEB_PROXIES):
        return {}
    own = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    hosts = own if "*" in own.split(",") else ",".join(filter(None, (own, "127.0.0.1")))
    return dict.fromkeys(("NO_PROXY", "no_proxy"), hosts)


def _opencode_settings(addresses: Mapping[Provider, str], own: str) -> str:
    """Return OpenCode's settings with the addresses of the proxies, as JSON.

    `own` are the settings in the environment.
    """
    try:
        settings = parse_json(own) if own.strip() else {}
        for provider, address in addresses.items():
            name, path = provider.opencode
            options = settings.setdefault("provider", {}).setdefault(name, {}).setdefault("options", {})
            options["baseURL"] = address.removesuffix("/v1") + path
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"{OPENCODE_CONFIG} does not contain OpenCode's settings as JSON. Unset the variable."
        ) from error
    return json.dumps(settings)


def arguments_of(agent: str, addresses: Mapping[Provider, str]) -> list[str]:
    """Return the arguments that direct an agent to the proxy.

    Only Codex needs them, because it reads no base address from the environment. Its own provider keeps its name, so
    that `codex resume` finds the session later. That provider reads no key from OPENAI_API_KEY. If there is no login,
    a provider named `ctx1` reads the key.
    """
    if Path(agent).name != "codex":
        return []
    openai = next(url for provider, url in addresses.items() if "OPENAI_BASE_URL" in provider.variables)
    if os.environ.get("CODEX_API_KEY") or _codex_login():
        return ["-c", f'openai_base_url="{addresses.get(CHATGPT, openai)}"']
    if not os.environ.get("OPENAI_API_KEY"):
        raise ConfigError("Codex has no login. Run `codex login`, or set OPENAI_API_KEY.")
    fields = {"name": "OpenAI", "base_url": openai, "env_key": "OPENAI_API_KEY", "wire_api": "responses"}
    settings = {"model_provider": "ctx1", **{f"model_providers.ctx1.{name}": value for name, value in fields.items()}}
    return [part for name, value in settings.items() for part in ("-c", f'{name}="{value}"')]


def _uses_chatgpt_plan(agent: str, upstream: str | None) -> bool:
    """Return True if the agent is Codex after a login with a ChatGPT plan, and no other server is set."""
    has_key = upstream is not None or os.environ.get("CODEX_API_KEY")
    return Path(agent).name == "codex" and not has_key and _codex_login().startswith("chatgpt")


def _codex_login() -> str:
    """Return the kind of login that Codex has stored, such as `apikey` or `chatgpt`. Without one, return ""."""
    folder = Path(os.environ.get("CODEX_HOME") or Path.home() / ".codex")
    try:
        login = read_json(folder / "auth.json")
    except (OSError, ValueError):
        return ""
    if not isinstance(login, dict) or not (login.get("OPENAI_API_KEY") or login.get("tokens")):
        return ""
    return str(login.get("auth_mode") or ("apikey" if login.get("OPENAI_API_KEY") else "chatgpt"))
