"""Reading of one message in the format of each provider.

Six formats are supported: OpenAI's chat completions, the items of OpenAI's Responses API, Anthropic's messages, the
messages of Bedrock's Converse API, Gemini's contents, and LangChain's messages. Messages may be dicts or objects, and
no framework is imported. Files and unknown parts are passed through.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from context_agent.pruning.contents import (
    IMAGE_RULES,
    OWN_RESULT,
    Call,
    Form,
    MessageContent,
    MessageKind,
    Path,
    ResultText,
)
from context_agent.pruning.images import image_tokens

LONGEST_PATH = 8
"""The most steps from a message to a list of parts. Deeper parts are passed through without being read."""
LONGEST_ERROR = 2_000
"""The most characters of a result whose text can mark it as an error.

A longer result needs the provider's error field.
"""
_ERROR = re.compile(
    r"\W{0,3}(?:\w{0,40}error|exception|traceback|fatal|failed|failure|panic|exit (?:code|status):? [1-9])\b", re.I
)
_ERROR_FIELD = re.compile(r'\s*+\{\s*+"(?:error|exception)"\s*+:\s*+(?P<none>null|false|""|\{\})?')
_ROLES = {
    "system": "system", "developer": "system", "user": "user", "human": "user", "assistant": "assistant",
    "ai": "assistant", "model": "assistant", "tool": "tool", "function": "tool", "HumanMessageChunk": "user",
    "AIMessageChunk": "assistant", "SystemMessageChunk": "system", "ToolMessageChunk": "tool",
}  # fmt: skip
_TEXT_PARTS = frozenset(("text", "input_text", "output_text", "summary_text", "refusal", "thinking"))
_IMAGE_PARTS = frozenset(("image", "image_url", "input_image"))
_OPAQUE_PARTS = frozenset((
    *_IMAGE_PARTS, "audio", "input_audio", "video", "file", "input_file", "document", "reasoning", "redacted_thinking",
    "container_upload", "tool_reference", "tool_call", "search_result",
))  # fmt: skip
"""Known parts without a text to judge, or without a text that pruning may change."""
_OWN_RESULTS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "mcp_call": (("output",),),
    "file_search_call": (("results", "*", "text"),),
    "code_interpreter_call": (("outputs", "*", "logs"),),
    "web_fetch_tool_result": (("content", "content"),),
    "code_execution_tool_result": (("content", "stdout"), ("content", "stderr")),
    "bash_code_execution_tool_result": (("content", "stdout"), ("content", "stderr")),
    "text_editor_code_execution_tool_result": (("content", "content"),),
    "mcp_tool_result": (("content",), ("content", "*", "text")),
    "server_tool_result": (("output",),),
}
"""The paths of the results inside the items and parts of tools that the provider runs.

