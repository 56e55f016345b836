"""Messages of frameworks that list calls, results and texts as parts with a type.

These are the Vercel AI SDK, Pydantic AI, Semantic Kernel, Microsoft's Agent Framework, the sessions of Crush, and the
messages in OpenTelemetry's traces. The frameworks differ only in the names of types and fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from context_agent.pruning.contents import Call, MessageContent, MessageKind, Path, ResultText
from context_agent.pruning.formats.collector import ContentCollector, written_form
from context_agent.pruning.formats.fields import (
    first_field,
    first_value,
    get_field,
    is_of_program,
    is_signed,
    items,
    text_field,
)
from context_agent.pruning.formats.parts import result_text, result_texts, value_texts

_WORDS = frozenset((
    "text", "reasoning", "text_reasoning", "thinking", "user-prompt", "system-prompt", "TextContent",
    "ReasoningContent",
))  # fmt: skip
_OPAQUE = frozenset((
    "image", "file", "source-url", "source-document", "step-start", "source", "redacted-reasoning",
    "reasoning-file", "tool-approval-request", "tool-approval-response", "builtin-tool-call", "builtin-tool-return",
    "native-tool-call", "native-tool-return",
    "compaction", "speech", "blob", "uri", "server_tool_call", "server_tool_call_response", "retry-feedback",
    "instruction", "instruction-delta", "instruction-baseline", "instruction-digest", "tool-availability-delta",
    "capability-load-delta", "model-settings-delta", "binary", "annotation", "file_reference",
    "data", "error", "usage", "finish", "image_url", "hosted_file", "hosted_vector_store", "hostedFile",
    "hostedVectorStore", "ImageContent", "AudioContent", "BinaryContent", "AnnotationContent", "FileReferenceContent",
))  # fmt: skip
"""Known parts without a text that pruning may change."""
_OPAQUE_ENDS = ("toolcall", "toolresult", "approvalrequest", "approvalresponse")
"""The ends of the types of further such parts, without underscores: tools of the provider, and approvals."""
_FAILURES = ("failed", "retried", "error-text", "error-json")


@dataclass(frozen=True, slots=True)
class PartFormat:
    """The names that a framework uses.

    Attributes:
        kind: The format.
        parts: The field of a message with its parts.
        type: The field of a part with its type.
        call: The type of a call.
        results: The types of results.
        id: The field of a call and of a result with the id of the call.
        name: The field with the name of the tool.
        arguments: The fields that may have the arguments of a call.
        outputs: The fields that may have the output in a result.
        answer: The field of a result with the id of the call, if it has another name than in the call.
    """

    kind: MessageKind
    parts: str
    type: str
    call: str
    results: tuple[str, ...]
    id: str
    name: str
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    answer: str = ""


VERCEL = PartFormat(
    "vercel", "content", "type", "tool-call", ("tool-result",), "toolCallId", "toolName", ("input", "args"),
    ("output", "result"),
)  # fmt: skip
PYDANTIC_AI = PartFormat(
    "pydantic-ai", "parts", "part_kind", "tool-call", ("tool-return", "retry-prompt"), "tool_call_id", "tool_name",
    ("args",), ("content",),
)  # fmt: skip
OPENTELEMETRY = PartFormat(
    "opentelemetry", "parts", "type", "tool_call", ("tool_call_response",), "id", "name", ("arguments",),
    ("response", "result"),
)  # fmt: skip
SEMANTIC_KERNEL = PartFormat(
    "semantic-kernel", "items", "content_type", "function_call", ("function_result",), "id", "name", ("arguments",),
    ("result",),
)  # fmt: skip
SEMANTIC_KERNEL_CSHARP = PartFormat(
    "semantic-kernel", "Items", "$type", "FunctionCallContent", ("FunctionResultContent",), "Id", "FunctionName",
    ("Arguments",), ("Result",), "CallId",
)  # fmt: skip
"""The messages of a `ChatHistory` that `System.Text.Json` writes."""
AGENT_FRAMEWORK = PartFormat(
    "agent-framework", "contents", "type", "function_call", ("function_result",), "call_id", "name", ("arguments",),
    ("result",),
)  # fmt: skip
EXTENSIONS_AI = PartFormat(
    "agent-framework", "contents", "$type", "functionCall", ("functionResult",), "callId", "name", ("arguments",),
    ("result",),
)  # fmt: skip
"""The messages of `Microsoft.Extensions.AI`, which the Agent Framework uses in C#."""
CRUSH = PartFormat(
    "openai", "parts", "type", "tool_call", ("tool_result",), "tool_call_id", "name", ("input",), ("content",),
)  # fmt: skip
"""The messages that `crush session show --json` prints."""


def pydantic_ai_author(message: Any) -> str:
    """Return the author of a message of Pydantic AI. If the message has another format, return an empty string."""
    has_parts = isinstance(get_field(message, "parts"), list | tuple)
    return {"request": "user", "response": "assistant"}.get(text_field(message, "kind"), "") if has_parts else ""


def has_typed_parts(message: Any) -> bool:
    """Return True if the parts of a message have the types of a framework."""
    return _part_format(message) is not None


