"""A server in a thread, on a port of its own, with whatever agent and settings a test wants."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from context_agent import MemoryCorpus, ScriptedPolicy, SearchAgent
from context_agent.integrations.server.app import application_of
from context_agent.integrations.server.service import GatedService, LiveIndex, Service, Settings
from context_agent.integrations.server.transport import ServerProcess, bind_socket, socket_url
from tests.actions import search


@dataclass
class Running:
    """A server that runs, and a client for it."""

    service: Service
    url: str
    client: httpx.Client

    def ask(self, question: str = "comets?", **fields: Any) -> httpx.Response:
        """`POST /v1/retrieve`."""
        return self.client.post("/v1/retrieve", json={"question": question, **fields})

    def metric(self, line: str) -> float:
        """The value of a sample, by its name and labels; 0 where it is not there."""
        text = self.client.get("/metrics").text
        return next((float(item.rpartition(" ")[2]) for item in text.splitlines() if item.startswith(f"{line} ")), 0.0)

    def expect(self, line: str, value: float) -> None:
        """The sample gets that value: what a request adds is counted just after its last byte is sent."""
        self.until(lambda: self.metric(line) == value, seconds=5)

    def until(self, true: Callable[[], bool], seconds: float = 10.0) -> None:
        """Waits for something that happens by itself."""
        ends = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < ends, "it did not happen"
            time.sleep(0.01)


Serve = Callable[..., AbstractContextManager[Running]]


@contextmanager
def listening(service: GatedService, app_of: Callable[[Any], Any], **options: Any) -> Iterator[str]:
    """Runs a server in a thread until the block ends; yields its address."""
    up = threading.Event()

    # Made in the thread, whose event loop it belongs to; the list hands it out.
    results: list[ServerProcess] = []
    bound = bind_socket("127.0.0.1", 0)

    def target() -> None:
        results.append(ServerProcess(service, app_of(service), lambda url: up.set(), **options))
        results[0].run(sockets=[bound])

    thread = threading.Thread(target=target)
    thread.start()
    assert up.wait(10)
    try:
        yield socket_url(bound)
    finally:
        results[0].should_exit = True
        thread.join(20)
    assert not thread.is_alive()


@contextmanager
def running(agent: SearchAgent, index: LiveIndex | None = None, **settings: Any) -> Iterator[Running]:
    """Runs a server until the block ends."""
    chosen = Settings(**{"grace": 5.0, **settings})
    service = Service.of(agent, chosen, index)
    headers = {"Authorization": f"Bearer {chosen.token}"} if chosen.token else {}
    with (
        listening(service, application_of) as url,
        httpx.Client(base_url=url, timeout=30, headers=headers) as client,
    ):
        yield Running(service, str(client.base_url), client)


@pytest.fixture
def serve(corpus: MemoryCorpus, tmp_path: Path) -> Iterator[Serve]:
    """Serves an agent that searches once; `policy=` takes the place of its policy, other options are `Settings`."""
    agents: list[SearchAgent] = []

    def made(policy: ScriptedPolicy | None = None, *, on: Any = None, **settings: Any) -> Any:
        agent = SearchAgent(on or corpus, policy or one_search(), trajectories=tmp_path / "trajectories")
        agents.append(agent)
        return running(agent, **settings)

    yield made
    for agent in agents:
        agent.close()


def one_search(delay: float = 0.0) -> ScriptedPolicy:
    """Searches once and ranks what it saw."""
    return ScriptedPolicy([search("comets", limit=5)], delay=delay)
