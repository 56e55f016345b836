"""A renderer for any model with a chat template. Calls are written as `<tool_call>` JSON.

The template is rendered with placeholders for content, and cut there. Its own text is encoded with special tokens.
Content is encoded as ordinary text and inserted. A document therefore cannot close a message, whatever special tokens
the model has. As a consequence, a template cannot edit content, for example trim it.

Calls have the format of Qwen and Hermes models. A template that declares tools in this format receives them. For any
other template, the system message explains the tools and the format, and results are user messages.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import FrameType
from typing import Any

from context_agent.errors import ConfigError
from context_agent.harness.action_text import compact, final_text
from context_agent.harness.profile import Profile
from context_agent.harness.tools import schemas
from context_agent.policies.chat.replies import split_thoughts
from context_agent.policies.chat.text_calls import CALL_INSTRUCTIONS, parse_calls, written
from context_agent.policies.tokens.prompt import Ids, Opening
from context_agent.policies.tokens.vocabularies import TokenizerVocabulary, VocabularyRenderer
from context_agent.types import Action

Message = dict[str, str]
_PLACEHOLDER = "Zq7content{}7qZ"
"""Replaces content. It has only letters and digits, which no template's filter changes."""
_PLACEHOLDERS = re.compile(r"Zq7content\d+7qZ")
_CALL = ("<tool_call>", "</tool_call>")
THOUGHTS = ("<think>", "</think>")
TEMPLATE_SECONDS = 5.0
"""Processor time after which a chat template is stopped. A template may come from someone else, and may loop."""


