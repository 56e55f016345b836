"""The commands `ctx1 serve`, `ctx1 mcp` and `ctx1 ui`.

They serve the agent over HTTP, as tools of an MCP client, and in the browser.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from context_agent.cli import INTERRUPTED, options, output
from context_agent.cli.index import ChunkOptions, IndexRun, summary
from context_agent.cli.invocation import given_flags
from context_agent.cli.parameters import (
    COUNT,
    COUNT_OR_ZERO,
    EXISTING_FOLDER,
    FOLDER,
    NOT_NEGATIVE,
    PORT,
    SECONDS,
    CommonOptions,
    essential,
    options_in,
    section,
)
from context_agent.errors import ConfigError
from context_agent.integrations.server.origins import LOOPBACK_NAMES, check_hosts, is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from context_agent.harness.episode import Observer
    from context_agent.integrations.server.peers import WorkerPeers
    from context_agent.integrations.server.service import Service
    from context_agent.integrations.server.settings import Settings
    from context_agent.integrations.server.supervisor import ServerWorker


HostOption = Annotated[str, Parameter(help="Address to listen on.", metavar="ADDRESS", group=section("Network"))]
LogLevel = Annotated[
    Literal["info", "warning", "error"],
    Parameter(
        help="Lowest level to log: info (each request), warning or error.", metavar="LEVEL", group=section("Logs")
    ),
]
OtelOption = Annotated[
    bool,
    Parameter(
        help="Send OpenTelemetry spans, as the OTEL_... variables say. They contain texts only if "
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT is span_only.",
        group=section("Logs"),
    ),
]


@options_in("Network")
@dataclass(frozen=True, slots=True)
class AccessOptions:
    """The options that say who may call a server."""

    token_env: Annotated[str | None, Parameter(metavar="VARIABLE")] = None
    """Environment variable with the bearer token that clients must send."""
    no_token: bool = False
    """Accept requests from other machines without a token."""
    hosts: Annotated[
        tuple[str, ...],
        Parameter(
            name="--allow-host",
            metavar="NAME",
            show_default="on loopback without a token, the names of loopback; else any",
        ),
    ] = ()
    """Host name that clients may use for this server in the Host header; repeatable."""

    def __post_init__(self) -> None:
        check_hosts(self.hosts)

    def token(self, host: str) -> str | None:
        """Return the token, or None if there is none.

        Raises:
            ConfigError: If the token is empty, if `token_env` and `no_token` are both set, or if the host needs a token
                and there is none.
        """
        if self.token_env is not None and self.no_token:
            raise ConfigError("--token-env and --no-token cannot be combined. Remove one of them.")
        if self.token_env is None:
            if not (self.no_token or is_loopback(host)):
                raise ConfigError(
                    f"other machines can reach {host}. Pass --token-env VARIABLE to require a token, or --no-token."
                )
            return None
        token = os.environ.get(self.token_env, "").strip()
        if not token:
            raise ConfigError(
                f"the environment variable {self.token_env} of --token-env is empty. Store the token in it."
            )
        return token


@options_in("Capacity")
@dataclass(frozen=True, slots=True)
class CapacityOptions:
    """The limits of a server. Their names are those of its `Settings`."""

    concurrency: Annotated[int, COUNT] = 8
    """Number of searches at the same time."""
    queue: Annotated[int, COUNT_OR_ZERO] = 128
    """Number of searches that may wait."""
    max_connections: Annotated[int, COUNT] = 512
    """Maximum number of HTTP connections. Beyond it, the connection that was idle longest is closed."""
    deadline: Annotated[float, SECONDS] = 120.0
    """Maximum time of a search, including its wait in the queue."""
    grace: Annotated[float, NOT_NEGATIVE, Parameter(metavar="SECONDS")] = 30.0
    """On shutdown, time for running searches to finish."""
    check: Annotated[float, NOT_NEGATIVE, Parameter(metavar="SECONDS")] = 10.0
    """Interval of the checks for a changed index; 0 for never."""


@essential("host port token_env workers trajectories path url collection embedder effort")
def serve(
    *,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, PORT, Parameter(group=section("Network"))] = 8321,
    access: AccessOptions = AccessOptions(),
    workers: Annotated[int, COUNT, Parameter(group=section("Capacity"))] = 1,
    capacity: CapacityOptions = CapacityOptions(),
    max_body: Annotated[int, COUNT, Parameter(metavar="BYTES", group=section("Capacity"))] = 1_000_000,
    trajectories: Annotated[Path | None, FOLDER] = None,
    cache: Annotated[Path | None, FOLDER, Parameter(show_default="the user's cache folder")] = None,
    served_as: Annotated[str, Parameter(metavar="NAME")] = "context-agent",
    log_level: LogLevel = "info",
    otel: OtelOption = False,
    agent: options.AgentOptions = options.AgentOptions(),
    index: options.CorpusOptions = options.CorpusOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Serve the agent over HTTP.

      POST /v1/retrieve           ranked documents, in one piece or as events
      POST /v1/chat/completions   the same for OpenAI clients, as a chat model
      POST /v1/feedback           a judgment on a search (with --trajectories)
      POST /v1/prune              an agent's conversation, pruned or restored
      GET  /health /metrics /openapi.json

    After SIGTERM or Ctrl-C, the server refuses new requests. Running searches have --grace seconds to finish. Then they
    return their current ranking. A second signal stops them at once. Logs are JSON lines on stderr.

    Args:
        port: Port; 0 for any free port.
        workers: Number of processes that share the address and the index. Every limit applies to each of them.
        max_body: Maximum size of a request.
        trajectories: Write trajectories and judgments to this folder; the same as --save.
        cache: With --url: folder for the local BM25 index.
        served_as: Name of the agent as a chat model.
    """
    from context_agent.integrations.server.process import bind_socket, socket_url
    from context_agent.integrations.server.process import serve as run
    from context_agent.integrations.server.settings import Settings

    token = access.token(host)
    local = is_loopback(host) and token is None
    settings = Settings(
        token=token,
        hosts=(*LOOPBACK_NAMES, *access.hosts) if access.hosts or local else (),
        max_body=max_body,
        model=served_as,
        **asdict(capacity),
    )
    searcher = replace(agent, save=trajectories or agent.save)
    server = AgentServer(settings, searcher, index, cache, log_level, otel)

    def announce(description: ServedIndex, url: str) -> None:
        _announce(description, url, as_json=common.json, model=served_as)

    if workers == 1:
        with server.open() as (service, app, description):
            interrupted = run(service, app, host, port, partial(announce, description))
        return INTERRUPTED if interrupted else 0
    from context_agent.integrations.server.supervisor import ServerSupervisor

    start_logs(log_level)
    with bind_socket(host, port) as bound:
        supervisor = ServerSupervisor(server.work, workers, capacity.grace, partial(announce, url=socket_url(bound)))
        return supervisor.run(bound)


