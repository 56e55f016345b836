"""Requests in chats of GitHub Copilot in Visual Studio Code, as its command `Chat: Export Chat` writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from context_agent.pruning.contents import Call, MessageContent, Path, ResultText
from context_agent.pruning.formats.collector import ContentCollector, written_form
from context_agent.pruning.formats.fields import MOST_LEVELS, get_field, items, text_field
from context_agent.pruning.formats.parts import result_text


def is_vscode_request(message: Any) -> bool:
    """Return True if a message without a role has the id of a request and the text that the user wrote."""
    said = get_field(message, "message")
    return isinstance(said, Mapping) and bool(text_field(message, "requestId")) and "text" in said


def read_vscode_request(message: Any, index: int) -> MessageContent:
    """Return what the user wrote. The rounds of the agent are later contents, each with the results of its calls."""
    metadata = get_field(get_field(message, "result"), "metadata")
    results = get_field(metadata, "toolCallResults")
    later: list[MessageContent] = []
    for row, turn in enumerate(items(get_field(metadata, "toolCallRounds"))):
        said = ContentCollector(index + len(later) + 1, "openai")
        said.words.append(text_field(turn, "response"))
        answered = ContentCollector(index + len(later) + 2, "openai")
        for number, call in enumerate(items(get_field(turn, "toolCalls"))):
            path = ("result", "metadata", "toolCallRounds", row, "toolCalls", number, "arguments")
            own, arguments = Call(text_field(call, "id"), text_field(call, "name")), get_field(call, "arguments")
            form = written_form("arguments", is_text=isinstance(arguments, str))
            said.add_call(own, arguments, path, form)
            if isinstance(results, Mapping) and own.id in results:
                parts = enumerate(items(get_field(results[own.id], "content")))
                place = ("result", "metadata", "toolCallResults", own.id, "content")
                texts = [text for column, part in parts for text in _texts(part, (*place, column))]
                answered.add_results(own, texts, flagged=False)
        later += [said.content("assistant"), *([answered.content("tool")] if answered.answers else [])]
    reading = ContentCollector(index, "openai")
    reading.words.append(text_field(get_field(message, "message"), "text"))
    return replace(reading.content("user"), later=tuple(later))


def _texts(part: Any, path: Path) -> Iterator[ResultText]:
    """Yield the texts of a part of a result, in order. A part is a text, or a tree whose leaves are texts."""
    if value := text_field(part, "value"):
        yield result_text((*path, "value"), value)
        return
    waiting = [(get_field(get_field(part, "value"), "node"), (*path, "value", "node"))]
    while waiting:
        node, place = waiting.pop()
        if (text := text_field(node, "text")).strip():
            yield result_text((*place, "text"), text)
        if len(place) < MOST_LEVELS:
            children = items(get_field(node, "children"))
            waiting += [(child, (*place, "children", row)) for row, child in reversed([*enumerate(children)])]
