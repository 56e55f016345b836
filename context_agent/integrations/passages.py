"""A retriever that runs the agent and returns passages, which an integration converts to documents or nodes.

A passage is one chunk of the corpus with its own id and metadata. `k` is a number of documents. With `per_document=1`,
the default, the retriever returns the best passage of each document.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from context_agent._support.arguments import whole_number
from context_agent.agent import SearchAgent, SearchResult
from context_agent.harness.episode import DEFAULT_K
from context_agent.integrations.framework_filters import all_of
from context_agent.retrieval.filters import Where
from context_agent.types import Metadata

METADATA_PREFIX = "ctx1_"
"""The prefix of entries that are added to a user's metadata. It keeps the user's own entries from being overwritten."""


@dataclass(frozen=True, slots=True)
class RetrievedPassage:
    """A chunk of a ranked document.

    Attributes:
        id: The id of the chunk.
        document_id: The id of the document.
        title: The title of the chunk.
        text: The text of the chunk.
        score: The score of the chunk.
        rank: The rank of the document, from 1.
        justification: The policy's reason why the document is relevant, if it gives one.
        trajectory: The path of the trajectory file, if the agent writes trajectories.
        metadata: The metadata of the chunk.
        sufficient: False if the passages are only the nearest in the corpus, as in `SearchResult`.
    """

    id: str
    document_id: str
    title: str
    text: str
    score: float
    rank: int
    justification: str = ""
    trajectory: str | None = None
    metadata: Metadata = field(default_factory=dict)
    sufficient: bool | None = None

    def added_metadata(self) -> dict[str, Any]:
        """Return the entries that a framework's document gets in addition to its own metadata and the score."""
        entries = {
            "document_id": self.document_id,
            "title": self.title,
            "rank": self.rank,
            "justification": self.justification or None,
            "trajectory": self.trajectory,
            "sufficient": self.sufficient,
        }
        return {METADATA_PREFIX + name: value for name, value in entries.items() if value is not None}


@dataclass(frozen=True, slots=True)
class PassageRetriever:
    """A retriever that runs an agent and returns passages. Threads and tasks can share it.

    Attributes:
        agent: The agent.
        k: The number of documents.
        where: A filter for every question. It applies together with the filter of the call.
        per_document: The number of passages for each document. If it is None, all passages in the final view are
            returned.
    """

    agent: SearchAgent
    k: int = DEFAULT_K
    where: Where | None = None
    per_document: int | None = 1

    def __post_init__(self) -> None:
        _check_positive("k", self.k)
        _check_positive("per_document", self.per_document)

    def search(self, question: str, *, k: int | None = None, where: Where | None = None) -> list[RetrievedPassage]:
        """Return the passages that answer a question, best document first.

        The call blocks, also inside a running event loop.

        Args:
            question: The question.
            k: The number of documents. Defaults to the retriever's number.
            where: A filter in Chroma's syntax.
        """
        return self._passages(self.agent.search(question, **self._options(k, where)))

    async def asearch(
        self, question: str, *, k: int | None = None, where: Where | None = None
    ) -> list[RetrievedPassage]:
        """Return the passages that answer a question without blocking, as `search` does."""
        result = await self.agent.asearch(question, **self._options(k, where))
        if self.agent.corpus.blocking:
            return await asyncio.to_thread(self._passages, result)
        return self._passages(result)

    def _options(self, k: int | None, where: Where | None) -> dict[str, Any]:
        _check_positive("k", k)
        return {"k": self.k if k is None else k, "where": all_of(self.where, where)}

    def _passages(self, result: SearchResult) -> list[RetrievedPassage]:
        ranked_chunks = [
            (rank, document, ranked_chunk)
            for rank, document in enumerate(result.documents, start=1)
            for ranked_chunk in document.chunks[: self.per_document]
        ]
        chunks = {chunk.id: chunk for chunk in self.agent.corpus.get([ranked.id for _, _, ranked in ranked_chunks])}
        trajectory = None if result.trajectory is None else str(result.trajectory)
        return [
            RetrievedPassage(
                chunk.id,
                chunk.document_id,
                chunk.title,
                chunk.text,
                ranked_chunk.score,
                rank,
                document.justification,
                trajectory,
                chunk.metadata,
                result.sufficient,
            )
            for rank, document, ranked_chunk in ranked_chunks
            if (chunk := chunks.get(ranked_chunk.id)) is not None
        ]


def _check_positive(name: str, number: int | None) -> None:
    if number is not None:
        whole_number(number, name, least=1)
