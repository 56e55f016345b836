"""Scratchpads: texts that have several turns of an agent, with the results of its tools.

LangChain's ReAct agents and DSPy send all steps in one message of the user. CrewAI adds a result to the agent's own
message. Every mark is outside the results, so removing passages never moves a border.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_REACT_MARK = re.compile(
    r"^[ \t]{0,3}(?P<name>Thought|Action Input|Action|Observation|Final Answer)(?: \d{1,4})?:|^(?P<begin>Begin!)", re.M
)
_FINISH = re.compile(r"\s{0,9}Finish\[")
_FIELD = re.compile(r"^\[\[ ## (?P<name>\w{1,60}?)(?:_(?P<number>\d{1,6}))? ## \]\][ \t]*$", re.M)
_ELEMENT = re.compile(
    r"^<(?P<name>trajectory|thought|tool_name|tool_args|observation)(?:_(?P<number>\d{1,6}))?>[ \t]*$", re.M
)
"""The beginning of a field of DSPy as its XML adapter writes it. A result may have lines with other tags."""
_TAG = re.compile(r"^</?\w{1,60}>[ \t]*$", re.M)
_FIELD_TAGS = ("<trajectory>", "<thought_", "<tool_name_")
_REQUEST = "\n\nRespond with "
"""The beginning of what DSPy asks after the last field."""
_LONGEST_OPEN_THOUGHT = 200
"""Maximum number of characters after the last `Thought:` of a scratchpad, which the model is to continue."""


class Piece(NamedTuple):
    """A piece of a text.

    Attributes:
        role: The author. What is after the last step has the role `unknown`.
        start: The offset of its beginning.
        end: The offset of its end.
    """

    role: str
    start: int
    end: int


def scratchpad(text: str, *, is_user: bool) -> list[Piece]:
    """Return the turns in a text. If the text is not a scratchpad, return an empty list.

    Args:
        text: The text of a message.
        is_user: True if the message is one of the user. Otherwise it is one of the agent.
    """
    if "Observation" in text and "Action" in text and (pieces := (_react_turns if is_user else _own_turn)(text)):
        return pieces
    if is_user and "[[ ## trajectory ## ]]" in text:
        return _dspy_turns(text, _FIELD)
    return _dspy_turns(text, _ELEMENT) if is_user and "<trajectory>" in text else []


def without_fields(text: str) -> str:
    """Return a text without the marks of DSPy's fields, whose names say nothing about the task."""
    if "[[ ## " in text:
        return _FIELD.sub("", text).strip()
    return _TAG.sub("", text).strip() if any(tag in text for tag in _FIELD_TAGS) else text


def _own_turn(text: str) -> list[Piece]:
    """Return the turn of an agent whose message has both a call and its result, which ends the message.

    In a code block, they are an example.
    """
    is_called = False
    for mark in _REACT_MARK.finditer(text):
        is_called = is_called or mark["name"] == "Action Input"
        if is_called and mark["name"] == "Observation":
            is_example = text.count("```", 0, mark.start()) % 2 == 1
            results = [] if is_example else [(mark.end(), len(text))]
            return _pieces([Piece("assistant", 0, 0)], results, Piece("assistant", len(text), len(text)))
    return []


def _react_turns(text: str) -> list[Piece]:
    """Return the turns of an agent that writes `Thought:`, `Action:` and `Observation:`.

    A scratchpad in a message of the user ends with an open thought. What comes before a final answer, or before
    `Begin!`, is an example or an instruction.
    """
    results: list[tuple[int, int]] = []
    first_step, first_word, thought, result = -1, 0, -1, -1
    is_called = False
    for mark in _REACT_MARK.finditer(text):
        name = mark["name"]
        if result >= 0:
            if name == "Thought":
                results.append((result, mark.start()))
                result, thought = -1, mark.end()
        elif mark["begin"] or name == "Final Answer" or (name == "Action" and _FINISH.match(text, mark.end())):
            results.clear()
            first_step, first_word, thought, is_called = -1, mark.start(), -1, False
        elif name == "Observation":
            result = mark.end() if is_called else -1
            is_called = False
        else:
            first_step = mark.start() if first_step < 0 else first_step
            thought = mark.end() if name == "Thought" else -1
            is_called = is_called or name != "Thought"
    if thought < 0 or len(text) - thought > _LONGEST_OPEN_THOUGHT:
        return []
    head = [Piece("system", 0, first_word), Piece("user", first_word, first_step), Piece("assistant", first_step, 0)]
    return _pieces(head, results, Piece("unknown", len(text), len(text)))


def _dspy_turns(text: str, field: re.Pattern[str]) -> list[Piece]:
    """Return the turns of DSPy's ReAct agent, whose trajectory is the last field of a message.

    Args:
        text: The text of the message.
        field: The mark at which a field begins.
    """
    results: list[tuple[int, int]] = []
    first_step, result = -1, -1
    called, closing = "", ""
    has_trajectory = False

    def end(mark: str, stop: int) -> int:
        found = text.rfind(mark, result, stop) if mark else -1
        return found if found >= 0 else stop

    for mark in field.finditer(text):
        name, number = mark["name"], mark["number"]
        if not has_trajectory:
            has_trajectory = name == "trajectory"
            continue
        if result >= 0:
            results.append((result, end(closing, mark.start())))
            result = -1
        first_step = mark.start() if first_step < 0 else first_step
        if name == "tool_name":
            called = number or ""
        elif name == "observation" and number and number == called:
            result, called = mark.end(), ""
            closing = f"</observation_{number}>" if field is _ELEMENT else ""
    if result >= 0:
        results.append((result, end(closing, end(_REQUEST, len(text)))))
    head = [Piece("user", 0, first_step), Piece("assistant", first_step, 0)]
    return _pieces(head, results, Piece("unknown", len(text), len(text)))


def _pieces(head: Sequence[Piece], results: Sequence[tuple[int, int]], tail: Piece) -> list[Piece]:
    """Return the pieces of a text, in order and without empty ones.

    Args:
        head: The pieces before the first result. The last one ends where this result begins.
        results: The bounds of the results.
        tail: The role of what is after the last result, and the end of the text.
    """
    if not results:
        return []
    pieces = [*head[:-1], head[-1]._replace(end=results[0][0])]
    for number, (start, end) in enumerate(results):
        following = results[number + 1][0] if number + 1 < len(results) else tail.end
        role = "assistant" if number + 1 < len(results) else tail.role
        pieces += [Piece("tool", start, end), Piece(role, end, following)]
    return [piece for piece in pieces if piece.start < piece.end]
