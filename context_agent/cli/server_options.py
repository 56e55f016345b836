"""Options that the commands of servers share, and what they open: logs, observers, and the line with the address."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.parameters import COUNT, COUNT_OR_ZERO, NOT_NEGATIVE, SECONDS, options_in, section
from context_agent.errors import ConfigError
from context_agent.integrations.server.origins import check_hosts, is_loopback

if TYPE_CHECKING:
    from context_agent.harness.episode import Observer


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


@dataclass(frozen=True, slots=True)
class ServedIndex:
    """The index of a server, for the line that says where the server listens.

    Attributes:
        place: The folder of the index, or the address of its Chroma server.
        name: The collection and its revision.
        chunks: The size of the index.
    """

    place: str
    name: str
    chunks: int


def start_logs(level: str, worker: int | None = None) -> None:
    """Send the logs of a server, or of one of its workers, to stderr. Records below this level are left out."""
    from context_agent.integrations.server.logs import to_stream

    to_stream(level=getattr(logging, level.upper()), worker=worker)


@contextmanager
def server_observers(*, otel: bool, log_level: str, worker: int | None = None) -> Iterator[tuple[Observer, ...]]:
    """Start the logs, and yield the observers for the agent. With `otel`, export spans while the block runs."""
    start_logs(log_level, worker)
    if not otel:
        yield ()
        return
    from context_agent.integrations.otel import Tracing
    from context_agent.integrations.otel_export import exporting

    with exporting():
        yield (Tracing(),)


def announce_server(index: ServedIndex, url: str, *, as_json: bool, **fields: str) -> None:
    """Print the address once the server listens."""
    if as_json:
        output.print_json({"url": url, "index": index.place, "corpus": index.name, "chunks": index.chunks, **fields})
    else:
        note_of_server(f"{index.chunks:,} chunks of {index.place} ({index.name}) at {url} (press Ctrl-C to stop)")


def note_of_server(text: str) -> None:
    """Print a line on stderr, if possible. A server also runs if the disk with its log is full."""
    with suppress(OSError):
        output.note(text)
