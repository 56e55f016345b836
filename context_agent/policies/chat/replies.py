"""What a chat server answered: a reply with its text, reasoning, calls and usage, or a refusal and what to do about it.

Servers differ in the field for reasoning, in whether streamed calls are numbered, in ids and in what `usage` reports.
All of it is outside data, so reading is tolerant. Broken arguments are no error: they stay raw text, and the episode
answers them.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from context_agent._support.credentials import read_key
from context_agent._support.http import MalformedResponse, Refusal
from context_agent.harness.tools import LONGEST_ARGUMENTS, MOST_CALLS, bounded
from context_agent.types import ToolCall

REASONING_FIELDS = ("reasoning", "reasoning_content")
"""The field's present name, and the older one that several servers still use."""
INLINE = "think"
"""The reasoning's "field" where it stood between think tags in the text: a server without a reasoning parser."""
DEEPEST = 64
"""Levels of nested arguments that are taken over; copying deeper ones would end in a `RecursionError` later."""
LENGTH_FIELDS = ("max_tokens", "max_completion_tokens")
"""The field of a request that bounds its reply, and what some hosted models call it."""
DEFAULT_MAX_TOKENS = 32_768
"""Tokens that a reply may take at most where its request does not say."""
TEMPLATE_TOKENS = 1_024
"""Tokens that a chat template may add to a short prompt: a system message of its own, words about tools."""
MOST_TOKENS = 10_000_000
"""Tokens; a larger count is not believed, whatever the request."""
LONGEST_LABEL = 200
"""Characters of a model's name and of a reason to finish that are taken over."""
LONGEST_NAME = 200
"""Characters of a tool's name that are taken over."""
TOO_DEEP = f"nested more than {DEEPEST} levels deep"
LONGEST_TEXT = 1_000_000
"""Characters of a reply's text, and of its reasoning, that are taken over."""
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

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class _Calls(list[_Call]):
    """The calls of a reply in the order they began. A piece is placed in constant time."""

    def __init__(self) -> None:
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def add(self, piece: Mapping[str, Any]) -> None:
        """Adds a piece to the call it belongs to: by its index, by its id, or to the last one where it has neither."""
        function = piece.get("function")
        function = function if isinstance(function, dict) else {}
        index, call_id, name = piece.get("index"), _text(piece.get("id")), _text(function.get("name"))
        call = self._of(index, call_id, name)
        call.id = call.id or call_id
        call.name = call.name or name
        if call.id:
            self._by_id.setdefault(call.id, call)
        call.arguments.append(_spelled(function.get("arguments")))

    def _of(self, index: object, call_id: str, name: str) -> _Call:
        """The call that a piece belongs to, a new one where it begins one."""
        if isinstance(index, int):
            known = self._by_index.get(index)
        elif call_id:
            known = self._by_id.get(call_id)
        else:
            known = self[-1] if self and not name else None
        if known is None:
            known = _Call()
            self.append(known)
            if isinstance(index, int):
                self._by_index[index] = known
        return known


def read_reply(events: Sequence[Mapping[str, Any]], request: Mapping[str, Any] | None = None) -> Reply:
    """The message of a whole body, or of a stream's events. `request` is the body that was sent: it bounds the usage.

    Raises `MalformedResponse` where there is no message or it was cut.
    """
    calls = _Calls()
    words: dict[str, list[str]] = {name: [] for name in ("content", *REASONING_FIELDS)}
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
        raise MalformedResponse("the stream was cut")
    return _reply({name: "".join(parts) for name, parts in words.items()}, calls, finish, model, usage)


def _reply(words: Mapping[str, str], calls: Sequence[_Call], finish: str, model: str, usage: dict[str, int]) -> Reply:
    text, kept = _clean(words["content"][:LONGEST_TEXT]), next((name for name in REASONING_FIELDS if words[name]), "")
    reasoning = _clean(words[kept][:LONGEST_TEXT]) if kept else ""
    if not kept:
        reasoning, text = split_thoughts(text)
        kept = INLINE if reasoning else ""
    return Reply(text.strip(), reasoning.strip(), kept, _made(calls), finish, model, usage)


def _made(calls: Sequence[_Call]) -> tuple[ToolCall, ...]:
    first = [
        ToolCall(tool_name(call.name), read_arguments("".join(call.arguments)), call.id) for call in calls[:MOST_CALLS]
    ]
    return bounded(first, len(calls))


def _spelled(arguments: object) -> str:
    """Arguments as a server sent them: text, or an object in place of its text."""
    if isinstance(arguments, str):
        return arguments
    try:
        return json.dumps(arguments) if arguments else ""
    except RecursionError:
        return TOO_DEEP


def tool_name(name: str) -> str:
    """The tool's name without what gpt-oss's format leaves around it: `functions.` and special tokens."""
    return _clean(name).partition("<|")[0].strip().removeprefix("functions.")[:LONGEST_NAME]


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
        return f"{TOO_DEEP}: {raw[:80]}"
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


