"""The content of one message of a conversation, whatever its format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from context_agent.pruning.images import ImageRule

MessageKind = Literal[
    "openai", "responses", "anthropic", "langchain", "bedrock", "gemini", "vercel", "pydantic-ai", "cohere",
    "llamaindex", "haystack", "autogen", "semantic-kernel", "opentelemetry", "mistral", "opencode", "goose",
    "agent-framework",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Section:
    """A marked section of a text, as the last step of a path.

    The number identifies the section. Pruning moves its start and its end.
    """

    number: int
    start: int = field(compare=False, repr=False)
    end: int = field(compare=False, repr=False)


Path = tuple[str | int | Section, ...]
"""Keys, attributes, indices and sections that lead from a message to a value in it."""
Form = Literal["text", "json", "value", "image", "file"]
"""A text, a text that must stay JSON, a JSON value that is pruned as its text, or a part with an image or a file."""
PART_FORMS: tuple[Form, ...] = ("image", "file")
"""The forms of parts that a text part may replace."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call, or the reference to a call in its result. A field is empty if the message does not have it.

    Attributes:
        id: The id.
        name: The name of the tool.
        is_of_program: True if a program of the model made the call. The result goes to the program.
        asked: What its arguments ask for.
    """

    id: str = ""
    name: str = ""
    is_of_program: bool = False
    asked: str = ""


@dataclass(frozen=True, slots=True)
class ResultText:
    """A text that pruning may change. It is a part of a tool result, or the large arguments of a call.

    Attributes:
        message: The index of its content in the conversation. A message may have several contents.
        path: The path from its message to the text.
        call_id: The id of the call as the message has it. Without an id it is the name of the tool.
        text: The text. For an image or a file it is a digest.
        is_error: True if the tool failed.
        form: The form of the value at the path.
        is_argument: True if the text is the arguments of a call.
        part: The part that contains the image or the file.
        tokens: The tokens of the image or the file.
        text_type: The type of a text part that may replace the part.
        asked: What the arguments of the call ask for.
        repeats: Further paths from its message to the same text, or to the value of its JSON. All change together.
    """

    message: int
    path: Path
    call_id: str
    text: str
    is_error: bool = False
    form: Form = "text"
    is_argument: bool = False
    part: Any = None
    tokens: int = 0
    text_type: str = "text"
    asked: str = field(default="", compare=False)
    repeats: tuple[Path, ...] = ()


OWN_RESULT = -1
"""The owner of a result that is inside the message of its call, or between marks in a text. It needs no pairing."""


@dataclass(frozen=True, slots=True)
class MessageContent:
    """The content of a message.

    It has the words of the author, the calls, the answered calls, and the texts of results.

    Attributes:
        role: `system`, `user`, `assistant` or `tool`. `unknown` marks a message that is passed through. An empty role
            marks a value that is not a message.
        kind: The message format. It is None if several formats are possible.
        text: The words of the author, including the names and the arguments of calls.
        said: The words of the author without calls.
        calls: The calls that the message makes.
        answers: The calls that the message answers.
        results: The texts of its results.
        arguments: The arguments of its calls.
        result_owner: For each result, the index of its answer in `answers`, or `OWN_RESULT`.
        left: The texts of results that answer no call of the conversation.
        unknown: The types of parts that are passed through without being read.
        texts: The texts of the author with their paths. It is empty if the place of a word is not known.
        written_calls: The marks of calls in the author's own text, such as `<tool_call>`.
        unmarked: The beginning of a result in the text whose marks are incomplete. It is passed through.
        is_compaction: True if the message has a summary in place of all earlier messages, which the model does not see.
        is_imitable: True if a result in the same text may have written these words, for example after the closing mark.
        before_results: The words before the first result, if they are imitable. No result can have written them.
        later: The contents after the first result, if one text of the message has several turns of the agent.
    """

    role: str
    kind: MessageKind | None = None
    text: str = ""
    said: str = ""
    calls: tuple[Call, ...] = ()
    answers: tuple[Call, ...] = ()
    results: tuple[ResultText, ...] = ()
    arguments: tuple[ResultText, ...] = ()
    result_owner: tuple[int, ...] = ()
    left: tuple[ResultText, ...] = ()
    unknown: tuple[str, ...] = ()
    texts: tuple[tuple[Path, str], ...] = ()
    written_calls: frozenset[str] = frozenset()
    unmarked: str = ""
    is_compaction: bool = False
    is_imitable: bool = False
    before_results: str = ""
    later: tuple[MessageContent, ...] = ()

    def text_with(self, replacement: Callable[[ResultText], str]) -> str:
        """Return the text of the message, with `replacement(argument)` in place of each argument of a call.

        The arguments occur in the text in their order, so the text is searched once.
        """
        parts: list[str] = []
        position = 0
        for argument in self.arguments:
            start = self.text.find(argument.text, position)
            if start >= 0:
                parts += [self.text[position:start], replacement(argument)]
                position = start + len(argument.text)
        return "".join([*parts, self.text[position:]])


IMAGE_RULES: dict[MessageKind, ImageRule] = {
    "openai": "tiles",
    "responses": "tiles",
    "anthropic": "pixels",
    "langchain": "pixels",
    "bedrock": "pixels",
    "gemini": "squares",
    "vercel": "pixels",
    "pydantic-ai": "pixels",
    "cohere": "pixels",
    "llamaindex": "pixels",
    "haystack": "pixels",
    "autogen": "pixels",
    "semantic-kernel": "pixels",
    "opentelemetry": "pixels",
    "mistral": "pixels",
    "opencode": "pixels",
    "goose": "pixels",
    "agent-framework": "pixels",
}
