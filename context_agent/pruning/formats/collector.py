"""The content of one message while it is being collected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from context_agent.pruning.contents import (
    OWN_RESULT,
    PART_FORMS,
    Call,
    Form,
    MessageContent,
    MessageKind,
    Path,
    ResultText,
)
from context_agent.pruning.formats.fields import asked, json_text, written
from context_agent.pruning.formats.marks import before_calls, written_calls
from context_agent.pruning.terminal import without_escapes

LONGEST_ERROR = 2_000
"""Maximum number of characters of a result whose text can mark it as an error.

A longer result needs the provider's error field.
"""
_ERROR = re.compile(
    r"\W{0,3}(?:\w{0,40}error|exception|traceback|fatal|failed|failure|panic|exit (?:code|status):? [1-9])\b", re.I
)
_ERROR_FIELD = re.compile(r'\s*+\{\s*+"(?:error|exception)"\s*+:\s*+(?P<none>null|false|""|\{\})?')


@dataclass
class ContentCollector:
    """The content of a message while it is being collected."""

    index: int
    kind: MessageKind | None
    words: list[str] = field(default_factory=list)
    texts: list[tuple[Path, str]] = field(default_factory=list)
    called: set[str] = field(default_factory=set)
    calls: list[Call] = field(default_factory=list)
    answers: list[Call] = field(default_factory=list)
    results: list[ResultText] = field(default_factory=list)
    arguments: list[ResultText] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    unmarked: str = ""
    is_compaction: bool = False
    program_calls: set[str] = field(default_factory=set)
    _own_asked: dict[str, str] = field(default_factory=dict)

    def add_call(self, call: Call, arguments: Any, path: Path, form: Form, *, fixed: bool = False) -> None:
        """Add a call. Its arguments count as words of the agent.

        Pruning may shorten them unless they are `fixed`, or a program made the call.
        """
        self.calls.append(replace(call, asked=asked(arguments)))
        self._add_arguments(call, arguments, path, form, fixed=fixed or call.is_of_program)

    def add_own_call(self, call: Call, arguments: Any, path: Path, form: Form = "value") -> None:
        """Add a call whose result is in the same message. Pruning may shorten its arguments."""
        self._own_asked[call.id or call.name] = asked(arguments)
        self._add_arguments(call, arguments, path, form, fixed=call.is_of_program)

    def _add_arguments(self, call: Call, arguments: Any, path: Path, form: Form, *, fixed: bool) -> None:
        text = json_text(arguments) if form == "value" else written(arguments)
        self.add_words(call.name, arguments if text is None else text)
        if text is not None and not fixed:
            key = call.id or call.name
            own = ResultText(self.index, path, key, text, form=form, is_argument=True, asked=asked(arguments))
            self.arguments.append(own)

    def add_text(self, path: Path, text: str) -> None:
        """Add a text that the author wrote. It may have tool results in it."""
        self.words.append(text)
        self.texts.append((path, text))

    def add_words(self, name: str, arguments: Any) -> None:
        """Add the arguments of a call to the words of the agent."""
        words = f"{name} {written(arguments)}"
        self.words.append(words)
        self.called.add(words)

    def add_own_results(self, key: str, texts: Iterable[ResultText], *, flagged: bool) -> None:
        """Add the texts of results that are inside the message of their call."""
        for result in texts:
            self._add(key, replace(result, asked=self._own_asked.get(key, result.asked)), OWN_RESULT, flagged=flagged)

    def add_results(self, answer: Call, texts: Iterable[ResultText], *, flagged: bool) -> None:
        """Add the texts in the result of a call. `flagged` is True if the provider's own field marks an error."""
        for result in texts:
            self._add(answer.id or answer.name, result, len(self.answers), flagged=flagged)
        self.answers.append(answer)

    def _add(self, key: str, result: ResultText, owner: int, *, flagged: bool) -> None:
        failed = flagged or (result.form not in PART_FORMS and _is_error(result.text))
        self.results.append(_replaced(result, {"message": self.index, "call_id": key, "is_error": failed}))
        self.owners.append(owner)

    def authored(self, role: str) -> MessageContent:
        """Return the collected content as a message of this author, or of a tool if there are only results."""
        has_results = self.answers or (role == "user" and self.results)
        return self.content("tool" if has_results and not any(self.words) else role)

    def content(self, role: str) -> MessageContent:
        """Return the collected content as a message with this role."""
        return MessageContent(
            role=role,
            kind=self.kind,
            text="\n".join(filter(None, self.words)),
            said="\n".join(
                before_calls(words, has_calls=bool(self.calls))
                for words in self.words
                if words and words not in self.called
            ),
            calls=tuple(self.calls),
            answers=tuple(self.answers),
            results=tuple(self.results),
            arguments=tuple(self.arguments),
            result_owner=tuple(self.owners),
            unknown=tuple(self.unknown),
            texts=tuple(self.texts) if len(self.texts) == len(self.words) else (),
            written_calls=self._written_calls() if role == "assistant" else frozenset(),
            unmarked=self.unmarked,
            is_compaction=self.is_compaction,
        )

    def _written_calls(self) -> frozenset[str]:
        return frozenset().union(*(written_calls(words) for words in self.words if words not in self.called))


def _replaced(result: ResultText, values: Mapping[str, Any]) -> ResultText:
    fields = {name: getattr(result, name) for name in ResultText.__slots__}
    return ResultText(**{**fields, **values})


def written_form(name: str, *, is_text: bool) -> Form:
    """Return the form of the arguments in the field `name` of a call."""
    return "value" if not is_text else "json" if name == "arguments" else "text"


def _is_error(text: str) -> bool:
    """Return True if a short result reads like the message of a tool that failed."""
    if len(text) > LONGEST_ERROR:
        return False
    text = without_escapes(text)
    if field := _ERROR_FIELD.match(text):
        return field["none"] is None
    return _ERROR.match(text) is not None
