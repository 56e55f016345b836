"""Conversations with tools in the format of each provider, random ones too, and what makes them valid there."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

KINDS = ("openai", "responses", "anthropic", "bedrock", "gemini", "langchain")
IMAGE = "iVBORw0KGgo="


@dataclass(frozen=True)
class Call:
    """A call and its result: one text or several, with an image or without."""

    id: str
    arguments: dict[str, Any]
    texts: tuple[str, ...]
    is_error: bool = False
    with_image: bool = False
    is_plain: bool = True


@dataclass(frozen=True)
class Turn:
    """What the user says, if anything, then what the agent says and calls."""

    user: str = ""
    agent: str = ""
    calls: tuple[Call, ...] = field(default=())


def rendered(kind: str, turns: Sequence[Turn]) -> list[Any]:
    """Return the turns as messages of that kind."""
    renderers = {"openai": _openai, "responses": _responses, "anthropic": _anthropic, "langchain": _langchain}
    return (renderers | {"bedrock": _bedrock, "gemini": _gemini})[kind](turns)


def _openai(turns: Sequence[Turn]) -> list[Any]:
    messages: list[Any] = [{"role": "system", "content": "You are an agent."}]
    for turn in turns:
        if turn.user:
            messages.append({"role": "user", "content": turn.user})
        message: dict[str, Any] = {"role": "assistant", "content": turn.agent or None}
        if turn.calls:
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": "search", "arguments": json.dumps(c.arguments)}}
                for c in turn.calls
            ]
        elif not turn.agent:
            continue
        messages.append(message)
        messages += [{"role": "tool", "tool_call_id": c.id, "content": _content(c, "text")} for c in turn.calls]
    return messages


def _content(call: Call, text_type: str, image: dict[str, Any] | None = None) -> Any:
    if call.is_plain and len(call.texts) == 1 and not (image and call.with_image):
        return call.texts[0]
    parts: list[Any] = [{"type": text_type, "text": text} for text in call.texts]
    return [*parts, image] if image and call.with_image else parts


def _responses(turns: Sequence[Turn]) -> list[Any]:
    items: list[Any] = []
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{IMAGE}", "detail": "auto"}
    for turn in turns:
        if turn.user:
            items.append({"role": "user", "content": turn.user})
        if turn.agent:
            part = {"type": "output_text", "text": turn.agent, "annotations": []}
            items.append({"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]})
        items += [
            {"type": "function_call", "call_id": c.id, "name": "search", "arguments": json.dumps(c.arguments)}
            for c in turn.calls
        ]
        items += [
            {"type": "function_call_output", "call_id": c.id, "output": _content(c, "input_text", image)}
            for c in turn.calls
        ]
    return items


def _alternating(
    turns: Sequence[Turn],
    text: Callable[[str], dict[str, Any]],
    use: Callable[[Call], dict[str, Any]],
    result: Callable[[Call], dict[str, Any]],
    roles: tuple[str, str, str] = ("user", "assistant", "content"),
) -> list[Any]:
    """Return messages of the user and the agent by turns. Results are parts of the user's messages."""
    user, agent, field_name = roles
    messages: list[Any] = []

    def add_message(role: str, parts: list[Any]) -> None:
        if messages and messages[-1]["role"] == role:
            messages[-1][field_name] += parts
        elif parts:
            messages.append({"role": role, field_name: parts})

    for turn in turns:
        if turn.user or not messages:
            add_message(user, [text(turn.user or "Go on.")])
        parts = [text(turn.agent)] if turn.agent else []
        parts += [use(call) for call in turn.calls]
        if messages[-1]["role"] == agent and parts:
            add_message(user, [text("Go on.")])
        add_message(agent, parts)
        add_message(user, [result(call) for call in turn.calls])
    return messages


def _anthropic(turns: Sequence[Turn]) -> list[Any]:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}}
    return _alternating(
        turns,
        lambda text: {"type": "text", "text": text},
        lambda c: {"type": "tool_use", "id": c.id, "name": "search", "input": c.arguments},
        lambda c: {
            "type": "tool_result",
            "tool_use_id": c.id,
            "is_error": c.is_error,
            "content": _content(c, "text", image),
        },
    )


def _bedrock(turns: Sequence[Turn]) -> list[Any]:
    def result(call: Call) -> dict[str, Any]:
        content: list[Any] = [{"text": text} if call.is_plain else {"json": {"text": text}} for text in call.texts]
        if call.with_image:
            content.append({"image": {"format": "png", "source": {"bytes": base64.b64decode(IMAGE)}}})
        status = "error" if call.is_error else "success"
        return {"toolResult": {"toolUseId": call.id, "content": content, "status": status}}

    return _alternating(
        turns,
        lambda text: {"text": text},
        lambda c: {"toolUse": {"toolUseId": c.id, "name": "search", "input": c.arguments}},
        result,
    )


def _gemini(turns: Sequence[Turn]) -> list[Any]:
    def result(call: Call) -> dict[str, Any]:
        value = call.texts[0] if len(call.texts) == 1 else [{"text": text} for text in call.texts]
        response = {"error" if call.is_error else "output": value}
        return {"functionResponse": {"id": call.id, "name": "search", "response": response}}

    return _alternating(
        turns,
        lambda text: {"text": text},
        lambda c: {"functionCall": {"id": c.id, "name": "search", "args": c.arguments}},
        result,
        ("user", "model", "parts"),
    )


