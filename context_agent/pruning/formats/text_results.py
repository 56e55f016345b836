"""Tool results in the texts of agents that have no tool messages.

A user text that answers the agent is a result if it begins with the marks of a form, and if the agent called a tool in
that form. A text with several turns of an agent is divided into them. What is outside the marks may be the user's own,
and stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from context_agent.pruning.contents import MessageContent, Path, ResultText, Section
from context_agent.pruning.formats.collector import ContentCollector
from context_agent.pruning.formats.marks import CALL_MARKS, MarkedSpan, asked_in_text, marked_spans
from context_agent.pruning.formats.parts import result_text
from context_agent.pruning.formats.scratchpads import Piece, scratchpad, without_fields

_NAMES = (
    r"tool_response|tool_results?|tool_output|function_results?|function_response|observation"
    r"|bash-stdout|bash-stderr|local-command-stdout|local-command-stderr"
)
_OPENING = re.compile(rf"^[ \t]{{0,3}}<({_NAMES})(?:[ \t][^<>\n]{{0,200}})?>", re.M)
_EXIT_CODE = re.compile(r"(?:<exception>(?:[^<]++|<(?!/?exception>)){0,500}+</exception>\s{0,9})?<returncode>")
_OUTPUT_OPENING = re.compile(r"^<(output|output_head|output_tail)>", re.M)
_OUTPUT_ENDS = ("</output>", "</output_tail>")
_ATTACHED = re.compile(
    r'^<(environment_details(?=>)|(?:file|folder)_content(?= path=")|url_content(?= url="))[^<>\n]{0,1000}>', re.M
)
"""A block that Cline, Roo Code or Kilo Code adds to a message of the user. It may follow the user's own words."""
_MARK = re.compile(rf"</?(?:{_NAMES}|environment_details|(?:file|folder|url)_content)(?:[ \t][^<>\n]{{0,1000}})?>")
_DIALOG = r"ask_|attempt_completion|plan_mode_|new_task|condense"
"""The beginnings of the names of Cline's and Roo Code's tools whose result is an answer of the user."""
_ANNOUNCED = re.compile(rf"\[(?!{_DIALOG})\w{{1,60}}\b")
_USER_MARKS = ("<feedback>", "<answer>", "<user_message>", "<task>")

_OBSERVATION = re.compile(r"observation:|(?:Call id: [^\n]{0,200}\n)?(?=Error:\n)", re.I)
_RETRY = "\nNow let's retry: take care not to repeat previous errors!"
"""The end of an error in smolagents, also of one about an answer without a call."""
_ERROR_WITHOUT_CALL = re.compile(r"(?:Call id: [^\n]{0,200}\n)?(?=Error:\n)")
_COMMAND_OBSERVATION = re.compile(r"OBSERVATION:\n")
_EXECUTION_RESULT = re.compile(r"EXECUTION RESULT of \[[^\]\n]{1,200}\]:\n", re.I)
_ANNOUNCED_RESULT = re.compile(rf"\[(?!{_DIALOG})(?P<tool>\w{{1,60}})(?: for '[^\n]{{0,2000}}?)?\] Result:\n")
_EXIT_STATUS = re.compile(r"exitcode: -?\d{1,10} \(execution (?:succeeded|(?P<failed>failed))\)\nCode output: ?")
_CODE_OUTPUT = re.compile(r"Code output: ")
_TOOL_OUTPUT = re.compile(r"Tool output for [^\n]{1,200} tool call:\n")
_TOOL_RESPONSE = re.compile(r"TOOL RESPONSE: ?\n-{3,100}\n")
_TERMINAL = re.compile(
    r"(?:Previous response had warnings:\n(?:[^\n]{1,2000}\n){1,20}\n)?"
    r"(?:New Terminal Output|Current Terminal Screen):\n"
)
_COMMAND_OUTPUT = re.compile(r"I ran this command:\n\n[^\n]{1,4000}\n\nAnd got this output:\n\n")
_EXIT_LINES = re.compile(
    r"(?:\n\[(?:The command|Command|Current working|Python interp|Finished)[^\n]{0,500}\]){1,5}\s*\Z"
)
_LONGEST_EXIT = 2_000
"""Maximum number of characters at the end of a result that say how a command ended."""
_LONGEST_BEGINNING = 1_000


