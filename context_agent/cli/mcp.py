"""The command `ctx1 mcp`, which serves the agent as tools of an MCP client."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import partial
from typing import Annotated

from cyclopts import Parameter

from context_agent.cli import INTERRUPTED
from context_agent.cli.agent_options import AgentOptions
from context_agent.cli.index_options import CorpusOptions
from context_agent.cli.invocation import given_flags
from context_agent.cli.parameters import PORT, CommonOptions, essential, section
from context_agent.cli.server_options import (
    AccessOptions,
    CapacityOptions,
    HostOption,
    LogLevel,
    OtelOption,
    ServedIndex,
    announce_server,
    server_observers,
)
from context_agent.errors import ConfigError


@essential("http host port token_env path url collection embedder effort")
def mcp(
    *,
    http: Annotated[bool, Parameter(group=section("Network"))] = False,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, PORT, Parameter(group=section("Network"))] = 8322,
    access: AccessOptions = AccessOptions(),
    origins: Annotated[tuple[str, ...], Parameter(name="--allow-origin", metavar="URL", group=section("Network"))] = (),
    capacity: CapacityOptions = CapacityOptions(),
    log_level: LogLevel = "warning",
    otel: OtelOption = False,
    agent: AgentOptions = AgentOptions(),
    index: CorpusOptions = CorpusOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Serve the agent to MCP clients, over stdio or HTTP.

      retrieve   a search in several steps, which ranks documents
      search     one hybrid search
      grep       a regular expression
      read       a document
      prune      a conversation without the tool results that no longer matter

    An MCP client starts this command itself. Over stdio the server ends when the client closes stdin. The options under
    Network, and --grace, need --http. Logs are JSON lines on stderr.

    Args:
        http: Serve streamable HTTP at /mcp instead of stdio.
        port: Port; 0 for any free port.
        origins: Origin of web pages that may call the server, e.g. https://app.example; repeatable.
    """
    over_network = ("host", "port", "hosts", "token_env", "no_token", "origins", "grace")
    if not http and (given := given_flags(*over_network)):
        raise ConfigError(f"{given[0]} is for a server over HTTP. Pass --http too, or remove {given[0]}.")
    # Over stdio, stdout is the client's from the first byte on; while it serves, the SDK sees to that.
    with redirect_stdout(sys.stderr):
        from context_agent.integrations.mcp.serving import serve_http, serve_stdio
        from context_agent.integrations.server.live_index import LiveIndex
        from context_agent.integrations.server.service import Service
        from context_agent.integrations.server.settings import Settings

    settings = Settings(token=access.token(host) if http else None, **asdict(capacity))
    with server_observers(otel=otel, log_level=log_level) as observers:
        with redirect_stdout(sys.stderr):
            corpus = index.open()
            searcher = agent.open(corpus, observers)
        live_index = LiveIndex(searcher, partial(index.open, notes=False), concurrent=index.url is not None)
        service = Service.of(searcher, settings, live_index)

        def ready(url: str) -> None:
            announce_server(ServedIndex(index.place, corpus.name, corpus.count()), url, as_json=common.json)

        if http:
            interrupted = serve_http(service, host, port, ready, hosts=access.hosts, origins=origins)
        else:
            interrupted = serve_stdio(service)
    if interrupted and not http:
        # The thread that reads stdin would hold up an orderly exit until the client closes it.
        logging.shutdown()
        os._exit(INTERRUPTED)
    return INTERRUPTED if interrupted else 0
