"""The models of requests and answers, and the OpenAPI 3.1 document that is generated from them.

The models are strict: a number in quotes is not a number. `/v1/retrieve` and `/v1/feedback` refuse unknown fields. A
chat completion ignores them, because clients send many that have no meaning for a retriever.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator
from pydantic.json_schema import models_json_schema

from context_agent.harness.episode import DEFAULT_K
from context_agent.retrieval.filters import MAX_CONDITIONS, MAX_DEPTH, MAX_VALUES
from context_agent.version import __version__

MAX_QUESTION = 100_000
"""Characters. The token budget refuses most questions at a smaller size."""
MAX_K = 100
"""Documents in an answer."""
MAX_MESSAGES, MAX_PARTS = 10_000, 1_000
"""Messages of a conversation, and parts of a message."""
Text = Annotated[str, Field(min_length=1, max_length=MAX_QUESTION, pattern=r"\S")]
K = Annotated[int, Field(ge=1, le=MAX_K, description="Documents to return.")]
Filter = Annotated[
    dict[str, JsonValue],
    Field(
        description='A metadata filter in Chroma\'s syntax, e.g. {"year": {"$gte": 2020}}; '
        f"at most {MAX_CONDITIONS} conditions, {MAX_DEPTH} levels and {MAX_VALUES:,} listed values."
    ),
]
Seconds = Annotated[
    float,
    Field(
        gt=0, le=86_400, description="Timeout, including the wait in the queue. The server's own limit applies as well."
    ),
]
Name = Annotated[str, Field(min_length=1, max_length=256)]
Ids = Annotated[list[Name], Field(max_length=1_000)]


class _Request(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)


class RetrieveRequest(_Request):
    """A question for the agent."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"question": "Who directed Rope?", "k": 5, "where": {"year": {"$gte": 1940}}}]}
    )
    question: Text
    k: K = DEFAULT_K
    where: Filter | None = None
    deadline: Seconds | None = None
    id: Name | None = Field(default=None, description="The id of the question; it is returned and recorded.")
    stream: bool = Field(default=False, description="Send events as they happen, as with Accept: text/event-stream.")
    effort: Name | None = Field(
        default=None, description="An effort of the policy, such as careful or fast; the server's by default."
    )


class Part(BaseModel):
    """A part of a message; only parts of type text are read."""

    model_config = ConfigDict(strict=True)
    type: str
    text: str = ""


# Validation stops at the first error: listing the errors of a megabyte of wrong parts would take seconds.
Parts = Annotated[list[Part], Field(max_length=MAX_PARTS, fail_fast=True)]


class ChatMessage(BaseModel):
    """A message of a conversation."""

    model_config = ConfigDict(strict=True)
    role: str
    content: str | Parts | None = None

    @property
    def text(self) -> str:
        """The text of the message."""
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content if part.type == "text")
        return self.content or ""


class StreamOptions(BaseModel):
    """What a stream has besides its chunks."""

    model_config = ConfigDict(strict=True)
    include_usage: bool = False


class ChatRequest(BaseModel):
    """A chat completion; the last user message is the question. `k`, `where` and `deadline` extend OpenAI's format."""

    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)
    model: Name
    messages: list[ChatMessage] = Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = Field(default=None, ge=1, le=1, description="Only one answer is supported.")
    k: K = DEFAULT_K
    where: Filter | None = None
    deadline: Seconds | None = None


class FeedbackRequest(_Request):
    """A judgement on the result of a search, which is identified by its trajectory or by its request."""

    trajectory: Name | None = None
    request_id: Name | None = None
    relevant: Ids = Field(default=[], description="Ids of documents or passages that answer the question.")
    irrelevant: Ids = Field(default=[], description="Ids of those that do not.")
    rating: int | None = Field(default=None, ge=1, le=5)
    comment: str = Field(default="", max_length=10_000)
    user: str = Field(
        default="",
        max_length=256,
        description="Who judges. A later judgement of the same user on a document replaces the earlier one.",
    )
    id: Name | None = Field(
        default=None,
        description="The id of the judgement: sent twice, it counts once. A digest of the content by default.",
    )

    @model_validator(mode="after")
    def _one_reference(self) -> FeedbackRequest:
        if (self.trajectory is None) == (self.request_id is None):
            raise ValueError("pass either trajectory or request_id")
        return self


