"""The commands `ctx1 wrap` and `ctx1 unwrap`.

`ctx1 wrap` starts a coding agent behind a proxy that prunes its conversations. `ctx1 unwrap` undoes it. Only the
environment and the command line of the agent's process change. No file is written, so nothing is left behind.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from context_agent._support.small_files import parse_json, read_json
from context_agent.cli import output
from context_agent.cli.parameters import CommonOptions, essential, section
from context_agent.cli.prune_options import PruneOptions, SavingsOptions
from context_agent.errors import ConfigError
from context_agent.integrations.server.origins import LOOPBACK_NAMES

if TYPE_CHECKING:
    from context_agent.integrations.server.proxy import Proxy
    from context_agent.integrations.server.savings import SavingsReport

GRACE_SECONDS, START_SECONDS = 2.0, 30.0
"""Seconds in which answers can end after the agent has ended, and seconds in which a proxy must start."""
WRAPPED = "CTX1_WRAPPED"
"""The environment variable that holds the values which `ctx1 wrap` replaced, as JSON."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OPENCODE_CONFIG = "OPENCODE_CONFIG_CONTENT"
"""The environment variable from which OpenCode reads settings in addition to its files."""
_WEB_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
FORWARDED = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
SIGNALED = 128
"""Number that is added to a signal's number. The sum is the exit code of a process that the signal ended."""


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


