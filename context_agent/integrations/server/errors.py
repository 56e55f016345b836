"""The errors that a client gets, with a status, a code for programs, and a sentence for people.

Errors have the format of OpenAI's errors on every path. They never contain the path of a file, a key or a stack trace.
The details of a failure inside the server go to the log, and the client learns only the kind of failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from context_agent._support.validation import explain, problems
from context_agent.errors import (
    BudgetError,
    ConfigError,
    CorpusError,
    EmbedderError,
    PolicyError,
    RerankerError,
)
from context_agent.retrieval.filters import Where

INDEX_FAILURE = "the index could not be searched"
POLICY_FAILURE = "the policy failed"
_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


@dataclass(eq=False)
class Problem(Exception):
    """An error for the client.

    Attributes:
        status: The HTTP status.
        code: The kind of error, for programs.
        message: A sentence for people.
        param: The field of the request that is wrong, if it is known.
        headers: Header fields of the response.
    """

    status: int
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the body of the response, without the id of the request."""
        kind = _ERROR_TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


INTERNAL_ERROR = Problem(500, "internal", "the server has an internal error. Its log has the details.")


def problem_of(error: Exception, where: Where | None = None) -> Problem | None:
    """Return the client's error for an exception of a search. If the exception is unexpected, return None.

    If the search has a filter, a `ConfigError` is about the filter. Everything else was checked at the start.
    """
    match error:
        case Problem():
            problem = error
        case BudgetError():
            problem = Problem(400, "question_too_long", str(error), "question")
        case ConfigError() if where is not None:
            problem = Problem(400, "invalid_filter", str(error), "where")
        case PolicyError():
            problem = Problem(502, "policy_error", POLICY_FAILURE)
        case CorpusError() | EmbedderError() | RerankerError():
            problem = index_problem()
        case _:
            return None
    return problem


def index_problem() -> Problem:
    """Return the error for an index that cannot be searched at the moment."""
    return Problem(503, "index_error", INDEX_FAILURE, headers={"Retry-After": "5"})


def invalid_body(error: ValidationError) -> Problem:
    """Return the error for a body that pydantic refused.

    If the body is not JSON, the status is 400. If fields are wrong, it is 422. The message repeats no value.
    """
    ((field, problem), *_) = problems(error)
    if error.errors(include_url=False, include_input=False, include_context=False)[0]["type"] == "json_invalid":
        return Problem(400, "invalid_json", f"the body is not valid JSON ({problem.partition(': ')[2]})")
    return Problem(422, "invalid_request", explain(error, whole="the body", limit=5), field or None)


def shutting_down() -> Problem:
    """Return the error for a request that arrives while the server drains."""
    message = "the server is shutting down. Use another server, or try again later."
    return Problem(503, "shutting_down", message, headers={"Connection": "close", "Retry-After": "1"})