The provider lets a client change these texts. A star stands for each item of a list. Encrypted results, such as those
of Anthropic's web search, are not listed.
"""
_SERVER_CALLS = frozenset(("server_tool_use", "mcp_tool_use", "server_tool_call", "web_search_call"))
_OPAQUE_ITEMS = frozenset(("reasoning", "item_reference", "compaction", "mcp_list_tools", "mcp_approval_request"))
_BEDROCK_OPAQUE = ("image", "document", "video", "audio", "reasoningContent", "cachePoint", "guardContent")
_GEMINI_OPAQUE = (
    "inlineData", "inline_data", "fileData", "file_data", "thoughtSignature", "thought_signature",
)  # fmt: skip


def read_content(message: Any, index: int) -> MessageContent:
    """Return the content of one message.

    Args:
        message: The message, a dict or an object. A pair of a role and a text is accepted too.
        index: The index of the message in the conversation.

    Returns:
        The content. If the message is passed through, the role is `unknown`. If the value is not a message, it is
        empty.
    """
    if isinstance(message, tuple | list) and len(message) == 2 and all(isinstance(item, str) for item in message):
        message = {"role": message[0], "content": message[1]}
    kind, role = _name(message, "type"), _name(message, "role")
    if not kind and not role:
        return MessageContent("", unknown=(type(message).__name__,))
    if not role and (kind.endswith(("_call", "_output")) or kind in _OPAQUE_ITEMS):
        return _item(message, kind, index)
    # A dict of LangChain, such as a saved state of LangGraph has, has the type of the object and a content.
    is_langchain = not role and (not isinstance(message, Mapping) or "content" in message)
    author = _ROLES.get(kind if is_langchain else role)
    if author is None:
        return MessageContent("unknown", unknown=(role or kind,))
    family: MessageKind | None = "langchain" if is_langchain else "responses" if kind == "message" else None
    return _of_author(message, index, author, family)


def _of_author(message: Any, index: int, author: str, kind: MessageKind | None) -> MessageContent:
    """Return the content of a message that has a role."""
    if _is_gemini(message):
        return _gemini_content(message, index, author)
    if _is_bedrock(message):
        return _bedrock_message(message, index, author)
    if author == "tool":
        return _tool_message(message, index, kind or "openai")
    return _authored(message, index, author, kind)


@dataclass
class _Reading:
    """The content of a message while it is being collected."""

    index: int
    kind: MessageKind | None
    words: list[str] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    answers: list[Call] = field(default_factory=list)
    results: list[ResultText] = field(default_factory=list)
    arguments: list[ResultText] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def add_call(self, call: Call, arguments: Any, path: Path, form: Form, *, fixed: bool = False) -> None:
        """Add a call. Its arguments count as words of the agent. Pruning may shorten them unless they are `fixed`."""
        self.calls.append(call)
        text = _json_text(arguments) if form == "value" else _written(arguments)
        self.add_words(call.name, arguments if text is None else text)
        if text is not None and not fixed:
            key = call.id or call.name
            self.arguments.append(ResultText(self.index, path, key, text, form=form, is_argument=True))

    def add_words(self, name: str, arguments: Any) -> None:
        """Add the arguments of a call to the words of the agent."""
        self.words.append(f"{name} {_written(arguments)}")

    def add_own_results(self, key: str, texts: Iterable[ResultText], *, flagged: bool) -> None:
        """Add the texts of results that are inside the message of their call."""
        for result in texts:
            self._add(key, result, OWN_RESULT, flagged=flagged)

    def add_results(self, answer: Call, texts: Iterable[ResultText], *, flagged: bool) -> None:
        """Add the texts in the result of a call. `flagged` is True if the provider's own field marks an error."""
        for result in texts:
            self._add(answer.id or answer.name, result, len(self.answers), flagged=flagged)
        self.answers.append(answer)

    def _add(self, key: str, result: ResultText, owner: int, *, flagged: bool) -> None:
        failed = flagged or (result.form != "image" and _is_error(result.text))
        self.results.append(_replaced(result, {"message": self.index, "call_id": key, "is_error": failed}))
        self.owners.append(owner)

    def content(self, role: str) -> MessageContent:
        """Return the collected content as a message with this role."""
        return MessageContent(
            role=role,
            kind=self.kind,
            text="\n".join(filter(None, self.words)),
            calls=tuple(self.calls),
            answers=tuple(self.answers),
            results=tuple(self.results),
            arguments=tuple(self.arguments),
            result_owner=tuple(self.owners),
            unknown=tuple(self.unknown),
        )


def _replaced(result: ResultText, values: Mapping[str, Any]) -> ResultText:
    fields = {name: getattr(result, name) for name in ResultText.__slots__}
    return ResultText(**{**fields, **values})


