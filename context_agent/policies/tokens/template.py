"""Any model with a chat template: prompts by the tokenizer's own template, calls as `<tool_call>` JSON.

The template is rendered with placeholders where content goes, and cut there. What the template wrote itself is encoded
with its special tokens; content is encoded as ordinary text and put between. So a document cannot close a message,
whatever special tokens the model has. One price: a template that edits content (trims it, say) does not get to.

Calls are written as Qwen and Hermes models do. A template that declares tools in that form is given them; for any
other, the tools and the form are explained in the system message, and results come back as the user's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from context_agent.errors import ConfigError
from context_agent.harness.profile import Profile, compact, ranking_text
from context_agent.harness.tools import schemas
from context_agent.policies.chat.replies import split_thoughts
from context_agent.policies.chat.text_tools import HOW, parse_calls, written
from context_agent.policies.tokens.prompt import Ids, Opening
from context_agent.policies.tokens.vocabulary import TokenizerVocabulary
from context_agent.types import Action

Message = dict[str, str]
_PLACE = "Zq7content{}7qZ"
"""Stands where content goes: letters and digits, which no template's filter changes."""
_PLACES = re.compile(r"Zq7content\d+7qZ")
_CALL = ("<tool_call>", "</tool_call>")


class TemplateRenderer:
    """Prompts by a transformers tokenizer's chat template.

    `options` are passed to the template, e.g. `{"enable_thinking": False}`. `stop` adds to the stop tokens found:
    the token that closes the assistant's message in the template, and the tokenizer's end of sequence.
    """

    name = "template"
    parallel = True

    def __init__(
        self, tokenizer: Any, *, options: Mapping[str, Any] | None = None, stop: Sequence[int] = (), name: str = ""
    ) -> None:
        """Raises `ConfigError` for a tokenizer without a chat template, or a template that drops content."""
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError("the tokenizer has no chat template: set one, or use the harmony renderer for gpt-oss")
        self.vocabulary = TokenizerVocabulary(tokenizer, name or getattr(tokenizer, "name_or_path", ""))
        self._tokenizer = tokenizer
        self._options = dict(options or {})
        self._more = tuple(stop)
        self._frames: dict[int, tuple[Ids, ...]] = {}
        self._systemic = self._takes([{"role": "system", "content": "x"}, _said("user", 0)], 1)
        self._native = self._declares()
        self._tooled = self._native and self._takes(self._conversation(2, tooled=True), 4)
        if not self._takes(self._conversation(2, tooled=self._tooled), 4):
            raise ConfigError("the chat template does not show every message: no prompt can be made by it")

    @property
    def counter_name(self) -> str:
        """The vocabulary's."""
        return self.vocabulary.name

    @cached_property
    def stop(self) -> Ids:
        """What ends a reply; the first one is how the template itself ends it."""
        closing = self._parts(self._conversation(1, tooled=self._tooled))[2][:1]
        end = self._tokenizer.eos_token_id
        found = [*(t for t in closing if self.vocabulary.reserves(t)), *([end] if end is not None else []), *self._more]
        if not found:
            raise ConfigError("no token ends a reply: name one with stop=")
        return tuple(dict.fromkeys(found))

    def encode(self, text: str) -> Ids:
        """Ordinary ids only."""
        return tuple(self.vocabulary.encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Special tokens spelled out."""
        return self.vocabulary.decode(ids)

    def opening(self, profile: Profile) -> Opening:
        """The template around the first question."""
        tools = schemas(profile)
        system = profile.instructions().strip()
        if not self._native:
            system = "\n".join([f"{system}\n\n# Tools\n{HOW}\n", *(compact(tool) for tool in tools)])
        before, after = self._parts(self._first(system), tools)
        return Opening(before, after, self.decode(before))

    def frame(self, reply: Sequence[int], names: Sequence[str]) -> tuple[Ids, ...]:
        """The template between a reply and the next; its first token is left out where the reply sampled it."""
        if len(names) not in self._frames:
            self._frames[len(names)] = self._parts(self._conversation(len(names), tooled=self._tooled))[2:]
        first, *rest = self._frames[len(names)]
        closed = bool(reply) and reply[-1] in self.stop and bool(first) and first[0] in self.stop
        return (first[1:] if closed else first, *rest)

    def reply(self, action: Action) -> Ids:
        """Thoughts between think tags where the template knows them, the text, the calls, and what ends a reply."""
        made: list[int] = []
        if action.reasoning and "<think>" in str(self._tokenizer.chat_template):
            made += [*self._spelled("<think>\n"), *self.encode(action.reasoning), *self._spelled("\n</think>\n\n")]
        text = action.text or ("" if action.calls else ranking_text(action.ranking or ()))
        made += self.encode(text)
        for index, call in enumerate(action.calls):
            inner = written(call).removeprefix(_CALL[0]).removesuffix(_CALL[1])
            made += self._spelled(f"\n{_CALL[0]}\n" if index or text else f"{_CALL[0]}\n")
            made += [*self.encode(inner), *self._spelled(f"\n{_CALL[1]}")]
        return (*made, self.stop[0])

    def parse(self, ids: Sequence[int]) -> Action:
        """Calls outside the thoughts, else the final message."""
        end = next((index for index, token in enumerate(ids) if token in self.stop), len(ids))
        thoughts, rest = split_thoughts(self.decode(ids[:end]))
        text, calls = parse_calls(rest)
        return Action(calls, text=text.strip(), reasoning=thoughts.strip())

    def _declares(self) -> bool:
        """Whether the template tells a model of its tools in the form that is read here."""
        probe = [{"name": "probe", "description": "A probe.", "parameters": {"type": "object", "properties": {}}}]
        try:
            text = self._rendered(self._first("x"), probe)
        except Exception:  # noqa: BLE001 - templates raise what they like
            return False
        return _CALL[0] in text and '"arguments"' in text and "probe" in text

    def _takes(self, messages: list[Message], places: int) -> bool:
        """Whether the template shows each placeholder once and in order."""
        try:
            text = self._rendered(messages)
        except Exception:  # noqa: BLE001 - templates raise what they like
            return False
        return [_PLACE.format(number) for number in range(places)] == _PLACES.findall(text)

    def _first(self, system: str) -> list[Message]:
        question = _PLACE.format(0)
        if self._systemic:
            return [{"role": "system", "content": system}, {"role": "user", "content": question}]
        return [{"role": "user", "content": f"{system}\n\n{question}"}]

    def _conversation(self, results: int, *, tooled: bool) -> list[Message]:
        """Question, reply and results, as placeholders."""
        head = [_said("user", 0), _said("assistant", 1)]
        places = [_PLACE.format(2 + number) for number in range(results)]
        if tooled:
            return [*head, *({"role": "tool", "content": place} for place in places)]
        return [*head, {"role": "user", "content": "\n".join(places)}]

    def _rendered(self, messages: list[Message], tools: Sequence[dict[str, Any]] | None = None) -> str:
        functions = [{"type": "function", "function": tool} for tool in tools or ()]
        return str(
            self._tokenizer.apply_chat_template(
                messages, tools=functions or None, add_generation_prompt=True, tokenize=False, **self._options
            )
        )

    def _parts(self, messages: list[Message], tools: Sequence[dict[str, Any]] | None = None) -> tuple[Ids, ...]:
        """The template's own text around the placeholders, as ids."""
        text = self._rendered(messages, tools if self._native else None)
        return tuple(tuple(self._spelled(part)) for part in _PLACES.split(text))

    def _spelled(self, text: str) -> list[int]:
        return self.vocabulary.spelled(text) if text else []


def _said(role: str, place: int) -> Message:
    return {"role": role, "content": _PLACE.format(place)}
