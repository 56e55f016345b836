"""The answer to a health check, the same for all servers of this package."""

from __future__ import annotations

from context_agent.integrations.server.json_encoding import Json
from context_agent.integrations.server.limited_service import LimitedService
from context_agent.integrations.server.schema import Health

HEALTH_PATH = "/health"


def health_answer(service: LimitedService) -> Json:
    """Return whether a server accepts requests. The status is 503 while it accepts none."""
    state = Health(live=True, ready=service.ready, draining=service.draining)
    return Json(state.model_dump(), 200 if service.ready else 503)
