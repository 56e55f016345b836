"""Exports of Slack: a file of messages for each day of a channel, and the names of the users."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from context_agent.retrieval.loaders.chat_exports import moment
from context_agent.retrieval.loaders.reading import Reading, one_line, storable
from context_agent.retrieval.loaders.turns import LONGEST_SPEAKER, Turn, message_text, string_of

LONGEST_MENTION = 40
"""Maximum number of characters of a name that replaces a mention, so that a text with many mentions stays small."""
SLACK_USERS = ("users.json", "org_users.json")
"""The files of a Slack export that list the users. They lie next to the folders of the channels."""
MOST_USERS = 100_000
"""Maximum number of users of exported workspaces whose names one load remembers."""
_SLACK_USER = re.compile(r"[A-Z0-9]{1,20}")
_SLACK_MENTION = re.compile(r"<@(?P<user>[A-Z0-9]{1,20})(?:\|(?P<name>[^<>|\n]{1,100}))?>")
_SLACK_LINK = re.compile(r"<(?P<sign>[#!]?)(?P<target>[^<>|\n@#!][^<>|\n]{0,2000})(?:\|(?P<label>[^<>\n]{1,1000}))?>")
"""A link with its words, a channel (`#`), or a call of everyone (`!`). Other angle brackets are escaped."""
_SLACK_ESCAPES = {"&lt;": "<", "&gt;": ">", "&amp;": "&"}
"""The characters that Slack escapes in the text of a message. The ampersand is the last one to be replaced."""


def remember_users(reading: Reading, records: Iterable[Mapping[str, Any]]) -> None:
    """If these are the users of a Slack export, keep their names for the channels, whose folders are read later."""
    if PurePath(reading.path).name not in SLACK_USERS:
        return
    users = reading.users.setdefault(str(PurePath(reading.name).parent), {})
    room = MOST_USERS - sum(map(len, reading.users.values()))
    for record in records:
        user = string_of(record.get("id"))
        name = one_line(storable(_first_name(record.get("profile"), record.get("real_name"), record.get("name"))))
        if room > 0 and name and _SLACK_USER.fullmatch(user):
            users[user] = name[:LONGEST_SPEAKER]
            room -= 1


def is_slack(message: Mapping[str, Any]) -> bool:
    """Return True if this is a message of a Slack export."""
    return isinstance(message.get("ts"), str) and ("user" in message or message.get("type") == "message")


def slack_turns(messages: Iterable[object], users: Mapping[str, str]) -> Iterator[Turn]:
    """Yield the turns of a day. Names replace the ids of users.

    Args:
        messages: The messages of the day. A user's name in a message takes precedence for the whole day.
        users: The names of the workspace's users by their ids.
    """
    found = [message for message in messages if isinstance(message, dict)]
    authors = ((string_of(message.get("user")), _slack_name(message)) for message in found)
    names = {**users, **{user: name for user, name in authors if user and name}}

    def mentioned(mention: re.Match[str]) -> str:
        name = names.get(mention["user"]) or mention["name"]
        return f"@{storable(one_line(name))[:LONGEST_MENTION]}" if name else mention[0]

    for message in found:
        user = string_of(message.get("user"))
        text = _SLACK_LINK.sub(_linked, _SLACK_MENTION.sub(mentioned, message_text(message.get("text"))))
        for escaped, character in _SLACK_ESCAPES.items():
            text = text.replace(escaped, character)
        yield Turn(_slack_name(message) or names.get(user, user), moment(message.get("ts")), text)


def _linked(link: re.Match[str]) -> str:
    """Return a link as people read it, with its address if the words do not show it."""
    label, target = link["label"], link["target"].removeprefix("mailto:")
    if link["sign"]:
        mark = "#" if link["sign"] == "#" else "@"
        return f"{mark}{(label or target).removeprefix(mark)}"
    return f"{label} ({target})" if label and label not in target else target


def _slack_name(message: Mapping[str, Any]) -> str:
    """Return the name of a message's author, or "" if the message has only the user's id."""
    return _first_name(message.get("user_profile"), message.get("username"))


def _first_name(profile: object, *others: object) -> str:
    """Return the name in a profile of Slack, or else the first of the others. If there is none, return ""."""
    stated = profile if isinstance(profile, dict) else {}
    candidates = (stated.get("display_name"), stated.get("real_name"), *others)
    return next((name for name in candidates if isinstance(name, str) and name), "")
