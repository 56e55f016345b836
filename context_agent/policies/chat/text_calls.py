"""Tool calls as text, for models without native tool calls.

A call is a JSON object between tags, the format that most small models were trained on:

    <tool_call>{"name": "search_corpus", "arguments": {"query": "who founded the WELL"}}</tool_call>

Other forms are accepted too: a missing end tag, a fenced block of JSON, JSON below some words, `parameters` instead of
`arguments`, and several calls in a row or in a list. An unreadable call keeps its raw text, so that the episode answers
it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from context_agent.harness.action_text import compact
from context_agent.harness.tools import bounded_calls
from context_agent.policies.chat.replies import read_arguments, tool_name
from context_agent.types import ToolCall

LONGEST_REPLY = 100_000
"""Characters of a reply that are searched for calls. A longer reply has none."""
CALL_TAG = "<tool_call>"
MAX_UNREADABLE = 64
"""Brackets in a text that may begin something other than JSON before the search for calls ends."""
RANKING_START = "<document id"
UNREADABLE = "unreadable"
"""The name of a call whose own name could not be read."""

CALL_INSTRUCTIONS = """To call a tool, write it like this:
<tool_call>{"name": "TOOL", "arguments": {"NAME": "VALUE"}}</tool_call>
Write several to run them at the same time, then stop: the results come as the next message. Do not write results."""

_TAGGED = re.compile(r"<tool_call>(.*?)(?:</tool_call>|(?=<tool_call>)|\Z)", re.S)
_TAG = re.compile(r"<(?=/?(?:tool_call|think)>)")
_FENCED = re.compile(r"```(?:json|tool_call|tool_code|tool)?[ \t]*\n(.*?)(?:```|\Z)", re.S)
_OPENING = re.compile(r"[{\[]")
_NAME = re.compile(r"\"(?:name|tool|tool_name|function)\"\s{0,8}:\s{0,8}\"([\w.\-]{1,64})\"")
_DECODER = json.JSONDecoder(strict=False)


def parse_calls(text: str) -> tuple[str, tuple[ToolCall, ...]]:
    """Find the calls in a reply. Return the reply without the calls, and the calls.

    The function raises no errors. In a reply longer than `LONGEST_REPLY`, it finds no calls.
    """
    if len(text) > LONGEST_REPLY:
        return text, ()
    if tagged := [piece for piece in _TAGGED.findall(text) if piece.strip()]:
        calls = [call for piece in tagged for call in _calls(piece, tagged=True)[1] or [_unreadable(piece)]]
        return _TAGGED.sub("", text).strip(), bounded_calls(calls)
    # JSON in a ranking is quoted.
    words = text.partition(RANKING_START)[0]
    if fenced := [call for piece in _FENCED.findall(words) for call in _calls(piece)[1]]:
        return _FENCED.sub("", words).strip(), bounded_calls(fenced)
    start, calls = _calls(words)
    return (words[:start].strip(), bounded_calls(calls)) if calls else (text, ())


def written(call: ToolCall) -> str:
    """Return the call in the text format. A tag that an argument spells is escaped, so that it ends nothing."""
    text = _TAG.sub(r"\\u003c", compact({"name": call.name, "arguments": call.arguments}))
    return f"<tool_call>{text}</tool_call>"


def _calls(piece: str, *, tagged: bool = False) -> tuple[int, list[ToolCall]]:
    """Return the calls in the JSON values of a piece, and the position of the first of these values.

    Text around the values is ignored. Between tags, what cannot be read ends the calls, because the rest may be a part
    of it.
    """
    start, calls = len(piece), list[ToolCall]()
    position = failures = 0
    while failures < MAX_UNREADABLE and (opening := _OPENING.search(piece, position)):
        try:
            value, position = _DECODER.raw_decode(piece, opening.start())
        except (ValueError, RecursionError):
            failures, position = MAX_UNREADABLE if tagged else failures + 1, opening.end()
            continue
        items = (_call(item, tagged) for item in (value if isinstance(value, list) else [value]))
        if found := [call for call in items if call is not None]:
            start = min(start, opening.start())
            calls += found
    return start, calls


def _call(value: object, tagged: bool) -> ToolCall | None:
    """Return the call in a JSON value. If the call is between tags, its arguments may be fields next to its name."""
    if not isinstance(value, dict):
        return None
    inner = value.get("function")
    fields: Mapping[str, Any] = inner if isinstance(inner, dict) else value
    name = _first(fields, ("name", "tool", "tool_name", "function"))
    arguments = _first(fields, ("arguments", "parameters", "args"))
    if arguments is None and tagged:
        arguments = {key: item for key, item in fields.items() if item is not name}
    if not isinstance(name, str) or not name or arguments is None:
        return None
    try:
        raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    except RecursionError:
        return None
    return ToolCall(tool_name(name), read_arguments(raw))


def _first(fields: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((fields[name] for name in names if name in fields), None)


def _unreadable(piece: str) -> ToolCall:
    """Return a call that keeps the raw text. The episode answers it with an error."""
    name = _NAME.search(piece)
    raw = read_arguments(piece.strip())
    # Well-formed JSON without a name would look like arguments.
    return ToolCall(tool_name(name[1]) if name else UNREADABLE, raw if isinstance(raw, str) else {})
