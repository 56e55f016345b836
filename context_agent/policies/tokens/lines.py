"""A renderer whose replies are lines of commands, for small models. They take a tenth of the tokens of calls in JSON.

    search: who directed The Third Man
    keep: The Third Man #3, Carol Reed #5
    answer: #4, #1

The profile's instructions explain the commands, so no schemas are declared. A passage is named by its label, `#` and a
number, with or without its title before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from context_agent.errors import ConfigError
from context_agent.harness.action_text import ranking_of
from context_agent.harness.profile import Profile
from context_agent.policies.chat.replies import split_thoughts
from context_agent.policies.tokens.prompt import Ids, Opening
from context_agent.policies.tokens.template import THOUGHTS, TemplateRenderer
from context_agent.types import Action, RankedId, ToolCall

LONGEST_REPLY = 20_000
"""Characters of a reply that are read."""
_LINE = re.compile(r"\s*([a-z_]+)\s*:(.*)", re.I | re.S)
_SEPARATORS = re.compile(r"[\s,;]+")
_BARE = re.compile(r"\d{1,9}")
_LABEL = re.compile(r"#\d{1,9}")


def _names(text: str) -> list[str]:
    """Return the passages that a line names. Each name ends in a label.

    A number alone counts as a label.
    """
    if ends := [match.end() for match in _LABEL.finditer(text)]:
        return [_text(text[start:end]).lstrip(",; ") for start, end in pairwise([0, *ends])]
    return [f"#{name}" if _BARE.fullmatch(name) else name for name in _SEPARATORS.split(text) if name]


def _text(text: str) -> str:
    return " ".join(text.split())


Reader = Callable[[str], Any]
COMMANDS: Mapping[str, tuple[str, str, Reader]] = {
    "search": ("search_corpus", "query", _text),
    "grep": ("grep_corpus", "pattern", _text),
    "read": ("read_document", "doc_id", _text),
    "prune": ("prune_chunks", "chunk_ids", _names),
    "keep": ("prune_chunks", "all_but", _names),
    "restore": ("restore_chunks", "chunk_ids", _names),
}
"""The tool of each command, the argument that its line gives, and how the argument is read."""
ANSWER = "answer"


class LinesRenderer(TemplateRenderer):
    """A renderer with prompts in a tokenizer's chat template, and replies as lines of commands."""

    name = "lines"

    def opening(self, profile: Profile) -> Opening:
        """Return the template around the first question, with the profile's instructions and nothing else.

        If the profile shows ids, raise `ConfigError`, because lines cannot name ids.
        """
        if not profile.numbered:
            raise ConfigError(
                f"the profile {profile.name!r} names blocks by id, but this format names them by number. Use the "
                "profile lean."
            )
        before, after = self._parts(self._first(profile.instructions().strip()))
        return Opening(before, after, self.decode(before))

    def reply(self, action: Action) -> Ids:
        """Return a line for each call, or the line of the ranking. A call that no line can express is left out."""
        if action.calls:
            lines = [line for call in action.calls if (line := _line(call))]
        elif action.text and not ranking_of(action):
            lines = [action.text]
        else:
            lines = [f"{ANSWER}: {', '.join(item.id for item in ranking_of(action))}".rstrip()]
        return (*self._thoughts(""), *self.encode("\n".join(lines)), self.stop[0])

    def parse(self, ids: Sequence[int]) -> Action:
        """Return the calls, or else the ranking.

        A line that is not a command becomes a call, so that the model reads why.
        """
        end = next((index for index, token in enumerate(ids) if token in self.stop), len(ids))
        text = self.decode(ids[:end])
        thoughts = ""
        if THOUGHTS[1] in text and (self._opens_thought or text.lstrip().startswith(THOUGHTS[0])):
            thoughts, text = split_thoughts(text)
        calls = tuple(_calls(text[:LONGEST_REPLY]))
        if calls:
            return Action(calls, text="", reasoning=thoughts.strip())
        answers = [line for line in text[:LONGEST_REPLY].splitlines() if line.strip()]
        ranking = tuple(RankedId(name) for line in answers for name in _names(line.partition(":")[2]))
        return Action(ranking=ranking if answers else None, text=text.strip(), reasoning=thoughts.strip())


def _line(call: ToolCall) -> str:
    """Return the call as a line. If its arguments are not those of a command, return an empty text."""
    if not isinstance(call.arguments, dict):
        return ""
    given = {name: value for name, value in call.arguments.items() if value is not None and name != "limit"}
    for command, (tool, argument, _) in COMMANDS.items():
        if tool == call.name and set(given) == {argument}:
            value = given[argument]
            return f"{command}: {', '.join(value) if isinstance(value, list) else _text(str(value))}"
    return ""


def _calls(text: str) -> Iterator[ToolCall]:
    for line in filter(str.strip, text.splitlines()):
        match = _LINE.fullmatch(line)
        command = match[1].lower() if match else ""
        if match and command in COMMANDS:
            tool, argument, read = COMMANDS[command]
            # An empty `keep:` would prune every passage: without the argument, the call is answered with an error.
            value = read(match[2])
            yield ToolCall(tool, {argument: value} if value else {})
        elif command != ANSWER:
            yield ToolCall(command or _text(line)[:40] or "?", {})