@dataclass(frozen=True, slots=True)
class ServedIndex:
    """The name and the size of a server's index, for the line that says where the server listens."""

    name: str
    chunks: int


@dataclass(frozen=True, slots=True)
class AgentServer:
    """The settings with which a process serves the agent."""

    settings: Settings
    agent: options.AgentOptions
    index: options.CorpusOptions
    cache: Path | None
    log_level: str
    otel: bool

    @contextmanager
    def open(self, peers: WorkerPeers | None = None) -> Iterator[tuple[Service, ASGIApp, ServedIndex]]:
        """Yield the service and its application on the index. `peers` are as in `application_of`."""
        from context_agent.integrations.server.app import application_of
        from context_agent.integrations.server.live_index import LiveIndex
        from context_agent.integrations.server.service import Service

        worker = None if peers is None else peers.number
        with _observers(otel=self.otel, log_level=self.log_level, worker=worker) as observers:
            corpus = self.index.open(cache=self.cache)
            searcher = self.agent.open(corpus, observers)
            reopen = partial(self.index.open, cache=self.cache, notes=False)
            live_index = LiveIndex(searcher, reopen, concurrent=self.index.url is not None)
            service = Service.of(searcher, self.settings, live_index)
            app = application_of(service, peers)
            yield service, _traced(app) if self.otel else app, ServedIndex(corpus.name, corpus.count())

    def work(self, worker: ServerWorker) -> None:
        """Serve as one of several processes. The process ends here."""
        from context_agent.cli.app import run_guarded

        def serve() -> None:
            with self.open(worker.peers()) as (service, app, description):
                worker.serve(service, app, description)

        sys.exit(run_guarded(serve, debug="--debug" in sys.argv))


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
    agent: options.AgentOptions = options.AgentOptions(),
    index: options.CorpusOptions = options.CorpusOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Serve the agent to MCP clients, over stdio or HTTP.

      retrieve   a search in several steps, which ranks documents
      search     one search
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
    with _observers(otel=otel, log_level=log_level) as observers:
        with redirect_stdout(sys.stderr):
            corpus = index.open()
            searcher = agent.open(corpus, observers)
        live_index = LiveIndex(searcher, partial(index.open, notes=False), concurrent=index.url is not None)
        service = Service.of(searcher, settings, live_index)

        def ready(url: str) -> None:
            _announce(ServedIndex(corpus.name, corpus.count()), url, as_json=common.json)

        if http:
            interrupted = serve_http(service, host, port, ready, hosts=access.hosts, origins=origins)
        else:
            interrupted = serve_stdio(service)
    if interrupted and not http:
        # The thread that reads stdin would hold up an orderly exit until the client closes it.
        os._exit(INTERRUPTED)
    return INTERRUPTED if interrupted else 0


def start_logs(level: str, worker: int | None = None) -> None:
    """Send the logs of a server, or of one of its workers, to stderr. Records below this level are left out."""
    from context_agent.integrations.server.logs import to_stream

    to_stream(level=getattr(logging, level.upper()), worker=worker)


