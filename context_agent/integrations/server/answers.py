"""A search's result as it is sent: as data, and as text for whoever asked a chat model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from context_agent.agent import SearchResult
from context_agent.harness.episode import StopReason
from context_agent.harness.trajectory import ActionTaken
from context_agent.integrations.faces import Passage
from context_agent.integrations.functions import shown
from context_agent.integrations.server.problems import FAILURES, INDEX
from context_agent.types import RankedDocument

COMPLETE = (StopReason.FINISHED, StopReason.NO_RANKING)
"""Stop reasons of searches that were not cut short."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A result, with what the server knows beside it."""

    request_id: str
    result: SearchResult
    seconds: float
    queued: float

    @property
    def output_tokens(self) -> int:
        """Tokens that the policy wrote."""
        events = (event for one in self.result.trajectories for event in one.events)
        return sum(event.tokens for event in events if isinstance(event, ActionTaken))

    @property
    def trajectory(self) -> str | None:
        """The (first) trajectory's id, where it was written: the name of its file without the ending."""
        return self.result.trajectory.stem if self.result.trajectory else None

    @property
    def complete(self) -> bool:
        """Whether no limit cut the search short."""
        return self.result.stop_reason in COMPLETE

    def documents(self) -> list[dict[str, Any]]:
        """The ranked documents as data."""
        plain = self.result.to_json()["documents"]
        return [
            {**one, "justification": document.justification, "metadata": dict(document.metadata)}
            for one, document in zip(plain, self.result.documents, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """`SearchResult.to_json`, but that the trajectory is named by its id, and a failure by its kind."""
        return {
            "request_id": self.request_id,
            **self.result.to_json(),
            "documents": self.documents(),
            "trajectory": self.trajectory,
            "error": self.error,
            "usage": self.usage(),
        }

    @property
    def error(self) -> str | None:
        """What kind of failure cut the search short, if one did."""
        if self.result.error is None:
            return None
        return next((told for reason, told in FAILURES.items() if reason == self.result.stop_reason), INDEX)

    def usage(self) -> dict[str, Any]:
        """What it took."""
        return {
            "turns": self.result.turns,
            "tokens": self.result.tokens,
            "output_tokens": self.output_tokens,
            "seconds": round(self.seconds, 4),
            "queued_seconds": round(self.queued, 4),
        }

    def passages(self) -> list[str]:
        """The best passage of each document, numbered from 1, with its id."""
        return [shown(rank, _best(rank, one)) for rank, one in enumerate(self.result.documents, start=1)]


def _best(rank: int, document: RankedDocument) -> Passage:
    best = document.chunks[0]
    return Passage(best.id, document.id, document.title, best.text, document.score, rank)
