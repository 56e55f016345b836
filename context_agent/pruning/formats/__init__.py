"""Reading of one message in the format of each provider.

Six formats are supported: OpenAI's chat completions, the items of OpenAI's Responses API, Anthropic's messages, the
messages of Bedrock's Converse API, Gemini's contents, and LangChain's messages. Messages may be dicts or objects, and
no framework is imported. Files and unknown parts are passed through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import MessageContent, MessageKind
from context_agent.pruning.formats.bedrock import is_bedrock, read_bedrock
from context_agent.pruning.formats.chat import read_authored, read_tool_message
from context_agent.pruning.formats.fields import text_field
from context_agent.pruning.formats.gemini import is_gemini, read_gemini
from context_agent.pruning.formats.responses import OPAQUE_ITEMS, read_item

_ROLES = {
    "system": "system", "developer": "system", "user": "user", "human": "user", "assistant": "assistant",
    "ai": "assistant", "model": "assistant", "tool": "tool", "function": "tool", "HumanMessageChunk": "user",
    "AIMessageChunk": "assistant", "SystemMessageChunk": "system", "ToolMessageChunk": "tool",
}  # fmt: skip


def read_content(message: Any, index: int) -> MessageContent:
    """Return the content of one message.

    Args:
        message: The message, a dict or an object. A pair of a role and a text is accepted too.
        index: The index of the message in the conversation.

    Returns:
        The content. If the message is passed through, the role is `unknown`. If the value is not a message, it is
        empty.
    """
    if isinstance(message, tuple | list) and len(message) == 2 and all(isinstance(item, str) for item in message):
        message = {"role": message[0], "content": message[1]}
    kind, role = text_field(message, "type"), text_field(message, "role")
    if not kind and not role:
        return MessageContent("", unknown=(type(message).__name__,))
    if not role and (kind.endswith(("_call", "_output")) or kind in OPAQUE_ITEMS):
        return read_item(message, kind, index)
    # A dict of LangChain, such as a saved state of LangGraph has, has the type of the object and a content.
    is_langchain = not role and (not isinstance(message, Mapping) or "content" in message)
    author = _ROLES.get(kind if is_langchain else role)
    if author is None:
        return MessageContent("unknown", unknown=(role or kind,))
    family: MessageKind | None = "langchain" if is_langchain else "responses" if kind == "message" else None
    return _of_author(message, index, author, family)


def _of_author(message: Any, index: int, author: str, kind: MessageKind | None) -> MessageContent:
    """Return the content of a message that has a role."""
    if is_gemini(message):
        return read_gemini(message, index, author)
    if is_bedrock(message):
        return read_bedrock(message, index, author)
    if author == "tool":
        return read_tool_message(message, index, kind or "openai")
    return read_authored(message, index, author, kind)
