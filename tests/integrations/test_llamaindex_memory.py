"""LlamaIndex's agents with a memory that prunes: what they read and what is stored."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import ChatMemoryBuffer, Memory
from llama_index.core.tools import FunctionTool

from context_agent.errors import ConfigError
from context_agent.integrations.llamaindex_memory import ContextPruningMemory
from tests.support import tool_results


def pruning(memory: Memory) -> ContextPruningMemory:
    return ContextPruningMemory(memory, tool_results.BUDGET, **tool_results.OPTIONS)


def results(messages: list[ChatMessage]) -> list[str]:
    return [message.content or "" for message in messages if message.role == MessageRole.TOOL]


async def test_an_agent_reads_pruned_results_of_its_earlier_run() -> None:
    received: list[list[ChatMessage]] = []
    calls = [
        ToolCallBlock(tool_call_id=f"c{number}", tool_name="search", tool_kwargs={"topic": topic})
        for number, topic in enumerate(tool_results.TOPICS)
    ]
    script = iter([[call] for call in calls] + [[TextBlock(text="At six.")], [TextBlock(text="At noon.")]])

    def respond(messages: Any, **options: Any) -> ChatMessage:
        received.append(list(messages))
        return ChatMessage(role="assistant", blocks=next(script))

    model = MockFunctionCallingLLM(response_generator=respond, is_chat_model=True)
    tool = FunctionTool.from_defaults(tool_results.search)
    agent = FunctionAgent(llm=model, tools=[tool], streaming=False, system_prompt="Be brief.")
    memory = pruning(Memory.from_defaults(token_limit=1_000_000))
    for question in (tool_results.QUESTION, "And low tide?"):
        await agent.run(question, memory=memory)
    full_texts = [tool_results.search(topic) for topic in tool_results.TOPICS]
    assert results(await memory.aget_all()) == full_texts
    last_texts = results(received[-1])
    assert len(last_texts) == len(full_texts)
    assert sum(map(len, last_texts)) < sum(map(len, full_texts)) / 2


def conversation(*contents: Any) -> list[ChatMessage]:
    """Calls in the form of older versions of LlamaIndex's OpenAI models, and their results."""
    messages = [ChatMessage(tool_results.QUESTION)]
    for number, content in enumerate(contents):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "search", "arguments": "{}"}}
        messages.append(ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [call]}))
        blocks = content if isinstance(content, list) else [TextBlock(text=content)]
        messages.append(ChatMessage(role="tool", blocks=blocks, additional_kwargs={"tool_call_id": f"c{number}"}))
    return [*messages, ChatMessage(role="assistant", content="At six.")]


def test_only_texts_change_and_only_in_copies() -> None:
    image = [TextBlock(text="a violin " * 500), ImageBlock(url="https://example.org/violin.png")]
    messages = conversation(tool_results.search("violins"), image, tool_results.search(tool_results.TOPICS[1]))
    memory = pruning(Memory.from_defaults(chat_history=messages, token_limit=1_000_000))
    before = memory.get_all()
    pruned = memory.get()
    assert memory.get_all() == before
    assert "restore: p" in str(pruned[2].content)
    assert pruned[4].blocks[1] == before[4].blocks[1]
    assert pruned[2].additional_kwargs == before[2].additional_kwargs
    assert memory.get() == pruned


def test_a_pickled_memory_keeps_its_budget() -> None:
    """LlamaIndex pickles what the context of a workflow holds."""
    messages = conversation(*map(tool_results.search, tool_results.TOPICS))
    buffer = ChatMemoryBuffer.from_defaults(chat_history=messages, token_limit=1_000_000)
    memory = ContextPruningMemory(buffer, tool_results.BUDGET, **tool_results.OPTIONS)
    copied = pickle.loads(pickle.dumps(memory))
    assert copied.get() == memory.get() != messages
    assert copied.get_all() == messages


def test_an_option_that_does_not_exist_is_reported_at_once() -> None:
    with pytest.raises(ConfigError, match="nearest"):
        ContextPruningMemory(Memory.from_defaults(), strategy="nearest")