def _usage(value: object, request: Mapping[str, Any] | None) -> dict[str, int]:
    """`prompt_tokens`, `completion_tokens`, `cached_tokens` and `reasoning_tokens`, where reported and possible.

    A count is left out unless it is an integer from 0 to its bound. A reply has at most the tokens that the request
    allows, a prompt at most a token for each byte of the request and `TEMPLATE_TOKENS`; cached tokens are part of the
    prompt, reasoning tokens part of the reply.
    """
    if not isinstance(value, dict):
        return {}
    prompt, completion = usage_bounds(request) if request else (MOST_TOKENS, MOST_TOKENS)
    usage: dict[str, int] = {}
    for name, part, bound in (
        ("prompt", "cached_tokens", prompt + TEMPLATE_TOKENS),
        ("completion", "reasoning_tokens", completion),
    ):
        total, details = value.get(f"{name}_tokens"), value.get(f"{name}_tokens_details")
        if _is_count(total, bound):
            usage[f"{name}_tokens"] = total
            count = details.get(part) if isinstance(details, dict) else None
            if _is_count(count, total):
                usage[part] = count
    return usage


def usage_bounds(request: Mapping[str, Any]) -> tuple[int, int]:
    """The most tokens that a request can have, and that its reply can.

    A vocabulary spends at least a byte a token, and a chat template adds a few tokens a message, fewer than the JSON
    around it has characters.
    """
    prompt = len(json.dumps(request, ensure_ascii=False, default=str).encode(errors="replace"))
    limits = (request.get(name) for name in LENGTH_FIELDS)
    return prompt, next((limit for limit in limits if isinstance(limit, int)), DEFAULT_MAX_TOKENS)


def _is_count(value: object, bound: int) -> TypeGuard[int]:
    """Whether a value is an integer from 0 to the bound; `True` is none."""
    return type(value) is int and 0 <= value <= bound


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


UNASKED = ("seed", "stream_options", *REASONING_FIELDS)
"""Fields that the policy adds of its own accord, so it may leave them out; what a user set is never dropped."""
MAX_COMPLETION_TOKENS = LENGTH_FIELDS[1]
"""What some hosted models call `max_tokens`."""

_CONTEXT = re.compile(
    r"context.{0,3}(?:length|size|window)|maximum model length|max_model_len|too many tokens|prompt is too long"
    r"|longer than the (?:maximum|model)|max_tokens' or 'max_completion_tokens' is too large",
    re.I,
)
_LENGTH = re.compile(
    r"(?:(?:context|model).{0,3}(?:length|size|window)|n_ctx|max_model_len)\\?[\"']?"
    r"(?: is| of| limit|:|=|\s|\()*(?P<n>\d[\d,]{2,9})",
    re.I,
)


def field_to_leave_out(refusal: Refusal, left_out: frozenset[str]) -> str | None:
    """The field to send no more, where that is what the server did not like and the user did not ask for it."""
    if refusal.status not in (400, 422) or is_context_overflow(refusal):
        return None
    message = refusal.message
    if MAX_COMPLETION_TOKENS in message and "max_tokens" not in left_out:
        return "max_tokens"
    named = (name for name in UNASKED if re.search(rf"\b{name}\b", message))
    return next((name for name in named if name not in left_out), None)


def is_context_overflow(refusal: Refusal) -> bool:
    """Whether the request was longer than the model's context."""
    return refusal.status in (400, 413, 422, 500) and _CONTEXT.search(refusal.message) is not None


def context_message(refusal: Refusal, window: int) -> str:
    """That the server's context is smaller than the budget's window, and what to do about it."""
    found = _LENGTH.search(refusal.message)
    length = int(found["n"].replace(",", "")) if found else 0
    lower = f"--window {length * 9 // 10}" if length > 0 else f"a --window below {window}"
    return (
        f"the model's context on this server is too short for a window of {window:,} tokens; "
        f"search with {lower}, or serve the model with a longer context. The server said: {refusal.message}"
    )


def is_unknown_model(refusal: Refusal) -> bool:
    """Whether the server may not have the model (or not this address)."""
    about = re.search(
        r"\bmodel\b.*\b(?:not|no|unknown|invalid|doesn't)\b|\b(?:no|unknown|invalid)\b.*\bmodel\b",
        refusal.message,
        re.I,
    )
    return refusal.status == 404 or (refusal.status in (400, 403, 422) and about is not None)


def unknown_model_message(model: str, known: Sequence[str]) -> str:
    """That the server lacks the model, and which it has."""
    if model in known:
        return f"the server lists the model {model!r}, and refused it all the same"
    if not known:
        return f"the server does not have the model {model!r}, and lists none"
    near = difflib.get_close_matches(model, known, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    more = f" and {len(known) - 20} more" if len(known) > 20 else ""
    return f"the server does not have the model {model!r}. It has: {', '.join(known[:20])}{more}{hint}"


def rejected_key_message(refusal: Refusal, variable: str | None) -> str:
    """That the server wants another key, and where it is read from."""
    if variable is None:
        source = "none was sent, because api_key_env is None"
    elif read_key(variable):
        source = f"it comes from the environment variable {variable}; name another with --api-key-env"
    else:
        source = f"it is read from the environment variable {variable}, which is not set; --api-key-env names another"
    return f"the server does not accept the key ({source}): HTTP {refusal.status}, {refusal.message}"


def listed_models(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The rows of a `/models` answer, by the model's id."""
    rows = body.get("data")
    found = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return {row["id"]: row for row in found if isinstance(row.get("id"), str)}
