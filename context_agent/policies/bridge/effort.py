"""The effort of the embedded policy: how much an episode may search."""

from __future__ import annotations

from dataclasses import dataclass

from context_agent._support.arguments import real_number, whole_number
from context_agent.errors import ConfigError

EFFORTS = ("careful", "fast")
"""The names of efforts."""


@dataclass(frozen=True, slots=True)
class Effort:
    """The bounds of an episode's search. More searches find more and take longer."""

    searches: int = 28
    """Maximum number of searches of an episode."""
    turns: int = 12
    """Maximum number of turns with searches. One more turn may follow, which restores pruned chunks."""
    ranking: int = 10
    """Documents of the final ranking."""
    readings: int = 2
    """How often the reader reads the best candidates.

    After each reading but the last, the search may continue. With 0 the reader is not used.
    """
    compared: int = 16
    """The candidates with the highest scores, which late interaction compares with the question at the end."""
    sufficient: float = 0.95
    """If more searches improve nothing with at least this probability, the episode ends after its first turn."""
    prune: bool = True
    """True if the view is edited. Without edits, an episode ends when the view is full."""

    def __post_init__(self) -> None:
        for name, least in {"searches": 1, "turns": 1, "ranking": 1, "readings": 0, "compared": 1}.items():
            whole_number(getattr(self, name), name, least=least)
        real_number(self.sufficient, "sufficient")

    @classmethod
    def named(cls, name: str) -> Effort:
        """Return the effort with this name: `careful`, the default, or `fast`.

        `fast` does not use the reader, and compares fewer candidates at the end.

        Raise `ConfigError` for another name.
        """
        if name not in EFFORTS:
            raise ConfigError(f"the effort must be {' or '.join(EFFORTS)}; got {name!r}")
        return cls(readings=0, compared=10) if name == "fast" else cls()
