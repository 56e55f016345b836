"""Items of OpenAI's Responses API that are not messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import Call, MessageContent
from context_agent.pruning.formats.collector import ContentCollector, written_form
from context_agent.pruning.formats.fields import get_field, has_failed, is_of_program, items, text_field
from context_agent.pruning.formats.parts import result_texts
from context_agent.pruning.formats.server_tools import OWN_RESULTS, add_server_tool

_CLIENT_ITEMS = frozenset(("compaction_trigger", "mcp_approval_response", "additional_tools", "configuration_update"))
OPAQUE_ITEMS = _CLIENT_ITEMS | {
    "reasoning", "item_reference", "compaction", "compaction_summary", "mcp_list_tools", "mcp_approval_request",
    "program", "program_output", "ghost_snapshot",
}  # fmt: skip
"""Items that are passed through. The client writes some of them itself."""


def is_item(kind: str) -> bool:
    """Return True if an item of this type is not a message."""
    return kind.endswith(("_call", "_output")) or kind in OPAQUE_ITEMS


def read_item(item: Any, kind: str, index: int) -> MessageContent:
    """Return the content of a Responses API item that is not a message."""
    # The output of a local shell names its call as `id`.
    call_id = text_field(item, "call_id") or (text_field(item, "id") if kind == "local_shell_call_output" else "")
    reading = ContentCollector(index, "responses")
    if kind.endswith("_call"):
        if kind in OWN_RESULTS or (not call_id and kind != "function_call"):
            # The provider runs this tool. The item contains the result, if there is one.
            add_server_tool(reading, item, kind, ())
            return reading.content("assistant")
        name = next((name for name in ("arguments", "input", "action", "operation") if get_field(item, name)), "")
        call = Call(call_id, text_field(item, "name") or kind, is_of_program(item))
        is_text = isinstance(get_field(item, name), str) if name else False
        form = written_form(name, is_text=is_text)
        fixed = name == "action" and not _has_only_texts(get_field(item, name))
        reading.add_call(call, get_field(item, name) if name else "", (name,), form, fixed=fixed)
        return reading.content("assistant")
    if kind in OPAQUE_ITEMS or (kind == "tool_search_output" and not call_id):
        return MessageContent("user" if kind in _CLIENT_ITEMS else "assistant", "responses")
    output = get_field(item, "output")
    texts, reading.unknown = result_texts(output, ("output",), "responses")
    reading.add_results(Call(call_id, text_field(item, "name")), texts, flagged=_has_failed(item, output))
    return reading.content("tool")


def _has_failed(item: Any, output: Any) -> bool:
    """Return True if an output says that its call failed, or that a command of a shell did."""
    outcomes = [get_field(part, "outcome") for part in items(output)]
    return text_field(item, "status") == "failed" or any(
        text_field(outcome, "type") == "timeout" or has_failed(get_field(outcome, "exit_code")) for outcome in outcomes
    )


def _has_only_texts(action: Any) -> bool:
    """Return True if the lists of an action have only texts, and if all of its objects are empty.

    The provider checks the types of an action. It would refuse a stub in place of a point or of an environment.
    """
    members = action.values() if isinstance(action, Mapping) else (action,)
    lists = (member for member in members if isinstance(member, list))
    return all(isinstance(item, str) for values in lists for item in values) and not any(
        isinstance(member, Mapping) and member for member in members
    )
