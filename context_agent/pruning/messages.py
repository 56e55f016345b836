"""Conversations of any agent: what their messages hold, and copies of them with other texts in their tool results.

Four kinds of message are read: those of OpenAI's chat completions, the items of OpenAI's Responses API, Anthropic's
messages, and LangChain's message objects. Messages may be dicts or objects; no framework is imported. Only texts inside
tool results can be rewritten. Images, files and everything unknown are passed through.
"""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any, Literal

from context_agent.errors import ConfigError

MessageKind = Literal["openai", "responses", "anthropic", "langchain"]
Path = tuple[str | int, ...]
"""Keys, attributes and indices that lead from a message to a text in it."""

LARGEST_RESULT = 2_000_000
"""Characters; a larger text of a tool result is left as it is."""
LONGEST_PATH = 8
"""Steps from a message to a list of parts. What is nested deeper is passed through unread."""
SHORTEST_TASK = 4
"""Words; a shorter message of the user is read together with the one before."""
LONGEST_ERROR = 2_000
"""Characters; a longer result counts as an error only if the provider's own field says so."""
_ERROR = re.compile(
    r"\W{0,3}(?:\w{0,40}error|exception|traceback|fatal|failed|failure|panic|exit (?:code|status):? [1-9])\b", re.I
)
_ERROR_FIELD = re.compile(r'\s*+\{\s*+"(?:error|exception)"\s*+:\s*+(?P<none>null|false|""|\{\})?')
_ROLES = {
    "system": "system", "developer": "system", "user": "user", "human": "user", "assistant": "assistant",
    "ai": "assistant", "tool": "tool", "HumanMessageChunk": "user", "AIMessageChunk": "assistant",
    "SystemMessageChunk": "system", "ToolMessageChunk": "tool",
}  # fmt: skip
_TEXT_PARTS = frozenset(("text", "input_text", "output_text", "summary_text", "refusal", "thinking"))
_OPAQUE_PARTS = frozenset((
    "image", "image_url", "input_image", "audio", "input_audio", "video", "file", "input_file", "document", "reasoning",
    "redacted_thinking", "server_tool_use", "container_upload", "tool_reference", "tool_call", "search_result",
))  # fmt: skip
"""Parts that are known and have no text to judge, or none that pruning may change."""
_OPAQUE_ITEMS = frozenset(("reasoning", "item_reference", "compaction", "mcp_list_tools", "mcp_approval_request"))