@essential("upstream budget strategy effort report prices")
def wrap(
    agent: str,
    /,
    *arguments: str,
    upstream: Annotated[
        str | None,
        Parameter(metavar="URL", show_default="the base address in the environment, else the provider's own"),
    ] = None,
    pruning: PruneOptions = PruneOptions(),
    drop_thinking: Annotated[bool, Parameter(group=section("Pruning"))] = False,
    saved: SavingsOptions = SavingsOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Start a coding agent behind a proxy that prunes its conversations.

      ctx1 wrap claude
      ctx1 wrap --budget 16000 codex -- exec "fix the failing test"
      ctx1 wrap bash

    AGENT is claude, codex, opencode, aider, gemini, goose or any command that reads OPENAI_BASE_URL, ANTHROPIC_BASE_URL
    or GOOGLE_GEMINI_BASE_URL. The proxy listens on free ports of this machine, and stops when the agent ends. The exit
    code is the agent's. No file is changed. In a wrapped shell, ctx1 unwrap AGENT starts an agent without the proxy.

    Args:
        agent: The agent's command.
        arguments: Arguments of the agent, after --.
        upstream: Address of the model server for all requests of the agent.
        drop_thinking: Go on pruning a conversation even if Anthropic's API must drop thinking that comes after a
            removed passage.
    """
    if WRAPPED in os.environ:
        raise ConfigError('this shell is behind a proxy already. Run `eval "$(ctx1 unwrap)"` first.')
    program = _program(agent)
    savings = saved.open()
    with _quiet_logs(), ExitStack() as running:
        addresses = _start_proxies(
            _servers(agent, upstream), pruning, saved, savings, running, drop_thinking=drop_thinking
        )
        variables = _variables(addresses, agent)
        environment = {
            **os.environ,
            **variables,
            WRAPPED: json.dumps({name: os.environ.get(name) for name in variables}),
        }
        code = _run([program, *_arguments(agent, addresses), *arguments], environment)
    if common.json:
        output.print_json(savings.to_json())
    elif savings.total.requests:
        for line in savings.lines():
            output.note(line)
    else:
        reason = NOT_REACHED.get(
            Path(agent).name, "the agent may read its base address elsewhere. See the agent's settings."
        )
        output.note(f"no conversation went through the proxy, because {reason}")
    return code


def unwrap(*arguments: str, common: CommonOptions = CommonOptions()) -> int:
    """Undo ctx1 wrap inside a wrapped shell.

      ctx1 unwrap claude
      eval "$(ctx1 unwrap)"

    With an agent, only that agent starts without the proxy. Otherwise, the command prints the lines that restore the
    environment of the shell. Outside a wrapped shell, nothing needs to be undone, because ctx1 wrap changes no file.

    Args:
        arguments: The agent's command, and its arguments after --.
    """
    before = _wrapped_variables()
    if arguments:
        return _run([_program(arguments[0]), *arguments[1:]], _restored(before))
    if common.json:
        output.print_json({"variables": before})
    elif before:
        for name, value in {**before, WRAPPED: None}.items():
            output.echo(f"unset {name}" if value is None else f"export {name}={shlex.quote(value)}")
    else:
        output.note("nothing is wrapped in this shell")
    return 0


def _program(command: str) -> str:
    """Return the path of a command's program.

    Raises:
        ConfigError: If there is no such program.
    """
    program = shutil.which(command)
    if program is None and os.path.dirname(command) and Path(command).is_file():  # noqa: PTH120 (./x has a folder)
        raise ConfigError(f"{command} is not executable. Pass the program that runs it, such as python {command}.")
    if program is None:
        raise ConfigError(f"there is no command {command!r}. Install it, or pass its path.")
    return program


def _wrapped_variables() -> dict[str, str | None]:
    """Return the variables that `ctx1 wrap` replaced in this shell, with the values that they had before.

    Raises:
        ConfigError: If the value of `WRAPPED` does not have this form.
    """
    try:
        before = parse_json(os.environ.get(WRAPPED, "{}"))
    except ValueError:
        before = None
    # A shell evaluates the names.
    if not isinstance(before, dict) or not all(
        _NAME.fullmatch(name) and isinstance(value, str | None) for name, value in before.items()
    ):
        raise ConfigError(f"{WRAPPED} has a value that ctx1 wrap did not write. Start a new shell.")
    return before


def _restored(before: Mapping[str, str | None]) -> dict[str, str]:
    """Return the environment as it was before `ctx1 wrap`."""
    kept = {name: value for name, value in os.environ.items() if name not in before and name != WRAPPED}
    return kept | {name: value for name, value in before.items() if value is not None}


@contextmanager
def _quiet_logs() -> Iterator[None]:
    """Keep the logs of the proxies off the terminal, because the agent uses it."""
    loggers = [logging.getLogger(name) for name in ("context_agent.server", "uvicorn")]
    before = [(logger, logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [logging.NullHandler()], False
    try:
        yield
    finally:
        for logger, handlers, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate


def _servers(agent: str, upstream: str | None) -> dict[Provider, str]:
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


def _start_proxies(
    servers: Mapping[Provider, str],
    pruning: PruneOptions,
    saved: SavingsOptions,
    savings: SavingsReport,
    running: ExitStack,
    *,
    drop_thinking: bool,
) -> dict[Provider, str]:
    """Start a proxy for each model server. Return the base address that replaces each provider's own."""
    from context_agent.integrations.conversation_pruners import ConversationPruners
    from context_agent.integrations.server.proxy import MAX_BODY, Proxy
    from context_agent.integrations.server.settings import Settings

    pruners = ConversationPruners(pruning.open)
    pruning.open()
    urls: dict[str, str] = {}
    addresses: dict[Provider, str] = {}
    for provider, address in servers.items():
        server = address.removesuffix("/v1")
        if server not in urls:
            settings = Settings(hosts=LOOPBACK_NAMES, max_body=MAX_BODY, concurrency=128, grace=GRACE_SECONDS)
            # One of them writes the report, which they share. It is the last one to stop.
            report = None if urls else saved.report
            proxy = Proxy(server, pruners, settings, savings=savings, report_file=report, drop_thinking=drop_thinking)
            urls[server] = running.enter_context(_serving(proxy))
        addresses[provider] = urls[server] + address[len(server) :]
    return addresses


@contextmanager
def _serving(proxy: Proxy) -> Iterator[str]:
    """Run a proxy in a thread, and yield its address. The proxy stops when the block ends."""
    from context_agent.integrations.server.process import ServerProcess, bind_socket, socket_url
    from context_agent.integrations.server.proxy import proxy_application

    started, servers = threading.Event(), list[ServerProcess]()
    listener = bind_socket("127.0.0.1", 0)

    def run() -> None:
        # The server belongs to the event loop of its thread.
        servers.append(ServerProcess(proxy, proxy_application(proxy), lambda _: started.set(), dated=False))
        servers[0].run(sockets=[listener])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        if not started.wait(START_SECONDS):
            raise ConfigError("the proxy does not start. Check the installation with `ctx1 doctor`.")
        yield socket_url(listener)
    finally:
        if servers:
            servers[0].handle_exit(signal.SIGTERM, None)
        thread.join(2 * GRACE_SECONDS + 1)
        listener.close()


def _variables(addresses: Mapping[Provider, str], agent: str) -> dict[str, str]:
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


def _arguments(agent: str, addresses: Mapping[Provider, str]) -> list[str]:
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


def _run(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end, and return its exit code as a shell would.

    Signals that this process receives are passed on to the command.
    """
    sys.stdout.flush()
    with subprocess.Popen(arguments, env=environment) as child:  # noqa: S603 (the user's own command)

        def forward(number: int, _: object) -> None:
            # A terminal sends Ctrl-C to the agent as well: twice would end some agents.
            if number != signal.SIGINT or not sys.stdin.isatty():
                child.send_signal(number)

        before = {number: signal.signal(number, forward) for number in FORWARDED}
        try:
            code = child.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return code if code >= 0 else SIGNALED - code
