"""The models of requests and answers.

The models are strict: a number in quotes is not a number. `/v1/retrieve` and `/v1/feedback` refuse unknown fields. A
chat completion ignores them, because clients send many that have no meaning for a retriever.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    JsonValue,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from context_agent.harness.episode import DEFAULT_K
from context_agent.retrieval.filters import MAX_CONDITIONS, MAX_DEPTH, MAX_VALUES

MAX_QUESTION_CHARACTERS = 100_000
"""The token budget refuses most questions at a smaller size."""
MAX_DOCUMENTS = 100
MAX_MESSAGES = 10_000
MAX_PARTS = 1_000
"""Parts of one message."""
Text = Annotated[str, Field(min_length=1, max_length=MAX_QUESTION_CHARACTERS, pattern=r"[^\s\x1c-\x1f]")]
"""A text that is not empty. For Python, the separators U+001C to U+001F are white space too."""
DocumentCount = Annotated[int, Field(ge=1, le=MAX_DOCUMENTS, description="The number of documents to return.")]
Filter = Annotated[
    dict[str, JsonValue],
    Field(
        description='A metadata filter in Chroma\'s syntax, such as {"year": {"$gte": 2020}}. '
        f"It has at most {MAX_CONDITIONS} conditions, {MAX_DEPTH} levels and {MAX_VALUES:,} listed values."
    ),
]
Seconds = Annotated[
    float,
    Field(
        gt=0,
        le=86_400,
        description="The time limit of the search, the wait in the queue included. The server has a limit of its own.",
    ),
]
Name = Annotated[str, Field(min_length=1, max_length=256)]
Ids = Annotated[list[Name], Field(max_length=1_000)]


class UnionMessage:
    """A mark of a union of types: one message takes the place of pydantic's message for each type."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of the union with the message."""
        schema: dict[str, Any] = dict(handler(source))
        return schema | {"custom_error_type": "no_type_fits", "custom_error_message": self._message}


class _Request(BaseModel):
    """A request. A null stands for the default, because many clients send every field that they know."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if value is not None or name not in cls.model_fields}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON schema, in which every optional field may be null."""
        described = handler.resolve_ref_schema(handler(schema))
        for name, field in described["properties"].items():
            if "default" in field and field["default"] is not None:
                about = {key: field.pop(key) for key in ("default", "description", "title") if key in field}
                described["properties"][name] = {"anyOf": [field, {"type": "null"}], **about}
        return described


class RetrieveRequest(_Request):
    """A question for the agent."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"question": "Who directed Rope?", "k": 5, "where": {"year": {"$gte": 1940}}}]}
    )
    question: Text
    k: DocumentCount = DEFAULT_K
    where: Filter | None = None
    deadline: Seconds | None = None
    id: Name | None = Field(default=None, description="The id of the question. It is returned and recorded.")
    stream: bool = Field(
        default=False, description="Send events as they happen. `Accept: text/event-stream` does the same."
    )
    effort: Name | None = Field(
        default=None, description="The effort of the policy, such as careful or fast. The default is the server's."
    )


class Part(BaseModel):
    """A part of a message. Only parts of type `text` are read."""

    model_config = ConfigDict(strict=True)
    type: str
    text: str | None = None


# Validation stops at the first error: listing the errors of a megabyte of wrong parts would take seconds.
Parts = Annotated[list[Part], Field(max_length=MAX_PARTS, fail_fast=True)]


class ChatMessage(BaseModel):
    """A message of a conversation."""

    model_config = ConfigDict(strict=True)
    role: str
    content: Annotated[str | Parts, UnionMessage("It must be a text or a list of parts")] | None = None

    @property
    def text(self) -> str:
        """The text of the message, its parts joined."""
        if isinstance(self.content, list):
            return "\n".join(part.text or "" for part in self.content if part.type == "text")
        return self.content or ""


class StreamOptions(BaseModel):
    """What a stream contains besides its chunks."""

    model_config = ConfigDict(strict=True)
    include_usage: bool | None = None


class ChatRequest(_Request):
    """A request for a chat completion. The last user message is the question.

    The fields `k`, `where` and `deadline` extend OpenAI's format.
    """

    model_config = ConfigDict(extra="ignore")
    model: Name
    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int | None = Field(default=None, ge=1, le=1, description="The number of answers. Only one is supported.")
    k: DocumentCount = DEFAULT_K
    where: Filter | None = None
    deadline: Seconds | None = None


class FeedbackRequest(_Request):
    """A judgment on the result of a search. The trajectory or the request identifies the search."""

    trajectory: Name | None = None
    request_id: Name | None = None
    relevant: Ids = Field(default=[], description="Ids of documents or passages that answer the question.")
    irrelevant: Ids = Field(default=[], description="Ids of documents or passages that do not.")
    rating: int | None = Field(default=None, ge=1, le=5)
    comment: str = Field(default="", max_length=10_000)
    user: str = Field(
        default="",
        max_length=256,
        description="Who judges. A later judgment of the same user on a document replaces an earlier one.",
    )
    id: Name | None = Field(
        default=None,
        description="The id of the judgment. Sent twice, it counts once. The default is a digest of the content.",
    )

    @model_validator(mode="after")
    def _one_reference(self) -> FeedbackRequest:
        if (self.trajectory is None) == (self.request_id is None):
            raise ValueError("pass either trajectory or request_id")
        return self


class PruneRequest(_Request):
    """A conversation to prune. With `restore`, passages are brought back to the conversation instead."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"messages": [{"role": "user", "content": "Who directed Rope?"}]}]}
    )
    messages: list[dict[str, Any]] = Field(
        max_length=MAX_MESSAGES,
        fail_fast=True,
        description="OpenAI's chat messages, items of its Responses API, or Anthropic's messages.",
    )
    task: Text | None = Field(
        default=None, description="What the agent is trying to do. The default is the last user message."
    )
    budget: Annotated[
        Annotated[int, Field(ge=1, le=10_000_000)] | Annotated[str, Field(pattern=r"^\d{1,2}(\.\d{1,4})?%$")],
        UnionMessage("It must be a number of tokens from 1 to 10,000,000, or a share, such as '25%'"),
    ] = Field(default=8_000, description="The tokens of tool results to keep, or their share, such as 25%.")
    strategy: Literal["reader", "age", "random", "bm25", "none"] = "reader"
    effort: Literal["fast", "careful", "thorough"] = "thorough"
    turns: float = Field(default=10.0, ge=0, le=1e6, description="The expected number of further requests.")
    cached_price: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="The price of a cached input token, as a share of the price of a fresh one.",
    )
    restore: Ids = Field(default=[], description="Ids of passages to bring back. If there are any, nothing is pruned.")
    user: Name | None = Field(
        default=None,
        description="The user whose conversation it is, if the client serves several users. It restores no passage of "
        "another user.",
    )


