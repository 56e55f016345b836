"""The HTTP application, which serves an agent for `ctx1 serve` or in a server of your own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from context_agent._support.extras import extra
from context_agent.agent import SearchAgent
from context_agent.integrations.server.bodies import JsonRoute
from context_agent.integrations.server.endpoints import Endpoints
from context_agent.integrations.server.errors import Problem
from context_agent.integrations.server.health import HEALTH_PATH
from context_agent.integrations.server.middleware import ERROR_HANDLERS, RequestMiddleware, route_path
from context_agent.integrations.server.pages import PAGE_ROUTES
from context_agent.integrations.server.schema import (
    AgentDescription,
    ErrorAnswer,
    FeedbackAnswer,
    Health,
    PruneAnswer,
    RetrieveAnswer,
)
from context_agent.integrations.server.service import Service
from context_agent.integrations.server.settings import Settings
from context_agent.integrations.server.worker_calls import WorkerPeers
from context_agent.version import __version__

with extra("serve"):
    from fastapi import FastAPI
    from starlette.responses import PlainTextResponse
    from starlette.types import ASGIApp, Scope

Responses = dict[int | str, dict[str, Any]]
"""What the OpenAPI document says about an endpoint's responses, by their status."""
BODY_ERRORS: dict[int | str, str] = {
    400: "Invalid JSON, a question that is too long, an invalid filter, or an unknown id of a passage",
    408: "The body did not arrive in time",
    413: "The body or the judgment is too large",
    415: "The body is not application/json, or it is compressed",
    422: "Invalid fields",
}
SEARCH_ERRORS: dict[int | str, str] = {
    **BODY_ERRORS,
    429: "The queue is full; Retry-After says when to try again",
    502: "The policy failed",
    503: "The server is shutting down, the index is not available, or the deadline passed in the queue",
}
SEARCH_EVENTS = (
    "The answer. As server-sent events: `turn` (the policy's calls), `edit` (chunks pruned and restored), `result` "
    "(chunks shown), then `end` (the answer) or `error`."
)

CHAT_PATH = "/v1/chat/completions"
FOREIGN_CHAT_PATHS = ("/completions", "/responses", "/messages", "/api/chat")
"""The ends of paths at which clients of models ask if they use another API, or a base address without `/v1`."""


def application(agent: SearchAgent, settings: Settings | None = None) -> ASGIApp:
    """Return an ASGI application on an agent. If the agent writes trajectories, users can judge them.

    Args:
        agent: The agent. The caller closes it.
        settings: The limits of the server, and who may call it.
    """
    return application_of(Service.of(agent, settings))


def application_of(service: Service, peers: WorkerPeers | None = None) -> ASGIApp:
    """Return the ASGI application of a service.

    Args:
        service: The searches. The application follows and closes its index.
        peers: The other processes that serve the same address. By default there are none.
    """
    peers = peers or WorkerPeers()

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        async with service.following(), peers.listening():
            yield

    app = _DocumentedApp(service.settings, lifespan=running)
    _add_endpoints(app, Endpoints(service, peers))
    app.router.routes.extend(PAGE_ROUTES)
    return RequestMiddleware(app, service, chat_path_problem)


def chat_path_problem(scope: Scope) -> Problem | None:
    """Return the error for a path of another chat API. For any other path, return None."""
    path = route_path(scope)
    if scope["method"] != "POST" or path == CHAT_PATH or not path.endswith(FOREIGN_CHAT_PATHS):
        return None
    message = (
        f"there is no such path. The server answers chat completions at {CHAT_PATH}. Use a client for chat "
        "completions, with a base address that ends with /v1."
    )
    return Problem(404, "not_found", message)


