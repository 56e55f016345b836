"""The answer to a search, as JSON for programs and as text for a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from context_agent.agent import SearchResult
from context_agent.harness.episode import StopReason
from context_agent.integrations.functions import NO_PASSAGES, ONLY_NEAREST
from context_agent.integrations.server.errors import INDEX_FAILURE, POLICY_FAILURE
from context_agent.pruning.view import ActionTaken
from context_agent.text.highlights import best_sentences
from context_agent.text.passages import passage_text

COMPLETE_REASONS = (StopReason.FINISHED, StopReason.NO_RANKING)
"""Stop reasons of searches that were not cut short."""


@dataclass(frozen=True, slots=True)
class ServedAnswer:
    """The answer to one search.

    Attributes:
        request_id: The id of the request.
        result: The result of the search.
        seconds: The seconds from the request's arrival to the answer, including the wait in the queue.
        queued: The seconds that the search waited in the queue.
    """

    request_id: str
    result: SearchResult
    seconds: float
    queued: float

    @property
    def output_tokens(self) -> int:
        """The number of tokens that the policy wrote."""
        events = (event for trajectory in self.result.trajectories for event in trajectory.events)
        return sum(event.tokens for event in events if isinstance(event, ActionTaken))

    @property
    def trajectory(self) -> str | None:
        """The id of the first trajectory. It is None if no trajectory was written.

        The id is the file's name without the suffix.
        """
        return self.result.trajectory.stem if self.result.trajectory else None

    @property
    def complete(self) -> bool:
        """True if neither a limit nor a failure cut the search short."""
        return self.result.stop_reason in COMPLETE_REASONS

    @property
    def error(self) -> str | None:
        """The kind of failure that ended the search early. It is None if there was no failure."""
        if self.result.error is None:
            return None
        return POLICY_FAILURE if self.result.stop_reason == StopReason.POLICY_ERROR else INDEX_FAILURE

    def documents(self) -> list[dict[str, Any]]:
        """Return the ranked documents as data."""
        ranked = self.result.documents
        sentences = best_sentences(self.result.question, ranked)
        return [
            {
                **plain,
                "best_sentence": best and {"passage": best.chunk.id, "start": best.start, "end": best.end},
                "justification": document.justification,
                "metadata": dict(document.metadata),
            }
            for plain, document, best in zip(self.result.to_json()["documents"], ranked, sentences, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the answer as JSON values.

        The values are those of `SearchResult.to_json`, with two changes. The trajectory's id replaces its path, and the
        kind of a failure replaces its message.
        """
        return {
            "request_id": self.request_id,
            **self.result.to_json(),
            "documents": self.documents(),
            "trajectory": self.trajectory,
            "error": self.error,
            "usage": self.usage(),
        }

    def usage(self) -> dict[str, Any]:
        """Return the cost of the search: turns, tokens and seconds."""
        return {
            "turns": self.result.turns,
            "tokens": self.result.tokens,
            "output_tokens": self.output_tokens,
            "seconds": round(self.seconds, 4),
            "queued_seconds": round(self.queued, 4),
        }

    def text(self) -> str:
        """Return the best passage of each document as one text for a model."""
        return "\n\n".join(self.paragraphs())

    def paragraphs(self) -> list[str]:
        """Return the best passage of each document for a model.

        If the passages are only the nearest ones, the first paragraph says so. If there are no passages, the only
        paragraph says so.
        """
        passages = self.passages()
        if not passages:
            return [NO_PASSAGES]
        return [ONLY_NEAREST, *passages] if self.result.sufficient is False else passages

    def passages(self) -> list[str]:
        """Return the best passage of each document, numbered from 1, with its id."""
        ranked = enumerate(self.result.documents, start=1)
        return [passage_text(rank, row.chunks[0].id, row.title, row.chunks[0].text) for rank, row in ranked]
