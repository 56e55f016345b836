"""Conversations in JSON: exports of chat services, days of Slack, and lists of messages with roles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from context_agent.errors import DataError
from context_agent.retrieval.loaders.chat_exports import format_of, messages_of, moment, title_of
from context_agent.retrieval.loaders.reading import Reading
from context_agent.retrieval.loaders.slack import is_slack, slack_turns
from context_agent.retrieval.loaders.turns import Turn, conversation, message_text, string_of
from context_agent.types import Document


def is_conversation(value: object) -> bool:
    """Return True if a JSON value is an exported conversation, or has messages with roles."""
    if isinstance(value, list):
        first = value[0] if value else None
        return isinstance(first, dict) and (is_slack(first) or has_role(first))
    if not isinstance(value, dict):
        return False
    messages = value.get("messages")
    return (
        isinstance(value.get("chat_messages"), list)
        or _is_tree(value.get("mapping"))
        or (isinstance(messages, list) and bool(messages) and isinstance(messages[0], dict) and has_role(messages[0]))
        or format_of(value) is not None
    )


def read_conversation(reading: Reading, value: Any, number: int | None = None) -> Document | None:
    """Return the document of a JSON value for which `is_conversation` is True. If it has no text, return None.

    Args:
        reading: The source.
        value: The JSON value.
        number: The number of the conversation, if its file has several.
    """
    if isinstance(value, list):
        name = "" if number is None else str(number)
        if is_slack(value[0]):
            channel, day = PurePath(reading.path).parent.name, PurePath(reading.path).stem
            users = reading.users.get(str(PurePath(reading.name).parent.parent), {})
            turns = slack_turns(value, users)
            return conversation(reading, turns, f"#{channel} {day}" if channel else day, name, joins=True)
        return conversation(reading, _role_turns(value), name=name)
    title = next((value[key] for key in ("title", "name") if isinstance(value.get(key), str)), "")
    ids = (value.get(key) for key in ("uuid", "conversation_id", "id"))
    stated = (str(name) for name in ids if isinstance(name, str | int) and name)
    name = "" if number is None else next(stated, str(number))
    if isinstance(value.get("chat_messages"), list):
        turns = _claude_turns(value["chat_messages"])
    elif _is_tree(value.get("mapping")):
        turns = _chatgpt_turns(value["mapping"], value.get("current_node"))
    elif chat := format_of(value):
        turns = (Turn(*message) for message in messages_of(chat, value))
        return conversation(reading, turns, title_of(chat, value), name, joins=chat.is_of_people)
    else:
        turns = _role_turns(value["messages"])
    return conversation(reading, turns, title, name)


def has_role(message: Mapping[str, Any]) -> bool:
    """Return True if this is a message with a role, as the APIs of models take it."""
    return isinstance(message.get("role"), str) and "content" in message


def _is_tree(mapping: object) -> bool:
    """Return True if this is the message tree of a ChatGPT conversation."""
    node = next(iter(mapping.values()), None) if isinstance(mapping, dict) else None
    return isinstance(node, dict) and "message" in node and "parent" in node


def _claude_turns(messages: Iterable[object]) -> Iterator[Turn]:
    for message in messages:
        if isinstance(message, dict):
            text = message_text(message.get("content")) or message_text(message.get("text"))
            yield Turn(string_of(message.get("sender")), string_of(message.get("created_at")), text)


def _chatgpt_turns(mapping: Mapping[str, Any], current: object) -> Iterator[Turn]:
    """Yield the turns from the first message to the current one.

    If an answer was regenerated, the tree has several branches. Only the branch of the current message is read.
    """
    path: dict[str, Any] = {}
    while isinstance(current, str) and current not in path and isinstance(node := mapping.get(current), dict):
        path[current] = node.get("message")
        current = node.get("parent")
    nodes = (node for node in mapping.values() if isinstance(node, dict))
    messages = list(path.values())[::-1] or [node.get("message") for node in nodes]
    for message in messages:
        if not isinstance(message, dict):
            continue
        author, content, details = (message.get(key) for key in ("author", "content", "metadata"))
        role = author.get("role") if isinstance(author, dict) else ""
        hidden = isinstance(details, dict) and details.get("is_visually_hidden_from_conversation")
        if role != "system" and not hidden and isinstance(content, dict):
            text = message_text(content.get("parts")) or message_text(content.get("text"))
            yield Turn(string_of(role), moment(message.get("create_time")), text)


def _role_turns(messages: Iterable[object]) -> Iterator[Turn]:
    for message in messages:
        if isinstance(message, dict):
            time = next((message[key] for key in ("timestamp", "created_at", "time") if key in message), "")
            speaker = string_of(message.get("name")) or string_of(message.get("role"))
            yield Turn(speaker, time if isinstance(time, str) else moment(time), message_text(message.get("content")))


def nothing_said() -> DataError:
    """Return the error for a file whose conversations have no text."""
    return DataError("the file is empty: its conversations contain no text")
