"""A conversation that was saved as JSON. It is read within a limit, and written with only its changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_agent._support.json_text import differences, with_values
from context_agent._support.small_files import decoded_json, parse_json
from context_agent.cli import output
from context_agent.errors import DataError

if TYPE_CHECKING:
    from context_agent.pruning.bundles import Bundle

MAX_CONVERSATION_BYTES = 64_000_000
"""The largest file of a conversation, in bytes."""
SUPPORTED = (
    'Pass JSON with a list of messages, or with an object that contains one, such as {"messages": […]}, or JSON Lines '
    "with a message per line."
)


@dataclass(frozen=True, slots=True)
class SavedConversation:
    """A conversation in a file.

    Attributes:
        bundle: The conversation.
        texts: The JSON texts of the file.
        by_line: True if each text is a line with one message.
        torn: An incomplete last line.
    """

    bundle: Bundle
    texts: Sequence[str]
    by_line: bool = False
    torn: str = ""

    def with_messages(self, messages: list[Any]) -> str:
        """Return the text of the file with other messages. Only the values that changed differ."""
        after = self.bundle.with_messages(messages)
        before, after = (self.bundle.value, after) if self.by_line else ([self.bundle.value], [after])
        changed = (
            with_values(text, changes) if (changes := dict(differences(old, new))) else text
            for text, old, new in zip(self.texts, before, after, strict=True)
        )
        return "".join(f"{text}\n" for text in changed) + self.torn


def read_conversation(file: Path) -> SavedConversation:
    """Return the conversation in the file.

    If a program was appending a message, the last line is incomplete. A note says so, and the line is left as it is.

    Raises:
        OSError: If the file cannot be read.
        DataError: If the file is too large, is not JSON or holds no messages.
    """
    from context_agent.pruning.bundles import conversations, find_conversation

    text, torn = _read(file), ""
    lines = [line for line in text.split("\n") if line.strip()]
    by_line = len(lines) > 1 and lines[0].startswith("{") and lines[0].rstrip().endswith("}")
    if by_line:
        values, torn = _records(file, lines)
        bundle = find_conversation(values)
    else:
        value = _value(file, text)
        bundle = find_conversation(value)
        if bundle is None and isinstance(value, dict) and (not {"role", "type"}.isdisjoint(value) or _has_turns(value)):
            # A session of one line. Its only line looks like a JSON file with one object.
            bundle, lines, by_line = find_conversation([value]), [text], True
    for read in (bundle.value, bundle.messages) if bundle else (value,):
        if reason := _without_messages(read):
            raise DataError(f"{_name(file)} {reason}")
    if bundle is None or not bundle.path:
        several = conversations(bundle.value if bundle else value)
        if len(several) > 1:
            paths = " and ".join(_json_path(one.path) for one in several[:2])
            raise DataError(f"{_name(file)} has {len(several)} conversations, such as {paths}. Pass one of them.")
    if bundle is None:
        raise DataError(f"{_name(file)} contains no conversation. {SUPPORTED}")
    if torn:
        output.note(f"the last line of {_name(file)} is incomplete, so it is left as it is")
    texts = lines[: len(lines) - bool(torn)] if by_line else [text]
    return SavedConversation(bundle, texts, by_line, torn)


def _has_turns(value: dict[str, Any]) -> bool:
    """Return True if an object by itself has turns of an agent with their results, such as a trajectory of DSPy."""
    from context_agent.pruning.formats.recognition import read_content

    content = read_content(value, 0)
    return bool(content.later or content.results)


def _without_messages(value: Any) -> str:
    """Return why a known kind of file has no messages in order, and what to pass instead. Otherwise return "".

    Args:
        value: The value of the file, or the list in it that could be a conversation.
    """
    first = value[0] if isinstance(value, list) and value else value
    if not isinstance(first, dict):
        return ""
    return next((reason for is_kind, reason in _WITHOUT_MESSAGES if is_kind(first)), "")


_OWN_FORM = (
    "which stores calls and results in its own form. Pass the messages in the form of a model's API, such as "
    '[{"role": "user", "content": "…"}, …].'
)
_OWN_SESSION = "Pass the session that the agent itself saves, or a request that the agent sends to its model."
_HISTORY_OF_AIDER = (
    "is the history of Aider, which is Markdown without the messages to the model. To see what pruning removes, run "
    "Aider with `ctx1 wrap aider`."
)


def _is_agent_client_update(first: dict[str, Any]) -> bool:
    """Return True for a notification of the Agent Client Protocol, or for its parameters."""
    parameters = first.get("params", first)
    update = parameters.get("update") if isinstance(parameters, dict) else None
    return isinstance(update, dict) and "sessionUpdate" in update


_WITHOUT_MESSAGES: tuple[tuple[Callable[[dict[str, Any]], bool], str], ...] = (
    (
        lambda first: isinstance(first.get("mapping"), dict) and "current_node" in first,
        (
            "is an export of ChatGPT, whose messages are a tree. Pass the messages of one branch as a list, such as "
            '[{"role": "user", "content": "…"}, …].'
        ),
    ),
    (lambda first: "isCreatedByUser" in first, f"is a chat of LibreChat, {_OWN_FORM}"),
    (lambda first: {"versions", "currentlySelected"} <= first.keys(), f"is a chat of LM Studio, {_OWN_FORM}"),
    (
        lambda first: first.get("kind") in (0, "0") and isinstance(first.get("v"), dict) and "requests" in first["v"],
        (
            "is a log of VS Code, whose lines change earlier parts of the chat. Pass the file that the command "
            "`Chat: Export Chat` writes."
        ),
    ),
    (
        lambda first: isinstance(first.get("log"), dict) and isinstance(first["log"].get("entries"), list),
        (
            "is a HAR file, which has the requests as texts. Pass one of them, such as the output of "
            "`jq -r '.log.entries[0].request.postData.text'`."
        ),
    ),
    (
        lambda first: first.get("type") in ("say", "ask") and first["type"] in first and "ts" in first,
        (
            "has what Cline, Roo Code or Kilo Code shows to the user. Pass `api_conversation_history.json` from the "
            "same folder, which has the messages to the model."
        ),
    ),
    (
        _is_agent_client_update,
        (
            "has the updates that an agent sends to its editor in the Agent Client Protocol, which are parts of "
            f"messages. {_OWN_SESSION}"
        ),
    ),
    (
        lambda first: any(_is_list_of_objects(first.get(name)) for name in ("candidates", "choices")),
        (
            "is the answer of a model without its request. Pass the messages of the request, with the message of the "
            "answer as the last."
        ),
    ),
)
"""The kinds of files without messages in order, recognized by their first object, and what is wrong with each."""


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _json_path(path: Sequence[str | int]) -> str:
    """Return a path as programs such as jq write it."""
    return "".join(f"[{key}]" if isinstance(key, int) else f'["{key}"]' for key in path)


def _records(file: Path, lines: Sequence[str]) -> tuple[list[Any], str]:
    """Return the values of the lines, and the last line if it is incomplete.

    Raises:
        DataError: If another line is not JSON.
    """
    values: list[Any] = []
    for number, line in enumerate(lines, start=1):
        try:
            values.append(parse_json(line))
        except ValueError as error:
            if number < len(lines):
                raise DataError(
                    f"{_name(file)}, line {number} is not valid JSON ({error}). Pass a message on each line."
                ) from error
            return values, line
    return values, ""


def _value(file: Path, text: str) -> Any:
    """Return the value of a JSON text. If it is not JSON, raise `DataError`."""
    try:
        return parse_json(text)
    except ValueError as error:
        if text.startswith("# aider chat started at"):
            raise DataError(f"{_name(file)} {_HISTORY_OF_AIDER}") from error
        several = "The file has several values. Join them into a list with `jq -s .`. " if "Extra" in str(error) else ""
        raise DataError(f"{_name(file)} is not valid JSON ({error}). {several}{SUPPORTED}") from error


def _read(file: Path) -> str:
    """Return the text of the file.

    Raises:
        OSError: If the file cannot be read.
        DataError: If the file is too large or has another encoding.
    """
    with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as stream:
        data = stream.read(MAX_CONVERSATION_BYTES + 1)
    if len(data) > MAX_CONVERSATION_BYTES:
        raise DataError(
            f"{_name(file)} has more than {MAX_CONVERSATION_BYTES:,} bytes. Pass the messages without their images."
        )
    try:
        return decoded_json(data).strip()
    except ValueError as error:
        remedy = "Convert it to UTF-8, for example with `iconv -f SHIFT_JIS -t UTF-8`."
        raise DataError(f"{_name(file)} is not UTF-8, UTF-16 or UTF-32 ({error}). {remedy}") from error


def _name(file: Path) -> str:
    return "standard input" if str(file) == "-" else str(file)