class PruneRequest(_Request):
    """A conversation to prune, or with `restore` one whose passages come back."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"messages": [{"role": "user", "content": "Who directed Rope?"}]}]}
    )
    messages: list[dict[str, Any]] = Field(
        max_length=MAX_MESSAGES,
        fail_fast=True,
        description="OpenAI's chat messages, items of its Responses API, or Anthropic's messages.",
    )
    task: Text | None = Field(default=None, description="What the agent works on; the last user message by default.")
    budget: Annotated[int, Field(ge=1, le=10_000_000)] | Annotated[str, Field(pattern=r"^\d{1,2}(\.\d{1,4})?%$")] = (
        Field(default=8_000, description="Tokens of tool results to keep, or the share of them, e.g. 25%.")
    )
    strategy: Literal["reader", "age", "random", "bm25", "none"] = "reader"
    effort: Literal["careful", "fast"] = "careful"
    turns: float = Field(default=10.0, ge=0, le=1e6, description="Expected number of further requests.")
    cached_price: float = Field(
        default=0.1, ge=0, le=1, description="Price of a cached input token, as a share of a fresh one."
    )
    restore: Ids = Field(default=[], description="Ids of passages to bring back; nothing is pruned then.")


class PruneAnswer(BaseModel):
    """The conversation, in the format that it came in, and the report of the prune; null if passages came back."""

    messages: list[dict[str, Any]]
    report: dict[str, Any] | None


class ScoredPassage(BaseModel):
    """A passage of a ranked document; `id` is that of the chunk."""

    id: str
    text: str
    score: float


class SentenceSpan(BaseModel):
    """A sentence of a passage: the offsets of its characters."""

    passage: str
    start: int
    end: int


class AnswerDocument(BaseModel):
    """A document of the answer; `best_sentence` is the one that matters most for the question."""

    id: str
    title: str
    score: float
    chunks: list[ScoredPassage]
    best_sentence: SentenceSpan | None
    justification: str
    metadata: dict[str, Any]


class Usage(BaseModel):
    """The cost of a search. `tokens` were placed in the context at any time, `output_tokens` the policy wrote."""

    turns: int
    tokens: int
    output_tokens: int
    seconds: float
    queued_seconds: float


class RetrieveAnswer(BaseModel):
    """Ranked documents, best first. `error` tells that the search failed and these documents are a partial result.

    `confidence` is the probability that the corpus answers the question, null if the policy gives none. With
    `sufficient` false, the documents are only the nearest in the corpus; null if that is not known.
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
    """The body of every answer that is an error."""

    error: ErrorDetail
    request_id: str


class FeedbackAnswer(BaseModel):
    """The judgement in the log; `created` is false if the log already had it."""

    id: str
    trajectory: str
    created: bool


