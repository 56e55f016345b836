"""What a client is told when a request comes to nothing: a status, a code for programs, a sentence for people.

The body has the shape of OpenAI's errors, on every path. It never holds a path, a key or a stack trace: what this
package says of a failure inside it goes to the log, and the client learns the kind alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from context_agent.errors import BudgetError, ConfigError, CorpusError, EmbedderError, PolicyError, RerankerError
from context_agent.harness.episode import StopReason
from context_agent.retrieval.protocol import Where

INDEX = "the index could not be searched"
POLICY = "the policy could not go on"
FAILURES = {StopReason.POLICY_ERROR: POLICY, StopReason.CORPUS_ERROR: INDEX}
"""What is said of a result whose search failed in the middle."""
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


@dataclass(eq=False)
class Problem(Exception):
    """An answer that is an error. `param` names the field that is wrong."""

    status: int
    code: str
    message: str
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The answer's body."""
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


def problem_of(error: Exception, where: Where | None = None) -> Problem | None:
    """What a search that raised this is answered; None for what nobody foresaw.

    A `ConfigError` of a search with a filter is the filter's: the rest of the search was set up at the start.
    """
    match error:
        case Problem():
            return error
        case BudgetError():
            return Problem(400, "question_too_long", str(error), "question")
        case ConfigError() if where is not None:
            return Problem(400, "invalid_filter", str(error), "where")
        case PolicyError():
            return Problem(502, "policy_error", POLICY)
        case CorpusError() | EmbedderError() | RerankerError():
            return Problem(503, "index_error", INDEX, headers={"Retry-After": "5"})
    return None


def invalid(error: ValidationError) -> Problem:
    """What is wrong with a body: no JSON at all (400), or fields that don't fit (422). It is not repeated."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    if found[0]["type"] == "json_invalid":
        return Problem(400, "invalid_json", f"the body is not valid JSON: {found[0]['msg'].partition(': ')[2]}")
    told = "; ".join(f"{_place(one['loc']) or 'the body'}: {one['msg']}" for one in found[:5])
    return Problem(422, "invalid_request", told, _place(found[0]["loc"]) or None)


def _place(loc: tuple[int | str, ...]) -> str:
    return ".".join(str(part)[:80] for part in loc)
