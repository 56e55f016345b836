"""The command `ctx1 proxy`, which prunes the conversations of any agent on their way to its model server."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from context_agent.cli import INTERRUPTED, output
from context_agent.cli.confirm import TerminalConfirmation
from context_agent.cli.parameters import (
    COUNT,
    COUNT_OR_ZERO,
    NOT_NEGATIVE,
    OUTPUT_FILE,
    PORT,
    SECONDS,
    CommonOptions,
    essential,
    options_in,
    section,
)
from context_agent.cli.prune_options import PruneOptions, SavingsOptions
from context_agent.cli.server_options import HostOption, LogLevel, note_of_server, start_logs
from context_agent.errors import ConfigError
from context_agent.integrations.server.origins import LOOPBACK_NAMES, is_loopback

SAMPLE = (
    {"role": "assistant", "tool_calls": [{"id": "sample", "function": {"name": "sample", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "sample", "content": "sample"},
)
"""A conversation that loads the tokenizer before the first request comes."""


@options_in("Capacity")
@dataclass(frozen=True, slots=True)
class ProxyCapacityOptions:
    """The limits of a proxy. Their names are those of the server's `Settings`."""

    concurrency: Annotated[int, COUNT] = 128
    """Number of requests at the same time."""
    queue: Annotated[int, COUNT_OR_ZERO] = 128
    """Number of requests that may wait."""
    max_connections: Annotated[int, COUNT] = 512
    """Maximum number of HTTP connections. Beyond it, the connection that was idle longest is closed."""
    max_body: Annotated[int, COUNT, Parameter(metavar="BYTES")] = 32_000_000
    """Maximum size of a request."""
    deadline: Annotated[float, SECONDS] = 120.0
    """Maximum time in the queue."""
    grace: Annotated[float, NOT_NEGATIVE, Parameter(metavar="SECONDS")] = 30.0
    """On shutdown, time for answers to finish."""


@essential("upstream host port open_access budget strategy effort report prices log_level")
def proxy(
    *,
    upstream: Annotated[str, Parameter(metavar="URL")],
    pruning: PruneOptions = PruneOptions(),
    host: HostOption = "127.0.0.1",
    port: Annotated[int, PORT, Parameter(group=section("Network"))] = 8323,
    open_access: Annotated[bool, Parameter(name="--no-token", group=section("Network"))] = False,
    hosts: Annotated[
        tuple[str, ...],
        Parameter(
            name="--allow-host",
            metavar="NAME",
            show_default="on loopback, the names of loopback; else any",
            group=section("Network"),
        ),
    ] = (),
    origins: Annotated[tuple[str, ...], Parameter(name="--allow-origin", metavar="URL", group=section("Network"))] = (),
    capacity: ProxyCapacityOptions = ProxyCapacityOptions(),
    pause: Annotated[float, SECONDS, Parameter(group=section("Capacity"))] = 600.0,
    confirm_above: Annotated[int | None, COUNT_OR_ZERO, Parameter(group=section("Pruning"))] = None,
    drop_thinking: Annotated[bool, Parameter(group=section("Pruning"))] = False,
    restores: Annotated[Path | None, OUTPUT_FILE, Parameter(metavar="FILE.jsonl", group=section("Report"))] = None,
    saved: SavingsOptions = SavingsOptions(),
    log_level: LogLevel = "info",
    common: CommonOptions = CommonOptions(),
) -> int:
    """Prune the conversations of any agent on their way to its model.

    Point the agent's base URL at the proxy. In conversations sent to the APIs of OpenAI, Anthropic, Google, Cohere,
    Mistral, Ollama and Bedrock, the proxy removes the parts of tool results that no longer matter. All other requests,
    keys and streams pass through unchanged. The report of what was saved is at /_context/report. Its three main lines
    are printed when the proxy stops.

    Args:
        upstream: Address of the model server, e.g. https://api.openai.com.
        port: Port; 0 for any free port.
        open_access: Relay the requests of other machines.
        hosts: Host name that clients may use for this proxy in the Host header; repeatable.
        origins: Origin of web pages that may call the proxy, e.g. https://app.example; repeatable.
        pause: Maximum silence of the model server.
        confirm_above: Number of freed tokens above which the proxy asks on the terminal before it prunes. Without an
            answer, it prunes.
        drop_thinking: Go on pruning a conversation even if Anthropic's API must drop thinking that comes after a
            removed passage.
        restores: File that receives the restored passages with their tasks. It contains texts of conversations.
    """
    from context_agent.integrations.conversation_pruners import ConversationPruners
    from context_agent.integrations.restore_log import RestoreLog
    from context_agent.integrations.server.process import serve
    from context_agent.integrations.server.proxy import Proxy, proxy_application
    from context_agent.integrations.server.settings import Settings

    local = is_loopback(host)
    if not (local or open_access):
        raise ConfigError(f"other machines can reach {host}. To relay their requests too, pass --no-token.")
    start_logs(log_level)
    names = (*LOOPBACK_NAMES, *hosts) if hosts or local else ()
    settings = Settings(hosts=names, origins=origins, **asdict(capacity))
    savings = saved.open()
    confirm = None if confirm_above is None else TerminalConfirmation()
    record = None if restores is None else RestoreLog(restores)
    pruners = ConversationPruners(partial(pruning.open, confirm, confirm_above or 0, record.add if record else None))
    relay = Proxy(
        upstream, pruners, settings, pause=pause, savings=savings, report_file=saved.report, drop_thinking=drop_thinking
    )
    pruning.open().prune(SAMPLE)

    def ready(url: str) -> None:
        if common.json:
            output.print_json({"url": url, "upstream": relay.upstream})
        else:
            note_of_server(f"proxy for {relay.upstream} at {url} (press Ctrl-C to stop)")

    interrupted = serve(relay, proxy_application(relay), host, port, ready, dated=False)
    for line in savings.lines() if savings.total.requests else ():
        note_of_server(line)
    if record is not None:
        record.close()
    return INTERRUPTED if interrupted else 0
