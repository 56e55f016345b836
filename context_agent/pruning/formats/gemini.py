"""Contents of Gemini."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import Call, MessageContent, Path, ResultText
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import first_field, first_key, first_value, get_field, items, text_field
from context_agent.pruning.formats.parts import texts_at, value_texts

_GEMINI_OPAQUE = (
    "inlineData", "inline_data", "fileData", "file_data", "thoughtSignature", "thought_signature", "toolCall",
    "tool_call", "toolResponse", "tool_response", "data", "file",
)  # fmt: skip
"""Known parts without a text that pruning may change. Google signs the results of its own tools.

Data and files are parts of the Agent2Agent protocol, whose messages have Gemini's form.
"""

_CALLS = ("functionCall", "function_call", "executableCode", "executable_code")
_USER_PARTS = ("text", "functionResponse", "function_response", "inlineData", "inline_data", "fileData", "file_data")


def is_gemini(message: Any) -> bool:
    """Return True if a message has parts instead of a content."""
    return isinstance(get_field(message, "parts"), list | tuple)


def is_gemini_without_role(message: Any) -> bool:
    """Return True for one of Gemini's contents without a role. The API takes it for one of the user."""
    parts = items(get_field(message, "parts"))
    has_type = get_field(message, "type") is not None
    return not has_type and any(first_value(part, *_CALLS, *_USER_PARTS) is not None for part in parts)


def read_gemini_without_role(message: Any, index: int) -> MessageContent:
    """Return the content of one of Gemini's contents without a role. Calls and code are those of the model."""
    parts = items(get_field(message, "parts"))
    has_calls = any(first_value(part, *_CALLS) is not None for part in parts)
    return read_gemini(message, index, "assistant" if has_calls else "user")


def read_gemini(message: Any, index: int, role: str) -> MessageContent:
    """Return the content of one of Gemini's contents."""
    reading = ContentCollector(index, "gemini")
    for number, part in enumerate(items(get_field(message, "parts"))):
        call_name, call = first_field(part, "functionCall", "function_call")
        result_name, result = first_field(part, "functionResponse", "function_response")
        _, code = first_field(part, "executableCode", "executable_code")
        output_name, output = first_field(part, "codeExecutionResult", "code_execution_result")
        signed = bool(first_value(part, "thoughtSignature", "thought_signature"))
        if call is not None:
            path: Path = ("parts", number, call_name, "args")
            own = Call(text_field(call, "id"), text_field(call, "name"))
            reading.add_call(own, get_field(call, "args"), path, "value", fixed=signed)
        elif result is not None:
            answer = Call(text_field(result, "id"), text_field(result, "name"))
            texts, failed = response_texts(result, ("parts", number, result_name))
            reading.add_results(answer, texts, flagged=failed)
        elif code is not None:
            reading.add_words("code", get_field(code, "code"))
        elif output is not None:
            own_texts = () if signed else texts_at(output, ("output",), ("parts", number, output_name))
            failed = get_field(output, "outcome") in ("OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED")
            reading.add_own_results("code", own_texts, flagged=failed)
        elif isinstance(text := get_field(part, "text"), str):
            reading.add_text(("parts", number, "text"), text)
        elif not any(get_field(part, name) is not None for name in _GEMINI_OPAQUE):
            reading.unknown.append(first_key(part))
    return reading.authored(role)


def response_texts(result: Any, path: Path) -> tuple[list[ResultText], bool]:
    """Return the text of a function response, and True if it has an error."""
    value = get_field(result, "response")
    failed = isinstance(value, Mapping) and bool(value.get("error"))
    return value_texts((*path, "response"), value), failed
