"""LangChain: the agent as a retriever, and its pruning alone as a document compressor. Needs the extra `langchain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from pydantic import ConfigDict, Field, PrivateAttr

from context_agent._support.extras import extra
from context_agent.agent import SearchAgent
from context_agent.harness.episode import DEFAULT_K
from context_agent.integrations.framework_embedder import FrameworkEmbedder
from context_agent.integrations.opening import OpenAgent, open_agent
from context_agent.integrations.passages import PREFIX, PassageRetriever, RetrievedPassage
from context_agent.integrations.pruning import THRESHOLD, prune
from context_agent.policies.bridge import BridgePolicy
from context_agent.retrieval.filters import Where

with extra("langchain"):
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun as AsyncRun
    from langchain_core.callbacks import CallbackManagerForRetrieverRun as SyncRun
    from langchain_core.callbacks import Callbacks
    from langchain_core.documents import Document
    from langchain_core.documents.compressor import BaseDocumentCompressor
    from langchain_core.retrievers import BaseRetriever


class ContextAgentRetriever(BaseRetriever):
    """`invoke(question)`, also with `k=` and `where=`: a `Document` for each ranked document, its best passage.

    `Document.id` is the chunk's id. Its metadata are those of the store, plus score, rank, title, document id and the
    path of the trajectory under names that begin with `ctx1_`.
    """

    agent: SearchAgent
    k: int = Field(default=DEFAULT_K, ge=1)
    where: dict[str, Any] | None = None
    """A filter in Chroma's syntax that applies to every question, together with the filter of the call."""
    per_document: int | None = Field(default=1, ge=1)
    """Passages per document, each returned as a `Document`; None for all that remained in view."""
    _handle: OpenAgent | None = PrivateAttr(default=None)

    @classmethod
    def from_chroma(cls, store: Any, *, corpus: dict[str, Any] | None = None, **options: Any) -> Self:
        """On an existing Chroma collection: a `langchain_chroma.Chroma` store, or Chroma's own collection.

        The store's embedding function embeds the queries. `corpus` holds options of `ChromaCorpus.open`, such as
        `title_key` and `document_key`, which name metadata entries. The remaining options are fields of the retriever,
        or options of `SearchAgent`.
        """
        # The public API has no access to the object that the store uses.
        collection, model = getattr(store, "_collection", store), getattr(store, "embeddings", None)
        opening = dict(corpus or {})
        if model is not None:
            opening.setdefault("embedder", FrameworkEmbedder.of(collection, model, "embed_documents", "embed_query"))
        fields = {name: options.pop(name) for name in cls.model_fields if name in options}
        with open_agent(collection, corpus=opening, **options) as handle:
            retriever = cls(agent=handle.agent, **fields)
            retriever._handle = handle
            return retriever

    def close(self) -> None:
        """Closes what `from_chroma` opened. An agent or a store that the caller passed stays open."""
        if self._handle is not None:
            self._handle.close()

    @property
    def _retriever(self) -> PassageRetriever:
        return PassageRetriever(self.agent, self.k, self.where, self.per_document)

    def _get_relevant_documents(
        self, query: str, *, run_manager: SyncRun, k: int | None = None, where: Where | None = None
    ) -> list[Document]:
        return [_document(passage) for passage in self._retriever.search(query, k=k, where=where)]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncRun, k: int | None = None, where: Where | None = None
    ) -> list[Document]:
        return [_document(passage) for passage in await self._retriever.asearch(query, k=k, where=where)]


class PruningCompressor(BaseDocumentCompressor):
    """Drops the documents of a pipeline that the embedded policy would prune; the options are those of `prune`.

    The other documents keep their order and their metadata, to which the probability is added as `ctx1_score`.
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
        """Return the documents that are kept."""
        passages = [(str(document.metadata.get(self.title_key, "")), document.page_content) for document in documents]
        scores = prune(query, passages, threshold=self.threshold, tokens=self.tokens, k=self.k, policy=self.policy)
        return [_scored(documents[index], score) for index, score in scores]


def _document(passage: RetrievedPassage) -> Document:
    metadata = {**passage.metadata, **passage.added_metadata()}
    return _scored(Document(page_content=passage.text, id=passage.id, metadata=metadata), passage.score)


def _scored(document: Document, score: float) -> Document:
    return document.model_copy(update={"metadata": {**document.metadata, PREFIX + "score": score}})
