"""The settings of a server: its limits, and who may call it."""

from __future__ import annotations

from dataclasses import dataclass, field

from context_agent._support.arguments import real_number, whole_number
from context_agent.errors import ConfigError
from context_agent.integrations.server.origins import check_hosts, check_origins


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a server. Times are in seconds.

    Attributes:
        token: The bearer token that clients must send. If it is None, they need none.
        hosts: The names that a Host header may have. If there are none, programs may use any name. If there is no token
            either, web pages may use only addresses and the names of the loopback. The owner of any other name could
            make it resolve to this machine.
        origins: Further web pages that may call the server, such as `https://app.example`.
        concurrency: The number of searches that run at a time.
        queue: The number of searches that may wait for their turn.
        deadline: The time limit of a search, including the wait in the queue.
        max_body: The largest body of a request, in bytes.
        max_connections: Maximum number of open connections. With too few file descriptors, there are fewer.
        grace: The time that running searches have to finish when the server shuts down.
        check: The time between two checks for a changed index. If it is 0, the index is not checked.
        model: The agent's name as a chat model.
        title: A name for the searched documents, shown on the page. If it is empty, the page shows the name of the
            corpus.

    Raises:
        ConfigError: If the token is empty or no client can send it, if a limit is not a number or is too small to serve
            a request, if no Host header can have one of the names, or if no browser sends one of the origins.
    """

    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    concurrency: int = 8
    queue: int = 128
    deadline: float = 120.0
    max_body: int = 1_000_000
    max_connections: int = 512
    grace: float = 30.0
    check: float = 10.0
    model: str = "context-agent"
    title: str = ""

    def __post_init__(self) -> None:
        if self.token is not None and (not self.token or self.token != self.token.strip()):
            # The message does not repeat the token.
            raise ConfigError("`token` must not be empty, and must not begin or end with white space. Correct it.")
        for name in ("concurrency", "max_body", "max_connections"):
            whole_number(getattr(self, name), name, least=1)
        whole_number(self.queue, "queue", least=0)
        for name in ("grace", "check"):
            if real_number(getattr(self, name), name) < 0:
                raise ConfigError(f"{name} must be at least 0; got {getattr(self, name)}")
        if real_number(self.deadline, "deadline") <= 0:
            raise ConfigError(f"deadline must be more than 0 seconds; got {self.deadline:g}")
        check_hosts(self.hosts)
        check_origins(self.origins)
