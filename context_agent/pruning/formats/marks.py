"""Marks in the text of a message: of tool results, of calls, and of blocks that a coding agent adds.

Agents without tool messages send a result as a text of the user. A result with a mark at both ends is read, and one
after `Observation:` if it answers a call. The text outside the marks may be the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

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
_CALL = re.compile(r"<tool_call>|<function_calls>|<function=\w|^[ \t]{0,3}Action:\s{0,2}\S|^Calling tools:\n\[", re.M)
_OBSERVED = re.compile(r"observation:|(?:Call id: [^\n]{0,200}\n)?(?=Error:\n)", re.I)
"""The beginning of a result that has no closing mark, or of an error in smolagents."""
_RETRY = "\nNow let's retry: take care not to repeat previous errors!"
"""The end of an error in smolagents, also of one about an answer without a call."""
_NEXT_TASK = "\nNew task:\n"
"""The beginning of what the user writes after a result in smolagents, in the same message."""
_ADDED_CONTEXT = re.compile(
    r"(?:# AGENTS\.md instructions for [^\n]{1,1000}\n\s{0,9})?"
    r"<(system-reminder|environment_context|environment_details|session_context|user_instructions|INSTRUCTIONS)>"
)
"""The beginning of a block that a coding agent adds to a user message. The user did not write it.

Claude Code, Cline, Codex and Gemini CLI use these names. The blocks can be a hundred times longer than the task.
"""
_USER_MARKS = ("<feedback>", "<answer>", "<user_message>", "<task>")


def marked_sections(text: str, *, answers_call: bool = False) -> list[Section]:
    """Return the sections of a text between the marks of tool results.

    If the text does not begin with a mark, there are none. A message of mini-swe-agent begins with the exit code of a
    command, and ends with its output.

    Args:
        text: The text.
        answers_call: True if the text of the agent's message contains calls. Then everything after `Observation:` is a
            result, up to a new task of the user.
    """
    start = len(text) - len(text.lstrip())
    if (observed := _OBSERVED.match(text, start)) and (answers_call or _RETRY in text):
        end = text.rfind(_NEXT_TASK, observed.end())
        inner = text[observed.end() : end if end >= 0 else len(text)]
        first = observed.end() + len(inner) - len(inner.lstrip())
        last = observed.end() + len(inner.rstrip())
        return [Section(0, first, last)] if first < last else []
    if text.startswith(_EXIT_CODE, start):
        pattern = _OUTPUT_OPENING if text.rstrip().endswith(_OUTPUT_ENDS) else None
    else:
        pattern = _OPENING if _OPENING.match(text, text.rfind("\n", 0, start) + 1) else None
    sections: list[Section] = []
    for number, span in enumerate(() if pattern is None else marked_spans(text, pattern)):
        inner = text[span.inner : span.inner_end]
        first, last = span.inner + len(inner) - len(inner.lstrip()), span.inner + len(inner.rstrip())
        sections += [Section(number, first, last)] if first < last else []
    return sections


class MarkedSpan(NamedTuple):
    """A part of a text between two marks.

    Attributes:
        start: The offset of the opening mark.
        inner: The offset after the opening mark.
        inner_end: The offset of the closing mark.
        end: The offset after the closing mark.
    """

    start: int
    inner: int
    inner_end: int
    end: int


def marked_spans(text: str, opening_pattern: re.Pattern[str]) -> Iterator[MarkedSpan]:
    """Yield the span of each opening mark and of the next closing mark with the same name.

    The spans do not overlap. An opening mark without a closing mark is left out.

    Args:
        text: The text.
        opening_pattern: A pattern of opening marks. Its first group is the name.
    """
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
        yield MarkedSpan(opening.start(), opening.end(), end, position)


def before_calls(text: str) -> str:
    """Return what the agent wrote before the first call in its text."""
    call = _CALL.search(text)
    return text[: call.start()] if call else text


def without_added_context(text: str) -> str:
    """Return the text of a user message without the blocks that a coding agent added."""
    kept: list[str] = []
    position = 0
    for span in marked_spans(text, _ADDED_CONTEXT):
        kept.append(text[position : span.start])
        position = span.end
    return "".join([*kept, text[position:]]).strip()


def text_outside(text: str, sections: Sequence[Section]) -> str:
    """Return the words outside the sections. The marks and the exit code of a command do not count as words."""
    if text.lstrip().startswith(_EXIT_CODE):
        return ""
    observed = _OBSERVED.match(text, len(text) - len(text.lstrip()))
    starts = [observed.end() if observed else 0, *(section.end for section in sections)]
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
