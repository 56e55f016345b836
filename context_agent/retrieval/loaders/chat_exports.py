"""Exports of chat services in JSON. A table says where each format has the speaker, the time and the text of a message.

The formats are those of DiscordChatExporter, Telegram, Skype and Teams, Microsoft Graph, Messenger and Instagram,
Google Chat, Element, and ShareGPT.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from context_agent.retrieval.loaders.html_text import page_text

SAMPLE_MESSAGES = 1_000
"""The number of first messages that are examined. The first ones may be pictures and notices without a text."""
MAX_TIME_CHARACTERS = 100
MAX_PARTS = 1_000
"""Maximum number of parts of a message that are read."""
MILLISECONDS_FROM = 1e11
"""The number from which a time since 1970 is in milliseconds. As seconds, it would be a time after the year 5000."""
_DATE = re.compile(r"\d{4}-\d\d-\d\d")

Paths = tuple[str, ...]
"""Paths of keys, such as `author.name`. The first one that leads to a value counts."""


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """The fields of a chat service.

    Attributes:
        messages: The key of the list of messages.
        speaker: The paths to a message's speaker.
        time: The paths to its time. They may be empty.
        text: The path to its text.
        title: The paths to the title of a chat. All that exist are joined.
        is_html: True if the texts are HTML.
        is_mojibake: True if the texts are UTF-8 that was read as Latin-1.
    """

    messages: str
    speaker: Paths
    time: Paths
    text: str
    title: Paths = ("title",)
    is_html: bool = False
    is_mojibake: bool = False

    @property
    def is_of_people(self) -> bool:
        """True if people wrote the messages. The format of conversations with models has no times."""
        return bool(self.time)


FORMATS = (
    ChatFormat(
        "messages", ("author.nickname", "author.name"), ("timestamp",), "content", ("guild.name", "channel.name")
    ),
    ChatFormat("messages", ("from", "actor"), ("date",), "text", ("name",)),
    ChatFormat("messages", ("sender_name",), ("timestamp_ms",), "content", is_mojibake=True),
    ChatFormat("messages", ("creator.name", "creator.email"), ("created_date",), "text"),
    ChatFormat("messages", ("sender",), ("origin_server_ts",), "content.body", ("room_name",)),
    ChatFormat(
        "MessageList", ("displayName", "from"), ("originalarrivaltime",), "content", ("displayName",), is_html=True
    ),
    ChatFormat("value", ("from.user.displayName",), ("createdDateTime",), "body.content", (), is_html=True),
    ChatFormat("conversations", ("from",), (), "value"),
)


def format_of(value: Mapping[str, Any]) -> ChatFormat | None:
    """Return the format of an exported chat. If the value has none of the formats, return None.

    One of the first messages must have a speaker, a text and, unless the format has none, a time.
    """
    for chat in FORMATS:
        messages = value.get(chat.messages)
        if isinstance(messages, list) and any(_fits(chat, message) for message in messages[:SAMPLE_MESSAGES]):
            return chat
    return None


def _fits(chat: ChatFormat, message: object) -> bool:
    return (
        isinstance(message, dict)
        and bool(_first(message, chat.speaker))
        and (not chat.time or bool(_first(message, chat.time)))
        and bool(_text(_field(message, chat.text)))
    )


def chats_in(value: object) -> list[Any]:
    """Return the chats in the export of an account of Telegram, Skype or Teams. If there are none, return no chats."""
    if not isinstance(value, dict):
        return []
    chats = value.get("conversations") or _field(value, "chats.list")
    found = chats if isinstance(chats, list) else []
    return found if any(isinstance(chat, dict) and format_of(chat) for chat in found) else []


def title_of(chat: ChatFormat, value: Mapping[str, Any]) -> str:
    """Return the title of an exported chat, or "" if it has none."""
    return ": ".join(_repaired(chat, title) for path in chat.title if (title := _text(_field(value, path))))


def messages_of(chat: ChatFormat, value: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the speaker, the time and the text of each message. The oldest message comes first."""
    messages = [message for message in value[chat.messages] if isinstance(message, dict)]
    times = [_time(_first(message, chat.time)) for message in messages]
    found = list(zip(messages, times, strict=True))
    if times and _DATE.match(times[0]) and _DATE.match(times[-1]) and times[0] > times[-1]:
        found.reverse()
    for message, time in found:
        text = _text(_field(message, chat.text))
        if chat.is_html and ("<" in text or "&" in text):
            text = page_text(text)[1]
        yield _repaired(chat, _text(_first(message, chat.speaker))), time, _repaired(chat, text)


def _first(message: Mapping[str, Any], paths: Iterable[str]) -> Any:
    return next((value for path in paths if (value := _field(message, path))), "")


def _field(value: Any, path: str) -> Any:
    """Return what a path of keys leads to. If it leads nowhere, return None."""
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(value: object) -> str:
    """Return a text, or the parts of one, which are texts or objects with a text. Anything else is empty."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        return ""
    parts = (part.get("text") if isinstance(part, dict) else part for part in islice(value, MAX_PARTS))
    return "".join(part for part in parts if isinstance(part, str))


def _repaired(chat: ChatFormat, text: str) -> str:
    try:
        return text.encode("latin-1").decode() if chat.is_mojibake else text
    except UnicodeError:
        return text


def _time(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value if isinstance(value, str) else ""
    return moment(value // 1_000 if value > MILLISECONDS_FROM else value)


def moment(seconds: object) -> str:
    """Return seconds since 1970 in ISO 8601. If the value is not a time, return an empty string."""
    if isinstance(seconds, bool) or not isinstance(seconds, str | int | float):
        return ""
    if isinstance(seconds, str) and len(seconds) > MAX_TIME_CHARACTERS:
        return ""
    try:
        return datetime.fromtimestamp(int(float(seconds)), UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return ""