@dataclass(frozen=True, slots=True)
class _Form:
    """A form of results without a closing mark.

    Attributes:
        opening: The mark at the beginning of the text. If it has a group `tool`, the agent must have written the tag of
            this tool.
        calls: The marks of which the agent's text must have one. If it is None, the opening mark is enough.
        ending: What comes after the result. Its last occurrence counts.
        is_closed: True if the ending must be there.
        keeps_words: True if the user wrote what comes after the result.
    """

    opening: re.Pattern[str]
    calls: frozenset[str] | None
    ending: str = ""
    is_closed: bool = False
    keeps_words: bool = False


_CODE_BLOCK = frozenset(("```",))
_FORMS = (
    # smolagents, LlamaIndex and other ReAct agents
    _Form(_OBSERVATION, CALL_MARKS, "\nNew task:\n", keeps_words=True),
    _Form(_ERROR_WITHOUT_CALL, None, _RETRY, is_closed=True),
    # SWE-agent
    _Form(_COMMAND_OBSERVATION, _CODE_BLOCK),
    # OpenHands
    _Form(_EXECUTION_RESULT, frozenset(("<function=",))),
    # Cline, Roo Code and Kilo Code, where a provider joins the parts
    _Form(_ANNOUNCED_RESULT, frozenset(), "\n<environment_details>", keeps_words=True),
    # AutoGen 0.2 and AG2
    _Form(_EXIT_STATUS, _CODE_BLOCK),
    # Open Interpreter
    _Form(_CODE_OUTPUT, None, "\n\nWhat does this output mean / what's next", is_closed=True),
    # Continue
    _Form(_TOOL_OUTPUT, frozenset(("```tool", "<tool_call>"))),
    # LangChain's chat agents that answer in JSON
    _Form(_TOOL_RESPONSE, frozenset(('"action"',)), "\n\nUSER'S INPUT\n----", is_closed=True),
    # Terminus of Terminal-Bench
    _Form(_TERMINAL, frozenset(('"commands"', '"keystrokes"', "<commands>", "<keystrokes>"))),
    # Aider
    _Form(_COMMAND_OUTPUT, None),
)


@dataclass(frozen=True, slots=True)
class _TextResults:
    """The results in a text.

    Attributes:
        sections: The sections of the text that are results.
        words: What the user wrote.
        before: What the user wrote before the first mark of a result.
        has_marks: True if the text has marks of results.
        has_failed: True if a mark says that the tool failed.
        unread: The beginning of a result whose marks are incomplete.
    """

    sections: list[Section]
    words: str
    before: str
    has_marks: bool
    has_failed: bool = False
    unread: str = ""


def with_text_results(
    content: MessageContent, index: int, written_calls: frozenset[str] | None, *, is_last: bool
) -> MessageContent:
    """Return the content of a message, with the results in its texts.

    Args:
        content: The content.
        index: Its index in the conversation.
        written_calls: The marks of calls in the text of the agent that the message follows. If it follows no message of
            the agent, it is None.
        is_last: True if the message is the last of the conversation. A scratchpad in an earlier message of the user is
            an example.
    """
    may_have_turns = content.role == "assistant" or (content.role == "user" and is_last)
    if may_have_turns and len(content.texts) == 1 and not (content.calls or content.results):
        (path, text), *_ = content.texts
        if pieces := scratchpad(text, is_user=content.role == "user"):
            first, *later = _turns(content, index, path, text, pieces)
            return replace(first, later=tuple(later))
    if content.role != "user" or written_calls is None or not content.texts:
        return content
    reading = ContentCollector(index, content.kind)
    reading.answers, reading.results = list(content.answers), list(content.results)
    reading.owners, reading.unknown = list(content.result_owner), list(content.unknown)
    words = _add_results(reading, content.texts, written_calls)
    read = reading.authored("user")
    return read if words is None else replace(read, is_imitable=True, before_results=words)


