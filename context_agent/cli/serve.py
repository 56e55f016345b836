"""`ctx1 serve`: the agent over HTTP."""

from __future__ import annotations

import ipaddress
import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from context_agent.cli import console, options
from context_agent.cli.service_options import access, capacity
from context_agent.errors import ConfigError

INTERRUPTED = 130
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Names that only this machine's programs can mean. A page in a browser that had its own name point here is told apart
by the Host header it sends."""

HELP = """Serve the agent over HTTP, until a signal ends it.

\b
  POST /v1/retrieve           ranked documents, whole or as server-sent events
  POST /v1/chat/completions   the same for OpenAI's clients, as a chat model
  POST /v1/feedback           a judgement on a search (with --trajectories)
  GET  /health /metrics /openapi.json

SIGTERM and Ctrl-C end it in good order: what is new is refused, what runs is answered, and when --grace is over, with
what it has by then. A second signal ends it at once. Logs are JSON lines on stderr.
"""


@click.command(help=HELP)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=8321, show_default=True, help="Port; 0 for any that is free."
)
@access
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which clients call the server, as their Host header says it; again for more.  "
    "[default: on loopback without a token the loopback's names, else any]",
)
@capacity
@click.option(
    "--max-body", type=click.IntRange(1), default=1_000_000, show_default=True, metavar="BYTES", help="Largest request."
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="What running searches get to end by themselves.",
)
@click.option(
    "--trajectories",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write trajectories and judgements here; the same as --save.",
)
@click.option(
    "--cache",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="With --url: where this replica keeps its BM25 index.  [default: the user's cache folder]",
)
@click.option("--served-as", default="context-agent", show_default=True, metavar="NAME", help="Name as a chat model.")
@click.option(
    "--log-level",
    type=click.Choice(["info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Least that is logged; info has a line for each request.",
)
@options.otel
@options.agent
@options.index
@options.opening
@options.common
def serve(
    *,
    host: str,
    port: int,
    token_env: str | None,
    no_token: bool,
    hosts: tuple[str, ...],
    concurrency: int,
    queue: int,
    max_connections: int,
    deadline: float,
    max_body: int,
    grace: float,
    check: float,
    trajectories: Path | None,
    cache: Path | None,
    served_as: str,
    log_level: str,
    otel: bool,
    as_json: bool,
    agent: options.AgentOptions,
    index: options.IndexOptions,
    opening: options.OpenOptions,
) -> int:
    """Serves until a signal; `HELP` is what a user reads."""
    from context_agent.integrations.server.app import application_of
    from context_agent.integrations.server.live_index import LiveIndex
    from context_agent.integrations.server.observability import to_stream
    from context_agent.integrations.server.service import Service, Settings
    from context_agent.integrations.server.transport import serve as run

    token = bearer_token(host, token_env, no_token=no_token)
    settings = Settings(
        token=token,
        hosts=(*LOOPBACK, *hosts) if hosts or (_is_loopback(host) and token is None) else (),
        concurrency=concurrency,
        queue=queue,
        max_connections=max_connections,
        deadline=deadline,
        max_body=max_body,
        grace=grace,
        check=check,
        model=served_as,
    )
    to_stream(level=getattr(logging, log_level.upper()))
    with options.observed(otel=otel) as observers:
        corpus = options.open_corpus(index, opening, cache=cache)
        searcher = options.open_agent(replace(agent, save=trajectories or agent.save), corpus, observers)
        live_index = LiveIndex(
            searcher, lambda: options.open_corpus(index, opening, cache=cache), concurrent=index.url is not None
        )

        def ready(url: str) -> None:
            if as_json:
                console.print_json({"url": url, "corpus": corpus.name, "chunks": corpus.count(), "model": served_as})
            else:
                console.note(f"ctx1 serve: {corpus.count():,} chunks of {corpus.name} at {url}; Ctrl-C ends it")

        service = Service.of(searcher, settings, live_index)
        app = application_of(service)
        interrupted = run(service, _traced(app) if otel else app, host, port, ready)
    return INTERRUPTED if interrupted else 0


def _traced(app: Any) -> Any:
    from context_agent.integrations.otel import continued

    return continued(app)


def bearer_token(host: str, variable: str | None, *, no_token: bool) -> str | None:
    """The token, None for none. Raises `ConfigError` for one that is empty, and for a host that would need one."""
    if variable is not None and no_token:
        raise ConfigError("--token-env and --no-token exclude each other")
    if variable is None:
        if not (no_token or _is_loopback(host)):
            raise ConfigError(f"others can reach {host}: name a token by --token-env, or say --no-token")
        return None
    token = os.environ.get(variable, "").strip()
    if not token:
        raise ConfigError(f"the environment variable {variable} of --token-env is empty: put the token into it")
    return token


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
