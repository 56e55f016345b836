"""A LlamaIndex memory that prunes the messages that an agent reads from it. Needs the extra `llamaindex`."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from pydantic import BaseModel, PrivateAttr, SerializeAsAny

from context_agent._support.extras import extra
from context_agent.integrations.conversation_pruners import ConversationPruners
from context_agent.pruning.pruner import DEFAULT_BUDGET

with extra("llamaindex"):
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.memory import BaseMemory, Memory


class ContextPruningMemory(BaseMemory):
    """A memory that prunes the messages read from another memory.

    `get` leaves out passages of old tool results, and `get_all` returns everything. LlamaIndex's agents read their
    memory when a run begins, so the tool results of earlier runs are pruned.

    Example:
        ```python
        agent.run("...", memory=ContextPruningMemory(Memory.from_defaults(), budget=8_000))
        ```
    """

    memory: SerializeAsAny[BaseMemory]
    _pruners: ConversationPruners = PrivateAttr()

    def __init__(self, memory: BaseMemory, budget: int = DEFAULT_BUDGET, **options: Any) -> None:
        """Make a memory with a pruner for each conversation.

        Args:
            memory: The memory that stores the messages.
            budget: The tokens of tool results to keep.
            options: Further options for `ContextPruner`.
        """
        # pydantic's own `__init__` takes the fields of the subclass.
        super().__init__(memory=memory)  # type: ignore[call-arg]
        self._pruners = ConversationPruners.of(budget, **options)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # LlamaIndex would call `__init__` without the budget and the options.
        BaseModel.__setstate__(self, state)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex stores the memory."""
        return "ContextPruningMemory"

    @classmethod
    def from_defaults(cls, **options: Any) -> Self:
        """Return a memory that wraps LlamaIndex's own memory, which gets the options."""
        return cls(Memory.from_defaults(**options))

    def get(self, input: str | None = None, **options: Any) -> list[ChatMessage]:
        """Return the pruned messages."""
        return self._pruned(self.memory.get(input, **options))

    async def aget(self, input: str | None = None, **options: Any) -> list[ChatMessage]:
        """Return the pruned messages."""
        return await asyncio.to_thread(self._pruned, await self.memory.aget(input, **options))

    def get_all(self) -> list[ChatMessage]:
        """Return all messages, unpruned."""
        return self.memory.get_all()

    async def aget_all(self) -> list[ChatMessage]:
        """Return all messages, unpruned."""
        return await self.memory.aget_all()

    def put(self, message: ChatMessage) -> None:
        """Add a message."""
        self.memory.put(message)

    async def aput(self, message: ChatMessage) -> None:
        """Add a message."""
        await self.memory.aput(message)

    async def aput_messages(self, messages: list[ChatMessage]) -> None:
        """Add messages."""
        await self.memory.aput_messages(messages)

    def set(self, messages: list[ChatMessage]) -> None:
        """Replace all messages."""
        self.memory.set(messages)

    async def aset(self, messages: list[ChatMessage]) -> None:
        """Replace all messages."""
        await self.memory.aset(messages)

    def reset(self) -> None:
        """Remove all messages."""
        self.memory.reset()

    def _pruned(self, messages: list[ChatMessage]) -> list[ChatMessage]:
        return self._pruners.prune(messages).messages