def _item(item: Any, kind: str, index: int) -> MessageContent:
    """Return the content of a Responses API item that is not a message."""
    # The output of a local shell names its call as `id`.
    call_id = _name(item, "call_id") or (_name(item, "id") if kind == "local_shell_call_output" else "")
    reading = _Reading(index, "responses")
    if kind.endswith("_call"):
        if kind in _OWN_RESULTS or (not call_id and kind != "function_call"):
            # The provider runs this tool. The item contains the result, if there is one.
            _add_server_tool(reading, item, kind, ())
            return reading.content("assistant")
        name = next((name for name in ("arguments", "input", "action", "operation") if _get(item, name)), "")
        call = Call(call_id, _name(item, "name") or kind)
        is_text = isinstance(_get(item, name), str) if name else False
        form = _written_form(name, is_text=is_text)
        fixed = name == "action" and not _has_only_texts(_get(item, name))
        reading.add_call(call, _get(item, name) if name else "", (name,), form, fixed=fixed)
        return reading.content("assistant")
    if not kind.endswith("_output"):
        return MessageContent("assistant", "responses")
    texts, reading.unknown = _texts(_get(item, "output"), ("output",), "responses")
    reading.add_results(Call(call_id, _name(item, "name")), texts, flagged=False)
    return reading.content("tool")


def _add_server_tool(reading: _Reading, part: Any, kind: str, path: Path) -> None:
    """Add the arguments and the results that an item or a part of a provider's own tool contains."""
    action = _get(part, "action")
    arguments = _first(part, "arguments", "code", "queries", "input", "args") or _first(
        action, "query", "pattern", "url"
    )
    if arguments:
        reading.add_words(_name(part, "name") or kind, arguments)
    texts = [text for steps in _OWN_RESULTS.get(kind, ()) for text in _texts_at(part, steps, path)]
    failed = bool(_get(part, "error")) or _get(part, "is_error") is True or _get(part, "status") in ("failed", "error")
    key = next(filter(None, (_name(part, name) for name in ("tool_use_id", "tool_call_id", "id"))), kind)
    reading.add_own_results(key, texts, flagged=failed)


def _texts_at(value: Any, steps: Sequence[str], path: Path) -> Iterator[ResultText]:
    """Yield the texts at the end of these steps. If a document is there, yield the texts of its source."""
    if _name(value, "file_type") not in ("", "text"):
        return
    if not steps:
        yield from [_text(path, value)] if isinstance(value, str) else _document_texts(value, path)
    elif steps[0] != "*":
        yield from _texts_at(_get(value, steps[0]), steps[1:], (*path, steps[0]))
    else:
        for number, item in enumerate(_items(value)):
            yield from _texts_at(item, steps[1:], (*path, number))


def _document_texts(part: Any, path: Path) -> list[ResultText]:
    """Return the texts of a document part.

    Citations refer to characters of the document by their numbers. If a document can be cited, return nothing.
    """
    source = _get(part, "source")
    if _name(part, "type") != "document" or _get(_get(part, "citations"), "enabled"):
        return []
    if _name(source, "type") == "text" and isinstance(text := _get(source, "data"), str):
        return [_text((*path, "source", "data"), text)]
    return _texts(_get(source, "content"), (*path, "source", "content"), "anthropic")[0]


def _has_only_texts(action: Any) -> bool:
    """Return True if the lists of an action have only texts, and if all of its objects are empty.

    The provider checks the types of an action. It would refuse a stub in place of a point or of an environment.
    """
    members = action.values() if isinstance(action, Mapping) else (action,)
    lists = (member for member in members if isinstance(member, list))
    return all(isinstance(item, str) for items in lists for item in items) and not any(
        isinstance(member, Mapping) and member for member in members
    )


def _written_form(name: str, *, is_text: bool) -> Form:
    return "value" if not is_text else "json" if name == "arguments" else "text"


def _tool_message(message: Any, index: int, kind: MessageKind) -> MessageContent:
    """Return the result in a tool message of OpenAI's chat or of LangChain.

    The older role `function` is accepted too.
    """
    reading = _Reading(index, kind)
    texts, reading.unknown = _texts(_get(message, "content"), ("content",), kind)
    answer = Call(_name(message, "tool_call_id"), _name(message, "name") or _name(message, "tool_name"))
    reading.add_results(answer, texts, flagged=_get(message, "status") == "error")
    return reading.content("tool")


