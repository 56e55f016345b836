"""The commands `ctx1 prune` and `ctx1 proxy`.

`ctx1 prune` shows what pruning would remove from a saved conversation, why, and at what cost. `ctx1 proxy` prunes the
conversations of any agent on their way to its model server.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from context_agent._support.json_text import differences, with_values
from context_agent._support.small_files import decoded_json, parse_json
from context_agent.cli import INTERRUPTED, output
from context_agent.cli.confirm import TerminalConfirmation
from context_agent.cli.options import PruneOptions, SavingsOptions
from context_agent.cli.parameters import (
    COUNT,
    COUNT_OR_ZERO,
    DASH_VALUE,
    FILE,
    INPUT_FILE,
    NOT_NEGATIVE,
    PORT,
    SECONDS,
    TEXT,
    CommonOptions,
    essential,
    options_in,
    section,
)
from context_agent.cli.serve import HostOption, LogLevel, start_logs
from context_agent.errors import ConfigError, DataError
from context_agent.integrations.server.origins import LOOPBACK_NAMES, is_loopback

if TYPE_CHECKING:
    from rich.text import Text

    from context_agent.integrations.server.savings import SavingsReport
    from context_agent.pruning.bundles import Bundle
    from context_agent.pruning.report import PruneReport, RemovedPassage

MAX_CONVERSATION_BYTES = 64_000_000
"""The largest file of a conversation, in bytes."""
SHOWN = 12
"""Number of messages that the report lists without `--verbose`. They are the messages from which most was removed."""


def prune(
    file: Annotated[Path, INPUT_FILE],
    /,
    *,
    task: Annotated[str | None, TEXT, DASH_VALUE, Parameter(show_default="the last message of the user")] = None,
    pruning: PruneOptions = PruneOptions(),
    out: Annotated[Path | None, FILE, Parameter(metavar="FILE.json")] = None,
    verbose: bool = False,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Prune a saved conversation and show what is removed.

      ctx1 prune conversation.json --budget 4000
      ctx1 prune request.json --budget 25% --out pruned.json

    --json prints the pruned messages and the report. The exit code is 1 if the list contains anything other than
    messages.

    Args:
        file: The conversation, or - for standard input: a list of messages, JSON Lines with a message per line, or an
            object that contains the messages, such as the body of a request, a saved state or a trace.
        task: What the agent is trying to do.
        out: Write the pruned conversation to this file.
        verbose: List every removed passage.
    """
    saved = read_conversation(file)
    pruned = pruning.open().prune(saved.bundle.messages, task)
    if out is not None:
        _write(out, saved.with_messages(pruned.messages))
    if common.json:
        output.print_json({"messages": pruned.messages, "report": pruned.report.to_json()})
    else:
        for line in _lines(pruned.report, verbose=verbose):
            output.stdout().print(line, soft_wrap=True)
    return 1 if pruned.report.outcome == "passed through" else 0


@dataclass(frozen=True, slots=True)
class SavedConversation:
    """A conversation and the JSON texts of its file: one text, or a line for each message."""

    bundle: Bundle
    texts: Sequence[str]

    def with_messages(self, messages: list[Any]) -> str:
        """Return the text of the file with other messages. Only the values that changed differ."""
        after = self.bundle.with_messages(messages)
        before, after = (self.bundle.value, after) if len(self.texts) > 1 else ([self.bundle.value], [after])
        changed = (
            with_values(text, changes) if (changes := dict(differences(old, new))) else text
            for text, old, new in zip(self.texts, before, after, strict=True)
        )
        return "".join(f"{text}\n" for text in changed)


def read_conversation(file: Path) -> SavedConversation:
    """Return the conversation in the file.

    Raises:
        OSError: If the file cannot be read.
        DataError: If the file is too large, is not JSON or holds no messages.
    """
    from context_agent.pruning.bundles import find_conversation

    texts, value = _read(file)
    bundle = find_conversation(value)
    if bundle is None:
        raise DataError(
            f'{_name(file)} must be a list of messages, or an object that contains one, such as {{"messages": […]}}'
        )
    return SavedConversation(bundle, texts)


