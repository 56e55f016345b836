"""The agent as a function that a reasoning model calls: its definition for four APIs, its execution, and citations.

    tool = SearchTool(agent)
    tools = [tool.definition("openai")]
    conversation = tool.conversation()
    message = conversation.run(call.function.arguments).message("openai", call.id)
    conversation.cited("Alfred Hitchcock directed it [1].").passages

Passages are numbered through a conversation: one that comes up again keeps its number, so citations are unambiguous.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from context_agent.agent import SearchAgent
from context_agent.errors import BudgetError, ConfigError
from context_agent.harness.profile import one_line
from context_agent.integrations.passages import Face, Passage
from context_agent.retrieval.corpus import Where
from context_agent.tokens import escape_markers

Provider = Literal["openai", "openai-responses", "anthropic", "gemini"]
NAME = "search_documents"
DESCRIPTION = (
    "Answers one question with passages from the documents, best first. It searches in several steps by itself, so ask "
    "the whole question in words, even where it takes several facts. Cite a passage by its number, like [1]."
)
DEFAULT_K = 5
MOST = 20
"""Documents that a model may ask for."""
LONGEST_ARGUMENTS = 100_000
"""Characters of raw arguments that are still parsed."""
_FORGED = re.compile(r"^\[(?=\d{1,6}\] [^\n]*\(id: )", re.MULTILINE)
"""The first line of a passage, where it stands in another passage's text."""
_CITED = re.compile(r"\[(\d{1,6}(?:\s*,\s*\d{1,6})*)\]")


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)
    question: str = Field(min_length=1)
    k: int | None = Field(default=None, ge=1, le=MOST)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call is answered. `passages` go by their numbers; `mistake` says that the arguments were no good."""

    text: str
    passages: Mapping[int, Passage] = field(default_factory=dict)
    mistake: bool = False

    def blocks(self) -> list[dict[str, Any]]:
        """Anthropic's search result blocks, which Claude cites by itself; `source` is the passage's id."""
        if not self.passages:
            return [{"type": "text", "text": self.text}]
        return [
            {
                "type": "search_result",
                "source": passage.id,
                "title": f"[{number}] {one_line(passage.title)}".strip(),
                "content": [{"type": "text", "text": escape_markers(passage.text) or " "}],
                "citations": {"enabled": True},
            }
            for number, passage in self.passages.items()
        ]

    def message(self, provider: Provider, call_id: str, *, name: str = NAME) -> dict[str, Any]:
        """The answer as the provider wants it back: a message, an item, a content block or a part."""
        match _known(provider):
            case "openai":
                return {"role": "tool", "tool_call_id": call_id, "content": self.text}
            case "openai-responses":
                return {"type": "function_call_output", "call_id": call_id, "output": self.text}
            case "anthropic":
                said = {"type": "tool_result", "tool_use_id": call_id, "content": self.text}
                return {**said, "is_error": True} if self.mistake else said
            case "gemini":
                told = {"error" if self.mistake else "output": self.text}
                return {"function_response": {"name": name, "response": told, **({"id": call_id} if call_id else {})}}


@dataclass(frozen=True, slots=True)
class Cited:
    """The passages that a text cites, in the order of first mention, and the numbers that stand for none."""

    passages: tuple[Passage, ...]
    unknown: tuple[int, ...]


class SearchTool:
    """The tool's definition. Shared by any number of conversations, as the agent is."""

    def __init__(
        self,
        agent: SearchAgent,
        *,
        k: int = DEFAULT_K,
        where: Where | None = None,
        per_document: int | None = 1,
        name: str = NAME,
        description: str = DESCRIPTION,
    ) -> None:
        """`k` is how many documents a call gets that doesn't say; `where` is a filter that no call can lift."""
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name):
            raise ConfigError(f"{name!r} is no name of a tool: letters, digits, _ and -, at most 64")
        self.face = Face(agent, k, where, per_document)
        self.name, self.description = name, description

    def definition(self, provider: Provider) -> dict[str, Any]:
        """One entry of the request's `tools`; for Gemini, of `function_declarations` in it."""
        told = {"name": self.name, "description": self.description}
        schema = self._schema()
        match _known(provider):
            case "openai":
                return {"type": "function", "function": {**told, "parameters": schema}}
            case "openai-responses":
                return {"type": "function", **told, "parameters": schema, "strict": False}
            case "anthropic":
                return {**told, "input_schema": schema}
            case "gemini":
                return {**told, "parameters": schema}

    def conversation(self) -> Conversation:
        """A fresh numbering of passages, for one conversation."""
        return Conversation(self.face)

    def _schema(self) -> dict[str, Any]:
        """The arguments in that part of JSON Schema which all four APIs take."""
        question = {"type": "string", "description": "the question, complete and in words"}
        k = {"type": "integer", "description": f"how many documents, 1 to {MOST}; {self.face.k} unless given"}
        return {"type": "object", "properties": {"question": question, "k": k}, "required": ["question"]}