def _authored(message: Any, index: int, role: str, kind: MessageKind | None) -> MessageContent:
    """Return the content of a system, user or assistant message. Anthropic's user messages contain the tool results."""
    reading = _Reading(index, kind)
    content = _get(message, "content")
    for number, part in enumerate([content] if isinstance(content, str) else _items(content)):
        name = "text" if isinstance(part, str) else _name(part, "type")
        if name == "tool_use":
            call = Call(_name(part, "id"), _name(part, "name"))
            if kind != "langchain":
                reading.add_call(call, _get(part, "input"), ("content", number, "input"), "value")
                reading.kind = reading.kind or "anthropic"
        elif name == "tool_result":
            texts, more = _texts(_get(part, "content"), ("content", number, "content"), "anthropic")
            answer = Call(_name(part, "tool_use_id"))
            reading.add_results(answer, texts, flagged=_get(part, "is_error") is True)
            reading.unknown += more
            reading.kind = reading.kind or "anthropic"
        elif name in _TEXT_PARTS:
            reading.words.append(part if isinstance(part, str) else _text_of(part))
        elif role == "assistant" and (name in _OWN_RESULTS or name in _SERVER_CALLS):
            _add_server_tool(reading, part, name, ("content", number))
            reading.kind = reading.kind or "anthropic"
        elif name not in _OPAQUE_PARTS and not name.endswith("_tool_result"):
            reading.unknown.append(name)
    for number, call in enumerate(_items(_get(message, "tool_calls"))):
        _add_tool_call(reading, call, number)
    if (body := _get(message, "function_call")) and _name(body, "name") and not reading.calls:
        path: Path = ("function_call", "arguments")
        reading.add_call(Call("", _name(body, "name")), _get(body, "arguments"), path, "json")
        reading.kind = reading.kind or "openai"
    return reading.content("tool" if reading.answers and not any(reading.words) else role)


def _add_tool_call(reading: _Reading, call: Any, number: int) -> None:
    """Add a call of OpenAI's chat or of LangChain."""
    holder = next((name for name in ("function", "custom") if _get(call, name)), "")
    body = _get(call, holder) if holder else call
    name = next((name for name in ("arguments", "args", "input") if _get(body, name) is not None), "arguments")
    arguments = _get(body, name)
    path: Path = ("tool_calls", number, *((holder,) if holder else ()), name)
    form = _written_form(name, is_text=isinstance(arguments, str))
    reading.add_call(Call(_name(call, "id"), _name(body, "name")), arguments, path, form)
    reading.kind = reading.kind or "openai"


def _is_bedrock(message: Any) -> bool:
    """Return True if the parts of a message have the form of Bedrock's Converse API, with keys instead of types."""
    parts = _items(_get(message, "content"))
    named = ("toolUse", "toolResult", "text", *_BEDROCK_OPAQUE)
    return bool(parts) and all(
        isinstance(part, Mapping) and "type" not in part and any(name in part for name in named) for part in parts
    )


def _bedrock_message(message: Any, index: int, role: str) -> MessageContent:
    reading = _Reading(index, None)
    parts = _items(_get(message, "content"))
    # A tool that Bedrock runs has its result in the assistant's message.
    answered = {_name(_get(part, "toolResult"), "toolUseId") for part in parts if role == "assistant"} - {""}
    for number, part in enumerate(parts):
        if use := _get(part, "toolUse"):
            call = Call(_name(use, "toolUseId"), _name(use, "name"))
            if call.id in answered:
                reading.add_words(call.name, _get(use, "input"))
            else:
                reading.add_call(call, _get(use, "input"), ("content", number, "toolUse", "input"), "value")
            reading.kind = "bedrock"
        elif result := _get(part, "toolResult"):
            path: Path = ("content", number, "toolResult", "content")
            texts, more = _bedrock_texts(_get(result, "content"), path)
            failed, call_id = _get(result, "status") == "error", _name(result, "toolUseId")
            if call_id in answered:
                reading.add_own_results(call_id, texts, flagged=failed)
            else:
                reading.add_results(Call(call_id), texts, flagged=failed)
            reading.unknown += more
            reading.kind = "bedrock"
        elif isinstance(text := _get(part, "text"), str):
            reading.words.append(text)
        elif not any(_get(part, name) is not None for name in _BEDROCK_OPAQUE):
            reading.unknown.append(_first_key(part))
    return reading.content("tool" if reading.answers and not any(reading.words) else role)


