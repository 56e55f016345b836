"""What every integration stands on: an agent that is asked for passages, and lets go of what was opened for it.

A passage is one chunk of the corpus, with its own id and metadata; a framework's document or node is made of one. `k`
counts documents. With `per_document=1` that is also the number of passages, the best one of each document.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from context_agent.agent import DEFAULT_K, SearchAgent, SearchResult
from context_agent.errors import ConfigError, EmbedderError
from context_agent.harness.episode import Limits
from context_agent.harness.policy import Policy
from context_agent.integrations.filters import joined
from context_agent.retrieval.chroma import COLLECTION
from context_agent.retrieval.corpus import Where
from context_agent.types import Chunk, Metadata, RankedDocument

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection

PREFIX = "ctx1_"
"""Stands before what is added to a user's metadata, so that nothing of his is written over."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk of a ranked document. `rank` counts documents from 1, `score` is the document's."""

    id: str
    document_id: str
    title: str
    text: str
    score: float
    rank: int
    justification: str = ""
    trajectory: str | None = None
    metadata: Metadata = field(default_factory=dict)

    def notes(self) -> dict[str, Any]:
        """What is told beside text and metadata, as flat entries whose names begin with `PREFIX`."""
        told = {
            "document_id": self.document_id,
            "title": self.title,
            "score": self.score,
            "rank": self.rank,
            "justification": self.justification or None,
            "trajectory": self.trajectory,
        }
        return {PREFIX + name: value for name, value in told.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Face:
    """An agent that is asked for passages. Safe to share between threads and tasks, as the agent is.

    `where` holds for every question, beside the filter of a call. `per_document=None` returns all passages.
    """

    agent: SearchAgent
    k: int = DEFAULT_K
    where: Where | None = None
    per_document: int | None = 1

    def __post_init__(self) -> None:
        _at_least_one("k", self.k)
        _at_least_one("per_document", self.per_document)

    def search(self, question: str, *, k: int | None = None, where: Where | None = None) -> list[Passage]:
        """The passages that answer a question, best document first; blocks, also inside a running event loop."""
        return self._passages(self.agent.search(question, **self._asked(k, where)))

    async def asearch(self, question: str, *, k: int | None = None, where: Where | None = None) -> list[Passage]:
        """The same without blocking."""
        result = await self.agent.asearch(question, **self._asked(k, where))
        if self.agent.corpus.blocking:
            return await asyncio.to_thread(self._passages, result)
        return self._passages(result)

    def _asked(self, k: int | None, where: Where | None) -> dict[str, Any]:
        _at_least_one("k", k)
        return {"k": self.k if k is None else k, "where": joined(self.where, where)}

    def _passages(self, result: SearchResult) -> list[Passage]:
        ranked = [
            (rank, document, chunk.id)
            for rank, document in enumerate(result.documents, start=1)
            for chunk in document.chunks[: self.per_document]
        ]
        chunks = {chunk.id: chunk for chunk in self.agent.corpus.get([chunk_id for _, _, chunk_id in ranked])}
        trajectory = None if result.trajectory is None else str(result.trajectory)
        return [
            _passage(chunks[chunk_id], document, rank, trajectory)
            for rank, document, chunk_id in ranked
            if chunk_id in chunks
        ]


@dataclass(frozen=True, slots=True)
class Opened:
    """An agent that was made for a face, and how to let go of it and of what was opened for it."""

    agent: SearchAgent
    close: Callable[[], None]


@contextmanager
def on_collection(
    collection: str | Collection = COLLECTION,
    *,
    path: str | None = None,
    url: str | None = None,
    token: str | None = None,
    corpus: Mapping[str, Any] | None = None,
    policy: Policy | str | None = None,
    policy_options: Mapping[str, Any] | None = None,
    limits: Limits | Mapping[str, Any] | None = None,
    **agent: Any,
) -> Iterator[Opened]:
    """An agent on a Chroma collection: by name in the folder `path` or on the server at `url`, or as Chroma's object.

    `token` is sent to the server as a bearer token. `corpus` holds options of `ChromaCorpus.open`, `agent` those of
    `SearchAgent`; a policy by its name is loaded with `policy_options`. What was opened here is closed by
    `Opened.close`, or at once when the block fails; a collection that the caller holds open stays open.
    """
    from context_agent.policies.registry import load_policy
    from context_agent.retrieval.chroma.corpus import ChromaCorpus

    stack = ExitStack()
    try:
        settings = {"cache": _scratch(collection, stack), **(corpus or {})}
        if token is not None:
            settings["headers"] = {"Authorization": f"Bearer {token}"}
        if isinstance(policy, str):
            policy = load_policy(policy, **(policy_options or {}))
        if isinstance(limits, Mapping):
            limits = Limits(**limits)
        opened = stack.enter_context(ChromaCorpus.open(path, url=url, collection=collection, **settings))
        searching = SearchAgent(opened, policy, limits=limits, **agent)
        yield Opened(stack.enter_context(searching), stack.close)
    except BaseException:
        stack.close()
        raise


@dataclass(frozen=True, slots=True)
class FrameworkEmbedder:
    """A framework's embedding model as an `Embedder`; its vectors are used as they are."""

    name: str
    dimension: int
    documents: Callable[[list[str]], Any]
    query: Callable[[str], Any]

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts, shape (n, d)."""
        return self._called(self.documents, list(texts))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        """Vector of a query, shape (d,)."""
        return self._called(self.query, text)

    def _called(self, function: Callable[[Any], Any], given: Any) -> NDArray[np.float32]:
        try:
            return np.asarray(function(given), dtype=np.float32)
        except Exception as error:
            raise EmbedderError(f"the embedding model {self.name} failed: {error}") from error


def embedded_by(collection: Collection, model: object, documents: str, query: str) -> FrameworkEmbedder:
    """The model that a user's collection was embedded with; `documents` and `query` name its methods."""
    from context_agent.retrieval.chroma.store import dimension_of

    name = f"{type(model).__module__.partition('.')[0]}:{type(model).__name__}"
    return FrameworkEmbedder(name, dimension_of(collection), getattr(model, documents), getattr(model, query))


def llamaindex_keys(collection: Collection) -> dict[str, str]:
    """Where LlamaIndex's records name their document; nowhere, if some have none: those all carry the word None."""
    some: Where = {"document_id": {"$ne": "None"}}
    named = collection.get(where=some, limit=1, include=["metadatas"])["metadatas"]
    orphans = collection.get(where={"document_id": "None"}, limit=1, include=[])["ids"]
    return {"document_key": "document_id"} if named and "_node_content" in (named[0] or {}) and not orphans else {}


def _scratch(collection: str | Collection, stack: ExitStack) -> str | None:
    """A folder for the BM25 index of a collection that lives in memory, gone when the stack closes; else None."""
    from tempfile import TemporaryDirectory

    from context_agent.retrieval.chroma.store import Location

    if isinstance(collection, str) or not Location.of(None, None, collection).in_memory:
        return None
    return stack.enter_context(TemporaryDirectory(prefix="ctx1-", ignore_cleanup_errors=True))


def _passage(chunk: Chunk, document: RankedDocument, rank: int, trajectory: str | None) -> Passage:
    return Passage(
        id=chunk.id,
        document_id=chunk.document_id,
        title=chunk.title,
        text=chunk.text,
        score=document.score,
        rank=rank,
        justification=document.justification,
        trajectory=trajectory,
        metadata=chunk.metadata,
    )


def _at_least_one(name: str, number: int | None) -> None:
    if number is not None and number < 1:
        raise ConfigError(f"{name} must be at least 1; got {number}")
