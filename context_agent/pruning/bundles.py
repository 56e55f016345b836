"""Values that contain a conversation, such as the body of a request, a saved state or a trace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from context_agent.pruning.formats.fields import MOST_LEVELS, get_field
from context_agent.pruning.formats.recognition import read_content

CONVERSATION_PATHS: tuple[tuple[str, ...], ...] = (
    ("messages",),
    ("input",),
    ("contents",),
    ("clientHistory",),
    ("history",),
    ("chat_history",),
    ("chat_messages",),
    ("conversation",),
    ("conversations",),
    ("entries",),
    ("events",),
    ("values", "messages"),
    ("inputs",),
    ("inputs", "messages"),
    ("input", "messages"),
    ("gen_ai.input.messages",),
    ("attributes", "gen_ai.input.messages"),
)
"""The keys that lead to the messages: in bodies of requests, saved sessions, LangGraph's states, and traces.

A checkpoint of Gemini CLI has what it sent to the model in `clientHistory`, and what it showed in `history`.
"""

MOST_SEARCHED = 200_000
"""Maximum number of values that are searched for a conversation at another path."""
MOST_FOUND = 100
"""The number of different conversations at which the search ends. Each further one is compared with all of them."""
_SAMPLED_ENTRIES = 8
"""The number of entries at the beginning of a list that must be messages."""
_ROLE_CHARACTERS = 1_000
"""The number of characters at the beginning of a JSON text that must name a role."""
_ROLES = frozenset(("system", "user", "assistant", "tool"))


@dataclass(frozen=True, slots=True)
class Bundle:
    """A value and the conversation in it.

    Attributes:
        value: The value.
        path: The keys and the index that lead to the messages. It is empty if the value is the list of messages.
        messages: The messages.
        is_text: True if the value has the messages as a JSON text, as the attributes of traces have.
        own_entries: The number of messages at the end that stand for other fields of the value. Only requests to
            Cohere's first chat API have them.
    """

    value: Any
    path: tuple[str | int, ...]
    messages: list[Any]
    is_text: bool = False
    own_entries: int = 0

    def with_messages(self, messages: list[Any]) -> Any:
        """Return the value with other messages. What contains them is copied."""
        if self.own_entries:
            results = get_field(messages[-1], "tool_results")
            fields = {"chat_history": messages[: -self.own_entries], **({"tool_results": results} if results else {})}
            return {**self.value, **{name: field for name, field in fields.items() if name in self.value}}
        return _replaced(self.value, self.path, json.dumps(messages, ensure_ascii=False) if self.is_text else messages)


def find_conversation(value: Any) -> Bundle | None:
    """Return the conversation in a value. If there is none, or if there are several, return None.

    LangSmith has a list of conversations. If it has one conversation, that is returned. If no known path leads to a
    conversation, the whole value is searched.
    """
    if isinstance(value, list):
        return _only(conversations(value)) or Bundle(value, (), value)
    if isinstance(value, Mapping) and (bundle := cohere_request(value)):
        return bundle
    for path in CONVERSATION_PATHS:
        found = value
        for key in path:
            found = found.get(key) if isinstance(found, Mapping) else None
        is_text = isinstance(found, str) and path[-1].startswith("gen_ai.")
        messages = _decoded(found) if is_text else found
        if isinstance(messages, list):
            is_nested = len(messages) == 1 and isinstance(messages[0], list) and not is_text
            return Bundle(value, (*path, 0), messages[0]) if is_nested else Bundle(value, path, messages, is_text)
    return _only(conversations(value))


def conversations(value: Any) -> list[Bundle]:
    """Return the conversations at any path of a value, such as a trace or the log of an evaluation.

    A trace has each request to the model, which repeats the one before. If one conversation begins with another, only
    the longer one is returned. A list of messages is not searched for conversations inside the messages.
    """
    found: list[Bundle] = []
    waiting: list[tuple[Any, tuple[str | int, ...]]] = [(value, ())]
    for _ in range(MOST_SEARCHED):
        if not waiting:
            break
        item, path = waiting.pop()
        is_text = isinstance(item, str)
        messages = _decoded(item) if is_text and item.startswith("[{") and '"role"' in item[:_ROLE_CHARACTERS] else item
        if isinstance(messages, list) and _has_messages(messages):
            _add_longest(found, Bundle(value, path, messages, is_text))
            if len(found) >= MOST_FOUND:
                break
        elif isinstance(item, Mapping | list) and len(path) < MOST_LEVELS:
            inner = item.items() if isinstance(item, Mapping) else enumerate(item)
            waiting += [(entry, (*path, key)) for key, entry in reversed([*inner])]
    return found


def _add_longest(found: list[Bundle], bundle: Bundle) -> None:
    """Add a conversation. Of two conversations of which one begins with the other, only the longer one stays."""
    length = len(bundle.messages)
    for place, other in enumerate(found):
        shorter = min(length, len(other.messages))
        if other.messages[:shorter] == bundle.messages[:shorter]:
            if length > shorter:
                found[place] = bundle
            return
    found.append(bundle)


def _only(found: list[Bundle]) -> Bundle | None:
    return found[0] if len(found) == 1 else None


def _has_messages(entries: list[Any]) -> bool:
    """Return True if the first entries of a list are messages or lines of a session, with at least two turns."""
    if not entries or not all(isinstance(entry, Mapping) for entry in entries[:_SAMPLED_ENTRIES]):
        return False
    contents = [read_content(entry, 0) for entry in entries[:_SAMPLED_ENTRIES]]
    if len(contents) + len(contents[0].later) < 2:
        return False
    roles = {content.role for content in contents}
    return not roles.isdisjoint(_ROLES) and "" not in roles


def cohere_request(value: Mapping[str, Any]) -> Bundle | None:
    """Return the conversation in a request to Cohere's first chat API. If the value is another one, return None.

    The last message of the user and the newest results are fields of their own. They follow the history. If the results
    are those of the first step, no message has their calls, which the results repeat.
    """
    message = value.get("message")
    history, results = (value.get(name) or [] for name in ("chat_history", "tool_results"))
    if not (isinstance(message, str) and isinstance(history, list) and isinstance(results, list)):
        return None
    if not (history or results):
        return None
    entries: list[Any] = [{"role": "USER", "message": message}] if message else []
    if results and not (history and not entries and get_field(history[-1], "tool_calls")):
        entries.append({"role": "CHATBOT", "tool_calls": [get_field(result, "call") for result in results]})
    entries += [{"role": "TOOL", "tool_results": results}] if results else []
    return Bundle(value, ("chat_history",), [*history, *entries], own_entries=len(entries)) if entries else None


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _replaced(value: Any, path: tuple[str | int, ...], new: Any) -> Any:
    if not path:
        return new
    key, *rest = path
    inner = _replaced(value[key], tuple(rest), new)
    if isinstance(value, list):
        return [inner if number == key else item for number, item in enumerate(value)]
    return {**value, key: inner}
