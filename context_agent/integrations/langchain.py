"""LangChain: the agent as a retriever, and its pruning alone as a document compressor. Needs the extra `langchain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from pydantic import ConfigDict, Field, PrivateAttr

from context_agent._support.extras import extra
from context_agent.agent import DEFAULT_K, SearchAgent
from context_agent.integrations.passages import PREFIX, Face, Opened, Passage, embedded_by, on_collection
from context_agent.integrations.pruning import THRESHOLD, prune
from context_agent.policies.bridge import BridgePolicy
from context_agent.retrieval.corpus import Where

with extra("langchain"):
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun as AsyncRun
    from langchain_core.callbacks import CallbackManagerForRetrieverRun as SyncRun
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import Document
    from langchain_core.documents.compressor import BaseDocumentCompressor
    from langchain_core.retrievers import BaseRetriever


class ContextAgentRetriever(BaseRetriever):
    """`invoke(question)`, also with `k=` and `where=`: a `Document` for each ranked document, its best passage.

    `Document.id` is the chunk's id, and its metadata are those of the store; score, rank, title, document id and the
    path of the trajectory stand beside them under names that begin with `ctx1_`.
    """

    agent: SearchAgent
    k: int = Field(default=DEFAULT_K, ge=1)
    where: dict[str, Any] | None = None
    """A filter in Chroma's syntax that holds for every question, beside the one of a call."""
    per_document: int | None = Field(default=1, ge=1)
    """Passages of a document that are returned, each as a `Document`; None for all that stayed in view."""
    _opened: Opened | None = PrivateAttr(default=None)

    @classmethod
    def from_chroma(cls, store: Any, *, corpus: dict[str, Any] | None = None, **options: Any) -> Self:
        """On a Chroma collection as it stands: a `langchain_chroma.Chroma` store, or Chroma's own collection.

        Queries are embedded by the store's embedding function. `corpus` holds options of `ChromaCorpus.open`, such as
        `title_key` and `document_key`, the names of metadata entries; the rest are fields, or options of `SearchAgent`.
        """
        # Only the private attribute is the same object that the store uses.
        collection, model = getattr(store, "_collection", store), getattr(store, "embeddings", None)
        opening = dict(corpus or {})
        if model is not None:
            opening.setdefault("embedder", embedded_by(collection, model, "embed_documents", "embed_query"))
        fields = {name: options.pop(name) for name in cls.model_fields if name in options}
        with on_collection(collection, corpus=opening, **options) as opened:
            made = cls(agent=opened.agent, **fields)
            made._opened = opened
            return made

    def close(self) -> None:
        """Closes what `from_chroma` opened; an agent or a store that was given stays open."""
        if self._opened is not None:
            self._opened.close()

    @property
    def _face(self) -> Face:
        return Face(self.agent, self.k, self.where, self.per_document)

    def _get_relevant_documents(
        self, query: str, *, run_manager: SyncRun, k: int | None = None, where: Where | None = None
    ) -> list[Document]:
        return [_document(one) for one in self._face.search(query, k=k, where=where)]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncRun, k: int | None = None, where: Where | None = None
    ) -> list[Document]:
        return [_document(one) for one in await self._face.asearch(query, k=k, where=where)]


class PruningCompressor(BaseDocumentCompressor):
    """Drops those of a pipeline's documents that the embedded policy would prune; the options are those of `prune`.

    What stays keeps its order and its metadata, with the probability beside them as `ctx1_score`.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)
    threshold: float = THRESHOLD
    tokens: int | None = None
    k: int | None = None
    policy: BridgePolicy | None = None
    title_key: str = "title"
    """The metadata entry that holds a document's title; documents may lack it."""

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """The documents that stay."""
        passages = [(str(one.metadata.get(self.title_key, "")), one.page_content) for one in documents]
        kept = prune(query, passages, threshold=self.threshold, tokens=self.tokens, k=self.k, policy=self.policy)
        return [_scored(documents[place], score) for place, score in kept]


def _document(passage: Passage) -> Document:
    return Document(page_content=passage.text, id=passage.id, metadata={**passage.metadata, **passage.notes()})


def _scored(document: Document, score: float) -> Document:
    return document.model_copy(update={"metadata": {**document.metadata, PREFIX + "score": score}})