class _DocumentedApp(FastAPI):
    """FastAPI's application with a complete OpenAPI document. The document names the chat model.

    If the server needs a token, the document says so.
    """

    def __init__(self, settings: Settings, lifespan: Callable[[FastAPI], Any]) -> None:
        secured = settings.token is not None
        super().__init__(
            title="context-agent",
            version=__version__,
            description="Multi-step retrieval: a question in, ranked documents out.",
            docs_url=None,
            redoc_url=None,
            # Behind a proxy, the address of a redirect would lack the proxy's scheme, port and prefix.
            redirect_slashes=False,
            generate_unique_id_function=lambda route: route.name,
            exception_handlers=ERROR_HANDLERS,
            responses=_errors(
                {"default": "Any other error"} | ({401: "The token is missing or wrong"} if secured else {})
            ),
            lifespan=lifespan,
        )
        self.router.route_class = JsonRoute
        self.state.max_body = settings.max_body
        self._settings = settings

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is not None:
            return self.openapi_schema
        document, model = super().openapi(), self._settings.model
        chat = document["components"]["schemas"]["ChatRequest"]
        chat["properties"]["model"]["enum"] = [model]
        chat["examples"] = [{"model": model, "messages": [{"role": "user", "content": "Who directed Rope?"}]}]
        if self._settings.token is not None:
            document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"bearer": []}]
            health = document["paths"][HEALTH_PATH]["get"]
            health["security"] = []
            del health["responses"]["401"]
        return document


def _add_endpoints(app: FastAPI, endpoints: Endpoints) -> None:
    post = partial(app.add_api_route, methods=["POST"])
    post(
        "/v1/retrieve",
        endpoints.retrieve,
        response_model=RetrieveAnswer,
        responses=_events(SEARCH_EVENTS, "event", "data") | _errors(SEARCH_ERRORS),
    )
    post(
        CHAT_PATH,
        endpoints.complete,
        response_model=dict[str, Any],
        responses=_events("A completion, or its chunks", "data") | _errors(SEARCH_ERRORS | {404: "No such model"}),
    )
    already_written: Responses = {200: {"description": "The log already has it", "model": FeedbackAnswer}}
    post(
        "/v1/feedback",
        endpoints.judge,
        status_code=201,
        response_model=FeedbackAnswer,
        responses=already_written
        | _errors(BODY_ERRORS | {404: "No such trajectory", 409: "Another judgment has the id"}),
    )
    post("/v1/prune", endpoints.prune, response_model=PruneAnswer, responses=_errors(SEARCH_ERRORS))

    def get(path: str, endpoint: Callable[..., Any], **documented: Any) -> None:
        app.add_api_route(path, endpoint, **documented)
        # FastAPI, unlike Starlette, does not answer HEAD by itself.
        app.add_api_route(path, endpoint, methods=["HEAD"], include_in_schema=False)

    unknown = _errors({404: "No such trajectory, or the server writes none"})
    get("/v1/agent", endpoints.agent, response_model=AgentDescription)
    get("/v1/trajectories/{name}", endpoints.trajectory, response_model=dict[str, Any], responses=unknown)
    get("/v1/models", endpoints.models, response_model=dict[str, Any])
    # A model's name may have slashes, and clients encode them in a path.
    no_model = _errors({404: "No such model"})
    get("/v1/models/{name:path}", endpoints.model, response_model=dict[str, Any], responses=no_model)
    not_ready = {"model": Health, "description": "No questions are accepted"}
    get(HEALTH_PATH, endpoints.health, response_model=Health, responses={503: not_ready})
    get("/metrics", endpoints.metrics, response_class=PlainTextResponse)


def _errors(reasons: Mapping[int | str, str]) -> Responses:
    return {status: {"model": ErrorAnswer, "description": reason} for status, reason in reasons.items()}


def _events(description: str, *fields: str) -> Responses:
    """Return the description of an answer that also comes as server-sent events, each with these fields."""
    event = {"type": "object", "properties": {name: {"type": "string"} for name in fields}, "required": list(fields)}
    return {200: {"description": description, "content": {"text/event-stream": {"schema": event}}}}