def _langchain(turns: Sequence[Turn]) -> list[Any]:
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    messages: list[Any] = [SystemMessage("You are an agent.")]
    for turn in turns:
        if turn.user:
            messages.append(HumanMessage(turn.user))
        calls = [{"name": "search", "args": c.arguments, "id": c.id, "type": "tool_call"} for c in turn.calls]
        if turn.agent or calls:
            messages.append(AIMessage(turn.agent, tool_calls=calls))
        messages += [
            ToolMessage(_content(c, "text"), tool_call_id=c.id, status="error" if c.is_error else "success")
            for c in turn.calls
        ]
    return messages


def problem(kind: str, messages: Sequence[Any]) -> str:
    """Why the provider would refuse the messages, by its published rules; empty if it would not."""
    if kind == "responses":
        return _problem_of_items(messages)
    pending: list[str] = []
    for index, message in enumerate(messages):
        role, calls, results = _parts(kind, message)
        if results:
            if kind in ("anthropic", "bedrock", "gemini") and sorted(results) != sorted(pending):
                return f"{index}: results {results} for calls {pending}"
            for call_id in results:
                if call_id not in pending:
                    return f"{index}: result of {call_id}, which is not pending"
                pending.remove(call_id)
        elif pending:
            return f"{index}: {role} message while {pending} are pending"
        pending += calls
    return f"no results of {pending}" if pending else ""


def _parts(kind: str, message: Any) -> tuple[str, list[str], list[str]]:
    """(role, ids of calls, ids of results), after a check of the content."""
    if kind == "langchain":
        results = [message.tool_call_id] if message.type == "tool" else []
        return message.type, [call["id"] for call in getattr(message, "tool_calls", [])], results
    if kind in ("bedrock", "gemini"):
        return _parts_by_name(message)
    content = message["content"]
    if kind == "anthropic":
        assert all(part.get("text", "x") for part in content), "an empty text part"
        calls = [part["id"] for part in content if part["type"] == "tool_use"]
        return message["role"], calls, [part["tool_use_id"] for part in content if part["type"] == "tool_result"]
    calls = [call["id"] for call in message.get("tool_calls", ())]
    assert content is not None or calls
    return message["role"], calls, [message["tool_call_id"]] if message["role"] == "tool" else []


def _parts_by_name(message: Any) -> tuple[str, list[str], list[str]]:
    """Return the role and the ids of a message whose parts have one member, which names their type."""
    parts = message.get("content") or message["parts"]
    assert parts, "a message without parts"
    assert all(part.get("text", "x") for part in parts), "an empty text part"
    calls = [part["toolUse"]["toolUseId"] for part in parts if "toolUse" in part]
    calls += [part["functionCall"]["id"] for part in parts if "functionCall" in part]
    results = [part["toolResult"] for part in parts if "toolResult" in part]
    assert all(result["content"] for result in results), "a result without content"
    responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
    assert all(isinstance(response["response"], dict) for response in responses), "a response that is no object"
    ids = [result["toolUseId"] for result in results] + [response["id"] for response in responses]
    return message["role"], calls, ids


def _problem_of_items(items: Sequence[Any]) -> str:
    pending: set[str] = set()
    for index, item in enumerate(items):
        if item.get("type") == "function_call":
            pending.add(item["call_id"])
        elif item.get("type") == "function_call_output":
            if item["call_id"] not in pending:
                return f"{index}: output of {item['call_id']}, which is not pending"
            pending.remove(item["call_id"])
    return f"no outputs of {pending}" if pending else ""


WORDS = (
    "polar light director born film ship harbour Ana Berg Tromsø 1990 def return error INFO the of a in [1] ## {} "
    "[2 passages pruned, 40 tokens; restore: p1-p2] 日本 \\n \" ' 😀 a\u0301 <doc> ``` --- | restore:"
).split(" ")
SENTENCES = st.binary(min_size=1, max_size=40).map(lambda drawn: " ".join(WORDS[byte % len(WORDS)] for byte in drawn))
"""Words, each drawn as a byte: a draw for each word takes longer than pruning the conversation."""
PARAGRAPHS = st.lists(SENTENCES, min_size=1, max_size=12)
TEXTS = st.one_of(
    st.text(min_size=1, max_size=300),
    PARAGRAPHS.map("\n\n".join),
    PARAGRAPHS.map("\n".join),
    PARAGRAPHS.map(lambda lines: "\n".join(f"src/a{n // 3}.py:{n}: {line}" for n, line in enumerate(lines))),
    PARAGRAPHS.map(lambda texts: json.dumps([{"title": text[:20], "text": text * 3} for text in texts])),
    PARAGRAPHS.map(
        lambda texts: json.dumps({"hits": texts, "total": len(texts), "page": {"text": "\n\n".join(texts)}})
    ),
    PARAGRAPHS.map(lambda texts: f"# {texts[0]}\n\n" + "\n\n## Part\n\n".join(texts)),
)


@st.composite
def conversations(draw: st.DrawFn) -> list[Turn]:
    """Turns with unique call ids."""
    turns: list[Turn] = []
    number = 0
    for position in range(draw(st.integers(1, 5))):
        calls: list[Call] = []
        for _ in range(draw(st.integers(0, 3))):
            number += 1
            texts = tuple(draw(st.lists(TEXTS, min_size=1, max_size=2)))
            flags = [draw(st.booleans()) for _ in range(2)]
            is_error = draw(st.integers(0, 9)) == 0
            calls.append(Call(f"call_{number}", {"query": draw(SENTENCES)}, texts, is_error, *flags))
        user = draw(SENTENCES) if position == 0 or draw(st.booleans()) else ""
        agent = draw(SENTENCES) if not calls or draw(st.booleans()) else ""
        turns.append(Turn(user, agent, tuple(calls)))
    return turns
