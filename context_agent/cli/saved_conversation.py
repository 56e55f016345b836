"""A conversation that was saved as JSON. It is read within a limit, and written with only its changes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_agent._support.json_text import differences, with_values
from context_agent._support.small_files import decoded_json, parse_json
from context_agent.errors import DataError

if TYPE_CHECKING:
    from context_agent.pruning.bundles import Bundle

MAX_CONVERSATION_BYTES = 64_000_000
"""The largest file of a conversation, in bytes."""


@dataclass(frozen=True, slots=True)
class SavedConversation:
    """A conversation and the JSON texts of its file: one text, or a line for each message."""

    bundle: Bundle
    texts: Sequence[str]

    def with_messages(self, messages: list[Any]) -> str:
        """Return the text of the file with other messages. Only the values that changed differ."""
        after = self.bundle.with_messages(messages)
        before, after = (self.bundle.value, after) if len(self.texts) > 1 else ([self.bundle.value], [after])
        changed = (
            with_values(text, changes) if (changes := dict(differences(old, new))) else text
            for text, old, new in zip(self.texts, before, after, strict=True)
        )
        return "".join(f"{text}\n" for text in changed)


def read_conversation(file: Path) -> SavedConversation:
    """Return the conversation in the file.

    Raises:
        OSError: If the file cannot be read.
        DataError: If the file is too large, is not JSON or holds no messages.
    """
    from context_agent.pruning.bundles import find_conversation

    texts, value = _read(file)
    bundle = find_conversation(value)
    if bundle is None:
        raise DataError(
            f'{_name(file)} must be a list of messages, or an object that contains one, such as {{"messages": […]}}'
        )
    return SavedConversation(bundle, texts)


def _read(file: Path) -> tuple[list[str], Any]:
    """Return the JSON text in the file and its value, or the texts of its lines and the list of their values.

    Raises:
        OSError: If the file cannot be read.
        DataError: If the file is too large or is not JSON.
    """
    with nullcontext(sys.stdin.buffer) if str(file) == "-" else file.open("rb") as stream:
        data = stream.read(MAX_CONVERSATION_BYTES + 1)
    if len(data) > MAX_CONVERSATION_BYTES:
        raise DataError(
            f"{_name(file)} has more than {MAX_CONVERSATION_BYTES:,} bytes. Pass the messages without their images."
        )
    try:
        text = decoded_json(data).strip()
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) > 1 and all(line.startswith("{") and line.rstrip().endswith("}") for line in lines):
            return lines, [*map(parse_json, lines)]
        return [text], parse_json(text)
    except ValueError as error:
        raise DataError(f"{_name(file)} is not valid JSON ({error}). Pass a conversation as JSON.") from error


def _name(file: Path) -> str:
    return "standard input" if str(file) == "-" else str(file)