class AgentDescription(BaseModel):
    """What the server searches and how. Sizes are tokens; `efforts` has the default first, and is empty without any.

    `records` tells whether trajectories are written, so that episodes can be viewed and searches judged.
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
    """`live`: the process answers. `ready`: it accepts questions. `draining`: it is shutting down."""

    live: Literal[True]
    ready: bool
    draining: bool


_ROOT = "#/components/schemas/"


_MODELS: tuple[type[BaseModel], ...] = (
    RetrieveRequest,
    RetrieveAnswer,
    ChatRequest,
    FeedbackRequest,
    FeedbackAnswer,
    PruneRequest,
    PruneAnswer,
    AgentDescription,
    ErrorAnswer,
    Health,
)


_REFUSALS = {
    "400": "invalid JSON, a question that is too long, an invalid filter, or an unknown id of a passage",
    "408": "the body did not arrive in time",
    "413": "the body or the judgement is too large",
    "415": "the body is not application/json",
    "422": "invalid fields",
}


_SEARCHING = {
    "429": "the queue is full; Retry-After says when to try again",
    "502": "the policy failed",
    "503": "the server is shutting down, the index is not available, or the deadline passed in the queue",
}


_EVENTS = (
    "Server-sent events: `turn` (the policy's calls), `edit` (chunks pruned and restored), `result` (chunks shown), "
    "then `end` (the answer) or `error`."
)


def document(model: str, *, secured: bool) -> dict[str, Any]:
    """Return the OpenAPI document of a server with that chat model; `secured` if it requires a bearer token."""
    _, schemas = models_json_schema([(kind, "validation") for kind in _MODELS], ref_template=_ROOT + "{model}")
    components: dict[str, Any] = {"schemas": schemas["$defs"]}
    chat = components["schemas"]["ChatRequest"]
    chat["properties"]["model"]["enum"] = [model]
    chat["examples"] = [{"model": model, "messages": [{"role": "user", "content": "Who directed Rope?"}]}]
    api: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "context-agent",
            "version": __version__,
            "description": "Multi-step retrieval: a question in, ranked documents out.",
        },
        "paths": _paths(),
        "components": components,
    }
    if secured:
        components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        api["security"] = [{"bearer": []}]
        for path, operations in api["paths"].items():
            for operation in operations.values():
                if path == "/health":
                    operation["security"] = []
                else:
                    operation["responses"]["401"] = _error("the token is missing or wrong")
    return api


def _paths() -> dict[str, Any]:
    answer = _json("RetrieveAnswer")
    return {
        "/v1/retrieve": _post(
            "retrieve",
            "Ranked documents for a question",
            "RetrieveRequest",
            {"200": {"description": f"The answer. {_EVENTS}", "content": {**answer, **_stream("event", "data")}}},
            searching=True,
        ),
        "/v1/chat/completions": _post(
            "complete",
            "The same as a chat completion",
            "ChatRequest",
            {
                "200": {"description": "A completion, or its chunks", "content": {**_object(), **_stream("data")}},
                "404": _error("no such model"),
            },
            searching=True,
        ),
        "/v1/feedback": _post(
            "judge",
            "A judgement on a search",
            "FeedbackRequest",
            {
                "201": {"description": "Written", "content": _json("FeedbackAnswer")},
                "200": {"description": "Already in the log", "content": _json("FeedbackAnswer")},
                "404": _error("no such trajectory"),
                "409": _error("another judgement has the id"),
            },
            searching=False,
        ),
        "/v1/prune": _post(
            "prune",
            "Prune an agent's conversation",
            "PruneRequest",
            {"200": {"description": "The pruned conversation", "content": _json("PruneAnswer")}},
            searching=True,
        ),
        "/v1/agent": {"get": _get("agent", "What is searched, and how", _json("AgentDescription"))},
        "/v1/trajectories/{name}": {"get": _trajectory()},
        "/v1/models": {"get": _get("models", "The agent as a model", _object())},
        "/health": {
            "get": {
                **_get("health", "Whether the server answers and accepts questions", _json("Health")),
                "responses": {
                    "200": {"description": "Ready", "content": _json("Health")},
                    "503": {"description": "Not ready", "content": _json("Health")},
                },
            }
        },
        "/metrics": {"get": _get("metrics", "Counts, for Prometheus", {"text/plain": {"schema": {"type": "string"}}})},
        "/openapi.json": {"get": _get("schema", "This document", _object())},
    }


def _post(name: str, summary: str, request: str, responses: dict[str, Any], *, searching: bool) -> dict[str, Any]:
    refusals = {**_REFUSALS, **(_SEARCHING if searching else {})}
    return {
        "post": {
            "operationId": name,
            "summary": summary,
            "requestBody": {"required": True, "content": _json(request)},
            "responses": {**responses, **{status: _error(reason) for status, reason in refusals.items()}},
        }
    }


def _get(name: str, summary: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "responses": {"200": {"description": summary, "content": content}},
    }


def _trajectory() -> dict[str, Any]:
    operation = _get("trajectory", "A recorded episode, as the viewer reads it", _object())
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    unknown = {"404": _error("no such trajectory, or the server writes none")}
    return {**operation, "parameters": [name], "responses": {**operation["responses"], **unknown}}


def _json(model: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _ROOT + model}}}


def _object() -> dict[str, Any]:
    return {"application/json": {"schema": {"type": "object"}}}


def _stream(*fields: str) -> dict[str, Any]:
    """Server-sent events, each with these fields."""
    event = {"type": "object", "properties": {name: {"type": "string"} for name in fields}, "required": list(fields)}
    return {"text/event-stream": {"schema": event}}


def _error(reason: str) -> dict[str, Any]:
    return {"description": reason[:1].upper() + reason[1:], "content": _json("ErrorAnswer")}
