"""The agent as a LangChain retriever, and pruning alone as a document compressor. Needs the extra `langchain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from pydantic import ConfigDict, Field, PrivateAttr

from context_agent._support.extras import extra
from context_agent.agent import SearchAgent
from context_agent.harness.episode import DEFAULT_K
from context_agent.integrations.framework_embedder import FrameworkEmbedder
from context_agent.integrations.open_agent import OpenAgent, open_agent
from context_agent.integrations.passage_pruning import THRESHOLD, prune
from context_agent.integrations.passages import METADATA_PREFIX, PassageRetriever, RetrievedPassage
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
    """A retriever for LangChain. `invoke(question)` also accepts `k=` and `where=`.

    It returns a `Document` for each ranked document, with the best passage. `Document.id` is the id of the chunk. The
    store's metadata is kept. Entries with names that begin with `ctx1_` contain the score, the rank, the title,
    the document's id and the path of the trajectory.

    Attributes:
        agent: The agent.
        k: The number of documents.
        where: A filter for every question, in Chroma's syntax. It applies together with the filter of the call.
        per_document: The number of passages for each document, each a `Document`. If it is None, all passages in the
            final view are returned.
    """

    agent: SearchAgent
    k: int = Field(default=DEFAULT_K, ge=1)
    where: dict[str, Any] | None = None
    per_document: int | None = Field(default=1, ge=1)
    _handle: OpenAgent | None = PrivateAttr(default=None)

    @classmethod
    def from_chroma(cls, store: Any, *, corpus: dict[str, Any] | None = None, **options: Any) -> Self:
        """Return a retriever on an existing Chroma collection.

        Args:
            store: A `langchain_chroma.Chroma` store or a Chroma collection. The embedding function of a store embeds
                the queries.
            corpus: Options of `ChromaCorpus.open`. `title_key` and `document_key` name entries of the metadata.
            options: Fields of the retriever, or options of `SearchAgent`.
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
        """Close the objects that `from_chroma` opened. An agent or a store that the caller passed stays open."""
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
    """A compressor that drops the documents of a pipeline that the embedded policy would prune.

    The other documents keep their order. `ctx1_score` in their metadata is the probability.

    Attributes:
        threshold: As in `prune`.
        tokens: As in `prune`.
        k: As in `prune`.
        policy: As in `prune`.
        title_key: The entry of the metadata that holds a document's title. Documents may lack it.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)
    threshold: float = THRESHOLD
    tokens: int | None = None
    k: int | None = None
    policy: BridgePolicy | None = None
    title_key: str = "title"

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> list[Document]:
        """Return the documents that matter for the question."""
        passages = [(str(document.metadata.get(self.title_key) or ""), document.page_content) for document in documents]
        scores = prune(query, passages, threshold=self.threshold, tokens=self.tokens, k=self.k, policy=self.policy)
        return [_scored(documents[index], score) for index, score in scores]


def _document(passage: RetrievedPassage) -> Document:
    metadata = {**passage.metadata, **passage.added_metadata()}
    return _scored(Document(page_content=passage.text, id=passage.id, metadata=metadata), passage.score)


def _scored(document: Document, score: float) -> Document:
    return document.model_copy(update={"metadata": {**document.metadata, METADATA_PREFIX + "score": score}})