def _bedrock_texts(content: Any, path: Path) -> tuple[list[ResultText], list[str]]:
    texts: list[ResultText] = []
    unknown: list[str] = []
    for number, part in enumerate(_items(content)):
        here = (*path, number)
        if isinstance(text := _get(part, "text"), str):
            texts.append(_text((*here, "text"), text))
        elif (value := _get(part, "json")) is not None:
            texts += _value((*here, "json"), value)
        elif image := _get(part, "image"):
            texts += _image(here, part, _get(_get(image, "source"), "bytes"), "bedrock", "")
        elif not any(_get(part, name) is not None for name in _BEDROCK_OPAQUE):
            unknown.append(_first_key(part))
    return texts, unknown


def _is_gemini(message: Any) -> bool:
    return isinstance(_get(message, "parts"), list | tuple)


def _gemini_content(message: Any, index: int, role: str) -> MessageContent:
    reading = _Reading(index, "gemini")
    for number, part in enumerate(_items(_get(message, "parts"))):
        call_name, call = _first_field(part, "functionCall", "function_call")
        result_name, result = _first_field(part, "functionResponse", "function_response")
        _, code = _first_field(part, "executableCode", "executable_code")
        output_name, output = _first_field(part, "codeExecutionResult", "code_execution_result")
        signed = bool(_first(part, "thoughtSignature", "thought_signature"))
        if call is not None:
            path: Path = ("parts", number, call_name, "args")
            own = Call(_name(call, "id"), _name(call, "name"))
            reading.add_call(own, _get(call, "args"), path, "value", fixed=signed)
        elif result is not None:
            path = ("parts", number, result_name, "response")
            answer = Call(_name(result, "id"), _name(result, "name"))
            value = _get(result, "response")
            failed = isinstance(value, Mapping) and bool(value.get("error"))
            reading.add_results(answer, _value(path, value), flagged=failed)
        elif code is not None:
            reading.add_words("code", _get(code, "code"))
        elif output is not None:
            texts = () if signed else _texts_at(output, ("output",), ("parts", number, output_name))
            failed = _get(output, "outcome") in ("OUTCOME_FAILED", "OUTCOME_DEADLINE_EXCEEDED")
            reading.add_own_results("code", texts, flagged=failed)
        elif isinstance(text := _get(part, "text"), str):
            reading.words.append(text)
        elif not any(_get(part, name) is not None for name in _GEMINI_OPAQUE):
            reading.unknown.append(_first_key(part))
    return reading.content("tool" if reading.answers and not any(reading.words) else role)


def _first_key(part: Any) -> str:
    return str(next(iter(part), "")) if isinstance(part, Mapping) else type(part).__name__


