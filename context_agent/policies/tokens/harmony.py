"""The harmony format of gpt-oss and Context-1: prompts as oss-harmony renders them, and the reading of replies.

oss-harmony renders messages with empty content, so it alone spells the headers. Content is encoded separately, as
ordinary text. For another vocabulary, such as a small model's, each run of text is encoded again, and each special
token is looked up by its spelling.

A reply consists of messages between special tokens. The prompt already contains the first message's
`<|start|>assistant`. The recipient may come before or after the channel: gpt-oss samples
`<|channel|>commentary to=functions.x <|constrain|>json`, and some servers render
`to=functions.x<|channel|>commentary json`. Reading takes time linear in the length of the reply and never raises. It
ends at the first message that is not the assistant's. If a model invents the result of a tool, a call in that invented
text is therefore not made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from context_agent.errors import ConfigError
from context_agent.harness.action_text import compact, final_text
from context_agent.harness.profile import Profile
from context_agent.harness.tools import bounded_calls, schemas
from context_agent.policies.chat.replies import read_arguments, tool_name
from context_agent.policies.tokens.prompt import Ids, Opening
from context_agent.policies.tokens.vocabularies import (
    HarmonyVocabulary,
    TokenizerVocabulary,
    Vocabulary,
    VocabularyRenderer,
)
from context_agent.tokens import harmony_encoding
from context_agent.types import Action, ToolCall

GPT_OSS_TOKENS = 199_998
"""Ordinary tokens of gpt-oss's vocabulary, o200k_harmony."""
MOST_MESSAGES = 1_024
MAX_TEXT_CHARACTERS = 100_000
"""Characters of a final message that are read."""

