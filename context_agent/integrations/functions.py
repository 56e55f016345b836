"""The agent as a function that a reasoning model calls.

`SearchTool` describes the function to four APIs. `Conversation` runs the calls, and finds the passages that an answer
cites.

    tool = SearchTool(agent)
    tools = [tool.definition("openai")]
    conversation = tool.conversation()
    message = conversation.run(call.function.arguments).message("openai", call.id)
    conversation.cited("Alfred Hitchcock directed it [1].").passages

Passages are numbered throughout a conversation. A passage that is returned again keeps its number, so citations are
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
TOOL_NAME = "search_documents"
NUMBERED_DESCRIPTION = (
    "Answers one question with passages from the documents, best first. It searches in several steps by itself, so ask "
    "the whole question in words, even if it takes several facts. Cite a passage by its number, like [1]."
)
TOOL_DESCRIPTION = NUMBERED_DESCRIPTION.replace("by its number, like [1]", "by its id")
"""The description for tools that number the passages of each call from 1."""
DEFAULT_K = 5
MAX_DOCUMENTS = 20
"""Documents that a model may ask for."""
MAX_ARGUMENT_CHARACTERS = 100_000
"""Characters of raw arguments that are parsed."""
NO_PASSAGES = "Nothing was found."
ONLY_NEAREST = "Nothing relevant was found. The nearest passages:"
"""The first paragraph of an answer whose evidence does not suffice."""


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)
    question: str = Field(min_length=1)
    k: int | None = Field(default=None, ge=1, le=MAX_DOCUMENTS)


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of a call.

    Attributes:
        text: The text that the model reads.
        passages: The passages by number.
        mistake: True if the arguments cannot be used. The text gives the reason.
    """

    text: str
    passages: Mapping[int, RetrievedPassage] = field(default_factory=dict)
    mistake: bool = False

    def blocks(self) -> list[dict[str, Any]]:
        """Return Anthropic's search result blocks. Claude cites them by itself. `source` is the id of the passage."""
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

    def message(self, provider: Provider, call_id: str, *, name: str = TOOL_NAME) -> dict[str, Any]:
        """Return the answer in the provider's format. It is a message, an item, a content block or a part.

        Args:
            provider: The API.
            call_id: The id of the call that is answered.
            name: The name of the tool.
        """
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
    """The citations of a text.

    Attributes:
        passages: The cited passages, in the order of their first mention.
        unknown: The numbers that belong to no passage.
    """

    passages: tuple[RetrievedPassage, ...]
    unknown: tuple[int, ...]


class SearchTool:
    """The agent as a tool. Any number of conversations can share it.

    Example:
        ```python
        tool = SearchTool(agent)
        request = {"tools": [tool.definition("openai")]}
        answer = tool.conversation().run({"question": "Who directed Rope?"})
        ```
    """

    def __init__(
        self,
        agent: SearchAgent,
        *,
        k: int = DEFAULT_K,
        where: Where | None = None,
        per_document: int | None = 1,
        name: str = TOOL_NAME,
        description: str = NUMBERED_DESCRIPTION,
    ) -> None:
        """Make the tool.

        Args:
            agent: The agent. The caller closes it.
            k: The number of documents. A call can ask for another number.
            where: A filter in Chroma's syntax. No call can remove it.
            per_document: The number of passages for each document. If it is None, all passages in the final view are
                returned.
            name: The name of the tool.
            description: The description that the model reads.

        Raises:
            ConfigError: If the APIs do not accept the name.
        """
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name):
            raise ConfigError(
                "the name of a tool must begin with a letter or _, and have at most 64 letters, digits, _ and -; got "
                f"{name!r}"
            )
        self.retriever = PassageRetriever(agent, k, where, per_document)
        self.name, self.description = name, description

    def definition(self, provider: Provider) -> dict[str, Any]:
        """Return an entry for the `tools` of a request.

        For Gemini, return an entry for the `function_declarations` in it.
        """
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
        """Return a new conversation, in which passages are numbered from 1."""
        return Conversation(self.retriever)

    def _schema(self) -> dict[str, Any]:
        """Return the schema of the arguments, in the subset of JSON Schema that all four APIs accept."""
        question = {"type": "string", "description": "the question, complete and in words"}
        k = {
            "type": "integer",
            "description": f"how many documents, 1 to {MAX_DOCUMENTS}; {self.retriever.k} by default",
        }
        return {"type": "object", "properties": {"question": question, "k": k}, "required": ["question"]}


class Conversation:
    """A conversation that runs the model's calls and numbers their passages. Calls may run at the same time."""

    def __init__(self, retriever: PassageRetriever) -> None:
        self._retriever = retriever
        self._numbers: dict[str, int] = {}
        self._passages: dict[int, RetrievedPassage] = {}
        self._lock = threading.Lock()

    def run(self, arguments: Mapping[str, Any] | str) -> ToolAnswer:
        """Run a call, and block until it is done.

        Args:
            arguments: The arguments that the model wrote, as text or parsed.

        Returns:
            The passages, or an explanation of the model's mistake.

        Raises:
            ContextAgentError: If the policy or the corpus fails.
        """
        try:
            call = _parsed(arguments)
            return self._numbered(self._retriever.search(call.question, k=call.k))
        except (_MistakeError, BudgetError) as error:
            return ToolAnswer(f"Error: {error}", mistake=True)

    async def arun(self, arguments: Mapping[str, Any] | str) -> ToolAnswer:
        """Run a call without blocking, as `run` does."""
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
    """An error for arguments that cannot be used. The model reads its text."""


def _parsed(arguments: Any) -> _Arguments:
    try:
        if not isinstance(arguments, str):
            return _Arguments.model_validate(dict(arguments) if isinstance(arguments, Mapping) else arguments)
        if len(arguments) > MAX_ARGUMENT_CHARACTERS:
            raise _MistakeError(
                f"the arguments must have at most {MAX_ARGUMENT_CHARACTERS:,} characters; got {len(arguments):,}"
            )
        return _Arguments.model_validate_json(arguments)
    except ValidationError as error:
        reasons = explain(error, whole="arguments")
        raise _MistakeError(f'{reasons}. Call it like {{"question": "...", "k": {DEFAULT_K}}}.') from None


def _checked_provider(provider: Provider) -> Provider:
    if provider not in get_args(Provider):
        raise ConfigError(f"unknown provider {provider!r}. Choose from {', '.join(get_args(Provider))}.")
    return provider
