"""`AnthropicPolicy`: a Claude model behind Anthropic's Messages API makes the decisions.

    policy = AnthropicPolicy("claude-sonnet-5", reasoning_effort="low")
    SearchAgent(corpus, policy).search("Which award did the director of Rope receive?")

The conversation, the reading of replies, the retries and the limits are those of `ChatPolicy`. This module translates a
chat request into a Messages request, and a message into a chat completion. Some parts of a message, such as thinking
blocks with their signatures, have no counterpart in a chat completion. They stay in the reply's `blocks`, because the
API demands that they come back unchanged and in the same place.

Sources: the types of the official client (`anthropic` 2.12), and Anthropic's documentation of tool use, extended
thinking and prompt caching.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from context_agent._support.credentials import ANTHROPIC
from context_agent._support.http import Events, MalformedResponse
from context_agent.errors import PolicyError
from context_agent.harness.profile import Profile
from context_agent.harness.tools import schemas
from context_agent.policies.chat.messages import Message
from context_agent.policies.chat.policy import ChatPolicy
from context_agent.policies.chat.replies import LONGEST_LABEL, Reply, read_reply, without_surrogates
from context_agent.pruning.view import Text, View
from context_agent.tokens import TokenCounter

BASE_URL = "https://api.anthropic.com/v1"
THINKING = frozenset({"thinking", "redacted_thinking"})
"""Types of blocks that are sent back as they came."""
FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
"""A message's stop reasons in the words of chat completions. Others are kept as they are."""
LEAST_THINKING = 1_024
"""The smallest `budget_tokens` that the API accepts, in tokens."""
CACHE = {"cache_control": {"type": "ephemeral"}}
"""Marks the end of a prefix to be cached. A request may have four marks."""
_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
"""The field of a block that each kind of streamed piece extends."""


class AnthropicPolicy(ChatPolicy):
    """A policy that asks a model through Anthropic's Messages API. Threads, event loops and episodes may share it.

    The options are those of `ChatPolicy`. docs/chat.md says how the API reads them. `reasoning_effort` turns on
    adaptive thinking. For models with another kind of thinking, use `extra_body={"thinking": ...}`. The newest models
    refuse `temperature` and `top_p`. The policy sends them only if you set them.
    """

    kind = "anthropic"
    path = "/messages"
    vendor = ANTHROPIC
    reasoning_fields = ("blocks",)

    def __init__(
        self,
        model: str,
        *,
        base_url: str = BASE_URL,
        api_key_env: str | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        max_tokens: int | None = None,
        reasoning_effort: str | None = None,
        stream: bool = False,
        extra_body: Mapping[str, Any] | None = None,
        timeout: float = 300.0,
        deadline: float | None = 900.0,
        retries: int = 6,
        backoff: float = 0.5,
        concurrency: int = 32,
        counter: TokenCounter | None = None,
    ) -> None:
        super().__init__(
            model,
            base_url=base_url,
            api_key_env=api_key_env,
            temperature=temperature,
            top_p=top_p,
            max_tokens=max_tokens,
            reasoning_effort=reasoning_effort,
            stream=stream,
            extra_body=extra_body,
            timeout=timeout,
            deadline=deadline,
            retries=retries,
            backoff=backoff,
            concurrency=concurrency,
            counter=counter,
        )

    def messages(self, view: View, profile: Profile) -> list[Message]:
        """Return the view as chat messages. In a message that ends a prefix for the cache, `cache` is true."""
        conversation = super().messages(view, profile)
        ends = list(_prefix_ends(conversation))
        # The cache has the prefix that the latest edit left intact, and the previous request.
        for end in {ends[_intact_turns(view, len(ends))], ends[max(0, len(ends) - 2)]}:
            conversation[end]["cache"] = True
        return conversation

    def _body(self, conversation: Sequence[Message], profile: Profile | None, room: int, seed: int) -> dict[str, Any]:
        system = [_text(message["content"]) for message in conversation if message["role"] == "system"]
        tools = [] if profile is None else [_tool(schema) for schema in schemas(profile)]
        # Tools come before the system message in the prefix that every episode of a profile shares.
        (system or tools)[-1] |= CACHE
        return {
            "model": self.model,
            **({"system": system} if system else {}),
            "messages": _merged([message for message in conversation if message["role"] != "system"]),
            **({"tools": tools} if tools else {}),
            **_sampling(self.sampling.body(room)),
            **({"stream": True} if self._stream else {}),
        }

    def _read(self, events: Events, request: Mapping[str, Any]) -> Reply:
        message = _whole(events)
        if message.get("stop_reason") == "refusal":
            details = message.get("stop_details")
            reason = str(details.get("explanation") or "")[:LONGEST_LABEL] if isinstance(details, dict) else ""
            raise PolicyError(
                f"the model refused to continue{f' ({reason})' if reason else ''}. Ask in other words, or use another "
                "model."
            )
        reply = read_reply([_completion(message)], request)
        return replace(reply, blocks=_kept_blocks(message["content"]))


