"""Sessions of coding agents: a JSONL file with a message, a tool call or a result in each row.

Claude Code and Codex write such files. So do programs that log a list of messages with roles.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from context_agent.errors import DataError
from context_agent.retrieval.loaders.conversations import has_role
from context_agent.retrieval.loaders.reading import Reading
from context_agent.retrieval.loaders.rows import fields_text
from context_agent.retrieval.loaders.turns import Turn, conversation, message_text
from context_agent.types import Document

LONGEST_SUBJECT = 100
"""Maximum number of characters of a user's first line that become the title of a session."""
_ROLES = frozenset("assistant developer function human system tool user".split())
_CALLS = frozenset(["custom_tool_call", "function_call", "local_shell_call", "web_search_call"])
_RESULTS = frozenset(["custom_tool_call_output", "function_call_output"])


def is_session(rows: Sequence[object]) -> bool:
    """Return True if the first rows of a file show that the file is a session.

    A row of Claude Code or Codex suffices. Otherwise all rows except the first must be parts of a session. Two roles
    must occur, or a message whose content is a list of parts. Codex wrote facts about the session into the first row.
    """
    objects = [row for row in rows if isinstance(row, dict)]
    if any(_is_claude_code(row) or _is_codex(row) for row in objects):
        return True
    messages = [row for row in objects if has_role(row)]
    roles = {message["role"] for message in messages}
    is_told = len(roles) > 1 or any(isinstance(message["content"], list) for message in messages)
    is_part = (has_role(row) or _kind(row) in {*_CALLS, *_RESULTS, "reasoning"} for row in objects[1:])
    return len(objects) == len(rows) and is_told and roles <= _ROLES and all(is_part)


def read_session(reading: Reading, rows: Iterable[object]) -> Document:
    """Return the session as a conversation, titled by its summary or by the first line that the user wrote.

    Raises:
        DataError: If the session has no text, or more than the limit of a document.
    """
    turns: list[Turn] = []
    summary, size = "", 0
    for row in rows:
        if not isinstance(row, dict):
            continue
        if isinstance(row.get("summary"), str):
            summary = row["summary"]
        for turn in _turns(row):
            turns.append(turn)
            size += len(turn.text)
            if size > reading.options.max_size:
                raise DataError(reading.options.too_large("the session, which is one document,"))
    whole = conversation(reading, turns, summary or _subject(turns))
    if whole is None:
        raise DataError("the file is empty: its session has no text")
    return whole


def _kind(row: Mapping[str, Any]) -> str:
    kind = row.get("type")
    return kind if isinstance(kind, str) else ""


def _is_claude_code(row: Mapping[str, Any]) -> bool:
    message = row.get("message")
    is_message = _kind(row) in {"user", "assistant"} and isinstance(message, dict) and has_role(message)
    return is_message and not {"uuid", "sessionId", "session_id"}.isdisjoint(row)


def _is_codex(row: Mapping[str, Any]) -> bool:
    payload = row.get("payload")
    return row.get("type") == "response_item" and isinstance(payload, dict) and "type" in payload


def _turns(row: Mapping[str, Any]) -> Iterator[Turn]:
    """Yield what is said, called or returned in a row. Notes of the program to itself are left out."""
    time = row["timestamp"] if isinstance(row.get("timestamp"), str) else ""
    part = row["payload"] if _is_codex(row) else row["message"] if _is_claude_code(row) else row
    if row.get("isMeta") or not isinstance(part, dict):
        return
    kind = _kind(part)
    if has_role(part):
        yield from _messages(part["role"], time, part["content"])
    elif kind in _CALLS:
        yield Turn("assistant", time, _call(part.get("name", kind), part))
    elif kind in _RESULTS:
        yield Turn("tool", time, _result(part.get("output")))


def _messages(role: str, time: str, content: object) -> Iterator[Turn]:
    """Yield the text of a message, then its tool calls and its results of tools."""
    yield Turn(role, time, message_text(content))
    for part in content if isinstance(content, list) else []:
        if isinstance(part, dict) and part.get("type") == "tool_use":
            yield Turn(role, time, _call(part.get("name"), part))
        elif isinstance(part, dict) and part.get("type") == "tool_result":
            yield Turn("tool", time, message_text(part.get("content")))


def _call(name: object, part: Mapping[str, Any]) -> str:
    """Return the name of a tool, and a line for each argument."""
    stated = _parsed(next((part[key] for key in ("arguments", "input", "action") if key in part), ""))
    return f"{name}\n{fields_text(stated) if isinstance(stated, dict) else stated}"


def _result(output: object) -> str:
    """Return the text of a result, which may be inside an object that is written as a string."""
    stated = _parsed(output)
    if isinstance(stated, dict):
        return message_text(stated.get("output")) or fields_text(stated)
    return message_text(stated)


def _parsed(value: object) -> object:
    """Return the object that a string of JSON states. Other values are returned as they are."""
    try:
        return json.loads(value) if isinstance(value, str) and value.startswith("{") else value
    except (ValueError, RecursionError):
        return value


def _subject(turns: Iterable[Turn]) -> str:
    """Return the first line of the user that is not in tags, which mark what the program adds."""
    said = (turn.text.strip() for turn in turns if turn.speaker in {"user", "human"})
    line = next((text.split("\n")[0] for text in said if text and not text.startswith("<")), "")
    return line if len(line) <= LONGEST_SUBJECT else line[: LONGEST_SUBJECT - 3] + "..."