@contextmanager
def _observers(*, otel: bool, log_level: str, worker: int | None = None) -> Iterator[tuple[Observer, ...]]:
    """Start the logs, and yield the observers for the agent. With `otel`, export spans while the block runs."""
    start_logs(log_level, worker)
    if not otel:
        yield ()
        return
    from context_agent.integrations.otel import Tracing
    from context_agent.integrations.otel_export import exporting

    with exporting():
        yield (Tracing(),)


def _traced(app: Any) -> Any:
    from context_agent.integrations.otel import with_remote_traces

    return with_remote_traces(app)


def _announce(index: ServedIndex, url: str, *, as_json: bool, **fields: str) -> None:
    """Print the address once the server listens."""
    if as_json:
        output.print_json({"url": url, "corpus": index.name, "chunks": index.chunks, **fields})
    else:
        output.note(f"{index.chunks:,} chunks of {index.name} at {url} (press Ctrl-C to stop)")


UI_HOST, UI_PORT = "127.0.0.1", 8320
"""The default address. The browser stores past questions by address, so the address should rarely change."""
GRACE_SECONDS = 2.0
"""Seconds in which a running search can finish after Ctrl-C."""
DIGEST_SIZE = 4


def ui(
    folder: Annotated[Path, EXISTING_FOLDER],
    /,
    *,
    path: Annotated[Path | None, FOLDER, Parameter(show_default="a folder in the user's cache folder")] = None,
    trajectories: Annotated[Path | None, FOLDER, Parameter(show_default="episodes, in the index's folder")] = None,
    port: Annotated[int | None, PORT, Parameter(show_default=f"{UI_PORT}, or a free one")] = None,
    no_browser: bool = False,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Index a folder and ask it questions in the browser.

    The first run indexes the folder. Later runs read only what has changed. Only this machine can reach the page, at
    http://127.0.0.1:8320. To stop the server, press Ctrl-C.

    Args:
        folder: Folder with your documents.
        path: Folder of the index.
        trajectories: Write trajectories and judgments to this folder.
        port: Port on 127.0.0.1.
        no_browser: Print the address without opening the browser.
    """
    from context_agent.agent import SearchAgent
    from context_agent.integrations.server.app import application_of
    from context_agent.integrations.server.live_index import LiveIndex
    from context_agent.integrations.server.process import serve
    from context_agent.integrations.server.service import Service
    from context_agent.integrations.server.settings import Settings

    home = _home(folder) if path is None else path
    index = options.CorpusOptions(path=home)
    changes = _update(index, folder)
    corpus = index.open()
    start_logs("error")

    def ready(url: str) -> None:
        fields = {"url": url, "chunks": corpus.count(), "index": str(home)}
        chunks = output.count(corpus.count(), "passage")
        output.result(fields, f"{changes}\n{chunks} of {folder} at {url} (press Ctrl-C to stop)", as_json=common.json)
        if not no_browser:
            # A text browser in this terminal would hold up the server.
            threading.Thread(target=_open_browser, args=(url,), daemon=True).start()

    with SearchAgent(corpus, trajectories=trajectories or home / "episodes") as agent:
        title = folder.resolve().name or str(folder)
        settings = Settings(hosts=LOOPBACK_NAMES, grace=GRACE_SECONDS, title=title)
        service = Service.of(agent, settings, LiveIndex(agent, index.open))
        serve(service, application_of(service), UI_HOST, _port(port), ready)
    output.note("stopped")
    return 0


def _update(index: options.CorpusOptions, folder: Path) -> str:
    """Bring the index up to date with the folder, and return what changed.

    Raises:
        CorpusEmptyError: If the folder has no documents.
    """
    from context_agent.retrieval.loaders import LoadOptions, load

    run = IndexRun([str(folder)], load, LoadOptions(), ChunkOptions(), index, remove_missing=True)
    try:
        indexed = run.update()
    finally:
        output.note_load_report(run.read, verbose=False)
    if indexed.warning:
        output.note(indexed.warning)
    return summary(run.read, indexed, index)


def _home(folder: Path) -> Path:
    """Return the folder of the index in the user's cache.

    It is named after the source folder, and each path has its own.
    """
    from context_agent._support.folders import cache_folder

    resolved = folder.resolve()
    name = re.sub(r"[^\w.-]+", "-", resolved.name).strip("-.")[:40] or "folder"
    digest = blake2b(str(resolved).encode(errors="surrogateescape"), digest_size=DIGEST_SIZE).hexdigest()
    return cache_folder() / "ui" / f"{name}-{digest}"


def _port(port: int | None) -> int:
    """Return the port that the user chose.

    Without a choice, return the usual port, or 0 (any free one) if it is taken.
    """
    from context_agent.integrations.server.process import bind_socket

    if port is not None:
        return port
    try:
        with bind_socket(UI_HOST, UI_PORT):
            return UI_PORT
    except ConfigError:
        return 0


def _open_browser(url: str) -> None:
    if not webbrowser.open(url):
        output.note(f"no browser can be opened. Open this address: {url}")
