"""The command `ctx1 serve`, which serves the agent over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from context_agent.cli import INTERRUPTED
from context_agent.cli.agent_options import AgentOptions
from context_agent.cli.index_options import CorpusOptions
from context_agent.cli.parameters import COUNT, FOLDER, PORT, CommonOptions, essential, section
from context_agent.cli.server_options import (
    AccessOptions,
    CapacityOptions,
    HostOption,
    LogLevel,
    OtelOption,
    ServedIndex,
    announce_server,
    server_observers,
    start_logs,
)
from context_agent.integrations.server.origins import LOOPBACK_NAMES, is_loopback

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from context_agent.integrations.server.service import Service
    from context_agent.integrations.server.settings import Settings
    from context_agent.integrations.server.supervisor import ServerWorker
    from context_agent.integrations.server.worker_calls import WorkerPeers


@essential("host port token_env workers save path url collection embedder effort")
def serve(
    *,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, PORT, Parameter(group=section("Network"))] = 8321,
    access: AccessOptions = AccessOptions(),
    workers: Annotated[int, COUNT, Parameter(group=section("Capacity"))] = 1,
    capacity: CapacityOptions = CapacityOptions(),
    max_body: Annotated[int, COUNT, Parameter(metavar="BYTES", group=section("Capacity"))] = 1_000_000,
    cache: Annotated[Path | None, FOLDER, Parameter(show_default="the user's cache folder")] = None,
    served_as: Annotated[str, Parameter(metavar="NAME")] = "context-agent",
    log_level: LogLevel = "info",
    otel: OtelOption = False,
    agent: AgentOptions = AgentOptions(),
    index: CorpusOptions = CorpusOptions(),
    common: CommonOptions = CommonOptions(),
) -> int:
    """Serve the agent over HTTP.

      POST /v1/retrieve           ranked documents, in one piece or as events
      POST /v1/chat/completions   the same for OpenAI clients, as a chat model
      POST /v1/feedback           a judgment on a search (with --save)
      POST /v1/prune              an agent's conversation, pruned or restored
      GET  /health /metrics /openapi.json

    After SIGTERM or Ctrl-C, the server refuses new requests. Running searches have --grace seconds to finish. Then they
    return their current ranking. A second signal stops them at once. Logs are JSON lines on stderr.

    Args:
        port: Port; 0 for any free port.
        workers: Number of processes that share the address and the index. Every limit applies to each of them.
        max_body: Maximum size of a request.
        cache: Folder for the local BM25 index, with --url or if the folder of --path is not writable.
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
    server = AgentServer(settings, agent, index, cache, log_level, otel)

    def announce(description: ServedIndex, url: str) -> None:
        announce_server(description, url, as_json=common.json, model=served_as)

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
class AgentServer:
    """The settings with which a process serves the agent."""

    settings: Settings
    agent: AgentOptions
    index: CorpusOptions
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
        with server_observers(otel=self.otel, log_level=self.log_level, worker=worker) as observers:
            corpus = self.index.open(cache=self.cache)
            searcher = self.agent.open(corpus, observers)
            reopen = partial(self.index.open, cache=self.cache, notes=False)
            live_index = LiveIndex(searcher, reopen, concurrent=self.index.url is not None)
            service = Service.of(searcher, self.settings, live_index)
            app = application_of(service, peers)
            served = ServedIndex(self.index.place, corpus.name, corpus.count())
            yield service, _traced(app) if self.otel else app, served

    def work(self, worker: ServerWorker) -> None:
        """Serve as one of several processes. The process ends here."""
        from context_agent.cli.app import run_guarded

        def serve() -> None:
            with self.open(worker.peers()) as (service, app, description):
                worker.serve(service, app, description)

        sys.exit(run_guarded(serve, debug="--debug" in sys.argv))


def _traced(app: Any) -> Any:
    from context_agent.integrations.otel import with_remote_traces

    return with_remote_traces(app)