def _texts(content: Any, path: Path, kind: MessageKind) -> tuple[list[ResultText], list[str]]:
    """Return the texts and images in the content of a tool result, and the types of unknown parts."""
    if isinstance(content, str):
        return [_text(path, content)], []
    texts: list[ResultText] = []
    unknown: list[str] = []
    text_type = "input_text" if kind == "responses" else "text"
    for number, part in enumerate(_items(content)):
        here, name = (*path, number), _name(part, "type")
        if isinstance(part, str):
            texts.append(_text(here, part))
        elif name in _TEXT_PARTS and isinstance(text := _get(part, "text"), str):
            texts.append(_text((*here, "text"), text))
        elif name in _IMAGE_PARTS:
            texts += _image(here, part, _image_data(part, name), kind, text_type)
        elif name == "search_result" and len(path) < LONGEST_PATH:
            texts += _texts(_get(part, "content"), (*here, "content"), kind)[0]
        elif name == "document" and len(path) < LONGEST_PATH:
            texts += _document_texts(part, here)
        elif not name and (streams := [stream for stream in ("stdout", "stderr") if _name(part, stream)]):
            texts += [_text((*here, stream), _name(part, stream)) for stream in streams]
        elif name not in _OPAQUE_PARTS:
            unknown.append(name)
    return texts, unknown


def _image_data(part: Any, name: str) -> Any:
    """Return the image in a part: its bytes, its base64 text or its address."""
    source = _get(part, "source")
    if source is not None and not isinstance(source, str):
        return _first(source, "data", "url", "bytes")
    value = _get(part, name if name == "image_url" else "image_url")
    if value is not None and not isinstance(value, str):
        value = _get(value, "url")
    return value if value is not None else _first(part, "data", "base64", "url")


def _text(path: Path, text: str) -> ResultText:
    return ResultText(0, path, "", text)


def _value(path: Path, value: Any) -> list[ResultText]:
    """Return a JSON value as its text. If the value is not JSON, return nothing."""
    text = None if value is None else _json_text(value)
    return [] if text is None else [ResultText(0, path, "", text, form="value")]


def _image(path: Path, part: Any, data: Any, kind: MessageKind, text_type: str) -> Iterator[ResultText]:
    """Yield the image of a part. Pruning can replace the part only if it is a dict, so otherwise nothing is yielded."""
    if not isinstance(part, Mapping):
        return
    data = data if isinstance(data, str | bytes) else ""
    seen = data if isinstance(data, bytes) else data.encode(errors="surrogatepass")
    name = hashlib.blake2b(seen, digest_size=16).hexdigest()
    tokens = image_tokens(data, IMAGE_RULES[kind])
    yield ResultText(0, path, "", f"image {name}", form="image", image=part, tokens=tokens, text_type=text_type)


def _is_error(text: str) -> bool:
    """Return True if a short result reads like the message of a tool that failed."""
    if len(text) > LONGEST_ERROR:
        return False
    if field := _ERROR_FIELD.match(text):
        return field["none"] is None
    return _ERROR.match(text) is not None


def _json_text(value: Any) -> str | None:
    """Return the JSON text of a value. If the value would change when it is read back, return None."""
    try:
        return json.dumps(value, ensure_ascii=False) if json_like(value) else None
    except (TypeError, ValueError, RecursionError):
        return None


def json_like(value: Any) -> bool:
    """Return True if a value consists only of JSON types.

    These are dicts with string keys, lists, strings, numbers, booleans and None.
    """
    if isinstance(value, dict):
        return all(type(key) is str and json_like(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(json_like, value))
    return value is None or type(value) in (str, int, float, bool)


def _get(value: Any, name: str) -> Any:
    """Return a key of a mapping or an attribute of an object. If it is missing, return None."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _name(value: Any, name: str) -> str:
    """Return a field if it is a string. Otherwise return an empty string."""
    field = _get(value, name)
    return field if isinstance(field, str) else ""


def _first(value: Any, *names: str) -> Any:
    return _first_field(value, *names)[1]


def _first_field(value: Any, *names: str) -> tuple[str, Any]:
    """Return the name and the value of the first field that is present."""
    return next(((name, field) for name in names if (field := _get(value, name)) is not None), ("", None))


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _text_of(part: Any) -> str:
    text = _first(part, "text", "thinking", "refusal")
    return text if isinstance(text, str) else ""


def _written(arguments: Any) -> str:
    """Return the arguments of a call as text. If they are nested too deeply, return an empty string."""
    try:
        return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)
    except (RecursionError, ValueError, TypeError):
        return ""
