"""How much an episode of the embedded policy may search."""

from __future__ import annotations

from dataclasses import dataclass

from context_agent.errors import ConfigError

EFFORTS = ("careful", "fast")
"""Names of efforts."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Bounds of an episode's search. More searches find more and take longer."""

    searches: int = 28
    """Searches of an episode."""
    turns: int = 12
    """Turns with searches; one more may follow that restores pruned chunks."""
    lookups: int = 7
    """Names looked up in one turn."""
    pages: int = 2
    """Times the whole question is searched: each time returns new text."""
    ranking: int = 10
    """Documents of the final ranking."""
    promise: float = 0.005
    """Least probability that a lookup finds something."""
    readings: int = 2
    """Times that the reader reads the best candidates; after each but the last the search may go on. 0: never."""
    sufficient: float = 0.95
    """Probability that more searches improve nothing from which an episode ends after its first turn."""
    prune: bool = True
    """Whether the view is edited. Without edits an episode ends when the view is full."""

    def __post_init__(self) -> None:
        for name in ("searches", "turns", "lookups", "pages", "ranking"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} of the bridge policy must be at least 1; got {getattr(self, name)}")

    @classmethod
    def named(cls, name: str) -> Effort:
        """`careful`, the default, or `fast`, which does not use the reader. Raises `ConfigError` for another name."""
        if name not in EFFORTS:
            raise ConfigError(f"the effort must be {' or '.join(EFFORTS)}; got {name!r}")
        return cls(readings=0) if name == "fast" else cls()
