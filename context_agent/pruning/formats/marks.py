"""Marks of tool results and of calls in the text of a message.

Agents without tool messages send a result as a text of the user. Only a result with a mark at both ends is read. The
text outside the marks may be the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from context_agent.pruning.contents import Section

_NAMES = r"tool_response|tool_results?|tool_output|function_results?|function_response|observation"
_OPENING = re.compile(rf"^[ \t]{{0,3}}<({_NAMES})(?:[ \t][^<>\n]{{0,200}})?>", re.M)
_MARK = re.compile(rf"</?(?:{_NAMES})(?:[ \t][^<>\n]{{0,200}})?>")
_EXIT_CODE = "<returncode>"
_OUTPUT_OPENING = re.compile(r"^<(output|output_head|output_tail)>", re.M)
_OUTPUT_ENDS = ("</output>", "</output_tail>")
_DIALOG = r"ask_|attempt_completion|plan_mode_|new_task|condense"
"""The beginnings of the names of Cline's and Roo Code's tools whose result is an answer of the user."""
_ANNOUNCED = re.compile(rf"\[(?!{_DIALOG})\w{{1,60}}\b")
_UNMARKED = re.compile(
    rf"observation:|execution result of \[|<returncode>|\[(?!{_DIALOG})\w{{1,60}}(?: for '[^\n]{{0,500}}?)?\] Result:",
    re.I,
)
_LONGEST_BEGINNING = 1_000
_CALL = re.compile(r"<tool_call>|<function_calls>|<function=\w|^[ \t]{0,3}Action:[ \t]?\S", re.M)
_USER_MARKS = ("<feedback>", "<answer>", "<user_message>", "<task>")


def marked_sections(text: str) -> list[Section]:
    """Return the sections of a text between the marks of tool results.

    If the text does not begin with a mark, there are none. A message of mini-swe-agent begins with the exit code of a
    command, and ends with its output.
    """
    start = len(text) - len(text.lstrip())
    if text.startswith(_EXIT_CODE, start):
        pattern = _OUTPUT_OPENING if text.rstrip().endswith(_OUTPUT_ENDS) else None
    else:
        pattern = _OPENING if _OPENING.match(text, text.rfind("\n", 0, start) + 1) else None
    bounds = () if pattern is None else _bounds(text, pattern)
    return [Section(number, first, last) for number, (first, last) in enumerate(bounds) if first < last]


def _bounds(text: str, opening_pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the text between each opening and the next closing mark, without the space around it."""
    position = 0
    unclosed: set[str] = set()
    for opening in opening_pattern.finditer(text):
        name = opening[1]
        if opening.start() < position or name in unclosed:
            continue
        closing = f"</{name}>"
        end = text.find(closing, opening.end())
        if end < 0:
            unclosed.add(name)
            continue
        position = end + len(closing)
        inner = text[opening.end() : end]
        yield opening.end() + len(inner) - len(inner.lstrip()), opening.end() + len(inner.rstrip())


def text_outside(text: str, sections: Sequence[Section]) -> str:
    """Return the words outside the sections. The marks and the exit code of a command do not count as words."""
    if text.lstrip().startswith(_EXIT_CODE):
        return ""
    starts = [0, *(section.end for section in sections)]
    ends = [*(section.start for section in sections), len(text)]
    parts = (_MARK.sub("", text[start:end]).strip() for start, end in zip(starts, ends, strict=True))
    return "\n".join(filter(None, parts))


def unmarked_beginning(text: str) -> str:
    """Return the beginning of a tool result in a text without sections. If there is none, return an empty string."""
    found = _UNMARKED.match(text.lstrip()[:_LONGEST_BEGINNING]) or _OPENING.search(text)
    return found[0].strip() if found else ""


def announces_result(text: str) -> bool:
    """Return True if a text part says that the next part is the result of a tool, as in Cline and Roo Code."""
    text = text.strip()
    return text.endswith("] Result:") and _ANNOUNCED.match(text) is not None


def is_of_tool(announced: str) -> bool:
    """Return True if an announced text contains nothing that the user wrote into a dialog of the agent."""
    return not any(mark in announced for mark in _USER_MARKS)


def writes_calls(text: str) -> bool:
    """Return True if the text of an agent contains calls that have no field of their own."""
    return _CALL.search(text) is not None
