"""Conversations of any agent, with the content of their messages. Copies can have other texts in their tool results."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cached_property, reduce
from itertools import islice
from typing import Any

from context_agent.errors import ConfigError
from context_agent.pruning.bundles import find_conversation
from context_agent.pruning.contents import MessageContent, MessageKind, Path, ResultText, Section
from context_agent.pruning.formats.marks import without_added_context
from context_agent.pruning.formats.recognition import read_content
from context_agent.pruning.pairing import paired

SHORTEST_TASK = 4
"""Minimum number of words of a user message that is a task by itself.

A shorter one is read together with the message before.
"""
_ACKNOWLEDGMENT = "Ok."
"""What Aider writes as the agent after the output of a command. The user's question comes next."""
REPEATED_REMINDER = 3
"""Minimum number of equal user messages that are a reminder of the agent. It repeats itself after each result."""
INTENTION_CHARACTERS = 300
"""The number of characters at the end of the agent's own words that are read together with the task."""
_HINT = re.compile(r"^[ \t]*(?:[-*>#]{1,6}[ \t]*)?looking for:[ \t]*(\S[^\n]{0,500})", re.I | re.M)
_UNKNOWN_MESSAGE = (
    "is of unknown type {!r} and stays as it is. The pruner knows the roles user, assistant, system and tool."
)
_UNKNOWN_PART = "has a part of unknown type {!r}, which stays as it is. Send a text or JSON to have it pruned."
_UNMARKED = (
    "has a tool result in its text, after {!r}, and stays as it is. Send it as a tool message, or as a message that "
    "begins with <tool_result> and ends with </tool_result>."
)
CACHE_MARKS = ("cache_control", "prompt_cache_breakpoint")
"""The fields of a message part that mark the end of a cached prefix, in Anthropic's and in OpenAI's API."""


