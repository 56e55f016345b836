"""Conversations: exports of chat services, folders of Slack, and lists of messages with roles.

A conversation is a document. Each turn is a section with its speaker and time, so it is chunked on its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePath
from typing import Any

from context_agent.errors import DataError
from context_agent.retrieval.loaders.chat_exports import MAX_PARTS, format_of, messages_of, moment, title_of
from context_agent.retrieval.loaders.decoding import unix_lines
from context_agent.retrieval.loaders.reading import Reading, document, identifier, one_line, storable
from context_agent.types import Document, Section

LONGEST_SPEAKER = 100
"""The most characters of a speaker's name and of a time. They are stored with every chunk of a turn."""
LONGEST_MENTION = 40
"""The most characters of a name that replaces the mention of a user's id. So a text with many mentions stays small."""
LONGEST_SUBJECT = 200
"""The most characters of a conversation's title in the titles of its turns."""
MOST_TURNS = 20_000
"""The most turns that are chunked on their own. Further turns are chunked like any text."""
SLACK_USERS = ("users.json", "org_users.json")
"""The files of a Slack export that list the users. They lie next to the folders of the channels."""

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
MOST_USERS = 100_000
"""The most users of exported workspaces whose names one load remembers."""
_SLACK_USER = re.compile(r"[A-Z0-9]{1,20}")
_SLACK_MENTION = re.compile(r"<@(?P<user>[A-Z0-9]{1,20})(?:\|(?P<name>[^<>|\n]{1,100}))?>")

_SLACK_ESCAPES = {"&lt;": "<", "&gt;": ">", "&amp;": "&"}
"""The characters that Slack escapes in the text of a message. The ampersand is the last one to be replaced."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The words of one speaker in one turn.

    Attributes:
        speaker: The name or the role of the speaker, or "" if it is unknown.
        time: The time as the source states it, in ISO 8601 where possible, or "" if it is unknown.
        text: The words.
    """

    speaker: str
    time: str
    text: str


def conversation(reading: Reading, turns: Iterable[Turn], title: str = "", name: str = "") -> Document | None:
    """Return the document of a conversation. If it has no text, return None.

    Args:
        reading: The source.
        turns: The turns, in order.
        title: The title of the conversation.
        name: A name that distinguishes the conversations of a file. It becomes part of the document's id.
    """
    subject = one_line(storable(title))[:LONGEST_SUBJECT]
    parts: list[str] = []
    sections: list[Section] = []
    date, position = "", 0
    for turn in turns:
        if not (words := storable(unix_lines(turn.text)).strip()):
            continue
        speaker, time = (one_line(storable(field))[:LONGEST_SPEAKER] for field in (turn.speaker, turn.time))
        heading = f"{speaker} ({time})" if speaker and time else speaker or time
        part = f"{heading}:\n{words}\n\n" if heading else f"{words}\n\n"
        if len(sections) < MOST_TURNS:
            label = ", ".join(filter(None, (speaker, time)))
            section_title = ": ".join(filter(None, (subject or PurePath(reading.path).stem, label)))
            sections.append(Section(position, position + len(part), storable(section_title)))
        parts.append(part)
        position += len(part)
        date = date or (time if _DATE.match(time) else "")
    if not parts:
        return None
    whole = document(reading, "".join(parts), title, {"date": date} if date else {}, tuple(sections))
    return replace(whole, id=f"{whole.id}#{identifier(storable(name[:LONGEST_SPEAKER]))}") if name else whole


def is_conversation(value: object) -> bool:
    """Return True if a JSON value is an exported conversation, or has messages with roles."""
    if isinstance(value, list):
        first = value[0] if value else None
        return isinstance(first, dict) and (_is_slack(first) or has_role(first))
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
        if _is_slack(value[0]):
            channel, day = PurePath(reading.path).parent.name, PurePath(reading.path).stem
            users = reading.users.get(str(PurePath(reading.name).parent.parent), {})
            turns = _slack_turns(value, users)
            return conversation(reading, turns, f"#{channel} {day}" if channel else day, name)
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
        title = title_of(chat, value)
    else:
        turns = _role_turns(value["messages"])
    return conversation(reading, turns, title, name)


def remember_users(reading: Reading, records: Iterable[Mapping[str, Any]]) -> None:
    """If these are the users of a Slack export, keep their names for the channels, whose folders are read later."""
    if PurePath(reading.path).name not in SLACK_USERS:
        return
    users = reading.users.setdefault(str(PurePath(reading.name).parent), {})
    room = MOST_USERS - sum(map(len, reading.users.values()))
    for record in records:
        user = _string(record.get("id"))
        name = one_line(storable(_first_name(record.get("profile"), record.get("real_name"), record.get("name"))))
        if room > 0 and name and _SLACK_USER.fullmatch(user):
            users[user] = name[:LONGEST_SPEAKER]
            room -= 1


def _is_slack(message: Mapping[str, Any]) -> bool:
    return isinstance(message.get("ts"), str) and ("user" in message or message.get("type") == "message")


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
            yield Turn(_string(message.get("sender")), _string(message.get("created_at")), text)


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
            yield Turn(_string(role), moment(message.get("create_time")), text)


def _slack_turns(messages: Iterable[object], users: Mapping[str, str]) -> Iterator[Turn]:
    """Yield the turns of a day. Names replace the ids of users.

    Args:
        messages: The messages of the day. A user's name in a message takes precedence for the whole day.
        users: The names of the workspace's users by their ids.
    """
    found = [message for message in messages if isinstance(message, dict)]
    authors = ((_string(message.get("user")), _slack_name(message)) for message in found)
    names = {**users, **{user: name for user, name in authors if user and name}}

    def mentioned(mention: re.Match[str]) -> str:
        name = names.get(mention["user"]) or mention["name"]
        return f"@{one_line(storable(name))[:LONGEST_MENTION]}" if name else mention[0]

    for message in found:
        user = _string(message.get("user"))
        text = _SLACK_MENTION.sub(mentioned, message_text(message.get("text")))
        for escaped, character in _SLACK_ESCAPES.items():
            text = text.replace(escaped, character)
        yield Turn(_slack_name(message) or names.get(user, user), moment(message.get("ts")), text)


def _slack_name(message: Mapping[str, Any]) -> str:
    """Return the name of a message's author, or "" if the message has only the user's id."""
    return _first_name(message.get("user_profile"), message.get("username"))


def _first_name(profile: object, *others: object) -> str:
    """Return the name in a profile of Slack, or else the first of the others. If there is none, return ""."""
    stated = profile if isinstance(profile, dict) else {}
    candidates = (stated.get("display_name"), stated.get("real_name"), *others)
    return next((name for name in candidates if isinstance(name, str) and name), "")


def _role_turns(messages: Iterable[object]) -> Iterator[Turn]:
    for message in messages:
        if isinstance(message, dict):
            time = next((message[key] for key in ("timestamp", "created_at", "time") if key in message), "")
            speaker = _string(message.get("name")) or _string(message.get("role"))
            yield Turn(speaker, time if isinstance(time, str) else moment(time), message_text(message.get("content")))


def message_text(content: object) -> str:
    """Return the text of a message: a string, or the texts of its parts. Parts such as pictures have no text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") if isinstance(part, dict) else part for part in islice(content, MAX_PARTS))
    return "\n\n".join(text for text in texts if isinstance(text, str) and text.strip())


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def nothing_said() -> DataError:
    """Return the error for a file whose conversations have no text."""
    return DataError("the file is empty: its conversations contain no text")
