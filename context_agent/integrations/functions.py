"""The agent as a function that a reasoning model calls: its definition for four APIs, its execution, and citations.

    tool = SearchTool(agent)
    tools = [tool.definition("openai")]
    conversation = tool.conversation()
    message = conversation.run(call.function.arguments).message("openai", call.id)
    conversation.cited("Alfred Hitchcock directed it [1].").passages

Passages are numbered through a conversation. A passage that is returned again keeps its number, so citations are
unambiguous.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from context_agent._support.validation import explain
from context_agent.agent import SearchAgent
from context_agent.errors import BudgetError, ConfigError
from context_agent.integrations.passages import PassageRetriever, RetrievedPassage
from context_agent.retrieval.filters import Where
from context_agent.text.citations import citations
from context_agent.text.markers import escape_markers, escaped_line
from context_agent.text.passages import passage_text

Provider = Literal["openai", "openai-responses", "anthropic", "gemini"]
NAME = "search_documents"
DESCRIPTION = (
    "Answers one question with passages from the documents, best first. It searches in several steps by itself, so ask "
    "the whole question in words, even if it takes several facts. Cite a passage by its number, like [1]."
)
TOOL_DESCRIPTION = DESCRIPTION.replace("by its number, like [1]", "by its id")
"""For tools that number the passages of each call from 1."""
DEFAULT_K = 5
MAX_K = 20
"""Documents that a model may request."""
MAX_ARGUMENTS = 100_000
"""Characters of raw arguments that are parsed."""
NO_PASSAGES = "Nothing was found."
ONLY_NEAREST = "Nothing relevant was found. The nearest passages:"
"""The first paragraph of an answer whose evidence does not suffice."""


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)
    question: str = Field(min_length=1)
    k: int | None = Field(default=None, ge=1, le=MAX_K)


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of a call. `passages` are by number; `mistake` marks unusable arguments, which `text` explains."""

    text: str
    passages: Mapping[int, RetrievedPassage] = field(default_factory=dict)
    mistake: bool = False

    def blocks(self) -> list[dict[str, Any]]:
        """Anthropic's search result blocks, which Claude cites by itself; `source` is the passage's id."""
        if not self.passages:
            return [{"type": "text", "text": self.text}]
        return [
            {
                "type": "search_result",
                "source": passage.id,
                "title": f"[{number}] {escaped_line(passage.title)}".strip(),
                "content": [{"type": "text", "text": escape_markers(passage.text) or " "}],
                "citations": {"enabled": True},
            }
            for number, passage in self.passages.items()
        ]

    def message(self, provider: Provider, call_id: str, *, name: str = NAME) -> dict[str, Any]:
        """Return the answer in the provider's format: a message, an item, a content block or a part."""
        match _checked_provider(provider):
            case "openai":
                return {"role": "tool", "tool_call_id": call_id, "content": self.text}
            case "openai-responses":
                return {"type": "function_call_output", "call_id": call_id, "output": self.text}
            case "anthropic":
                block = {"type": "tool_result", "tool_use_id": call_id, "content": self.text}
                return {**block, "is_error": True} if self.mistake else block
            case "gemini":
                part: dict[str, Any] = {
                    "name": name,
                    "response": {"error" if self.mistake else "output": self.text},
                }
                return {"function_response": {**part, "id": call_id} if call_id else part}


@dataclass(frozen=True, slots=True)
class Citations:
    """The passages that a text cites, in the order of first mention, and the numbers that belong to no passage."""

    passages: tuple[RetrievedPassage, ...]
    unknown: tuple[int, ...]