def with_observation(content: MessageContent, index: int) -> MessageContent:
    """Return the content of a message of SWE-agent, whose type says that the whole text is a result."""
    if content.role != "user" or not content.texts:
        return content
    reading = ContentCollector(index, content.kind)
    reading.add_own_results("", [result_text(path, text) for path, text in content.texts], flagged=False)
    return reading.content("tool")


def _turns(
    content: MessageContent, index: int, path: Path, text: str, pieces: Sequence[Piece]
) -> Iterator[MessageContent]:
    """Yield the content of each piece of a text that has several turns of an agent."""
    has_results = False
    spoken = ""
    for number, piece in enumerate(pieces):
        reading = ContentCollector(index + number, content.kind)
        if piece.role == "tool":
            section = _stripped(Section(number, piece.start, piece.end), text)
            asked = (asked_in_text(spoken) or [""])[-1]
            own = [replace(result, asked=asked) for result in section_texts(path, text, [section])]
            reading.add_own_results("", own, flagged=False)
        else:
            spoken = text[piece.start : piece.end]
            reading.words.append(spoken)
        read = reading.content(piece.role)
        words, said = without_fields(read.text), without_fields(read.said)
        yield replace(read, text=words, said=said, is_imitable=has_results)
        has_results = has_results or piece.role == "tool"


def _add_results(
    reading: ContentCollector, texts: Sequence[tuple[Path, str]], written_calls: frozenset[str]
) -> str | None:
    """Add the results in the texts of a user message. The other texts are words of the user.

    Return the words before the first mark of a result. If there is no mark, return None.
    """
    before: list[str] = []
    is_announced = has_marks = False
    for number, (path, text) in enumerate(texts):
        if is_announced:
            reading.add_own_results("", [result_text(path, text)], flagged=False)
            is_announced = False
            continue
        following = texts[number + 1][1] if number + 1 < len(texts) else ""
        is_announced = _announces_result(text) and _is_of_tool(following)
        if is_announced:
            has_marks = True
            continue
        found = _results_in(text, written_calls)
        before += [] if has_marks else [found.before]
        has_marks = has_marks or found.has_marks
        reading.unmarked = reading.unmarked or found.unread
        reading.add_own_results("", section_texts(path, text, found.sections), flagged=found.has_failed)
        reading.words.append(found.words)
    return "\n".join(before) if has_marks else None


def _results_in(text: str, written_calls: frozenset[str]) -> _TextResults:
    """Return the results in a text of the user."""
    start = len(text) - len(text.lstrip())
    found = _result_of_form(text, start, written_calls) or _tagged_results(text, start)
    position = found.sections[-1].end if found.sections else 0
    attached = list(marked_spans(text, _ATTACHED, position))
    if not attached:
        return found
    added = (
        _stripped(Section(len(found.sections) + number, span.inner, span.inner_end), text)
        for number, span in enumerate(attached)
    )
    sections = [*found.sections, *(section for section in added if section.start < section.end)]
    if found.sections:
        return replace(found, sections=sections, words=found.words and _outside(text, sections, position))
    before = text[: attached[0].start]
    return _TextResults(sections, _outside(text, sections), before, has_marks=True, unread=found.unread)


def _tagged_results(text: str, start: int) -> _TextResults:
    """Return the results between tags, if the text begins with a tag."""
    sections = tagged_sections(text)
    unread = "" if sections else _unread_beginning(text)
    if not (sections or unread):
        return _TextResults([], text, text, has_marks=False)
    # A message of mini-swe-agent has nothing but the output and the exit code.
    words = "" if sections and _EXIT_CODE.match(text, start) else _outside(text, sections) if sections else text
    return _TextResults(sections, words, "", has_marks=True, unread=unread)