def _part_format(message: Any) -> PartFormat | None:
    if pydantic_ai_author(message):
        return PYDANTIC_AI
    if any(text_field(part, "content_type") for part in items(get_field(message, "items"))):
        return SEMANTIC_KERNEL
    for names in (AGENT_FRAMEWORK, EXTENSIONS_AI, SEMANTIC_KERNEL_CSHARP):
        if any(text_field(part, names.type) for part in items(get_field(message, names.parts))):
            return names
    parts = items(get_field(message, "parts"))
    types = [text_field(part, "type") for part in parts]
    if "finish" in types or any(text_field(part, CRUSH.id) for part in parts):
        return CRUSH
    if types and all(types):
        return OPENTELEMETRY
    types = [text_field(part, "type") for part in items(get_field(message, "content"))]
    return VERCEL if any(name.startswith("tool-") for name in types) else None


def read_typed_parts(message: Any, index: int, role: str) -> MessageContent:
    """Return the content of a message whose parts have types."""
    names = _part_format(message) or VERCEL
    reading = ContentCollector(index, names.kind)
    parts = items(get_field(message, names.parts))
    types = [text_field(part, names.type) for part in parts]
    if role == "user" and types and set(types) == {"system-prompt"}:
        role = "system"
    for number, (part, name) in enumerate(zip(parts, types, strict=True)):
        path: Path = (names.parts, number)
        # A tool of the provider has its result in the message of its call. It is often signed.
        is_own = role == "assistant" and (name in names.results or get_field(part, "providerExecuted") is True)
        own_id = text_field(part, names.answer if names.answer and name in names.results else names.id)
        call = Call(own_id, text_field(part, names.name), is_of_program(part))
        if name == names.call:
            field, arguments = first_field(part, *names.arguments)
            if is_own:
                reading.add_words(call.name, arguments)
            else:
                form = written_form("arguments", is_text=isinstance(arguments, str))
                reading.add_call(call, arguments, (*path, field), form, fixed=is_signed(part))
        elif name in names.results and (call.name or name != "retry-prompt"):
            if not is_own:
                _add_result(reading, part, call, path, names)
        elif name in _WORDS or name == "retry-prompt":
            if name != "system-prompt" or role == "system":
                reading.words += _words(part)
        elif name not in _OPAQUE and not name.replace("_", "").lower().endswith(_OPAQUE_ENDS):
            reading.unknown.append(name)
    return reading.authored(role)


def _add_result(reading: ContentCollector, part: Any, call: Call, path: Path, names: PartFormat) -> None:
    field, output = first_field(part, *names.outputs)
    output_type = text_field(output, "type") if isinstance(output, Mapping) else ""
    texts, unknown = _output_texts(output, output_type, (*path, field), names)
    if names is AGENT_FRAMEWORK and isinstance(output, str):
        texts, unknown = _repeated_texts(part, output, path)
    has_error = True in (get_field(part, "isError"), get_field(part, "is_error")) or bool(get_field(part, "exception"))
    failed = has_error or get_field(part, "outcome") in _FAILURES or output_type in _FAILURES
    # A typed result of Pydantic AI must keep its fields.
    texts = [] if get_field(part, "tool_kind") else texts
    reading.add_results(call, texts, flagged=failed or text_field(part, names.type) == "retry-prompt")
    reading.unknown += unknown


def _repeated_texts(part: Any, output: str, path: Path) -> tuple[list[ResultText], list[str]]:
    """Return the text of a result whose items repeat it. Some clients send the text to the model, others the items.

    If several items share the text, it stays, because its passages belong to no single item.
    """
    texts = [
        (row, text) for row, item in enumerate(items(get_field(part, "items"))) if (text := text_field(item, "text"))
    ]
    if len(texts) > 1 or any(text != output for _, text in texts):
        return [], ["function_result with several texts"]
    repeats = tuple((*path, "items", row, "text") for row, _ in texts)
    return [replace(result_text((*path, "result"), output), repeats=repeats)], []


def _output_texts(output: Any, output_type: str, path: Path, names: PartFormat) -> tuple[list[ResultText], list[str]]:
    """Return the texts in the output of a tool, and the types of unknown parts."""
    if isinstance(output, str):
        return [result_text(path, output)], []
    if names is VERCEL and path[-1] == "output" and "value" in (output if isinstance(output, Mapping) else ()):
        value, path = output["value"], (*path, "value")
        if output_type == "content":
            return result_texts(value, path, names.kind)
        is_text = isinstance(value, str) and "text" in output_type
        return [result_text(path, value)] if is_text else value_texts(path, value), []
    texts = value_texts(path, output)
    if not texts:
        texts = _item_texts(items(output), path)
    is_unread = output is not None and not texts
    return texts, [type(output).__name__] if is_unread else []


def _item_texts(parts: Sequence[Any], path: Path) -> list[ResultText]:
    """Return the texts in a list that is not JSON. They may be beside files, or be objects with a `text`."""
    texts: list[ResultText] = []
    for row, item in enumerate(parts):
        if isinstance(item, str):
            texts.append(result_text((*path, row), item))
        elif text := text_field(item, "text"):
            texts.append(result_text((*path, row, "text"), text))
    return texts


def _words(part: Any) -> list[str]:
    """Return the texts that the author of a message wrote."""
    said = first_value(part, "text", "content", "Text")
    if isinstance(said, str):
        return [said]
    texts = (item if isinstance(item, str) else text_field(item, "content") for item in items(said))
    return [text for text in texts if text]
