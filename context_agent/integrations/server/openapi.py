"""The OpenAPI 3.1 document, made of the models that validate the requests."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from context_agent.integrations.server import schema
from context_agent.version import __version__

_ROOT = "#/components/schemas/"
_MODELS: tuple[type[BaseModel], ...] = (
    schema.RetrieveRequest,
    schema.RetrieveAnswer,
    schema.ChatRequest,
    schema.FeedbackRequest,
    schema.FeedbackAnswer,
    schema.ErrorAnswer,
    schema.Health,
)
_REFUSALS = {
    "400": "no JSON, a question that is too long, or a filter that is refused",
    "408": "the body came too slowly",
    "413": "the body or the judgement is too large",
    "415": "the body is not application/json",
    "422": "fields that do not fit",
}
_SEARCHING = {
    "429": "the queue is full; Retry-After says when to come again",
    "502": "the policy failed",
    "503": "the server is ending, the index is gone, or the deadline passed in the queue",
}
_EVENTS = (
    "Server-sent events: `turn` (the policy's calls), `edit` (chunks pruned and restored), `result` (chunks shown), "
    "then `end` (the answer) or `error`."
)


def document(model: str, *, secured: bool) -> dict[str, Any]:
    """The document of a server whose chat model has that name; `secured` says that a bearer token is asked for."""
    made = models_json_schema([(one, "validation") for one in _MODELS], ref_template=_ROOT + "{model}")[1]
    components: dict[str, Any] = {"schemas": made["$defs"]}
    chat = components["schemas"]["ChatRequest"]
    chat["properties"]["model"]["enum"] = [model]
    chat["examples"] = [{"model": model, "messages": [{"role": "user", "content": "Who directed Rope?"}]}]
    described: dict[str, Any] = {
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
        described["security"] = [{"bearer": []}]
        for path, operations in described["paths"].items():
            for operation in operations.values():
                if path == "/health":
                    operation["security"] = []
                else:
                    operation["responses"]["401"] = _error("no token, or a wrong one")
    return described


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
                "200": {"description": "Known already", "content": _json("FeedbackAnswer")},
                "404": _error("no such trajectory"),
                "409": _error("the id stands for another judgement"),
            },
            searching=False,
        ),
        "/v1/models": {"get": _get("models", "The agent as a model", _object())},
        "/health": {
            "get": {
                **_get("health", "Whether it answers, and takes questions", _json("Health")),
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
            "responses": {**responses, **{status: _error(told) for status, told in refusals.items()}},
        }
    }


def _get(name: str, summary: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "responses": {"200": {"description": summary, "content": content}},
    }


def _json(model: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _ROOT + model}}}


def _object() -> dict[str, Any]:
    return {"application/json": {"schema": {"type": "object"}}}


def _stream(*fields: str) -> dict[str, Any]:
    """Server-sent events, each with these fields."""
    event = {"type": "object", "properties": {name: {"type": "string"} for name in fields}, "required": list(fields)}
    return {"text/event-stream": {"schema": event}}


def _error(told: str) -> dict[str, Any]:
    return {"description": told[:1].upper() + told[1:], "content": _json("ErrorAnswer")}