@dataclass(frozen=True)
class Transcript:
    """The messages of a conversation and their contents.

    Attributes:
        messages: The original messages.
        contents: The contents of the messages, in order, without results that answer no call. A message whose text has
            several turns of the agent has several contents.
        origins: The index of the message of each content.
        faults: A sentence for each result without a call and for each call without a result.

    Raises:
        ConfigError: If the messages are not a sequence.
    """

    messages: Sequence[Any]
    contents: tuple[MessageContent, ...] = field(init=False)
    origins: tuple[int, ...] = field(init=False)
    faults: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        contents: list[MessageContent] = []
        origins: list[int] = []
        written_calls: frozenset[str] | None = None
        for number, message in enumerate(checked_messages(self.messages)):
            is_last = number == len(self.messages) - 1
            read = read_content(message, len(contents), written_calls=written_calls, is_last=is_last)
            for content in (read, *read.later):
                was_agent = bool(contents) and contents[-1].role == "assistant"
                if content.role == "assistant":
                    written_calls = content.written_calls | (
                        (written_calls or frozenset()) if was_agent else frozenset()
                    )
                elif content.role != "tool":
                    written_calls = None
                contents.append(content)
                origins.append(number)
        pairing = paired(contents, _last_turn(contents), origins)
        object.__setattr__(self, "contents", _without_compacted(pairing.contents))
        object.__setattr__(self, "origins", tuple(origins))
        object.__setattr__(self, "faults", pairing.faults)

    @property
    def kind(self) -> MessageKind:
        """The format of the first message that has only one possible format.

        If there is no such message, it is `openai`.
        """
        return next((content.kind for content in self.contents if content.kind), "openai")

    @property
    def results(self) -> tuple[ResultText, ...]:
        """The texts of all tool results, in order."""
        return tuple(text for content in self.contents for text in content.results)

    @property
    def texts(self) -> tuple[ResultText, ...]:
        """The texts of all tool results and of the arguments of calls, in order."""
        return tuple(text for content in self.contents for text in (*content.arguments, *content.results))

    @property
    def task(self) -> str:
        """The last user message. A message of a few words, such as "go on", is joined with the messages before it.

        Blocks that a coding agent added to the message are left out, and so are reminders that the agent repeats.
        """
        task = ""
        for content in reversed(self.contents):
            if self._is_of_user(content) and (text := without_added_context(content.text)):
                task = f"{text}\n{task}".strip()
                if len(task.split()) >= SHORTEST_TASK:
                    break
        return task

    @property
    def hint(self) -> str:
        """The information that the agent is looking for, from a line `looking for: …` in its latest messages."""
        for content in reversed(self.contents):
            if self._is_of_user(content):
                break
            if content.role == "assistant" and not content.is_imitable and (found := _HINT.findall(content.text)):
                return str(found[-1]).strip()
        return ""

    @property
    def intention(self) -> str:
        """The end of the agent's own words in its latest turn, which say what it needs next.

        If the user wrote last, or if the agent only called tools, the intention is empty.
        """
        has_called = False
        for content in reversed(self.contents):
            if self._is_of_user(content) or (has_called and content.role == "tool"):
                break
            if content.role == "assistant":
                has_called = True
                if said := " ".join(content.said[-INTENTION_CHARACTERS:].split()):
                    return said
        return ""

    def _is_of_user(self, content: MessageContent) -> bool:
        return content.role == "user" and content.text not in self._reminders

    @cached_property
    def _reminders(self) -> frozenset[str]:
        """The texts that an agent sends again and again as the user, such as CrewAI after each result."""
        texts = [content.text for content in self.contents if content.role == "user"]
        return frozenset(text for text, n in Counter(texts).items() if n >= REPEATED_REMINDER and text != texts[0])

    @cached_property
    def last_turn(self) -> int:
        """The index of the first content of the last turn.

        The last turn has the assistant's last messages and all messages that follow them. A message that contains the
        results of its own calls ends a turn.
        """
        return _last_turn(self.contents)

    @cached_property
    def problems(self) -> tuple[str, ...]:
        """The reasons why nothing in the conversation can be pruned. It is empty if pruning is possible."""
        faulty: dict[str, list[int]] = {}
        for index, content in zip(self.origins, self.contents, strict=True):
            if not content.role:
                faulty.setdefault(_kind_of(self.messages[index], content.unknown[0]), []).append(index)
        return tuple(
            f"{_listed(indices)} must be a dict or an object with a role, such as "
            f'{{"role": "user", "content": "…"}}; got {kind}'
            for kind, indices in faulty.items()
        )

    @cached_property
    def notices(self) -> tuple[str, ...]:
        """The parts that are passed through: calls and results without a partner, and what cannot be read.

        There is one warning for each type that cannot be read, and one for all results without complete marks.
        """
        unread: dict[object, tuple[str, list[int]]] = {}
        for index, content in zip(self.origins, self.contents, strict=True):
            for name in dict.fromkeys(content.unknown if content.role else ()):
                warning = _UNKNOWN_MESSAGE if content.role == "unknown" else _UNKNOWN_PART
                unread.setdefault((warning, name), (warning.format(name), []))[1].append(index)
            if content.unmarked:
                unread.setdefault(_UNMARKED, (_UNMARKED.format(content.unmarked), []))[1].append(index)
        warnings = (f"{_listed(indices)} {warning}" for warning, indices in unread.values())
        return (*self.faults, *warnings)

    @property
    def by_message(self) -> list[list[MessageContent]]:
        """The contents of each message."""
        contents: list[list[MessageContent]] = [[] for _ in self.messages]
        for number, content in zip(self.origins, self.contents, strict=True):
            contents[number].append(content)
        return contents

    def steps(self, number: int) -> tuple[str, ...]:
        """Return the assistant's latest messages with words or calls, at most `number` of them, the latest first."""
        texts = (content.text for content in reversed(self.contents) if content.role == "assistant" and content.text)
        return tuple(islice(texts, number))

    def rewritten(self, values: Iterable[tuple[ResultText, Path, Any]]) -> list[Any]:
        """Return the messages with other values at some paths.

        Args:
            values: Triples of a text of the conversation, the path from its message, and the new value at that path.
                The value is a text, the JSON text of a value, or a message part.

        Returns:
            The messages. Messages that change are copied. The others are the same objects.
        """
        changes: dict[int, dict[Path, Any]] = {}
        for result, path, value in values:
            message = self.messages[self.origins[result.message]]
            new = json.loads(value) if result.form == "value" else value
            if isinstance(value, Mapping):
                new = _with_mark(value, reduce(_at, path, message))
            by_path = changes.setdefault(self.origins[result.message], {})
            by_path[path] = new
            for repeat in result.repeats:
                is_decoded = result.form == "json" and not isinstance(reduce(_at, repeat, message), str)
                by_path[repeat] = json.loads(value) if is_decoded else new
        messages = list(self.messages)
        for index, by_path in changes.items():
            messages[index] = _with_values(messages[index], by_path)
        return messages