class TemplateRenderer(VocabularyRenderer):
    """A renderer that builds prompts with the chat template of a transformers tokenizer.

    A reply ends at the token that closes the assistant's message in the template, or at the end of the sequence.

    Args:
        tokenizer: The tokenizer.
        options: Values that are passed to the template, such as `{"enable_thinking": False}`.
        stop: Further tokens that end a reply.
        name: The name of the tokenizer. By default, its own name is used.

    Raises:
        ConfigError: If the tokenizer has no chat template, or if the template fails, takes too long or drops content.
    """

    name = "template"
    parallel = True

    def __init__(
        self, tokenizer: Any, *, options: Mapping[str, Any] | None = None, stop: Sequence[int] = (), name: str = ""
    ) -> None:
        name = name or getattr(tokenizer, "name_or_path", "")
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError(
                f"the tokenizer {name!r} has no chat template, which says how messages are written. Choose a model "
                "that was trained on chats, or write a template to the file chat_template.jinja in the model's folder. "
                "For gpt-oss, use the renderer harmony."
            )
        self._tokens = TokenizerVocabulary(tokenizer, name)
        super().__init__(self._tokens)
        self._tokenizer = tokenizer
        self._options = dict(options or {})
        self._extra_stop = tuple(stop)
        self._frames: dict[int, tuple[Ids, ...]] = {}
        self._has_system_role = self._accepts([{"role": "system", "content": "x"}, _message("user", 0)], 1)
        self._declares_tools = self._renders_tools()
        self._has_tool_role = self._declares_tools and self._accepts(self._conversation(2, tool_role=True), 4)
        if problem := self._problem(self._conversation(2), 4):
            raise ConfigError(
                f"the chat template {problem}, so it cannot render an episode. Use a tokenizer whose template keeps "
                "all messages in order."
            )

    @cached_property
    def stop(self) -> Ids:
        """The tokens that end a reply. The first one is the template's own."""
        closing = self._parts(self._conversation(1))[2][:1]
        eos = self._tokenizer.eos_token_id
        stop = [token for token in closing if self._tokens.reserves(token)]
        stop += [*([] if eos is None else [eos]), *self._extra_stop]
        if not stop:
            raise ConfigError("the tokenizer has no token that ends a reply. Pass one with stop=.")
        return tuple(dict.fromkeys(stop))

    def opening(self, profile: Profile) -> Opening:
        """Return the template around the first question."""
        tools = schemas(profile)
        system = profile.instructions().strip()
        if not self._declares_tools:
            system = "\n".join([f"{system}\n\n# Tools\n{CALL_INSTRUCTIONS}\n", *(compact(tool) for tool in tools)])
        before, after = self._parts(self._first(system), tools)
        return Opening(before, after, self.decode(before))

    def frame(self, reply: Sequence[int], names: Sequence[str]) -> tuple[Ids, ...]:
        """Return the template tokens between one reply and the next.

        If the model already sampled the first of these tokens, leave it out.
        """
        if len(names) not in self._frames:
            self._frames[len(names)] = self._parts(self._conversation(len(names)))[2:]
        first, *rest = self._frames[len(names)]
        closed = bool(reply) and reply[-1] in self.stop and bool(first) and first[0] in self.stop
        return (first[1:] if closed else first, *rest)

    def reply(self, action: Action) -> Ids:
        """Return the reasoning, the text, the calls, and a stop token.

        The reasoning is between think tags if the template uses them.
        """
        ids = list(self._thoughts(action.reasoning))
        text = action.text if action.calls else final_text(action)
        ids += self.encode(text)
        for index, call in enumerate(action.calls):
            inner = written(call).removeprefix(_CALL[0]).removesuffix(_CALL[1])
            ids += self._spelled(f"\n{_CALL[0]}\n" if index or text else f"{_CALL[0]}\n")
            ids += [*self.encode(inner), *self._spelled(f"\n{_CALL[1]}")]
        return (*ids, self.stop[0])

    def _thoughts(self, reasoning: str) -> Ids:
        """Return the reasoning between think tags. If the template opens a thought for each reply, always close it."""
        if not self._opens_thought and not (reasoning and THOUGHTS[0] in str(self._tokenizer.chat_template)):
            return ()
        start = "" if self._opens_thought else f"{THOUGHTS[0]}\n"
        return (*self._spelled(start), *self.encode(reasoning), *self._spelled(f"\n{THOUGHTS[1]}\n\n"))

    @cached_property
    def _opens_thought(self) -> bool:
        """True if the template begins each reply with a think tag, so that the model continues the thought."""
        before_reply = _PLACEHOLDERS.split(self._rendered(self._conversation(1)))[-1]
        return THOUGHTS[0] in before_reply and THOUGHTS[1] not in before_reply

    def parse(self, ids: Sequence[int]) -> Action:
        """Return the calls outside the reasoning, or else the final message."""
        end = next((index for index, token in enumerate(ids) if token in self.stop), len(ids))
        thoughts, rest = split_thoughts(self.decode(ids[:end]))
        text, calls = parse_calls(rest)
        return Action(calls, text=text.strip(), reasoning=thoughts.strip())

    def _renders_tools(self) -> bool:
        """Return True if the template declares tools in the format that `parse` reads."""
        probe = [{"name": "probe", "description": "A probe.", "parameters": {"type": "object", "properties": {}}}]
        try:
            text = self._rendered(self._first("x"), probe)
        except ConfigError:
            raise
        except Exception:  # noqa: BLE001 - templates raise anything
            return False
        return _CALL[0] in text and '"arguments"' in text and "probe" in text

    def _accepts(self, messages: list[Message], contents: int) -> bool:
        """Return True if the template renders the content of each message once and in order."""
        return not self._problem(messages, contents)

    def _problem(self, messages: list[Message], contents: int) -> str:
        """Return what the template does instead of rendering each message once and in order. "" if it does that."""
        try:
            text = self._rendered(messages)
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - templates raise anything
            return f"fails ({type(error).__name__}: {str(error)[:200]})"
        kept = [_PLACEHOLDER.format(number) for number in range(contents)] == _PLACEHOLDERS.findall(text)
        return "" if kept else "omits or reorders messages"

    def _first(self, system: str) -> list[Message]:
        question = _PLACEHOLDER.format(0)
        if self._has_system_role:
            return [{"role": "system", "content": system}, {"role": "user", "content": question}]
        return [{"role": "user", "content": f"{system}\n\n{question}"}]

    def _conversation(self, results: int, *, tool_role: bool | None = None) -> list[Message]:
        """Return a conversation of a question, a reply and its results, with placeholders as content."""
        messages = [_message("user", 0), _message("assistant", 1)]
        result_messages = [_message("tool", 2 + number) for number in range(results)]
        tool_role = self._has_tool_role if tool_role is None else tool_role
        if tool_role:
            return messages + result_messages
        content = "\n".join(message["content"] for message in result_messages)
        return [*messages, {"role": "user", "content": content}]

    def _rendered(self, messages: list[Message], tools: Sequence[dict[str, Any]] | None = None) -> str:
        functions = [{"type": "function", "function": tool} for tool in tools or ()]
        with _limited_time():
            return str(
                self._tokenizer.apply_chat_template(
                    messages, tools=functions or None, add_generation_prompt=True, tokenize=False, **self._options
                )
            )

    def _parts(self, messages: list[Message], tools: Sequence[dict[str, Any]] | None = None) -> tuple[Ids, ...]:
        """Return the template's own text around the placeholders, as ids."""
        text = self._rendered(messages, tools if self._declares_tools else None)
        return tuple(tuple(self._spelled(part)) for part in _PLACEHOLDERS.split(text))

    def _spelled(self, text: str) -> list[int]:
        return self._tokens.spelled(text) if text else []


def _message(role: str, number: int) -> Message:
    return {"role": role, "content": _PLACEHOLDER.format(number)}


@contextmanager
def _limited_time() -> Iterator[None]:
    """Stop a template that runs for more than `TEMPLATE_SECONDS`, and raise `ConfigError`.

    Jinja runs a template as Python code in this thread, so a trace function sees each line of it. Of other code it sees
    the calls.
    """
    end = time.thread_time() + TEMPLATE_SECONDS

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if time.thread_time() > end:
            raise ConfigError(
                f"the chat template was stopped after {TEMPLATE_SECONDS:g} seconds, because it loops. Use a tokenizer "
                "with another template."
            )
        return trace if frame.f_code.co_filename == "<template>" else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
