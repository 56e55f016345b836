"""Marks in the text of a message: of calls, of their results, and of blocks that a coding agent adds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from context_agent.pruning.formats.fields import MOST_READ, asked, first_value, text_field

_TAGS = (
    "<tool_call>", "<function_calls>", "<minimax:tool_call>", "<|tool_call_begin|>", "<｜tool▁call▁begin｜>",
    "[TOOL_CALLS]", "<|python_tag|>",
)  # fmt: skip
"""The tags of calls in the texts of Qwen, Claude, MiniMax, Kimi, DeepSeek, Mistral and Llama."""
CALL_MARKS = frozenset((*_TAGS, "<function=", "Action:", "Calling tools:", "tool_name"))
"""The marks of calls that no other text has. A result without an id may answer such a call."""
_CALL = re.compile(
    rf"(?P<mark><function=)\w|(?P<tagged>{'|'.join(map(re.escape, _TAGS))})|^[ \t]{{0,3}}(?P<action>Action:)\s{{0,2}}\S"
    r"|^(?P<calling>Calling tools:)\n\[|^(?:\[\[ ## |<)(?P<field>tool_name)_\d{1,6}(?: ## \]\]|>)",
    re.M,
)
_LOOSE_CALL = re.compile(
    r'^[ \t]{0,3}(?P<fence>```(?:tool\b)?)|(?P<member>"(?:action|commands|keystrokes)")\s{0,3}:'
    r"|^[ \t]{0,3}(?P<tag><\w{1,60}>)",
    re.M,
)
"""What is a call only if the answer has the form of a result: a code block, a member of JSON, or a tag."""
_CODE_BLOCK = re.compile(r"^[ \t]{0,3}```", re.M)
_ACTION = re.compile(
    r"Action:[ \t]{0,3}(?P<tool>[\w.-]{1,60})"
    r"(?:[\[(](?P<inner>[^\n]{1,500})[\])]|[ \t]{0,3}\n[ \t]{0,3}Action Input:[ \t]{0,3}(?P<input>[^\n]{1,500}))"
)
"""A call of a ReAct agent: the name of a tool, and its input in brackets or in the next line."""
_SEARCH_TOOL = re.compile(r"search|quer|ask|look_?up|retriev|wiki|google|answer|finish", re.I)
"""A part of the name of a tool whose input has words that are searched for."""
_PARAMETER = re.compile(r"<parameter=(\w{1,60})>([^<]{1,500})</parameter>")
_TAGGED_PARAMETER = re.compile(r"<((?!think)\w{1,60})>([^<\n]{1,500})</")
_ADDED_CONTEXT = re.compile(
    r"(?:# AGENTS\.md instructions for [^\n]{1,1000}\n\s{0,9})?"
    r"<(system-reminder|environment_context|environment_details|session_context|user_instructions|INSTRUCTIONS)>"
)
"""The beginning of a block that a coding agent adds to a user message. The user did not write it.

Claude Code, Cline, Codex and Gemini CLI use these names. The blocks can be a hundred times longer than the task.
"""


class MarkedSpan(NamedTuple):
    """A part of a text between two marks.

    Attributes:
        start: The offset of the opening mark.
        inner: The offset after the opening mark.
        inner_end: The offset of the closing mark.
        end: The offset after the closing mark.
    """

    start: int
    inner: int
    inner_end: int
    end: int


def marked_spans(text: str, opening_pattern: re.Pattern[str], start: int = 0) -> Iterator[MarkedSpan]:
    """Yield the span of each opening mark and of the next closing mark with the same name.

    The spans do not overlap. An opening mark without a closing mark is left out.

    Args:
        text: The text.
        opening_pattern: A pattern of opening marks. Its first group is the name.
        start: The offset from which on spans are searched.
    """
    position = start
    unclosed: set[str] = set()
    for opening in opening_pattern.finditer(text, start):
        name = opening[1]
        if opening.start() < position or name in unclosed:
            continue
        closing = f"</{name}>"
        end = text.find(closing, opening.end())
        if end < 0:
            unclosed.add(name)
            continue
        position = end + len(closing)
        yield MarkedSpan(opening.start(), opening.end(), end, position)


def before_calls(text: str, *, has_calls: bool) -> str:
    """Return what the agent wrote before the first call in its text.

    If the message has no calls outside its text, a code block may be the call.
    """
    starts = [call.start() for call in (_CALL.search(text), None if has_calls else _CODE_BLOCK.search(text)) if call]
    return text[: min(starts, default=len(text))]


def written_calls(text: str) -> frozenset[str]:
    """Return the marks of the calls in the text of an agent that have no field of their own."""
    return frozenset(
        found[str(found.lastgroup)] for pattern in (_CALL, _LOOSE_CALL) for found in pattern.finditer(text)
    )


def asked_in_text(text: str) -> list[str]:
    """Return what each call in the text of an agent asks for, as `asked` does for the arguments of other calls."""
    calls = [*_CALL.finditer(text)]
    if not calls:
        parts = _CODE_BLOCK.split(text)
        if len(parts) != 3:
            return [asked(dict(_TAGGED_PARAMETER.findall(text)))] if len(parts) == 1 else []
        # The first line of a code block names its language.
        return [asked({"command": parts[1].partition("\n")[2].strip()})]
    ends = [*(call.start() for call in calls[1:]), len(text)]
    return [
        _asked_by_call(text[call.start() : min(end, call.start() + MOST_READ)])
        for call, end in zip(calls, ends, strict=True)
        # A tag may hold a call that has a mark of its own.
        if not (call["tagged"] and end < len(text) and not text[call.end() : end].strip())
    ]


def _asked_by_call(call: str) -> str:
    """Return what a call asks for. The text begins with its mark."""
    if parameters := _PARAMETER.findall(call):
        return asked(dict(parameters))
    if (start := call.find("{")) >= 0:
        try:
            value, _ = json.JSONDecoder().raw_decode(call, start)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, Mapping):
            arguments = first_value(value, "arguments", "action_input", "parameters", "args")
            is_search = _SEARCH_TOOL.search(text_field(value, "name")) and not isinstance(arguments, Mapping)
            return "" if is_search else asked({"path": arguments} if isinstance(arguments, str) else arguments or value)
    action = _ACTION.search(call)
    if action is None or _SEARCH_TOOL.search(action["tool"]):
        return ""
    written_input = (action["inner"] or action["input"]).strip("\"'` \t\r")
    return "" if written_input.startswith(("{", "[")) else asked({"path": written_input})


def without_added_context(text: str) -> str:
    """Return the text of a user message without the blocks that a coding agent added."""
    kept: list[str] = []
    position = 0
    for span in marked_spans(text, _ADDED_CONTEXT):
        kept.append(text[position : span.start])
        position = span.end
    return "".join([*kept, text[position:]]).strip()
