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
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from context_agent._support.small_files import parse_json
from context_agent.cli import output
from context_agent.cli.parameters import CommonOptions, essential, section
from context_agent.cli.prune_options import PruneOptions, SavingsOptions
from context_agent.cli.wrapped_agents import NOT_REACHED, Provider, arguments_of, servers_of, variables_of
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
FORWARDED = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
SIGNALED = 128
"""Number that is added to a signal's number. The sum is the exit code of a process that the signal ended."""


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
            servers_of(agent, upstream), pruning, saved, savings, running, drop_thinking=drop_thinking
        )
        variables = variables_of(addresses, agent)
        environment = {
            **os.environ,
            **variables,
            WRAPPED: json.dumps({name: os.environ.get(name) for name in variables}),
        }
        code = _run([program, *arguments_of(agent, addresses), *arguments], environment)
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
