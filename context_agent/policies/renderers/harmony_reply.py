"""Reading a sampled harmony reply. Linear in its length, and nothing a model can sample makes it raise.

A reply is messages between special tokens; the first one's `<|start|>assistant` was part of the prompt. The recipient
may stand on either side of the channel: `<|channel|>commentary to=functions.x <|constrain|>json` is what gpt-oss
samples, `to=functions.x<|channel|>commentary json` what some servers render. Reading ends at the first message that
is not the assistant's: a model that goes on to invent its tool's result has made no call by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from context_agent.harness.tools import bounded
from context_agent.policies.renderers.vocabulary import Vocabulary
from context_agent.policies.replies import read_arguments, tool_name
from context_agent.types import Action, ToolCall

MOST_MESSAGES = 1_024
LONGEST_TEXT = 100_000
"""Characters of a final message that are read."""

_RECIPIENT = re.compile(r"to=([^\s<]+)")
_CHANNELS = ("analysis", "commentary", "final")
_PEOPLE = ("user", "assistant", "all")
"""Recipients that are no tool."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The ids of the special tokens that a reply is made of."""

    start: int
    message: int
    end: int
    call: int
    ret: int

    @staticmethod
    def of(vocabulary: Vocabulary) -> Marks:
        """Raises `ConfigError` for a vocabulary without them."""
        names = ("<|start|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
        return Marks(*(vocabulary.special(name) for name in names))


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a reply. `body` is None where the reply was cut inside the header."""

    header: str
    body: str | None

    @property
    def channel(self) -> str:
        """The channel that the header names; one without any is taken for reasoning, which nobody acts on."""
        return next((name for name in _CHANNELS if name in self.header), "analysis")

    @property
    def recipient(self) -> str:
        """The tool it calls; empty for none."""
        found = _RECIPIENT.search(self.header)
        name = found[1] if found else ""
        return "" if name in _PEOPLE else name


def parse_reply(ids: Sequence[int], vocabulary: Vocabulary, marks: Marks) -> Action:
    """The action of a reply: calls where it has any, else its final message. Reasoning is the analysis channel.

    Text beside calls, and text of a reply without a final message, is the commentary.
    """
    calls: list[ToolCall] = []
    said: dict[str, list[str]] = {name: [] for name in _CHANNELS}
    for message in messages(ids, vocabulary, marks):
        if message.recipient:
            calls.append(_call(message.recipient, message.body or "", len(calls)))
        elif message.body is not None:
            said[message.channel].append(message.body)
    text = "\n".join(said["final"] or said["commentary"])[:LONGEST_TEXT]
    return Action(bounded(calls), text=text, reasoning="\n".join(said["analysis"]))


def messages(ids: Sequence[int], vocabulary: Vocabulary, marks: Marks) -> Iterator[Message]:
    """The assistant's messages, up to the first one that is another's; at most 1,024."""
    for begun, part in islice(_split(ids, marks.start), MOST_MESSAGES):
        at = _index(part, marks.message)
        header = vocabulary.decode(part[:at])
        if begun and not header.startswith("assistant"):
            return
        closed = (_index(part, mark) for mark in (marks.end, marks.call, marks.ret))
        yield Message(header, None if at == len(part) else vocabulary.decode(part[at + 1 : min(closed)]))


def _split(ids: Sequence[int], mark: int) -> Iterator[tuple[bool, Sequence[int]]]:
    """The stretches between the marks, each with whether a mark stood before it."""
    start = 0
    for index, token in enumerate(ids):
        if token == mark:
            if index:
                yield start > 0, ids[start:index]
            start = index + 1
    yield start > 0, ids[start:]


def _index(ids: Sequence[int], token: int) -> int:
    """Where the token first stands, or the length."""
    try:
        return ids.index(token)
    except ValueError:
        return len(ids)


def _call(recipient: str, text: str, index: int) -> ToolCall:
    name, arguments = tool_name(recipient), read_arguments(text)
    if name == "multi_tool_use.parallel" and isinstance(arguments, Mapping):
        name, arguments = "multi_tool_use", _wrapped(arguments)
    return ToolCall(name, arguments, id=str(index))


def _wrapped(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """OpenAI's own spelling of several calls, in the one that this harness reads."""
    uses = arguments.get("tool_uses")
    if not isinstance(uses, list):
        return arguments
    return {
        "tool_calls": [
            {"tool_name": str(use.get("recipient_name", "")), "parameters": use.get("parameters")}
            if isinstance(use, dict)
            else use
            for use in uses
        ]
    }