# Requests ---------------------------------------------------------------------------------------------------------


def _prefix_ends(conversation: Sequence[Message]) -> Iterator[int]:
    """Yield the positions at which the question and each turn end.

    A position is the index of the last message before a reply of the model.
    """
    for index, message in enumerate(conversation):
        following = conversation[index + 1 : index + 2]
        if message["role"] != "assistant" and (not following or following[0]["role"] == "assistant"):
            yield index


def _intact_turns(view: View, ends: int) -> int:
    """Return how many turns precede the first change of the latest edit.

    If there was no edit, return the number of all turns.
    """
    changed = (s.turn for s in view.segments if not isinstance(s, Text) and s.key in view.changed)
    return min(changed, default=ends - 1)


def _merged(conversation: Iterable[Message]) -> list[Message]:
    """Return the messages of the API.

    All content between two replies becomes one message. The last message also ends a cached prefix.
    """
    merged: list[Message] = []
    for message in conversation:
        role = "assistant" if message["role"] == "assistant" else "user"
        if not merged or merged[-1]["role"] != role:
            merged.append({"role": role, "content": []})
        content: list[dict[str, Any]] = merged[-1]["content"]
        content += _content(message)
        if message.get("cache"):
            content[-1] |= CACHE
    merged[-1]["content"][-1] |= CACHE
    return merged


