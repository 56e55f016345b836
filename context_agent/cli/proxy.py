"""`ctx1 proxy`: any agent's conversations, pruned on their way to its model server."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, ClassVar

from context_agent.cli import output
from context_agent.cli.command import COUNT, COUNT_OR_ZERO, SECONDS, Json, NumberRange, Option, command, essential
from context_agent.cli.options import PruneOptions
from context_agent.cli.serve import INTERRUPTED, LOOPBACK, PORT, HostOption, LogLevel, is_loopback, start_logs
from context_agent.errors import ConfigError

SAMPLE = (
    {"role": "assistant", "tool_calls": [{"id": "sample", "function": {"name": "sample", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "sample", "content": "sample"},
)
"""A conversation to load the tokenizer with before the first request comes."""


@dataclass(frozen=True, slots=True)
class ProxyCapacityOptions:
    """The limits of a proxy; the names are those of the server's `Settings`."""

    SECTION: ClassVar[str] = "Capacity"

    concurrency: Annotated[int, Option("Number of requests at the same time.", COUNT)] = 128
    queue: Annotated[int, Option("Number of requests that may wait.", COUNT_OR_ZERO)] = 128
    max_connections: Annotated[
        int, Option("Maximum number of HTTP connections; beyond it, the one idle for longest is closed.", COUNT)
    ] = 512
    max_body: Annotated[int, Option("Maximum size of a request.", COUNT, "BYTES")] = 32_000_000
    deadline: Annotated[float, Option("Maximum time in the queue.", SECONDS)] = 120.0
    grace: Annotated[float, Option("On shutdown, time for answers to end.", NumberRange(0), "SECONDS")] = 30.0


@essential("upstream host port open_access budget strategy effort log_level")
@command
def proxy(
    *,
    upstream: Annotated[str, Option("Address of the model server, e.g. https://api.openai.com.", metavar="URL")],
    pruning: PruneOptions,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, Option("Port; 0 for any free port.", PORT, section="Network")] = 8323,
    open_access: Annotated[bool, Option("Relay the requests of other machines.", flag="--no-token", section="Network")],
    hosts: Annotated[
        tuple[str, ...],
        Option(
            "Host name that clients may use for this proxy in the Host header; repeatable.",
            metavar="NAME",
            flag="--allow-host",
            default="on loopback, the names of loopback; else any",
            section="Network",
        ),
    ] = (),
    capacity: ProxyCapacityOptions,
    pause: Annotated[float, Option("Maximum silence of the model server.", SECONDS, section="Capacity")] = 600.0,
    log_level: LogLevel = "info",
    as_json: Json,
) -> int:
    """Prune the conversations of any agent on their way to its model.

    Point the agent's base URL at the proxy. Conversations sent to /v1/chat/completions, /v1/responses and /v1/messages
    lose what no longer matters in their tool results; all other requests, keys and streams pass through unchanged.
    """
    from context_agent.integrations.pruning import ConversationPruners
    from context_agent.integrations.server.proxy import Proxy, proxy_application
    from context_agent.integrations.server.service import Settings
    from context_agent.integrations.server.transport import serve

    local = is_loopback(host)
    if not (local or open_access):
        raise ConfigError(f"other machines can reach {host}: pass --no-token to relay what they send")
    start_logs(log_level)
    settings = Settings(hosts=(*LOOPBACK, *hosts) if hosts or local else (), **asdict(capacity))
    relay = Proxy(upstream, ConversationPruners(pruning.open), settings, pause=pause)
    pruning.open().prune(SAMPLE)

    def ready(url: str) -> None:
        if as_json:
            output.print_json({"url": url, "upstream": relay.upstream})
        else:
            output.note(f"proxy for {relay.upstream} at {url}; press Ctrl-C to stop")

    return INTERRUPTED if serve(relay, proxy_application(relay), host, port, ready, dated=False) else 0