def _read(file: Path) -> tuple[list[str], Any]:
    """Return the JSON text in the file and its value, or the texts of its lines and the list of their values.

    Raises:
        OSError: If the file cannot be read.
        DataError: If the file is too large or is not JSON.
    """
    with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as stream:
        data = stream.read(MAX_CONVERSATION_BYTES + 1)
    if len(data) > MAX_CONVERSATION_BYTES:
        raise DataError(
            f"{_name(file)} has more than {MAX_CONVERSATION_BYTES:,} bytes. Pass the messages without their images."
        )
    try:
        text = decoded_json(data).strip()
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) > 1 and all(line.startswith("{") and line.rstrip().endswith("}") for line in lines):
            return lines, [*map(parse_json, lines)]
        return [text], parse_json(text)
    except ValueError as error:
        raise DataError(f"{_name(file)} is not valid JSON ({error}). Pass a conversation as JSON.") from error


def _name(file: Path) -> str:
    return "standard input" if str(file) == "-" else str(file)


def _write(out: Path, text: str) -> None:
    from context_agent._support.atomic_files import replace_file

    # UTF-8 cannot encode a lone surrogate. The replacement is its escape in JSON.
    replace_file(out, text.encode("utf-8", "backslashreplace"))


def _lines(report: PruneReport, *, verbose: bool) -> Iterator[Text]:
    """Yield the lines of the report: what is removed from each message, then the gain and the cost of the prune."""
    from rich.text import Text

    by_message = [(message, list(rows)) for message, rows in groupby(report.removed, key=lambda item: item.message)]
    largest = sorted(by_message, key=lambda item: -sum(row.tokens for row in item[1]))[: None if verbose else SHOWN]
    shown = {message for message, _ in largest}
    for message, rows in by_message:
        if message in shown:
            tokens = sum(row.tokens for row in rows)
            yield Text(
                f"message {message}: {output.count(len(rows), 'passage')} removed, {tokens:,} tokens", style="bold"
            )
            yield from (_line(row) for row in (rows if verbose else rows[:1]))
    if hidden := len(report.removed) - (len(report.removed) if verbose else len(shown)):
        yield Text(f"{output.count(hidden, 'more passage')} removed; --verbose lists them", style="dim")
    for warning in report.warnings:
        yield Text(f"warning: {output.one_line(warning)}", style="yellow")
    yield Text(f"{report.outcome}: {_sizes(report)}", style="bold")
    if report.freed:
        yield Text(
            f"{report.freed:,} tokens freed, worth {report.savings:,.0f} fresh input tokens in the turns to come; "
            f"{report.cached_lost:,} cached tokens read afresh, at the cost of {report.loss:,.0f}"
        )
    if report.protected:
        yield Text(f"passages that stay in any case: {output.counts(report.protected)}")


def _line(row: RemovedPassage) -> Text:
    from rich.text import Text

    reason = "" if row.reason.startswith("less") else f" ({row.reason})"
    line = Text.assemble((f"  - {row.id:<5}", "red"), f"{row.tokens:>6,} {row.score:>7.3f}  ")
    return line.append(f"{output.one_line(row.preview)}{reason}", style="dim")


def _sizes(report: PruneReport) -> str:
    if report.outcome == "passed through":
        return "the list contains entries that are not messages, so nothing was changed"
    return f"{report.tokens_after:,} of {report.tokens_before:,} tokens of tool results remain"


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
    restores: Annotated[Path | None, FILE, Parameter(metavar="FILE.jsonl", group=section("Report"))] = None,
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
    relay = Proxy(upstream, pruners, settings, pause=pause, savings=savings, report_file=saved.report)
    pruning.open().prune(SAMPLE)

    def ready(url: str) -> None:
        if common.json:
            output.print_json({"url": url, "upstream": relay.upstream})
        else:
            output.note(f"proxy for {relay.upstream} at {url} (press Ctrl-C to stop)")

    interrupted = serve(relay, proxy_application(relay), host, port, ready, dated=False)
    note_savings(savings)
    if record is not None:
        record.close()
    return INTERRUPTED if interrupted else 0


def note_savings(savings: SavingsReport) -> None:
    """If there was a conversation, print what was saved."""
    for line in savings.lines() if savings.total.requests else ():
        output.note(line)
