"""A server in a thread, on a free port, with the agent and settings that a test chooses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from context_agent import MemoryCorpus, ScriptedPolicy, SearchAgent

if TYPE_CHECKING:
    from tests.support.servers import Serve


@pytest.fixture
def serve(corpus: MemoryCorpus, tmp_path: Path) -> Iterator[Serve]:
    """Serve an agent that searches once. `policy` replaces its policy; other options are `Settings`."""
    from tests.support.servers import one_search, running

    agents: list[SearchAgent] = []

    def serve_agent(policy: ScriptedPolicy | None = None, *, on: Any = None, **settings: Any) -> Any:
        agent = SearchAgent(on or corpus, policy or one_search(), trajectories=tmp_path / "trajectories")
        agents.append(agent)
        return running(agent, **settings)

    yield serve_agent
    for agent in agents:
        agent.close()
