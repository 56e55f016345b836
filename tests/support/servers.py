"""A server in a thread, on a free port, with the agent and settings that a test chooses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from context_agent import ScriptedPolicy, SearchAgent
from context_agent.integrations.server.app import application_of
from context_agent.integrations.server.limited_service import LimitedService
from context_agent.integrations.server.live_index import LiveIndex
from context_agent.integrations.server.process import ServerProcess, bind_socket, socket_url
from context_agent.integrations.server.service import Service
from context_agent.integrations.server.settings import Settings
from context_agent.testing.actions import search

PATIENCE = 120.0
"""Seconds that a server may take on a busy machine before its test fails."""


@dataclass
class Running:
    """A running server, and a client for it."""

    service: Service
    url: str
    client: httpx.Client

    def ask(self, question: str = "comets?", **fields: Any) -> httpx.Response:
        """`POST /v1/retrieve`."""
        return self.client.post("/v1/retrieve", json={"question": question, **fields})

    def metric(self, line: str) -> float:
        """Return the value of a sample by its name and labels, or 0 if there is no such sample."""
        text = self.client.get("/metrics").text
        return next(
            (float(sample.rpartition(" ")[2]) for sample in text.splitlines() if sample.startswith(f"{line} ")), 0.0
        )

    def expect(self, line: str, value: float) -> None:
        """Wait until the sample has that value, because a request is counted just after its last byte is sent."""
        self.until(lambda: self.metric(line) == value)

    def until(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
        """Wait until the condition holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.01)


Serve = Callable[..., AbstractContextManager[Running]]


@contextmanager
def listening(service: LimitedService, app_of: Callable[[Any], Any], **options: Any) -> Iterator[str]:
    """Run a server in a thread until the block ends, and yield its address."""
    started = threading.Event()

    # The thread makes the server, because it belongs to the thread's event loop. The list passes it out.
    servers: list[ServerProcess] = []
    listener = bind_socket("127.0.0.1", 0)

    def target() -> None:
        servers.append(ServerProcess(service, app_of(service), lambda url: started.set(), **options))
        servers[0].run(sockets=[listener])

    thread = threading.Thread(target=target)
    thread.start()
    assert started.wait(PATIENCE)
    try:
        yield socket_url(listener)
    finally:
        servers[0].should_exit = True
        thread.join(PATIENCE)
    assert not thread.is_alive()


@contextmanager
def running(agent: SearchAgent, index: LiveIndex | None = None, **settings: Any) -> Iterator[Running]:
    """Run a server until the block ends."""
    server_settings = Settings(**{"grace": 5.0, **settings})
    service = Service.of(agent, server_settings, index)
    headers = {"Authorization": f"Bearer {server_settings.token}"} if server_settings.token else {}
    with (
        listening(service, application_of) as url,
        httpx.Client(base_url=url, timeout=30, headers=headers) as client,
    ):
        yield Running(service, str(client.base_url), client)


def one_search(delay: float = 0.0) -> ScriptedPolicy:
    """Search once and rank what was found."""
    return ScriptedPolicy([search("comets", limit=5)], delay=delay)


def problem(response: Any, status: int, code: str) -> str:
    """Check that the response is this error and shows no internals. Return its message."""
    assert response.status_code == status, response.text
    body = response.json()
    assert body["error"]["code"] == code
    assert body["request_id"] == response.headers["x-request-id"]
    for word in ("/secret", "sk-key", "Traceback", 'File "', "context_agent/"):
        assert word not in response.text
    return str(body["error"]["message"])