def _result_of_form(text: str, start: int, written_calls: frozenset[str]) -> _TextResults | None:
    """Return the result in a text that has one of the forms. If it has none, return None."""
    for form in _FORMS:
        opening = form.opening.match(text, start)
        if opening is None or not _is_called(form, opening, written_calls):
            continue
        end = text.rfind(form.ending, opening.end()) if form.ending else -1
        if form.is_closed and end < 0:
            continue
        after = text[end:] if end >= 0 and form.keeps_words else ""
        if "tool" in form.opening.groupindex and not _is_of_tool(text):
            continue
        section = _stripped(Section(0, opening.end(), end if end >= 0 else len(text)), text)
        if exit_lines := _EXIT_LINES.search(text, max(section.start, section.end - _LONGEST_EXIT), section.end):
            section = _stripped(Section(0, section.start, exit_lines.start()), text)
        sections = [section] if section.start < section.end else []
        has_failed = bool(opening.groupdict().get("failed"))
        return _TextResults(sections, after.strip(), "", has_marks=True, has_failed=has_failed)
    return None


def _is_called(form: _Form, opening: re.Match[str], written_calls: frozenset[str]) -> bool:
    if form.calls is None:
        return True
    calls = {f"<{opening['tool']}>"} if "tool" in form.opening.groupindex else form.calls
    return not written_calls.isdisjoint(calls)


def tagged_sections(text: str) -> list[Section]:
    """Return the sections of a text between the tags of tool results.

    If the text does not begin with a tag, there are none. A message of mini-swe-agent begins with the exit code of a
    command, and ends with its output.
    """
    start = len(text) - len(text.lstrip())
    spans: Iterable[MarkedSpan] = ()
    if _EXIT_CODE.match(text, start):
        end = len(text.rstrip())
        opening = _OUTPUT_OPENING.search(text) if text.endswith(_OUTPUT_ENDS, 0, end) else None
        if opening is not None and opening[1] == "output":
            # The output may contain its own closing tag.
            spans = [MarkedSpan(opening.start(), opening.end(), end - len("</output>"), end)]
        elif opening is not None:
            spans = marked_spans(text, _OUTPUT_OPENING)
    elif _OPENING.match(text, text.rfind("\n", 0, start) + 1):
        spans = marked_spans(text, _OPENING)
    sections = (_stripped(Section(n, span.inner, span.inner_end), text) for n, span in enumerate(spans))
    return [section for section in sections if section.start < section.end]


def section_texts(path: Path, text: str, sections: Sequence[Section]) -> list[ResultText]:
    """Return the texts of the sections of a text at a path."""
    return [result_text((*path, section), text[section.start : section.end]) for section in sections]


def _stripped(section: Section, text: str) -> Section:
    """Return a section without the white space at its ends."""
    inner = text[section.start : section.end]
    first = section.start + len(inner) - len(inner.lstrip())
    return Section(section.number, first, max(first, section.start + len(inner.rstrip())))


def _outside(text: str, sections: Sequence[Section], start: int = 0) -> str:
    """Return the words from `start` on that are outside the sections. Marks do not count as words."""
    outside = [section for section in sections if section.start >= start]
    starts = [start, *(section.end for section in outside)]
    ends = [*(section.start for section in outside), len(text)]
    parts = (_MARK.sub("", text[first:last]).strip() for first, last in zip(starts, ends, strict=True))
    return "\n".join(filter(None, parts))


def _unread_beginning(text: str) -> str:
    """Return the beginning of a tool result in a text without sections. If there is none, return an empty string."""
    beginning = text.lstrip()[:_LONGEST_BEGINNING]
    patterns = (_EXIT_CODE, *(form.opening for form in _FORMS if form.calls is not None))
    found = next(filter(None, (pattern.match(beginning) for pattern in patterns)), None) or _OPENING.search(text)
    return found[0].strip() if found else ""


def _announces_result(text: str) -> bool:
    """Return True if a text part says that the next part is the result of a tool, as in Cline and Roo Code."""
    text = text.strip()
    return text.endswith("] Result:") and _ANNOUNCED.match(text) is not None


def _is_of_tool(announced: str) -> bool:
    """Return True if an announced text contains nothing that the user wrote into a dialog of the agent."""
    return not any(mark in announced for mark in _USER_MARKS)
