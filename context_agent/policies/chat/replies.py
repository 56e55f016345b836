"""The replies of chat servers, with their text, reasoning, calls and usage.

Servers differ in the field for reasoning, in the numbering of streamed calls, in ids and in the fields of `usage`. A
response is outside data, so the reader is tolerant. Broken arguments are not an error. They stay raw text, and the
episode answers them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from context_agent._support.http_client import MalformedResponse
from context_agent.harness.tools import MAX_ARGUMENT_CHARACTERS, MAX_CALLS, bounded_calls
from context_agent.text.normalization import well_formed
from context_agent.types import ToolCall

REASONING_FIELDS = ("reasoning", "reasoning_content")
"""The present name of the field for reasoning, and the older name that several servers still use."""
EXTRA_FIELD = "extra_content"
"""The field of a call that Gemini's API demands back."""
INLINE = "think"
"""The field name for reasoning between think tags in the text, from a server without a reasoning parser."""
MAX_ARGUMENT_LEVELS = 64
"""Levels of nested arguments that are read. Copying deeper ones would raise a `RecursionError` later."""
LENGTH_FIELDS = ("max_tokens", "max_completion_tokens")
"""The field of a request that bounds its reply, and its name for some hosted models."""
DEFAULT_MAX_TOKENS = 32_768
"""Maximum number of tokens of a reply if its request sets no limit."""
TEMPLATE_TOKENS = 1_024
"""Tokens that a chat template may add to a short prompt, such as a system message of its own."""
MOST_TOKENS = 10_000_000
"""A larger count of tokens is ignored, whatever the request."""
USAGE_PARTS = {"prompt": ("cached_tokens", "cache_write_tokens"), "completion": ("reasoning_tokens",)}
"""The counts in `usage` that are part of a prompt, and of a reply."""
LONGEST_LABEL = 200
"""Characters of a model's name and of a finish reason that are read."""
LONGEST_NAME = 200
"""Characters of a tool's name that are read."""
TOO_DEEP = f"nested more than {MAX_ARGUMENT_LEVELS} levels deep"
LONGEST_TEXT = 1_000_000
"""Characters of a reply's text, and of its reasoning, that are read."""
_OPEN, _CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Reply:
    """A message of the model.

    `finish` is the server's `finish_reason`, and `refusal` is the model's reason not to answer. `usage` has only the
    counts that the server reported.
    """

    text: str = ""
    reasoning: str = ""
    reasoning_field: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: str = ""
    refusal: str = ""
    model: str = ""
    usage: Mapping[str, int] = field(default_factory=dict)
    call_extras: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What the server demands back with a call, by the call's id. Gemini sends the signatures of its thoughts so."""
    blocks: tuple[Mapping[str, Any], ...] = ()
    """What an API demands back as it came, in order. A chat completion has none."""


