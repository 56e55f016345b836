"""How far the embedded policy goes: numbers that are choices, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from context_agent.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Effort:
    """Bounds of an episode's search. More searches find more and take longer."""

    searches: int = 28
    """Searches of an episode."""
    turns: int = 12
    """Turns with searches; a last one may follow that brings pruned chunks back."""
    lookups: int = 7
    """Names looked up in one turn."""
    pages: int = 2
    """Times the whole question is searched: each time brings new text."""
    ranking: int = 10
    """Documents of the final ranking."""
    promise: float = 0.005
    """Lookups less likely than this to find something are not made."""
    prune: bool = True
    """Whether the view is edited. Without it an episode ends when the view is full."""

    def __post_init__(self) -> None:
        for name in ("searches", "turns", "lookups", "pages", "ranking"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} of the bridge policy must be at least 1; got {getattr(self, name)}")
