"""LlamaIndex: the agent as a retriever; its pruning as a node postprocessor and in a memory. The extra `llamaindex`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Self

from pydantic import PrivateAttr, SerializeAsAny

from context_agent._support.extras import extra
from context_agent.agent import DEFAULT_K, SearchAgent
from context_agent.errors import ConfigError
from context_agent.integrations.passages import (
    OpenAgent,
    PassageRetriever,
    RetrievedPassage,
    from_llamaindex,
    llamaindex_options,
    open_agent,
)
from context_agent.integrations.pruning import THRESHOLD, ConversationPruners, prune
from context_agent.pruning.pruner import BUDGET

with extra("llamaindex"):
    from llama_index.core import schema
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock, ToolCallBlock
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.memory import BaseMemory, Memory
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, TextNode
    from llama_index.core.vector_stores.types import MetadataFilters
    from llama_index.core.vector_stores.utils import metadata_dict_to_node

OPTIONS = ("similarity_top_k", "filters", "per_document", "callback_manager")
_TOOL_ROLES = (MessageRole.TOOL, MessageRole.FUNCTION)


class ContextAgentRetriever(BaseRetriever):
    """`retrieve(question)`: a node for each ranked document, its best passage, with the document's score.

    A node that LlamaIndex stored is restored with its relationships. Rank, title, document id and the path of the
    trajectory are added to its metadata under names that begin with `ctx1_`; they are excluded from prompts.
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
        """`per_document` is the number of passages per document; None returns all that remained in view."""
        super().__init__(callback_manager)
        self.agent, self.similarity_top_k = agent, similarity_top_k
        self.filters, self.per_document = filters, per_document
        self._handle: OpenAgent | None = None

    @classmethod
    def from_chroma(
        cls, store: Any, *, embed_model: Any = None, corpus: dict[str, Any] | None = None, **options: Any
    ) -> Self:
        """On an existing Chroma collection: a `ChromaVectorStore`, an index over one, or Chroma's own collection.

        Queries are embedded by `embed_model`, else by the index's model, else by what Chroma stored. `corpus` holds
        options of `ChromaCorpus.open`, such as `title_key`; other options are the retriever's or `SearchAgent`'s.
        """
        model = embed_model if embed_model is not None else getattr(store, "_embed_model", None)
        collection = getattr(getattr(store, "vector_store", store), "client", store)
        opening = {**llamaindex_options(collection, model), **(corpus or {})}
        fields = {name: options.pop(name) for name in OPTIONS if name in options}
        with open_agent(collection, corpus=opening, **options) as handle:
            retriever = cls(handle.agent, **fields)
            retriever._handle = handle
            return retriever

    def close(self) -> None:
        """Closes what `from_chroma` opened. An agent or a store that the caller passed stays open."""
        if self._handle is not None:
            self._handle.close()

    def _retriever(self) -> PassageRetriever:
        return PassageRetriever(self.agent, self.similarity_top_k, from_llamaindex(self.filters), self.per_document)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(passage) for passage in self._retriever().search(query_bundle.query_str)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(passage) for passage in await self._retriever().asearch(query_bundle.query_str)]


class PruningPostprocessor(BaseNodePostprocessor):
    """Drops nodes that the embedded policy would prune, with the options of `prune`; scores become probabilities."""

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
        passages = [(str(node.metadata.get(self.title_key, "")), node.get_content()) for node in nodes]
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


class ContextPruningMemory(BaseMemory):
    """Another memory, read pruned: `get` leaves out passages of old tool results, `get_all` has everything.

        agent.run("...", memory=ContextPruningMemory(Memory.from_defaults(), budget=8_000))

    LlamaIndex's agents read their memory when a run begins, so the tool results of earlier runs are pruned.
    """

    memory: SerializeAsAny[BaseMemory]
    _pruners: ConversationPruners = PrivateAttr()

    def __init__(self, memory: BaseMemory, budget: int = BUDGET, **options: Any) -> None:
        """`budget` is the number of tokens of tool results to keep; `options` are those of `ContextPruner`."""
        # pydantic's own `__init__` takes the fields of the subclass.
        super().__init__(memory=memory)  # type: ignore[call-arg]
        self._pruners = ConversationPruners.of(budget, **options)

    @classmethod
    def class_name(cls) -> str:
        """The name under which LlamaIndex stores it."""
        return "ContextPruningMemory"

    @classmethod
    def from_defaults(cls, **options: Any) -> Self:
        """On LlamaIndex's own memory, with these options of it."""
        return cls(Memory.from_defaults(**options))

    def get(self, input: str | None = None, **options: Any) -> list[ChatMessage]:
        """The messages, pruned."""
        return self._pruned(self.memory.get(input, **options))

    async def aget(self, input: str | None = None, **options: Any) -> list[ChatMessage]:
        """The messages, pruned."""
        return await asyncio.to_thread(self._pruned, await self.memory.aget(input, **options))

    def get_all(self) -> list[ChatMessage]:
        """All messages, unpruned."""
        return self.memory.get_all()

    async def aget_all(self) -> list[ChatMessage]:
        """All messages, unpruned."""
        return await self.memory.aget_all()

    def put(self, message: ChatMessage) -> None:
        """Adds a message."""
        self.memory.put(message)

    async def aput(self, message: ChatMessage) -> None:
        """Adds a message."""
        await self.memory.aput(message)

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Adds messages."""
        await self.memory.aput_messages(messages)

    def set(self, messages: list[ChatMessage]) -> None:
        """Replaces all messages."""
        self.memory.set(messages)

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Replaces all messages."""
        await self.memory.aset(messages)

    def reset(self) -> None:
        """Removes all messages."""
        self.memory.reset()

    def _pruned(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        rows = [_row(message) for message in messages]
        pruned = self._pruners.prune(rows).messages
        return [
            message if after["content"] == row["content"] else _with_text(message, after["content"])
            for message, row, after in zip(messages, rows, pruned, strict=True)
        ]


def _row(message: ChatMessage) -> dict[str, Any]:
    """The message as one of OpenAI's chat. Results with anything but one text have no text to prune."""
    if message.role in _TOOL_ROLES:
        is_text = len(message.blocks) == 1 and isinstance(message.blocks[0], TextBlock)
        call_id = message.additional_kwargs.get("tool_call_id")
        return {"role": "tool", "tool_call_id": call_id, "content": message.content if is_text else ""}
    row: dict[str, Any] = {"role": message.role.value, "content": message.content or ""}
    return {**row, "tool_calls": [*_calls(message)]} if message.role == MessageRole.ASSISTANT else row


def _calls(message: ChatMessage) -> Iterator[dict[str, Any]]:
    """The calls of a message, which LlamaIndex's models keep as blocks, older ones beside them."""
    blocks = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    for block in blocks:
        yield {"id": block.tool_call_id, "function": {"name": block.tool_name, "arguments": block.tool_kwargs}}
    if not blocks:
        yield from message.additional_kwargs.get("tool_calls") or ()


def _with_text(message: ChatMessage, text: str) -> ChatMessage:
    copied: ChatMessage = message.model_copy(update={"blocks": [TextBlock(text=text)]})
    return copied