@dataclass(slots=True)
class _Call:
    """A call that arrives in pieces."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: Mapping[str, Any] = field(default_factory=dict)


class _Calls(list[_Call]):
    """The calls of a reply, in the order in which they began. Adding a piece takes constant time."""

    def __init__(self) -> None:
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def add(self, piece: Mapping[str, Any]) -> None:
        """Add a piece to its call.

        The index or the id names the call. A piece without both belongs to the last call.
        """
        function = _dict(piece.get("function"))
        index, call_id, name = piece.get("index"), _text(piece.get("id")), _text(function.get("name"))
        call = self._of(index, call_id, name)
        call.id = call.id or call_id
        call.name = call.name or name
        if call.id:
            self._by_id.setdefault(call.id, call)
        call.arguments.append(_spelled(function.get("arguments")))
        if (extra := piece.get(EXTRA_FIELD)) and isinstance(bounded := read_arguments(_spelled(extra)), Mapping):
            call.extra = bounded

    def _of(self, index: object, call_id: str, name: str) -> _Call:
        """Return the call that a piece belongs to, possibly a new one."""
        if isinstance(index, int):
            call = self._by_index.get(index)
            if call is not None and name and call_id and call.id and call_id != call.id:
                call = None  # Some servers give all calls of a stream the index 0.
        elif call_id:
            call = self._by_id.get(call_id)
        else:
            call = self[-1] if self and not name else None
        if call is None:
            call = _Call()
            self.append(call)
            if isinstance(index, int):
                self._by_index[index] = call
        return call


def read_reply(events: Sequence[Mapping[str, Any]], request: Mapping[str, Any] | None = None) -> Reply:
    """Return the message from a complete response body or from the events of a stream.

    `request` is the body that was sent. It limits the usage that the server can report. If there is no message, or it
    is truncated, raise `MalformedResponse`.
    """
    calls = _Calls()
    words: dict[str, list[str]] = {name: [] for name in ("content", "refusal", *REASONING_FIELDS)}
    finish = model = ""
    usage: dict[str, int] = {}
    streamed = seen = False
    for event in events:
        model = model or _text(event.get("model"))[:LONGEST_LABEL]
        usage = _usage(event.get("usage"), request) or usage
        for choice in _dicts(event.get("choices"))[:1]:
            seen = True
            streamed = streamed or "delta" in choice
            finish = _text(choice.get("finish_reason"))[:LONGEST_LABEL] or finish
            message = choice.get("delta") or choice.get("message")
            if isinstance(message, dict):
                for name, parts in words.items():
                    parts.append(_text(message.get(name)))
                for piece in _dicts(message.get("tool_calls")):
                    calls.add(piece)
    if not seen:
        raise MalformedResponse("the server sent no choices")
    if streamed and not finish:
        raise MalformedResponse("the stream ended before the reply was complete")
    return _reply({name: "".join(parts) for name, parts in words.items()}, calls, finish, model, usage)


def _reply(words: Mapping[str, str], calls: Sequence[_Call], finish: str, model: str, usage: dict[str, int]) -> Reply:
    text = well_formed(words["content"][:LONGEST_TEXT])
    source = next((name for name in REASONING_FIELDS if words[name]), "")
    reasoning = well_formed(words[source][:LONGEST_TEXT]) if source else ""
    if not source:
        reasoning, text = split_thoughts(text)
        source = INLINE if reasoning else ""
    first = [
        ToolCall(tool_name(call.name), read_arguments("".join(call.arguments)), call.id) for call in calls[:MAX_CALLS]
    ]
    called = bounded_calls(first, len(calls))
    refusal = well_formed(words["refusal"])[:LONGEST_LABEL]
    extras = {call.id: call.extra for call in reversed(calls[:MAX_CALLS]) if call.id and call.extra}
    return Reply(text.strip(), reasoning.strip(), source, called, finish, refusal, model, usage, extras)


def _spelled(arguments: object) -> str:
    """Return the arguments as text. Some servers send an object instead of its text."""
    if isinstance(arguments, str):
        return arguments
    try:
        return json.dumps(arguments) if arguments else ""
    except RecursionError:
        return TOO_DEEP


def tool_name(name: str) -> str:
    """Return the tool's name without the remains of gpt-oss's format: `functions.` and special tokens."""
    return well_formed(name).partition("<|")[0].strip().removeprefix("functions.")[:LONGEST_NAME]


def read_arguments(raw: str) -> Mapping[str, Any] | str:
    """Return the arguments as a mapping.

    If they are not a JSON object, or too long or too deeply nested, return the raw text.
    """
    raw = well_formed(raw)
    if len(raw) > MAX_ARGUMENT_CHARACTERS:
        return raw
    try:
        value = json.loads(raw or "{}", strict=False)
        if isinstance(value, str):
            value = json.loads(value, strict=False)
    except (ValueError, RecursionError):
        return raw
    if not isinstance(value, dict):
        return raw
    if _depth_exceeds(value, MAX_ARGUMENT_LEVELS):
        return f"{TOO_DEEP}: {raw[:80]}"
    return without_surrogates(value)


def without_surrogates(value: dict[str, Any]) -> dict[str, Any]:
    r"""Return the value without lone surrogates.

    A JSON escape such as `\ud800` makes a string that UTF-8 cannot encode.
    """
    text = json.dumps(value, ensure_ascii=False)
    cleaned = well_formed(text)
    return value if cleaned == text else dict(json.loads(cleaned))


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
    """Return the text between think tags, and the rest.

    If a tag is not closed, all text after it is between the tags. If a template put the start tag into the prompt, the
    reply has only an end tag. Then all text before the end tag is between the tags.
    """
    head, opened, tail = text.partition(_OPEN)
    if not opened:
        thoughts, closed, rest = text.partition(_CLOSE)
        return (thoughts, rest) if closed else ("", text)
    if head.strip():
        return "", text
    thoughts, _, rest = tail.partition(_CLOSE)
    return thoughts, rest


def _usage(value: object, request: Mapping[str, Any] | None) -> dict[str, int]:
    """Return `prompt_tokens`, `completion_tokens` and the counts of their `USAGE_PARTS`, as far as they are reported
    and possible.

    A count is omitted unless it is an integer from 0 to its bound. A reply has at most the tokens that the request
    allows. A prompt has at most one token for each byte of the request plus `TEMPLATE_TOKENS`. A part has at most as
    many tokens as its whole.
    """
    if not isinstance(value, dict):
        return {}
    prompt, completion = usage_bounds(request) if request else (MOST_TOKENS, MOST_TOKENS)
    usage: dict[str, int] = {}
    for name, bound in (("prompt", prompt + TEMPLATE_TOKENS), ("completion", completion)):
        total = value.get(f"{name}_tokens")
        if _is_count(total, bound):
            usage[f"{name}_tokens"] = total
            details = _dict(value.get(f"{name}_tokens_details"))
            usage |= {part: details[part] for part in USAGE_PARTS[name] if _is_count(details.get(part), total)}
    return usage


def usage_bounds(request: Mapping[str, Any]) -> tuple[int, int]:
    """Return the maximum numbers of tokens that a request and its reply can have.

    A token has at least one byte, and a chat template adds fewer tokens per message than the JSON around it has
    characters.
    """
    prompt = len(json.dumps(request, ensure_ascii=False, default=str).encode(errors="replace"))
    limits = (request.get(name) for name in LENGTH_FIELDS)
    return prompt, next((limit for limit in limits if isinstance(limit, int)), DEFAULT_MAX_TOKENS)


def _is_count(value: object, bound: int) -> TypeGuard[int]:
    """Return True if a value is an integer from 0 to the bound, and not a boolean."""
    return type(value) is int and 0 <= value <= bound


def _text(value: object) -> str:
    """Return the text of a content value.

    It is a string, or a list of content parts. For any other value, return an empty text.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, dict))
    return ""


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def listed_models(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the rows of a `/models` response, by the model's id."""
    return {row["id"]: row for row in _dicts(body.get("data")) if isinstance(row.get("id"), str)}