class PruneAnswer(BaseModel):
    """The conversation in the format of the request, and the report of the prune.

    If passages were brought back, the report is null.
    """

    messages: list[dict[str, Any]]
    report: dict[str, Any] | None


class ScoredPassage(BaseModel):
    """A passage of a ranked document. `id` is the id of the chunk."""

    id: str
    text: str
    score: float


class SentenceSpan(BaseModel):
    """The position of a sentence in a passage, in characters."""

    passage: str
    start: int
    end: int


class AnswerDocument(BaseModel):
    """A document of the answer. `best_sentence` is the one that matters most for the question."""

    id: str
    title: str
    score: float
    chunks: list[ScoredPassage]
    best_sentence: SentenceSpan | None
    justification: str
    metadata: dict[str, Any]


class Usage(BaseModel):
    """The cost of a search.

    `tokens` counts what was ever placed in the context. `output_tokens` counts what the policy wrote.
    """

    turns: int
    tokens: int
    output_tokens: int
    seconds: float
    queued_seconds: float


class RetrieveAnswer(BaseModel):
    """Ranked documents, best first. If `error` is not null, the search failed and the documents are a partial result.

    `confidence` is the probability that the corpus answers the question, or null if the policy gives none. If
    `sufficient` is false, the documents are only the nearest in the corpus. It is null if that is not known.
    """

    request_id: str
    id: str | None
    question: str
    documents: list[AnswerDocument]
    sufficient: bool | None
    confidence: float | None
    stop_reason: str
    turns: int
    tokens: int
    critical_steps: int
    trajectory: str | None
    error: str | None
    usage: Usage


class ErrorDetail(BaseModel):
    """The error in OpenAI's format."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorAnswer(BaseModel):
    """The body of every answer that is an error. Before a request is read, it has no id."""

    error: ErrorDetail
    request_id: str | None


class FeedbackAnswer(BaseModel):
    """The judgment in the log. `created` is false if the log already had it."""

    id: str
    trajectory: str
    created: bool


class AgentDescription(BaseModel):
    """What the server searches, and how. Sizes are in tokens.

    `efforts` begins with the default. It is empty if the policy has only one effort. If `records` is true, trajectories
    are written, so episodes can be viewed and searches can be judged.
    """

    title: str
    corpus: str
    chunks: int
    window: int
    soft: int
    hard: int
    efforts: list[str]
    records: bool
    version: str


class Health(BaseModel):
    """The state of the server.

    `live` means that the process answers, `ready` that it accepts questions, and `draining` that it is shutting down.
    """

    live: Literal[True]
    ready: bool
    draining: bool