_RECIPIENT = re.compile(r"to=([^\s<]+)")
_CHANNELS = ("analysis", "commentary", "final")
_HUMAN_RECIPIENTS = ("user", "assistant", "all")
"""Recipients that are not tools."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The ids of the special tokens in a reply."""

    start: int
    message: int
    end: int
    call: int
    ret: int

    @staticmethod
    def of(vocabulary: Vocabulary) -> Marks:
        """Return the marks of a vocabulary. Raise `ConfigError` if it lacks one."""
        names = ("<|start|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
        return Marks(*(vocabulary.special(name) for name in names))


@dataclass(frozen=True, slots=True)
class HarmonyMessage:
    """A message of a reply. `body` is None if the reply was cut inside the header."""

    header: str
    body: str | None

    @property
    def channel(self) -> str:
        """The channel that the header names. If it names none, the message counts as reasoning."""
        return next((name for name in _CHANNELS if name in self.header), "analysis")

    @property
    def recipient(self) -> str:
        """The tool that the message calls. If the message calls no tool, it is empty."""
        match = _RECIPIENT.search(self.header)
        name = match[1] if match else ""
        return "" if name in _HUMAN_RECIPIENTS else name


def parse_reply(ids: Sequence[int], vocabulary: Vocabulary, marks: Marks) -> Action:
    """Return the action of a reply: its calls, or its final message.

    The reasoning is read from the analysis channel. If there is no final message, the text is read from the commentary
    channel.
    """
    calls: list[ToolCall] = []
    texts: dict[str, list[str]] = {name: [] for name in _CHANNELS}
    for message in read_messages(ids, vocabulary, marks):
        if message.recipient:
            calls.append(_call(message.recipient, message.body or "", len(calls)))
        elif message.body is not None:
            texts[message.channel].append(message.body)
    text = "\n".join(texts["final"] or texts["commentary"])[:MAX_TEXT_CHARACTERS]
    return Action(bounded_calls(calls), text=text, reasoning="\n".join(texts["analysis"]))


def read_messages(ids: Sequence[int], vocabulary: Vocabulary, marks: Marks) -> Iterator[HarmonyMessage]:
    """Yield the assistant's messages before the first one of another role. There are at most 1,024."""
    for after_mark, part in islice(_split(ids, marks.start), MOST_MESSAGES):
        body = _index(part, marks.message)
        header = vocabulary.decode(part[:body])
        if after_mark and not header.startswith("assistant"):
            return
        ends = (_index(part, mark) for mark in (marks.end, marks.call, marks.ret))
        yield HarmonyMessage(header, None if body == len(part) else vocabulary.decode(part[body + 1 : min(ends)]))


def _split(ids: Sequence[int], mark: int) -> Iterator[tuple[bool, Sequence[int]]]:
    """Yield the parts between the marks, and whether a mark precedes each."""
    start = 0
    for index, token in enumerate(ids):
        if token == mark:
            if index:
                yield start > 0, ids[start:index]
            start = index + 1
    yield start > 0, ids[start:]


def _index(ids: Sequence[int], token: int) -> int:
    """Return the index of the token's first occurrence, or the length."""
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
    """Convert OpenAI's format for several calls to the format of this harness."""
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


EFFORTS = ("low", "medium", "high")
NAMESPACE = "functions"
_INVALID = re.compile(r"[^\w.\-]", re.ASCII)
LONGEST_NAME = 64
"""Characters of a tool's name in the header of its result, because a model may have invented a long one."""


class HarmonyRenderer(VocabularyRenderer):
    """A renderer of prompts and replies in harmony.

    With `parallel=False` a reply stops at `<|call|>`, as in stock sampling. A model then calls several tools at once
    with `multi_tool_use`. With `parallel=True` a reply stops only at `<|return|>`, so it may hold several calls. The
    server must then not add stop tokens of its own (vLLM: `--generation-config vllm`).
    """

    name = "harmony"

    def __init__(
        self,
        vocabulary: Vocabulary | None = None,
        *,
        effort: str = "high",
        parallel: bool = False,
        identity: str | None = None,
    ) -> None:
        """Create the renderer.

        Args:
            vocabulary: The vocabulary. Defaults to gpt-oss's own.
            effort: The reasoning effort.
            parallel: True if a reply may have several calls.
            identity: A text that replaces the first line of the system message.

        Raises:
            ConfigError: If the effort is unknown, or if the vocabulary lacks harmony's special tokens.
        """
        if effort not in EFFORTS:
            raise ConfigError(f"the reasoning effort must be one of {', '.join(EFFORTS)}; got {effort!r}")
        super().__init__(vocabulary or HarmonyVocabulary())
        self.parallel = parallel
        self._effort = effort
        self._identity = identity
        self._marks = Marks.of(self.vocabulary)
        self._begin = (self._marks.start, *self.encode("assistant"))
        self._headers: dict[str, Ids] = {}

    @property
    def stop(self) -> Ids:
        """The tokens that end a reply: `<|return|>` and, unless calls may be parallel, `<|call|>`."""
        return (self._marks.ret,) if self.parallel else (self._marks.ret, self._marks.call)

    def opening(self, profile: Profile) -> Opening:
        """Return the system message, the developer message, and the user message around the question."""
        before = _opening(self._effort, self._identity, profile.instructions().strip(), compact(schemas(profile)))
        user = _rendered("user", "", None, None)
        return Opening(
            before=self._translated((*before, *user[:-1])),
            after=(self._marks.end, *self._begin),
            text=harmony_encoding().decode([*before, *user[:-1]]),
        )

    def frame(self, reply: Sequence[int], names: Sequence[str]) -> tuple[Ids, ...]:
        """Return a tool message for each call. A reply that was cut is closed as a call."""
        closed = bool(reply) and reply[-1] in (self._marks.call, self._marks.end, self._marks.ret)
        opened = [self._header(name) for name in names]
        ends = [() if closed else (self._marks.call,), *((self._marks.end,) for _ in names)]
        return tuple((*end, *start) for end, start in zip(ends, [*opened, self._begin], strict=True))

    def reply(self, action: Action) -> Ids:
        """Return the reasoning, then the calls or the final message, ended by the stop token."""
        messages: list[Ids] = []
        if action.reasoning:
            messages.append(self._message("analysis", action.reasoning, self._marks.end))
        if action.calls and action.text:
            messages.append(self._message("commentary", action.text, self._marks.end))
        messages += [self._called(call) for call in action.calls]
        if not action.calls:
            messages.append(self._message("final", final_text(action), self._marks.ret))
        head = len(self._begin)
        return tuple(token for message in messages for token in message)[head:]

    def parse(self, ids: Sequence[int]) -> Action:
        """Return the action of a sampled reply. The method reads all channels."""
        return parse_reply(ids, self.vocabulary, self._marks)

    def _message(self, channel: str, text: str, last: int) -> Ids:
        empty = self._translated(_rendered("assistant", "", channel, None))
        return (*empty[:-1], *self.encode(text), last)

    def _called(self, call: ToolCall) -> Ids:
        empty = self._translated(_rendered("assistant", "", "commentary", f"{NAMESPACE}.{call.name}"))
        text = call.arguments if isinstance(call.arguments, str) else compact(call.arguments)
        return (*empty[:-1], *self.encode(text), self._marks.call)

    def _header(self, name: str) -> Ids:
        """Return the header of a result's message. A name that the model invented is made valid."""
        valid = _INVALID.sub("_", name)[:LONGEST_NAME] or "unknown"
        if valid not in self._headers:
            author = f"{NAMESPACE}.{valid}"
            self._headers[valid] = self._translated(_rendered("tool", author, "commentary", "assistant")[:-1])
        return self._headers[valid]

    def _translated(self, ids: Sequence[int]) -> Ids:
        """Return ids of harmony's vocabulary in the vocabulary of this renderer."""
        if isinstance(self.vocabulary, HarmonyVocabulary):
            return tuple(ids)
        return tuple(translate(ids, self.vocabulary))


def translate(ids: Sequence[int], vocabulary: Vocabulary) -> list[int]:
    """Return ids of o200k_harmony in another vocabulary.

    Runs of text are encoded again, and special tokens are looked up by their spelling.
    """
    encoding = harmony_encoding()
    translated: list[int] = []
    run: list[int] = []
    for token in ids:
        if encoding.is_special_token(token):
            translated += [*vocabulary.encode(encoding.decode(run)), vocabulary.special(encoding.decode([token]))]
            run = []
        else:
            run.append(token)
    return translated + vocabulary.encode(encoding.decode(run))


@cache
def _rendered(role: str, author: str, channel: str | None, recipient: str | None) -> Ids:
    """Return an empty message as oss-harmony renders it. The last id closes it."""
    import openai_harmony as oh

    name = author or None
    message = oh.Message.from_author_and_content(oh.Author(role=oh.Role(role), name=name), "")
    if channel is not None:
        message = message.with_channel(channel)
    if recipient is not None:
        message = message.with_recipient(recipient)
    if recipient is not None and role == "assistant":
        message = message.with_content_type("<|constrain|>json")
    return tuple(harmony_encoding().render(message))


@cache
def _opening(effort: str, identity: str | None, instructions: str, tools: str) -> Ids:
    """Return the system and developer messages as oss-harmony renders them.

    `tools` is JSON, so that the cache can hold it.
    """
    import json

    import openai_harmony as oh

    described = [oh.ToolDescription.new(**tool) for tool in json.loads(tools)]
    system = system_content(effort, identity)
    developer = oh.DeveloperContent.new().with_instructions(instructions).with_function_tools(described)
    messages = [
        oh.Message.from_role_and_content(oh.Role.SYSTEM, system),
        oh.Message.from_role_and_content(oh.Role.DEVELOPER, developer),
    ]
    config = oh.RenderConversationConfig(auto_drop_analysis=False)
    return tuple(harmony_encoding().render_conversation(oh.Conversation.from_messages(messages), config))


def system_content(effort: str, identity: str | None = None) -> Any:
    """Return the system message of oss-harmony without a date, so that equal questions always give equal prompts."""
    import openai_harmony as oh

    efforts: Mapping[str, Any] = {name: getattr(oh.ReasoningEffort, name.upper()) for name in EFFORTS}
    content = oh.SystemContent.new().with_reasoning_effort(efforts[effort])
    return content if identity is None else content.with_model_identity(identity)


def harmony_renderer(tokenizer: Any, *, effort: str = "high", parallel: bool = False) -> HarmonyRenderer:
    """Return the renderer for a model that speaks harmony.

    Args:
        tokenizer: The model's tokenizer from transformers. If it is smaller than gpt-oss's, its own vocabulary is used.
        effort: The reasoning effort.
        parallel: True if a reply may have several calls.

    Returns:
        The renderer.

    Raises:
        ConfigError: If the effort is unknown, or the vocabulary lacks harmony's special tokens.
    """
    own = TokenizerVocabulary(tokenizer) if len(tokenizer) < GPT_OSS_TOKENS else None
    return HarmonyRenderer(own, effort=effort, parallel=parallel)
