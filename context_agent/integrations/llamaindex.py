"""LlamaIndex: the agent as a retriever, and its pruning alone as a node postprocessor. Needs the extra `llamaindex`."""

from __future__ import annotations

from typing import Any, Self

from context_agent._support.extras import extra
from context_agent.agent import DEFAULT_K, SearchAgent
from context_agent.errors import ConfigError
from context_agent.integrations.filters import from_llamaindex
from context_agent.integrations.passages import (
    PREFIX,
    Face,
    Opened,
    Passage,
    embedded_by,
    llamaindex_keys,
    on_collection,
)
from context_agent.integrations.pruning import THRESHOLD, prune

with extra("llamaindex"):
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, TextNode
    from llama_index.core.schema import NodeRelationship as Relationship
    from llama_index.core.schema import RelatedNodeInfo as Related
    from llama_index.core.vector_stores.types import MetadataFilters
    from llama_index.core.vector_stores.utils import metadata_dict_to_node


class ContextAgentRetriever(BaseRetriever):
    """`retrieve(question)`: a node for each ranked document, its best passage, with the document's score.

    A node that LlamaIndex stored comes back as it was, relationships included. Rank, title, document id and the path of
    the trajectory are added to its metadata under names that begin with `ctx1_`, which no prompt shows.
    """

    def __init__(
        self,
        agent: SearchAgent,
        *,
        similarity_top_k: int = DEFAULT_K,
        filters: MetadataFilters | None = None,
        per_document: int | None = 1,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        """`per_document` is how many passages of a document are returned; None for all that stayed in view."""
        super().__init__(callback_manager)
        self.agent, self.similarity_top_k = agent, similarity_top_k
        self.filters, self.per_document = filters, per_document
        self._opened: Opened | None = None

    @classmethod
    def from_chroma(
        cls, store: Any, *, embed_model: Any = None, corpus: dict[str, Any] | None = None, **options: Any
    ) -> Self:
        """On a Chroma collection as it stands: a `ChromaVectorStore`, an index over one, or Chroma's own collection.

        Queries are embedded by `embed_model`, else by the index's, else by what Chroma stored with the collection.
        `corpus` holds options of `ChromaCorpus.open`, such as `title_key`; the rest are ours or `SearchAgent`'s.
        """
        model = embed_model if embed_model is not None else getattr(store, "_embed_model", None)
        collection = getattr(getattr(store, "vector_store", store), "client", store)
        opening = {**llamaindex_keys(collection), **(corpus or {})}
        if model is not None:
            embedder = embedded_by(collection, model, "get_text_embedding_batch", "get_query_embedding")
            opening.setdefault("embedder", embedder)
        mine = ("similarity_top_k", "filters", "per_document", "callback_manager")
        fields = {name: options.pop(name) for name in mine if name in options}
        with on_collection(collection, corpus=opening, **options) as opened:
            made = cls(opened.agent, **fields)
            made._opened = opened
            return made

    def close(self) -> None:
        """Closes what `from_chroma` opened; an agent or a store that was given stays open."""
        if self._opened is not None:
            self._opened.close()

    @property
    def _face(self) -> Face:
        return Face(self.agent, self.similarity_top_k, from_llamaindex(self.filters), self.per_document)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(one) for one in self._face.search(query_bundle.query_str)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(one) for one in await self._face.asearch(query_bundle.query_str)]


class PruningPostprocessor(BaseNodePostprocessor):
    """Drops those of a query engine's nodes that the embedded policy would prune; the options are those of `prune`.

    What stays keeps its order; its score is the policy's probability.
    """

    threshold: float = THRESHOLD
    tokens: int | None = None
    k: int | None = None
    title_key: str = "title"
    """The metadata entry that holds a node's title; nodes may lack it."""

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise ConfigError("pruning needs the question: pass query_str or query_bundle")
        passages = [(str(one.node.metadata.get(self.title_key, "")), one.node.get_content()) for one in nodes]
        kept = prune(query_bundle.query_str, passages, threshold=self.threshold, tokens=self.tokens, k=self.k)
        return [NodeWithScore(node=nodes[place].node, score=score) for place, score in kept]


def _node(passage: Passage) -> NodeWithScore:
    node: BaseNode
    if "_node_content" in passage.metadata:
        node = metadata_dict_to_node(dict(passage.metadata), passage.text)
    else:
        node = TextNode(id_=passage.id, text=passage.text, metadata=dict(passage.metadata))
        node.relationships[Relationship.SOURCE] = Related(node_id=passage.document_id)
    notes = passage.notes()
    score = notes.pop(PREFIX + "score")
    node.metadata |= notes
    node.excluded_llm_metadata_keys += list(notes)
    node.excluded_embed_metadata_keys += list(notes)
    return NodeWithScore(node=node, score=score)
