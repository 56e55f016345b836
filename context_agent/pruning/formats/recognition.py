"""The format of one message, recognized by its fields, and the message's content.

Messages may be dicts or objects, and no framework is imported. Files and unknown parts are passed through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from context_agent.pruning.contents import MessageContent, MessageKind, Path
from context_agent.pruning.formats.autogen import AUTOGEN_ROLES, AUTOGEN_SPOKEN, read_autogen
from context_agent.pruning.formats.bedrock import is_bedrock, read_bedrock
from context_agent.pruning.formats.chat import (
    TOOL_CALL_ROLE,
    is_harmony_call,
    read_authored,
    read_harmony_call,
    read_tool_message,
)
from context_agent.pruning.formats.claude_ai import is_claude_ai, read_claude_ai
from context_agent.pruning.formats.codex_exec import is_codex_exec, read_codex_exec
from context_agent.pruning.formats.cohere import is_cohere_entry, read_cohere
from context_agent.pruning.formats.copilot_cli import is_copilot_cli, read_copilot_cli
from context_agent.pruning.formats.cursor_cli import is_cursor_event, read_cursor_event
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.gemini import (
    is_gemini,
    is_gemini_without_role,
    read_gemini,
    read_gemini_without_role,
)
from context_agent.pruning.formats.gemini_cli import is_gemini_cli, read_gemini_cli
from context_agent.pruning.formats.gemini_live import is_gemini_live, read_gemini_live
from context_agent.pruning.formats.goose import is_goose, read_goose
from context_agent.pruning.formats.haystack import is_haystack, read_haystack
from context_agent.pruning.formats.interactions import (
    is_interaction_step,
    is_interaction_turn,
    read_interaction_step,
    read_interaction_turn,
)
from context_agent.pruning.formats.kiro import is_kiro_entry, is_kiro_line, read_kiro_entry, read_kiro_line
from context_agent.pruning.formats.letta import is_letta, read_letta
from context_agent.pruning.formats.llamaindex import is_llamaindex, read_llamaindex
from context_agent.pruning.formats.mistral import MISTRAL_ENTRIES, MISTRAL_MESSAGES, read_mistral
from context_agent.pruning.formats.opencode import is_opencode, read_opencode
from context_agent.pruning.formats.openhands import is_openhands, read_openhands
from context_agent.pruning.formats.responses import is_item, read_item
from context_agent.pruning.formats.sharegpt import is_sharegpt, read_sharegpt
from context_agent.pruning.formats.text_results import with_observation, with_text_results
from context_agent.pruning.formats.trajectories import (
    is_dspy_turn,
    is_smolagents_step,
    is_trajectory_step,
    read_dspy_turn,
    read_smolagents_step,
    read_trajectory_step,
)
from context_agent.pruning.formats.typed_parts import has_typed_parts, pydantic_ai_author, read_typed_parts
from context_agent.pruning.formats.vercel_ui import is_vercel_ui, read_vercel_ui
from context_agent.pruning.formats.vscode_chat import is_vscode_request, read_vscode_request
from context_agent.pruning.formats.wrappers import held_messages, is_compaction_record, is_session_record, unwrapped
from context_agent.pruning.formats.zed import is_older_zed, is_zed, read_older_zed, read_zed

_ENVIRONMENT = "environment"
"""The role of results in the histories of some agents whose calls are texts."""
_ROLES = {
    "system": "system", "developer": "system", "user": "user", "human": "user", "assistant": "assistant",
    "ai": "assistant", "model": "assistant", "chatbot": "assistant", "tool": "tool", "function": "tool",
    TOOL_CALL_ROLE: "assistant", "tool-response": "tool", "HumanMessage": "user", "AIMessage": "assistant",
    "SystemMessage": "system", "ToolMessage": "tool", "FunctionMessage": "tool", "HumanMessageChunk": "user",
    "AIMessageChunk": "assistant", "SystemMessageChunk": "system", "ToolMessageChunk": "tool",
    "reasoning": "assistant", "activity": "assistant",
    "toolResult": "tool", "agent": "assistant", "ROLE_USER": "user", "ROLE_AGENT": "assistant",
    "ipython": "tool", "observation": "tool", _ENVIRONMENT: "user",
}  # fmt: skip
_FAMILIES: dict[str, MessageKind] = {"message": "responses", **dict.fromkeys(MISTRAL_MESSAGES, "mistral")}
"""The formats that the type of a message shows."""
_ANTHROPIC_PARTS = ("text", "thinking", "tool_use", "tool_result")
"""Types of parts that messages of Anthropic have, but not those of OpenAI's Responses API with the same type."""
_WITHOUT_ROLE: tuple[tuple[Callable[[Any], bool], Callable[[Any, int], MessageContent]], ...] = (
    (is_letta, read_letta),
    (is_opencode, read_opencode),
    (is_gemini_cli, read_gemini_cli),
    (is_interaction_step, read_interaction_step),
    (is_sharegpt, read_sharegpt),
    (is_trajectory_step, read_trajectory_step),
    (is_smolagents_step, read_smolagents_step),
    (is_dspy_turn, read_dspy_turn),
    (is_openhands, read_openhands),
    (is_copilot_cli, read_copilot_cli),
    (is_gemini_live, read_gemini_live),
    (is_codex_exec, read_codex_exec),
    (is_kiro_entry, read_kiro_entry),
    (is_kiro_line, read_kiro_line),
    (is_vscode_request, read_vscode_request),
    (is_cursor_event, read_cursor_event),
    (is_claude_ai, read_claude_ai),
    (is_zed, read_zed),
    (is_gemini_without_role, read_gemini_without_role),
)
"""The formats whose messages have no role of their own."""
_BY_TYPE: dict[str, Callable[[Any, int], MessageContent]] = {
    **dict.fromkeys((*AUTOGEN_ROLES, *AUTOGEN_SPOKEN), read_autogen),
    **dict.fromkeys(MISTRAL_ENTRIES, read_mistral),
}
_FORMATS: tuple[tuple[Callable[[Any], bool], Callable[[Any, int, str], MessageContent]], ...] = (
    (is_harmony_call, read_harmony_call),
    (is_llamaindex, read_llamaindex),
    (is_haystack, read_haystack),
    (is_vercel_ui, read_vercel_ui),
    (has_typed_parts, read_typed_parts),
    (is_gemini, read_gemini),
    (is_bedrock, read_bedrock),
    (is_interaction_turn, read_interaction_turn),
    (is_goose, read_goose),
    (is_older_zed, read_older_zed),
)
"""The formats that the fields of a message or of its parts show. The first that fits reads the message."""