def checked_messages(messages: object) -> Sequence[Any]:
    """Return the messages.

    Raises:
        ConfigError: If the messages are not a list.
    """
    if isinstance(messages, Mapping) and (bundle := find_conversation(messages)):
        keys = "".join(f"[{key!r}]" for key in bundle.path)
        raise ConfigError(f"messages must be a list of messages; got a dict that contains one. Pass messages{keys}.")
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise ConfigError(f"messages must be a list of messages; got {type(messages).__name__}")
    return messages


def _without_compacted(contents: tuple[MessageContent, ...]) -> tuple[MessageContent, ...]:
    """Return the contents without results and arguments before the last summary. The model does not see them."""
    first = max((index for index, content in enumerate(contents) if content.is_compaction), default=0)
    compacted = (replace(content, results=(), arguments=(), result_owner=()) for content in contents[:first])
    return (*compacted, *contents[first:])


def _last_turn(contents: Sequence[MessageContent]) -> int:
    index = len(contents) - 1
    while index > 0 and contents[index].role != "assistant":
        index -= 1
    while index > 1 and contents[index].text == _ACKNOWLEDGMENT and contents[index - 1].role == "tool":
        index -= 2
    while index > 0 and contents[index - 1].role == "assistant" and not contents[index - 1].results:
        index -= 1
    return max(0, index)


def _with_mark(part: Mapping[str, Any], replaced: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part with the mark of a cached prefix that the part in its place has, or without a mark.

    The mark belongs to the place in the conversation. Agents move it from turn to turn, and providers limit the number.
    """
    if all(part.get(name) == replaced.get(name) for name in CACHE_MARKS):
        return part
    unmarked = {name: value for name, value in part.items() if name not in CACHE_MARKS}
    return unmarked | {name: replaced[name] for name in CACHE_MARKS if name in replaced}


def _with_values(value: Any, values: Mapping[Path, Any]) -> Any:
    """Return a copy of the value with other values at these paths. Parts that no path leads to are shared."""
    if () in values:
        return values[()]
    if isinstance(value, str):
        return _with_sections(value, {path[0]: new for path, new in values.items() if isinstance(path[0], Section)})
    inner: dict[str | int | Section, dict[Path, Any]] = {}
    for (key, *rest), new in values.items():
        inner.setdefault(key, {})[tuple(rest)] = new
    replaced = {key: _with_values(_at(value, key), by_path) for key, by_path in inner.items()}
    if hasattr(value, "_replace"):
        return value._replace(**{str(key): item for key, item in replaced.items()})
    if isinstance(value, tuple):
        return tuple(replaced.get(index, item) for index, item in enumerate(value))
    if hasattr(value, "model_copy"):
        return value.model_copy(update=replaced)
    copied = copy.copy(value) if isinstance(value, MutableMapping) or not isinstance(value, Mapping) else dict(value)
    for key, item in replaced.items():
        if isinstance(value, Mapping | list):
            copied[key] = item
        elif is_dataclass(value):
            # The copy is nobody else's, so a frozen dataclass may be changed too.
            object.__setattr__(copied, str(key), item)
        else:
            setattr(copied, str(key), item)
    return copied


def _with_sections(text: str, texts: Mapping[Section, str]) -> str:
    parts: list[str] = []
    position = 0
    for section in sorted(texts, key=lambda section: section.start):
        parts += [text[position : section.start], texts[section]]
        position = section.end
    return "".join([*parts, text[position:]])


def _at(value: Any, key: str | int | Section) -> Any:
    return value[key] if isinstance(key, int) or isinstance(value, Mapping) else getattr(value, str(key))


def _listed(indices: Sequence[int]) -> str:
    return f"message {indices[0]}{f', like {len(indices) - 1} more,' if len(indices) > 1 else ''}"


def _kind_of(message: object, type_name: str) -> str:
    """Return what a message that cannot be read is, in the words of an error message."""
    return f"{type_name} without a role" if isinstance(message, dict) and "role" not in message else type_name