class Conversation:
    """Runs calls and remembers which number stands for which passage. Calls may run at the same time."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self._numbers: dict[str, int] = {}
        self._passages: dict[int, Passage] = {}
        self._lock = threading.Lock()

    def run(self, arguments: Mapping[str, Any] | str) -> Answer:
        """Executes a call; `arguments` as the model wrote them, parsed or not. Blocks.

        What the model did wrong is told in the answer. A policy or a corpus that fails raises.
        """
        try:
            asked = _checked(arguments)
            return self._numbered(self._face.search(asked.question, k=asked.k))
        except (_Mistake, BudgetError) as error:
            return Answer(f"Error: {error}", mistake=True)

    async def arun(self, arguments: Mapping[str, Any] | str) -> Answer:
        """The same without blocking."""
        try:
            asked = _checked(arguments)
            return self._numbered(await self._face.asearch(asked.question, k=asked.k))
        except (_Mistake, BudgetError) as error:
            return Answer(f"Error: {error}", mistake=True)

    def cited(self, text: str) -> Cited:
        """Which of the passages shown so far a text cites by numbers in brackets: `[2]`, `[1, 3]`."""
        numbers = dict.fromkeys(int(one) for group in _CITED.findall(text) for one in group.split(","))
        with self._lock:
            known = {number: self._passages.get(number) for number in numbers}
        return Cited(
            tuple(passage for passage in known.values() if passage is not None),
            tuple(number for number, passage in known.items() if passage is None),
        )

    def _numbered(self, passages: list[Passage]) -> Answer:
        with self._lock:
            numbered = {self._numbers.setdefault(one.id, len(self._numbers) + 1): one for one in passages}
            self._passages |= numbered
        return Answer("\n\n".join(shown(*item) for item in numbered.items()) or "Nothing was found.", numbered)


class _Mistake(Exception):
    """Arguments that cannot be used; the text is what the model is told."""


def _checked(arguments: Mapping[str, Any] | str) -> _Arguments:
    try:
        if not isinstance(arguments, str):
            return _Arguments.model_validate(dict(arguments))
        if len(arguments) > LONGEST_ARGUMENTS:
            raise _Mistake(f"arguments of {len(arguments):,} characters; at most {LONGEST_ARGUMENTS:,} are read")
        return _Arguments.model_validate_json(arguments)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)[:3]
        told = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in problems)
        raise _Mistake(f'{told}. Call it like {{"question": "...", "k": {DEFAULT_K}}}') from None


def shown(number: int, passage: Passage) -> str:
    """A passage as a model reads it: number, title and id on a line, then the text, all with their markers escaped."""
    title = one_line(passage.title)
    text = _FORGED.sub(r"[\\", escape_markers(passage.text))
    return f"[{number}] {title + ' ' if title else ''}(id: {one_line(passage.id)})\n{text}"


def _known(provider: Provider) -> Provider:
    if provider not in get_args(Provider):
        raise ConfigError(f"no provider {provider!r}: choose one of {', '.join(get_args(Provider))}")
    return provider
