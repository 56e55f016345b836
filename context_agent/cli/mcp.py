"""`ctx1 mcp`: the agent and its index as tools of the Model Context Protocol."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import redirect_stdout

import click

from context_agent.cli import console, options
from context_agent.cli.serve import INTERRUPTED, bearer_token
from context_agent.cli.service_options import access, capacity

HELP = """Serve the agent to MCP clients: over stdin and stdout, or with --http at an address.

\b
  retrieve   the whole agent: a question in, ranked documents out
  search     one search       grep   a regular expression       read   a document

A client starts it by itself; it needs the command line and nothing else. Over stdio the server ends when the client
closes stdin. Logs are JSON lines on stderr.
"""


@click.command(help=HELP)
@click.option("--http", is_flag=True, help="Serve streamable HTTP, at /mcp, in place of stdio.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --http: address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8322,
    show_default=True,
    help="With --http: port; 0 for any that is free.",
)
@access
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which clients call the server, as their Host header says it; again for more.",
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="Origin of web pages that may call it, e.g. https://app.example; again for more.",
)
@capacity
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="With --http: what running searches get to end by themselves.",
)
@click.option(
    "--log-level",
    type=click.Choice(["info", "warning", "error"]),
    default="warning",
    show_default=True,
    help="Least that is logged; info has a line for each call.",
)
@options.otel
@options.agent
@options.index
@options.opening
@options.common
def mcp(
    *,
    http: bool,
    host: str,
    port: int,
    token_env: str | None,
    no_token: bool,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    concurrency: int,
    queue: int,
    max_connections: int,
    deadline: float,
    grace: float,
    check: float,
    log_level: str,
    otel: bool,
    as_json: bool,
    agent: options.AgentOptions,
    index: options.IndexOptions,
    opening: options.OpenOptions,
) -> int:
    """Serves until the client leaves or a signal comes; `HELP` is what a user reads."""
    # Over stdio, stdout is the client's from the first byte on; while it serves, the SDK sees to that.
    with redirect_stdout(sys.stderr):
        from context_agent.integrations.mcp.server import serve_http, serve_stdio
        from context_agent.integrations.server.live_index import LiveIndex
        from context_agent.integrations.server.observability import to_stream
        from context_agent.integrations.server.service import Service, Settings

    token = bearer_token(host, token_env, no_token=no_token) if http else None
    settings = Settings(
        token=token,
        concurrency=concurrency,
        queue=queue,
        max_connections=max_connections,
        deadline=deadline,
        grace=grace,
        check=check,
    )
    to_stream(level=getattr(logging, log_level.upper()))
    with options.observed(otel=otel) as observers:
        with redirect_stdout(sys.stderr):
            corpus = options.open_corpus(index, opening)
            searcher = options.open_agent(agent, corpus, observers)
        live_index = LiveIndex(searcher, lambda: options.open_corpus(index, opening), concurrent=index.url is not None)
        service = Service.of(searcher, settings, live_index)

        def ready(url: str) -> None:
            if as_json:
                console.print_json({"url": url, "corpus": corpus.name, "chunks": corpus.count()})
            else:
                console.note(f"ctx1 mcp: {corpus.count():,} chunks of {corpus.name} at {url}; Ctrl-C ends it")

        if http:
            interrupted = serve_http(service, host, port, ready, hosts=hosts, origins=origins)
        else:
            interrupted = serve_stdio(service)
    if interrupted and not http:
        # The thread that reads stdin would hold up an orderly exit until the client closes it.
        os._exit(INTERRUPTED)
    return INTERRUPTED if interrupted else 0