def _content(message: Message) -> list[dict[str, Any]]:
    """Return the blocks of a chat message."""
    if message["role"] == "tool":
        return [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}]
    texts = [_text(message["content"])] if message["content"].strip() else []
    uses = {call["id"]: _tool_use(call) for call in message.get("tool_calls", ())}
    blocks: list[dict[str, Any]] = []
    for block in message.get("blocks", ()):
        if block["type"] == "tool_use":
            blocks += [uses.pop(block["id"])] if block["id"] in uses else []
        else:
            blocks.append(dict(block))
    if any(block["type"] == "text" for block in blocks):
        texts = []
    return [*blocks, *texts, *uses.values()]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _tool_use(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {
        "type": "tool_use",
        "id": call["id"],
        "name": function["name"],
        "input": json.loads(function["arguments"]),
    }


def _tool(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": schema["name"], "description": schema["description"], "input_schema": schema["parameters"]}


def _sampling(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the sampling fields under the names that the API uses.

    A thinking budget must be below `max_tokens`. If `max_tokens` leaves no room for a budget, thinking is turned off.
    """
    effort = fields.pop("reasoning_effort", None)
    if effort is not None:
        fields = {"thinking": {"type": "adaptive"}, "output_config": {"effort": effort}, **fields}
    thinking = fields.get("thinking")
    if isinstance(thinking, Mapping) and isinstance(thinking.get("budget_tokens"), int):
        budget = min(thinking["budget_tokens"], fields["max_tokens"] - 1)
        fields["thinking"] = {**thinking, "budget_tokens": budget} if budget >= LEAST_THINKING else {"type": "disabled"}
    return fields


# Replies ----------------------------------------------------------------------------------------------------------


def _whole(events: Events) -> Mapping[str, Any]:
    """Return the message from a complete response body or from the events of a stream.

    If the response is not a message, or is truncated, raise `MalformedResponse`.
    """
    message = _assembled(events) if events[0].get("type") != "message" else dict(events[0])
    content = message.get("content")
    if not isinstance(content, list) or not message.get("stop_reason"):
        raise MalformedResponse("the server sent an incomplete message")
    message["content"] = [block for block in content if isinstance(block, dict)]
    return message


def _assembled(events: Events) -> dict[str, Any]:
    """Return the message that a stream's events describe. A truncated message has no stop reason."""
    message: dict[str, Any] = {}
    usage: dict[str, Any] = {}
    blocks: dict[Any, dict[str, list[Any]]] = {}
    for event in events:
        kind = event.get("type")
        source = _mapping(event.get({"message_start": "message", "message_delta": "delta"}.get(str(kind), "")))
        message |= source
        usage |= {
            key: value
            for part in (source, event)
            for key, value in _mapping(part.get("usage")).items()
            if value is not None
        }
        if kind == "content_block_start":
            start = _mapping(event.get("content_block"))
            blocks[event.get("index")] = {key: [value] for key, value in start.items()}
        elif kind == "content_block_delta" and event.get("index") in blocks:
            _extend(blocks[event.get("index")], _mapping(event.get("delta")))
    content = [{key: _joined(parts) for key, parts in block.items()} for block in blocks.values()]
    return {**message, "content": content, "usage": usage}


def _extend(block: dict[str, list[Any]], delta: Mapping[str, Any]) -> None:
    """Add a streamed piece to its block.

    A tool's input starts as an empty object and then arrives in pieces of JSON.
    """
    kind = str(delta.get("type"))
    if kind == "input_json_delta":
        if not isinstance(block.get("input", [None])[0], str):
            block["input"] = [""]
        block["input"].append(delta.get("partial_json"))
    elif kind in _DELTAS:
        block.setdefault(_DELTAS[kind], [""]).append(delta.get(_DELTAS[kind]))


def _joined(parts: list[Any]) -> Any:
    return "".join(part for part in parts if isinstance(part, str)) if isinstance(parts[0], str) else parts[0]


def _completion(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message as a chat completion."""
    content = message["content"]
    calls = [
        {"id": block.get("id"), "function": {"name": block.get("name"), "arguments": block.get("input")}}
        for block in content
        if block.get("type") == "tool_use"
    ]
    finish = message["stop_reason"]
    chat = {
        "content": _texts(content, "text"),
        "reasoning": _texts(content, "thinking"),
        "tool_calls": calls,
    }
    return {
        "model": message.get("model"),
        "choices": [{"message": chat, "finish_reason": FINISH.get(str(finish), finish)}],
        "usage": _usage(_mapping(message.get("usage"))),
    }


def _texts(content: Sequence[Mapping[str, Any]], kind: str) -> str:
    texts = (block.get(kind) for block in content if block.get("type") == kind)
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the usage in the form of a chat completion.

    The prompt tokens include those read from the cache and those written to it.
    """
    fresh, read, written = (
        usage.get(name) or 0 for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    counts = all(type(count) is int for count in (fresh, read, written))
    details = _mapping(usage.get("output_tokens_details"))
    return {
        "prompt_tokens": fresh + read + written if counts and "input_tokens" in usage else None,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "completion_tokens": usage.get("output_tokens"),
        "completion_tokens_details": {"reasoning_tokens": details.get("thinking_tokens")},
    }


def _kept_blocks(content: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return the blocks to keep from a message with thoughts, in their order.

    Thoughts and texts are kept unchanged. Of a call, only the id is kept.
    """
    if not any(block.get("type") in THINKING for block in content):
        return ()
    return tuple(_kept(block) for block in content if _is_kept(block))


def _kept(block: Mapping[str, Any]) -> Mapping[str, Any]:
    if block["type"] == "tool_use":
        return {"type": "tool_use", "id": str(block.get("id"))}
    if block["type"] == "text":
        return without_surrogates(_text(block["text"]))
    return without_surrogates(dict(block))


def _is_kept(block: Mapping[str, Any]) -> bool:
    """Return True if the API accepts the block back. The API refuses texts without a visible character."""
    if block.get("type") == "text":
        return isinstance(block.get("text"), str) and bool(block["text"].strip())
    return block.get("type") in {*THINKING, "tool_use"}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
