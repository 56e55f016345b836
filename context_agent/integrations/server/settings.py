"""The settings of a server: who may call it, and its limits."""

from __future__ import annotations

from dataclasses import dataclass, field

from context_agent.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a server. Times are in seconds."""

    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
    """Allowed names in the Host header. Without one, programs may use any name. Without a token as well, web pages may
    use only addresses and the names of loopback: any other name could be another page's, made to resolve to here."""
    origins: tuple[str, ...] = ()
    """Web pages that may call the server besides its own, such as `https://app.example`."""
    concurrency: int = 8
    queue: int = 128
    deadline: float = 120.0
    """Limit for a search, including the wait in the queue."""
    max_body: int = 1_000_000
    """Bytes of a request's body."""
    max_connections: int = 512
    """Connections open at once; fewer if the process has fewer file descriptors."""
    grace: float = 30.0
    """Time for running searches to finish when the server shuts down."""
    check: float = 10.0
    """Time between checks for a changed index; 0 turns them off."""
    heartbeat: float = 10.0
    """Silence after which a stream sends a heartbeat."""
    model: str = "context-agent"
    """The agent's name as a chat model."""
    title: str = ""
    """What is searched, in words for the page; empty for the corpus's own name."""

    def __post_init__(self) -> None:
        if min(self.concurrency, self.max_body, self.max_connections) < 1 or self.queue < 0:
            raise ConfigError("concurrency, max-body and max-connections must be at least 1, and queue at least 0")
        if min(self.deadline, self.heartbeat) <= 0 or min(self.grace, self.check) < 0:
            raise ConfigError("deadline and heartbeat must be positive, grace and check at least 0")