@dataclass(frozen=True, slots=True)
class ResultText:
    """A text of a tool result. `path` leads to it from its message; `is_error` tells that the tool failed."""

    message: int
    path: Path
    call_id: str
    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class MessageContent:
    """What a message holds: its author's words, the ids of the calls it makes and answers, the texts of results.

    `kind` is None if the message could belong to several kinds. `unknown` names parts that are passed through unread.
    """

    role: str
    kind: MessageKind | None = None
    text: str = ""
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    results: tuple[ResultText, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class Transcript:
    """The messages of a conversation with what they hold. Raises `ConfigError` if they are no sequence."""

    messages: Sequence[Any]
    contents: tuple[MessageContent, ...] = field(init=False)

    def __post_init__(self) -> None:
        messages: object = self.messages
        if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
            raise ConfigError(f"messages must be a list of messages; got {type(self.messages).__name__}")
        contents = tuple(_content(message, index) for index, message in enumerate(self.messages))
        object.__setattr__(self, "contents", contents)

    @property
    def kind(self) -> MessageKind:
        """The kind of the first message that belongs to one kind only; `openai` if none does."""
        return next((content.kind for content in self.contents if content.kind), "openai")

    @property
    def results(self) -> tuple[ResultText, ...]:
        """The texts of all tool results, in order."""
        return tuple(result for content in self.contents for result in content.results)

    @property
    def task(self) -> str:
        """The last message of the user; one of a few words, such as "go on", with the messages before it."""
        task = ""
        for content in reversed(self.contents):
            if content.role == "user" and content.text.strip():
                task = f"{content.text}\n{task}".strip()
                if len(task.split()) >= SHORTEST_TASK:
                    break
        return task

    @cached_property
    def last_turn(self) -> int:
        """The index of the first message of the last turn: the assistant's last messages and all that follow."""
        index = len(self.contents) - 1
        while index > 0 and self.contents[index].role != "assistant":
            index -= 1
        while index > 0 and self.contents[index - 1].role == "assistant":
            index -= 1
        return max(0, index)

    @cached_property
    def problems(self) -> tuple[str, ...]:
        """Why a provider would refuse the conversation, empty if it is sound."""
        return tuple(_problems(self.contents, self.last_turn))

    @cached_property
    def notices(self) -> tuple[str, ...]:
        """What is passed through unread."""
        unknown = Counter(name for content in self.contents for name in content.unknown)
        notices = [f"{number} of unknown type {name!r} passed through" for name, number in unknown.items()]
        return (*notices, *_notices_of_size(self.results))

    def steps(self, number: int) -> tuple[str, ...]:
        """The assistant's latest messages with words or calls, at most `number`, the latest first."""
        texts = (content.text for content in reversed(self.contents) if content.role == "assistant" and content.text)
        return tuple(islice(texts, number))

    def rewritten(self, texts: Iterable[tuple[ResultText, str]]) -> list[Any]:
        """Return the messages with other texts for some results. Changed messages are copies, the others the same."""
        changes: dict[int, dict[Path, str]] = {}
        for result, text in texts:
            if text != result.text:
                changes.setdefault(result.message, {})[result.path] = text
        messages = list(self.messages)
        for index, by_path in changes.items():
            messages[index] = _with_texts(messages[index], by_path)
        return messages


def _content(message: Any, index: int) -> MessageContent:
    """What one message holds. The role is `unknown` for one that is passed through, empty for what is no message."""
    kind, role = _name(message, "type"), _name(message, "role")
    if not kind and not role:
        return MessageContent("", unknown=(type(message).__name__,))
    if not role and (kind.endswith(("_call", "_output")) or kind in _OPAQUE_ITEMS):
        return _item(message, kind, index)
    is_langchain = not role and not isinstance(message, Mapping)
    author = _ROLES.get(kind if is_langchain else role)
    if author is None:
        return MessageContent("unknown", unknown=(role or kind,))
    family: MessageKind | None = "langchain" if is_langchain else "responses" if kind == "message" else None
    if author == "tool":
        return _tool_message(message, index, family or "openai")
    return _authored(message, index, author, family)


def _item(item: Any, kind: str, index: int) -> MessageContent:
    """An item of the Responses API that is no message."""
    call_id = _get(item, "call_id")
    if not isinstance(call_id, str):
        # Calls that the provider answers itself have no id for a result.
        return MessageContent("assistant", "responses")
    if kind.endswith("_call"):
        action = next((value for name in ("arguments", "input", "action") if (value := _get(item, name))), "")
        words = f"{_get(item, 'name') or kind} {_written(action)}"
        return MessageContent("assistant", "responses", words, calls=(call_id,))
    texts, unknown = _texts(_get(item, "output"), ("output",))
    results = _results(texts, index, call_id, flagged=False)
    return MessageContent("tool", "responses", answers=(call_id,), results=results, unknown=unknown)


def _tool_message(message: Any, index: int, kind: MessageKind) -> MessageContent:
    """A tool message of OpenAI's chat or of LangChain."""
    call_id = _get(message, "tool_call_id")
    if not isinstance(call_id, str):
        return MessageContent("tool", kind, answers=("",))
    texts, unknown = _texts(_get(message, "content"), ("content",))
    results = _results(texts, index, call_id, flagged=_get(message, "status") == "error")
    return MessageContent("tool", kind, answers=(call_id,), results=results, unknown=unknown)


def _authored(message: Any, index: int, role: str, kind: MessageKind | None) -> MessageContent:
    """A message of the system, the user or the assistant; Anthropic's user messages hold tool results."""
    words: list[str] = []
    calls: list[str] = []
    answers: list[str] = []
    results: list[ResultText] = []
    unknown: list[str] = []
    content = _get(message, "content")
    for number, part in enumerate([content] if isinstance(content, str) else _items(content)):
        name = "text" if isinstance(part, str) else _name(part, "type")
        if name == "tool_use":
            calls.append(str(_get(part, "id")))
            words.append(f"{_get(part, 'name')} {_written(_get(part, 'input'))}")
        elif name == "tool_result":
            answers.append(call_id := str(_get(part, "tool_use_id")))
            texts, more = _texts(_get(part, "content"), ("content", number, "content"))
            results += _results(texts, index, call_id, flagged=_get(part, "is_error") is True)
            unknown += more
        elif name in _TEXT_PARTS:
            words.append(part if isinstance(part, str) else _text_of(part))
        elif name not in _OPAQUE_PARTS and not name.endswith("_tool_result"):
            unknown.append(name)
    if (calls or answers) and kind is None:
        kind = "anthropic"
    for call in _items(_get(message, "tool_calls")):
        body = _get(call, "function") or _get(call, "custom") or call
        calls.append(str(_get(call, "id")))
        words.append(f"{_get(body, 'name')} {_written(_first(body, 'arguments', 'args', 'input'))}")
        kind = kind or "openai"
    role = "tool" if answers and not words else role
    text = "\n".join(filter(None, words))
    return MessageContent(role, kind, text, tuple(dict.fromkeys(calls)), tuple(answers), tuple(results), tuple(unknown))


def _texts(content: Any, path: Path) -> tuple[list[tuple[Path, str]], tuple[str, ...]]:
    """The texts in the content of a tool result with their paths, and the types of unknown parts."""
    if isinstance(content, str):
        return [(path, content)], ()
    texts: list[tuple[Path, str]] = []
    unknown: list[str] = []
    for number, part in enumerate(_items(content)):
        here, name = (*path, number), _name(part, "type")
        if isinstance(part, str):
            texts.append((here, part))
        elif name in _TEXT_PARTS and isinstance(text := _get(part, "text"), str):
            texts.append(((*here, "text"), text))
        elif name == "search_result" and len(path) < LONGEST_PATH:
            texts += _texts(_get(part, "content"), (*here, "content"))[0]
        elif not name and (streams := [stream for stream in ("stdout", "stderr") if _name(part, stream)]):
            texts += [((*here, stream), _name(part, stream)) for stream in streams]
        elif name not in _OPAQUE_PARTS:
            unknown.append(name)
    return texts, tuple(unknown)


def _results(texts: Iterable[tuple[Path, str]], index: int, call_id: str, *, flagged: bool) -> tuple[ResultText, ...]:
    return tuple(ResultText(index, path, call_id, text, flagged or _is_error(text)) for path, text in texts)


def _is_error(text: str) -> bool:
    """Whether a short result reads as the message of a tool that failed."""
    if len(text) > LONGEST_ERROR:
        return False
    if field := _ERROR_FIELD.match(text):
        return field["none"] is None
    return _ERROR.match(text) is not None


def _problems(contents: Sequence[MessageContent], last_turn: int) -> Iterator[str]:
    """What is wrong with the calls and results of a conversation."""
    called: dict[str, int] = {}
    answered: set[str] = set()
    for index, content in enumerate(contents):
        if not content.role:
            yield f"message {index} is no message but a value of the type {content.unknown[0]}"
        for call_id in content.answers:
            if call_id not in called:
                yield f"message {index} has a result without a call: {call_id!r}"
            elif call_id in answered:
                yield f"message {index} has a second result of the call {call_id!r}"
            answered.add(call_id)
        for call_id in content.calls:
            if call_id in called:
                yield f"message {index} repeats the call id {call_id!r}"
            called[call_id] = index
    for call_id, index in called.items():
        if call_id not in answered and index < last_turn:
            yield f"message {index} has a call without a result: {call_id!r}"


def _notices_of_size(results: Iterable[ResultText]) -> Iterator[str]:
    for result in results:
        if len(result.text) > LARGEST_RESULT:
            yield f"message {result.message} has a result of {len(result.text):,} characters, which is left as it is"


def _with_texts(value: Any, texts: Mapping[Path, str]) -> Any:
    """Return a copy of the value with other texts at these paths. It shares what no path leads to."""
    if () in texts:
        return texts[()]
    inner: dict[str | int, dict[Path, str]] = {}
    for (key, *rest), text in texts.items():
        inner.setdefault(key, {})[tuple(rest)] = text
    replaced = {key: _with_texts(_at(value, key), by_path) for key, by_path in inner.items()}
    if isinstance(value, tuple):
        return tuple(replaced.get(index, item) for index, item in enumerate(value))
    if hasattr(value, "model_copy"):
        return value.model_copy(update=replaced)
    copied = copy.copy(value)
    for key, item in replaced.items():
        if isinstance(value, Mapping | list):
            copied[key] = item
        else:
            setattr(copied, str(key), item)
    return copied


def _at(value: Any, key: str | int) -> Any:
    return value[key] if isinstance(key, int) or isinstance(value, Mapping) else getattr(value, key)


def _get(value: Any, name: str) -> Any:
    """A field of a dict or an attribute of an object, None without it."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _name(value: Any, name: str) -> str:
    """The same, if it is a string; else an empty string."""
    field = _get(value, name)
    return field if isinstance(field, str) else ""


def _first(value: Any, *names: str) -> Any:
    return next((field for name in names if (field := _get(value, name)) is not None), None)


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _text_of(part: Any) -> str:
    text = _first(part, "text", "thinking", "refusal")
    return text if isinstance(text, str) else ""


def _written(arguments: Any) -> str:
    """Return the arguments of a call as text, an empty one for arguments that are nested too deeply."""
    try:
        return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
    except RecursionError:
        return ""