class SearchTool:
    """The tool's definition. Any number of conversations can share it, as they can share the agent."""

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
        """`k` is the number of documents for a call that does not say; `where` is a filter that no call can lift."""
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name):
            raise ConfigError(f"{name!r} is not a tool name: use at most 64 letters, digits, _ and -")
        self.retriever = PassageRetriever(agent, k, where, per_document)
        self.name, self.description = name, description

    def definition(self, provider: Provider) -> dict[str, Any]:
        """One entry of the request's `tools`; for Gemini, of `function_declarations` in it."""
        function = {"name": self.name, "description": self.description}
        schema = self._schema()
        match _checked_provider(provider):
            case "openai":
                return {"type": "function", "function": {**function, "parameters": schema}}
            case "openai-responses":
                return {"type": "function", **function, "parameters": schema, "strict": False}
            case "anthropic":
                return {**function, "input_schema": schema}
            case "gemini":
                return {**function, "parameters": schema}

    def conversation(self) -> Conversation:
        """Return a new numbering of passages, for one conversation."""
        return Conversation(self.retriever)

    def _schema(self) -> dict[str, Any]:
        """Return the arguments in the subset of JSON Schema that all four APIs accept."""
        question = {"type": "string", "description": "the question, complete and in words"}
        k = {"type": "integer", "description": f"how many documents, 1 to {MAX_K}; {self.retriever.k} by default"}
        return {"type": "object", "properties": {"question": question, "k": k}, "required": ["question"]}


class Conversation:
    """Runs calls and numbers their passages. Calls may run at the same time."""

    def __init__(self, retriever: PassageRetriever) -> None:
        self._retriever = retriever
        self._numbers: dict[str, int] = {}
        self._passages: dict[int, RetrievedPassage] = {}
        self._lock = threading.Lock()

    def run(self, arguments: Mapping[str, Any] | str) -> ToolAnswer:
        """Executes a call; `arguments` as the model wrote them, parsed or not. Blocks.

        The answer explains a mistake of the model. Raises what a failing policy or corpus raises.
        """
        try:
            call = _parsed(arguments)
            return self._numbered(self._retriever.search(call.question, k=call.k))
        except (_MistakeError, BudgetError) as error:
            return ToolAnswer(f"Error: {error}", mistake=True)

    async def arun(self, arguments: Mapping[str, Any] | str) -> ToolAnswer:
        """Return the same without blocking."""
        try:
            call = _parsed(arguments)
            return self._numbered(await self._retriever.asearch(call.question, k=call.k))
        except (_MistakeError, BudgetError) as error:
            return ToolAnswer(f"Error: {error}", mistake=True)

    def cited(self, text: str) -> Citations:
        """Return the passages of this conversation that a text cites by numbers in brackets: `[2]`, `[1, 3]`."""
        numbers = dict.fromkeys(number for citation in citations(text) for number in citation.numbers)
        with self._lock:
            return Citations(
                tuple(self._passages[number] for number in numbers if number in self._passages),
                tuple(number for number in numbers if number not in self._passages),
            )

    def _numbered(self, passages: list[RetrievedPassage]) -> ToolAnswer:
        with self._lock:
            by_number = {self._numbers.setdefault(passage.id, len(self._numbers) + 1): passage for passage in passages}
            self._passages |= by_number
        texts = [passage_text(number, item.id, item.title, item.text) for number, item in by_number.items()]
        if any(passage.sufficient is False for passage in passages):
            texts.insert(0, ONLY_NEAREST)
        return ToolAnswer("\n\n".join(texts) or NO_PASSAGES, by_number)


class _MistakeError(Exception):
    """Arguments that cannot be used; the model reads the text."""


def _parsed(arguments: Mapping[str, Any] | str) -> _Arguments:
    try:
        if not isinstance(arguments, str):
            return _Arguments.model_validate(dict(arguments))
        if len(arguments) > MAX_ARGUMENTS:
            raise _MistakeError(f"arguments of {len(arguments):,} characters: use at most {MAX_ARGUMENTS:,}")
        return _Arguments.model_validate_json(arguments)
    except ValidationError as error:
        reasons = explain(error, whole="arguments")
        raise _MistakeError(f'{reasons}. Call it like {{"question": "...", "k": {DEFAULT_K}}}') from None


def _checked_provider(provider: Provider) -> Provider:
    if provider not in get_args(Provider):
        raise ConfigError(f"unknown provider {provider!r}: choose one of {', '.join(get_args(Provider))}")
    return provider
