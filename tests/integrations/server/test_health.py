"""Health checks of `ctx1 serve`, `ctx1 mcp --http` and `ctx1 proxy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from context_agent import MemoryCorpus, SearchAgent
from context_agent.integrations.conversation_pruners import ConversationPruners
from context_agent.integrations.mcp.serving import application as mcp_application
from context_agent.integrations.server.app import application_of
from context_agent.integrations.server.proxy import Proxy, proxy_application
from context_agent.integrations.server.service import Service
from context_agent.integrations.server.settings import Settings
from tests.support.servers import listening, one_search


@pytest.mark.parametrize(
    ("path", "application"),
    [("/health", application_of), ("/health", mcp_application), ("/_context/health", proxy_application)],
)
def test_a_health_check_needs_no_token_and_fails_once_the_server_stops(
    corpus: MemoryCorpus, path: str, application: Callable[[Any], Any]
) -> None:
    with SearchAgent(corpus, one_search()) as agent:
        service: Any = Service.of(agent, Settings(token="secret", grace=1.0))
        if application is proxy_application:
            service = Proxy("http://127.0.0.1:9", ConversationPruners(), Settings(grace=1.0))
        with listening(service, application) as url:
            answer = httpx.get(url + path)
            assert (answer.status_code, answer.json()) == (200, {"live": True, "ready": True, "draining": False})
            head = httpx.head(url + path)
            assert (head.status_code, head.content) == (200, b"")
            assert httpx.get(url + path, headers={"Origin": "https://evil.example"}).status_code == 403
            service.draining = True
            answer = httpx.get(url + path)
            assert (answer.status_code, answer.json()) == (503, {"live": True, "ready": False, "draining": True})
            service.draining = False
