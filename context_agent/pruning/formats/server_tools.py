"""Tools that the provider runs. Their results are inside the message of their call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_agent.pruning.contents import Call, Path
from context_agent.pruning.formats.collector import ContentCollector, written_form
from context_agent.pruning.formats.fields import (
    first_field,
    first_value,
    get_field,
    has_failed,
    is_of_program,
    text_field,
)
from context_agent.pruning.formats.parts import texts_at

OWN_RESULTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "mcp_call": (("output",),),
    "file_search_call": (("results", "*", "text"),),
    "code_interpreter_call": (("outputs", "*", "logs"),),
    "web_fetch_tool_result": (("content", "content"),),
    "code_execution_tool_result": (("content", "stdout"), ("content", "stderr")),
    "bash_code_execution_tool_result": (("content", "stdout"), ("content", "stderr")),
    "text_editor_code_execution_tool_result": (("content", "content"),),
    "mcp_tool_result": (("content",), ("content", "*", "text")),
    "server_tool_result": (("output",),),
}
"""The paths of the results inside the items and parts of tools that the provider runs.

The provider lets a client change these texts. A star stands for each item of a list. Encrypted results, such as those
of Anthropic's web search, are not listed.
"""
SERVER_CALLS = frozenset(("server_tool_use", "mcp_tool_use", "server_tool_call", "web_search_call"))


def add_server_tool(reading: ContentCollector, part: Any, kind: str, path: Path, *, is_waiting: bool = False) -> None:
    """Add the arguments and the results that an item or a part of a provider's own tool contains.

    The results of a call that a program of the model made go to the program, so they are left out. If the call
    `is_waiting` for its result, its arguments stay whole, because the provider has yet to run it.
    """
    name = text_field(part, "name") or kind
    key = next(filter(None, (text_field(part, name) for name in ("tool_use_id", "tool_call_id", "id"))), kind)
    field, arguments = first_field(part, "arguments", "code", "input")
    if arguments and is_waiting:
        reading.add_words(name, arguments)
    elif arguments:
        form = written_form(field, is_text=isinstance(arguments, str))
        reading.add_own_call(Call(key, name, is_of_program(part)), arguments, (*path, field), form)
    elif said := first_value(part, "queries", "args") or first_value(
        get_field(part, "action"), "query", "pattern", "url"
    ):
        reading.add_words(name, said)
    if is_of_program(part):
        reading.program_calls.add(key)
    if key in reading.program_calls:
        return
    texts = [text for steps in OWN_RESULTS.get(kind, ()) for text in texts_at(part, steps, path)]
    failed = (
        bool(get_field(part, "error"))
        or has_failed(get_field(get_field(part, "content"), "return_code"))
        or get_field(part, "is_error") is True
        or get_field(part, "status") in ("failed", "error")
    )
    reading.add_own_results(key, texts, flagged=failed)
