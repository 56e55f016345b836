"""What a chat server answered, as one value: text, reasoning, tool calls, usage. Tolerant: all of it is outside data.

Servers differ in the reasoning's field, in whether streamed calls are numbered, in ids and in what `usage` says. A
model that writes broken arguments is no error: they go on as the raw text, and the episode tells it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_agent.harness.tools import LONGEST_ARGUMENTS
from context_agent.policies.http import Broken
from context_agent.types import ToolCall

REASONING_FIELDS = ("reasoning", "reasoning_content")
"""The field's present name, and the older one that several servers still use."""
INLINE = "think"
"""The reasoning's "field" where it stood between think tags in the text: a server without a reasoning parser."""
DEEPEST = 64
"""Levels of nested arguments that are taken over; copying deeper ones would end in a `RecursionError` later."""
_OPEN, _CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Reply:
    """A message of the model. `finish` is the server's `finish_reason`; `usage` has only what the server reported."""

    text: str = ""
    reasoning: str = ""
    reasoning_field: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: str = ""
    model: str = ""
    usage: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Call:
    """A call that arrives in pieces."""

    index: object
    id: str = ""
    name: str = ""
    arguments: str = ""


def read_reply(events: Sequence[Mapping[str, Any]]) -> Reply:
    """The message of a whole body, or of a stream's events. Raises `Broken` where there is none or it was cut."""
    calls: list[_Call] = []
    words = {"content": "", **dict.fromkeys(REASONING_FIELDS, "")}
    finish = model = ""
    usage: dict[str, int] = {}
    streamed = seen = False
    for event in events:
        model = model or _text(event.get("model"))
        usage = _usage(event.get("usage")) or usage
        for choice in _dicts(event.get("choices"))[:1]:
            seen = True
            streamed = streamed or "delta" in choice
            finish = _text(choice.get("finish_reason")) or finish
            message = choice.get("delta") or choice.get("message")
            if isinstance(message, dict):
                for name in words:
                    words[name] += _text(message.get(name))
                for piece in _dicts(message.get("tool_calls")):
                    _collect(calls, piece)
    if not seen:
        raise Broken("the server sent no choices")
    if streamed and not finish:
        raise Broken("the stream was cut")
    return _reply(words, calls, finish, model, usage)


def _reply(words: Mapping[str, str], calls: Sequence[_Call], finish: str, model: str, usage: dict[str, int]) -> Reply:
    text, kept = _clean(words["content"]), next((name for name in REASONING_FIELDS if words[name]), "")
    reasoning = _clean(words[kept]) if kept else ""
    if not kept:
        reasoning, text = split_thoughts(text)
        kept = INLINE if reasoning else ""
    made = tuple(ToolCall(tool_name(call.name), read_arguments(call.arguments), call.id) for call in calls)
    return Reply(text.strip(), reasoning.strip(), kept, made, finish, model, usage)


def _collect(calls: list[_Call], piece: Mapping[str, Any]) -> None:
    """Adds a piece to the call it belongs to: by its index, by its id, or to the last one where it has neither."""
    function = piece.get("function")
    function = function if isinstance(function, dict) else {}
    index, call_id, name = piece.get("index"), _text(piece.get("id")), _text(function.get("name"))
    if index is not None:
        known = next((call for call in calls if call.index == index), None)
    elif call_id:
        known = next((call for call in calls if call.id == call_id), None)
    else:
        known = calls[-1] if calls and not name else None
    if known is None:
        known = _Call(index)
        calls.append(known)
    known.id = known.id or call_id
    known.name = known.name or name
    arguments = function.get("arguments")
    known.arguments += arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else ""


def tool_name(name: str) -> str:
    """The tool's name without what gpt-oss's format leaves around it: `functions.` and special tokens."""
    return _clean(name).partition("<|")[0].strip().removeprefix("functions.")


def read_arguments(raw: str) -> Mapping[str, Any] | str:
    """The arguments as a mapping, or the raw text where they are no JSON object, too long or nested too deeply."""
    raw = _clean(raw)
    if len(raw) > LONGEST_ARGUMENTS:
        return raw
    try:
        value = json.loads(raw or "{}", strict=False)
        if isinstance(value, str):
            value = json.loads(value, strict=False)
    except (ValueError, RecursionError):
        return raw
    if not isinstance(value, dict):
        return raw
    if _depth_exceeds(value, DEEPEST):
        return f"nested more than {DEEPEST} levels deep: {raw[:80]}"
    return _speakable(value)


def _speakable(value: dict[str, Any]) -> dict[str, Any]:
    r"""The value without lone surrogates: a JSON escape such as `\ud800` makes a string that no UTF-8 can hold."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        made: dict[str, Any] = json.loads(_clean(text))
        return made
    return value


def _depth_exceeds(value: object, bound: int) -> bool:
    level: list[object] = [value]
    for _ in range(bound):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return True


def split_thoughts(text: str) -> tuple[str, str]:
    """(what stands between think tags, the rest). An unclosed one reaches to the end; one that a template opened in
    the prompt, and so has only its end here, begins at the start."""
    head, opened, tail = text.partition(_OPEN)
    if not opened:
        thoughts, closed, rest = text.partition(_CLOSE)
        return (thoughts, rest) if closed else ("", text)
    if head.strip():
        return "", text
    thoughts, _, rest = tail.partition(_CLOSE)
    return thoughts, rest


def _usage(value: object) -> dict[str, int]:
    """`prompt_tokens`, `completion_tokens`, `cached_tokens` and `reasoning_tokens`, as far as they are reported."""
    if not isinstance(value, dict):
        return {}
    found = {name: value.get(name) for name in ("prompt_tokens", "completion_tokens")}
    for name, group in (("cached_tokens", "prompt_tokens_details"), ("reasoning_tokens", "completion_tokens_details")):
        details = value.get(group)
        found[name] = details.get(name) if isinstance(details, dict) else None
    return {name: count for name, count in found.items() if isinstance(count, int) and count >= 0}


def _text(value: object) -> str:
    """A string as it is; a list of content parts as the text in them; else nothing."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, dict))
    return ""


def _clean(text: str) -> str:
    """The text without lone surrogates."""
    return text.encode("utf-8", "replace").decode()


def _dicts(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
