"""Messages in the sessions of OpenCode. A message of the agent has its calls with their results."""

from __future__ import annotations

from typing import Any

from context_agent.pruning.contents import Call, MessageContent
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.fields import get_field, items, text_field
from context_agent.pruning.formats.parts import result_text

_ROLES = ("user", "assistant")
_OPAQUE = frozenset((
    "file", "step-start", "step-finish", "snapshot", "patch", "agent", "retry", "compaction", "subtask",
))  # fmt: skip


def is_opencode(message: Any) -> bool:
    """Return True if a message has its role in `info`, and its content in `parts`."""
    role = text_field(get_field(message, "info"), "role")
    return role in _ROLES and isinstance(get_field(message, "parts"), list | tuple)


def read_opencode(message: Any, index: int) -> MessageContent:
    """Return the content of a message of OpenCode.

    A user did not write the synthetic texts in their message, which are the contents of mentioned files. OpenCode does
    not send a compacted result to the model, so this result is passed through.
    """
    reading = ContentCollector(index, "opencode")
    for number, part in enumerate(items(get_field(message, "parts"))):
        kind, state = text_field(part, "type"), get_field(part, "state")
        if kind in ("text", "reasoning"):
            is_added = get_field(part, "synthetic") is True or get_field(part, "ignored") is True
            reading.words += [] if is_added else [text_field(part, "text")]
        elif kind == "tool":
            path = ("parts", number, "state")
            call = Call(text_field(part, "callID"), text_field(part, "tool"))
            reading.add_own_call(call, get_field(state, "input"), (*path, "input"))
            failed = text_field(state, "status") == "error"
            field = "error" if failed else "output"
            if (text := text_field(state, field)) and not get_field(get_field(state, "time"), "compacted"):
                reading.add_own_results(call.id, [result_text((*path, field), text)], flagged=failed)
        elif kind not in _OPAQUE:
            reading.unknown.append(kind)
    return reading.content(text_field(get_field(message, "info"), "role"))