def read_content(
    message: Any, index: int, *, written_calls: frozenset[str] | None = None, is_last: bool = False
) -> MessageContent:
    """Return the content of one message.

    Args:
        message: The message, a dict or an object. A pair of a role and a text is accepted too.
        index: The index of the content in the conversation.
        written_calls: The marks of calls in the text of the agent's message that this message follows. If it follows
            none, it is None. Otherwise the text of a user message may contain tool results.
        is_last: True if the message is the last of the conversation. Then its text may have several turns of the agent.

    Returns:
        The content. If the message is passed through, the role is `unknown`. If the value is not a message, it is
        empty.
    """
    if isinstance(message, tuple | list) and len(message) == 2 and all(isinstance(item, str) for item in message):
        message = {"role": message[0], "content": message[1]}
    if held := held_messages(message):
        return _joined(held, index)
    if is_session_record(message):
        return MessageContent("unknown", is_compaction=is_compaction_record(message))
    path, inner = unwrapped(message)
    content = _read(inner, index)
    is_observation = text_field(inner, "message_type") == "observation" or text_field(inner, "role") == _ENVIRONMENT
    if is_observation and written_calls is not None:
        content = with_observation(content, index)
    content = with_text_results(content, index, written_calls, is_last=is_last)
    return _under(path, content) if path else content


def _joined(held: Sequence[tuple[Path, Any]], index: int) -> MessageContent:
    """Return the contents of the messages in one event. The first has the others as later contents."""
    contents: list[MessageContent] = []
    for path, message in held:
        # An event inside an event is passed through, however deep they are.
        is_event = bool(held_messages(message))
        content = MessageContent("unknown") if is_event else read_content(message, index + len(contents))
        content = _under(path, content)
        contents += [replace(content, later=()), *content.later]
    return replace(contents[0], later=tuple(contents[1:]))


def _under(path: Path, content: MessageContent) -> MessageContent:
    """Return the content of a message that is at a path in another object."""
    results, arguments = (
        tuple(
            replace(text, path=(*path, *text.path), repeats=tuple((*path, *repeat) for repeat in text.repeats))
            for text in texts
        )
        for texts in (content.results, content.arguments)
    )
    later = tuple(_under(path, part) for part in content.later)
    return replace(content, results=results, arguments=arguments, later=later)


def _read(message: Any, index: int) -> MessageContent:
    kind = text_field(message, "type")
    role = next(filter(None, (text_field(message, name) for name in ("role", "_role"))), "")
    role = role or text_field(get_field(message, "author"), "role") or text_field(get_field(message, "Role"), "Label")
    if role == _ENVIRONMENT and any(text_field(message, name) for name in ("tool_call_id", "name", "tool_name")):
        role = "tool"
    if is_cohere_entry(message, role):
        return read_cohere(message, index)
    if not role and (content := _without_role(message, kind, index)) is not None:
        return content
    # A dict of LangChain, such as a saved state of LangGraph has, has the type of the object and a content.
    is_langchain = not role and (not isinstance(message, Mapping) or "content" in message)
    author = _ROLES.get(kind if is_langchain else role, "")
    if not author:
        return MessageContent("unknown", unknown=(role or kind,))
    for is_format, read in _FORMATS:
        if is_format(message):
            return read(message, index, author)
    family: MessageKind | None = "langchain" if is_langchain else _FAMILIES.get(kind)
    parts = items(get_field(message, "content"))
    if family == "responses" and any(text_field(part, "type") in _ANTHROPIC_PARTS for part in parts):
        family = None
    if author == "tool":
        return read_tool_message(message, index, family)
    return read_authored(message, index, author, family)


def _without_role(message: Any, kind: str, index: int) -> MessageContent | None:
    """Return the content of a message that never has a role. If it may be one of LangChain, return None."""
    for is_format, read in _WITHOUT_ROLE:
        if is_format(message):
            return read(message, index)
    if author := pydantic_ai_author(message):
        return read_typed_parts(message, index, author)
    if not kind:
        return MessageContent("", unknown=(type(message).__name__,))
    if (read_by_type := _BY_TYPE.get(kind)) is not None:
        return read_by_type(message, index)
    if is_item(kind):
        return read_item(message, kind, index)
    return None
