"""The agent as a LlamaIndex retriever, and pruning alone as a node postprocessor. Needs the extra `llamaindex`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from context_agent._support.extras import extra
from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError
from context_agent.harness.episode import DEFAULT_K
from context_agent.integrations.framework_embedder import FrameworkEmbedder
from context_agent.integrations.framework_filters import from_llamaindex
from context_agent.integrations.open_agent import OpenAgent, open_agent
from context_agent.integrations.passage_pruning import THRESHOLD, prune
from context_agent.integrations.passages import PassageRetriever, RetrievedPassage
from context_agent.retrieval.filters import Where

if TYPE_CHECKING:
    from chromadb.api.models.Collection import Collection


with extra("llamaindex"):
    from llama_index.core import schema
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, TextNode
    from llama_index.core.vector_stores.types import MetadataFilters
    from llama_index.core.vector_stores.utils import metadata_dict_to_node

RETRIEVER_OPTIONS = ("similarity_top_k", "filters", "per_document", "callback_manager")


class ContextAgentRetriever(BaseRetriever):
    """A retriever for LlamaIndex. It returns a node for each ranked document, with the best passage and its score.

    If LlamaIndex stored the node, the node is restored with its relationships. Metadata entries with names that begin
    with `ctx1_` contain the rank, the title, the document's id and the path of the trajectory. Prompts leave these
    entries out.
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
        """Make a retriever on an open agent.

        Args:
            agent: The agent. The caller closes it.
            similarity_top_k: The number of documents.
            filters: LlamaIndex's filters for every question.
            per_document: The number of passages for each document. If it is None, all passages in the final view are
                returned.
            callback_manager: LlamaIndex's callbacks.
        """
        super().__init__(callback_manager)
        self.agent, self.similarity_top_k = agent, similarity_top_k
        self.filters, self.per_document = filters, per_document
        self._handle: OpenAgent | None = None

    @classmethod
    def from_chroma(
        cls, store: Any, *, embed_model: Any = None, corpus: dict[str, Any] | None = None, **options: Any
    ) -> Self:
        """Return a retriever on an existing Chroma collection.

        Args:
            store: A `ChromaVectorStore`, an index over one, or a Chroma collection.
            embed_model: The model that embeds the queries. Defaults to the model of the index. Without an index, it is
                the model that Chroma stored.
            corpus: Options of `ChromaCorpus.open`, such as `title_key`.
            options: Options of the retriever or of `SearchAgent`.
        """
        model = embed_model if embed_model is not None else getattr(store, "_embed_model", None)
        collection = getattr(getattr(store, "vector_store", store), "client", store)
        opening = {**_collection_options(collection, model), **(corpus or {})}
        fields = {name: options.pop(name) for name in RETRIEVER_OPTIONS if name in options}
        with open_agent(collection, corpus=opening, **options) as handle:
            retriever = cls(handle.agent, **fields)
            retriever._handle = handle
            return retriever

    def close(self) -> None:
        """Close the objects that `from_chroma` opened. An agent or a store that the caller passed stays open."""
        if self._handle is not None:
            self._handle.close()

    def _retriever(self) -> PassageRetriever:
        return PassageRetriever(self.agent, self.similarity_top_k, from_llamaindex(self.filters), self.per_document)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(passage) for passage in self._retriever().search(query_bundle.query_str)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(passage) for passage in await self._retriever().asearch(query_bundle.query_str)]


class PruningPostprocessor(BaseNodePostprocessor):
    """A postprocessor that drops the nodes that the embedded policy would prune.

    The scores of the other nodes become probabilities.

    Attributes:
        threshold: As in `prune`.
        tokens: As in `prune`.
        k: As in `prune`.
        title_key: The entry of the metadata that holds a node's title. Nodes may lack it.
    """

    threshold: float = THRESHOLD
    tokens: int | None = None
    k: int | None = None
    title_key: str = "title"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise ConfigError("pruning needs the question. Pass query_str or query_bundle.")
        passages = [(str(node.metadata.get(self.title_key) or ""), node.get_content()) for node in nodes]
        scores = prune(query_bundle.query_str, passages, threshold=self.threshold, tokens=self.tokens, k=self.k)
        return [NodeWithScore(node=nodes[index].node, score=score) for index, score in scores]


def _node(passage: RetrievedPassage) -> NodeWithScore:
    node: BaseNode
    if "_node_content" in passage.metadata:
        node = metadata_dict_to_node(dict(passage.metadata), passage.text)
    else:
        node = TextNode(id_=passage.id, text=passage.text, metadata=dict(passage.metadata))
        node.relationships[schema.NodeRelationship.SOURCE] = schema.RelatedNodeInfo(node_id=passage.document_id)
    extra_metadata = passage.added_metadata()
    node.metadata |= extra_metadata
    node.excluded_llm_metadata_keys += list(extra_metadata)
    node.excluded_embed_metadata_keys += list(extra_metadata)
    return NodeWithScore(node=node, score=passage.score)


def _collection_options(collection: Collection, model: object | None) -> dict[str, Any]:
    """Return the options of `ChromaCorpus.open` for a collection that LlamaIndex wrote.

    `model` is the model that embedded the collection. The entry `document_id` is used only if every record has a
    document. LlamaIndex writes the text `None` for a missing document, and all such records would become one document.
    """
    options: dict[str, Any] = {}
    where: Where = {"document_id": {"$ne": "None"}}
    metadatas = collection.get(where=where, limit=1, include=["metadatas"])["metadatas"]
    without_document = collection.get(where={"document_id": "None"}, limit=1, include=[])["ids"]
    if metadatas and "_node_content" in (metadatas[0] or {}) and not without_document:
        options["document_key"] = "document_id"
    if model is not None:
        methods = ("get_text_embedding_batch", "get_query_embedding")
        options["embedder"] = FrameworkEmbedder.of(collection, model, *methods)
    return options
