"""What a message of a conversation holds, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from context_agent.pruning.images import ImageRule

MessageKind = Literal["openai", "responses", "anthropic", "langchain", "bedrock", "gemini"]
Path = tuple[str | int, ...]
"""Keys, attributes and indices that lead from a message to a value in it."""
Form = Literal["text", "json", "value", "image"]
"""A text, a text that must stay JSON, a JSON value that is handled as its text, or a part that holds an image."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool, or the reference to one in its result. Empty if the message names none."""

    id: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class ResultText:
    """A text that pruning may change: of a tool result, or of the large arguments of a call.

    Attributes:
        message: The index of its message.
        path: Leads to it from its message.
        call_id: The id of the call as the message has it, or the name of the tool.
        text: The text. That of an image is a digest.
        is_error: Whether the tool failed.
        form: What stands at the path.
        is_argument: Whether it belongs to a call.
        image: The part that holds the image.
        tokens: The tokens of the image.
        text_type: The type of a text part that may take the place of the image.
    """

    message: int
    path: Path
    call_id: str
    text: str
    is_error: bool = False
    form: Form = "text"
    is_argument: bool = False
    image: Any = None
    tokens: int = 0
    text_type: str = "text"


@dataclass(frozen=True, slots=True)
class MessageContent:
    """What a message holds: its author's words, its calls, the calls that it answers, and the texts of results.

    `kind` is None if the message could belong to several kinds. `unknown` names parts that are passed through unread.
    `answers` and `results` belong together: `result_owner` has for each result the index of its answer. `left` are the
    texts of results that answer no call of the conversation.
    """

    role: str
    kind: MessageKind | None = None
    text: str = ""
    calls: tuple[Call, ...] = ()
    answers: tuple[Call, ...] = ()
    results: tuple[ResultText, ...] = ()
    arguments: tuple[ResultText, ...] = ()
    result_owner: tuple[int, ...] = ()
    left: tuple[ResultText, ...] = ()
    unknown: tuple[str, ...] = ()


IMAGE_RULES: dict[MessageKind, ImageRule] = {
    "openai": "tiles",
    "responses": "tiles",
    "anthropic": "pixels",
    "langchain": "pixels",
    "bedrock": "pixels",
    "gemini": "squares",
}
