"""Chat episodes against real servers.

`transformers serve` is started as a process, on two models made on the spot: a tiny gpt-oss with random weights, whose
words are garbage, so an episode must end with a stated reason and no error of ours; and one that was taught to think,
search twice at once, prune and rank, so that thoughts, calls and results pass through a real server both ways. Set
CTX1_TEST_VLLM to a `vllm` command to run the second part on vLLM too, and CTX1_TEST_BASE_URL with CTX1_TEST_MODEL (and
CTX1_API_KEY where one is wanted) to run the first on a server of your own, which should also find something.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from context_agent import Limits, Progress, SearchAgent, SearchResult
from context_agent.errors import PolicyError
from context_agent.harness.trajectory_file import read
from context_agent.policies.chat import ChatPolicy
from context_agent.policies.chat.probe import inspect_server
from context_agent.pruning.view import ActionTaken, TurnClosed
from tests.support.chatting import QUESTION, corpus
from tests.support.real_server import need_serving, serving_model

pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Served:
    """A server, its model, whether that model is able to answer questions, and the process."""

    url: str
    model: str
    able: bool
    processes: ExitStack = field(default_factory=ExitStack)
    """Closing the stack ends the server. A server that a test starts in its place belongs onto the stack too."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    if url := os.environ.get("CTX1_TEST_BASE_URL"):
        yield Served(url, os.environ["CTX1_TEST_MODEL"], able=True)
        return
    need_serving()
    from context_agent.train.tiny_model import tiny_gpt_oss

    folder = tmp_path_factory.mktemp("garbage")
    model = tiny_gpt_oss(folder / "tiny")
    with serving_model(model, folder) as url:
        yield Served(url, str(model), able=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that was taught an episode."""
    need_serving()
    from tests.support.taught_model import taught

    return taught(tmp_path_factory.mktemp("taught") / "model")


@pytest.fixture(scope="module", params=["transformers", "vllm"])
def school(model: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Served]:
    if request.param == "vllm" and not os.environ.get("CTX1_TEST_VLLM"):
        pytest.skip("no vLLM: set CTX1_TEST_VLLM to its `vllm` command, which may live in an environment of its own")
    with ExitStack() as processes:
        url = processes.enter_context(serving_model(model, tmp_path_factory.mktemp("school"), kind=request.param))
        yield Served(url, str(model), True, processes)


def search_and_check(served: Served, tmp_path: Path, **options: object) -> tuple[SearchResult, list[ActionTaken]]:
    """Ask one question. A model that is not `able` gets few tokens for a reply."""
    max_tokens = None if served.able else 24
    policy = ChatPolicy(served.model, base_url=served.url, **{"max_tokens": max_tokens, **options})  # type: ignore[arg-type]
    with SearchAgent(corpus(), policy, limits=Limits(turns=8, seconds=120), trajectories=tmp_path) as agent:
        result = agent.search(QUESTION)
    return result, checked(result)


def checked(result: SearchResult) -> list[ActionTaken]:
    """The actions in the trajectory file, after a check that it replays."""
    assert result.trajectory is not None
    trajectory = read(result.trajectory)
    trajectory.verify()
    return [event for event in trajectory.events if isinstance(event, ActionTaken)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", ["native", "text"])
def test_an_episode_ends_with_a_stated_reason(served: Served, tmp_path: Path, tools: str, stream: bool) -> None:
    result, events = search_and_check(served, tmp_path, tools=tools, stream=stream)
    assert result.error is None
    if served.able:
        assert result.stop_reason == "finished"
        assert result.documents
    else:
        assert result.stop_reason in ("finished", "no_ranking", "turns", "window")
    assert events
    for event in events:
        usage = event.action.extra["usage"]
        assert usage["prompt_tokens"] > 0
        assert event.tokens == usage["completion_tokens"] > 0


def test_reasoning_can_be_dropped(served: Served, tmp_path: Path) -> None:
    result, events = search_and_check(served, tmp_path, reasoning="drop")
    assert result.error is None
    assert not [event for event in events if event.action.reasoning]


def test_a_wrong_model_ends_with_words(served: Served) -> None:
    policy = ChatPolicy("no-such/model", base_url=served.url, retries=0)
    with SearchAgent(corpus(), policy) as agent, pytest.raises(PolicyError, match=r"no-such/model|HTTP 5"):
        agent.search(QUESTION)


def test_the_doctor_looks_at_it(served: Served) -> None:
    checks = {check.name: check for check in inspect_server(served.url, served.model, window=2048, probe=True)}
    assert checks["server"].status == "ok"
    assert checks["tools"].status == "ok" if served.able else checks["tools"].status in ("ok", "warn")
    assert checks["context"].status == "ok"


def test_many_at_once(served: Served) -> None:
    policy = ChatPolicy(served.model, base_url=served.url, max_tokens=8, concurrency=2)
    with SearchAgent(corpus(), policy, rollouts=4, limits=Limits(turns=2)) as agent:
        result = agent.search(QUESTION)
    assert result.error is None


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", ["native", "text"])
def test_thoughts_calls_and_results_pass_both_ways(school: Served, tmp_path: Path, tools: str, stream: bool) -> None:
    from tests.support.taught_model import CALLS, THOUGHT

    result, events = search_and_check(school, tmp_path, tools=tools, stream=stream, temperature=0.0, max_tokens=200)
    assert result.error is None
    assert [[(call.name, call.arguments) for call in event.action.calls] for event in events] == [*CALLS, []]
    assert events[0].action.reasoning == THOUGHT
    assert result.stop_reason == "finished"
    assert [document.id for document in result.documents] == ["d34"]
    assert result.trajectories[0].end is not None
    assert result.trajectories[0].end.mistakes == 0
    assert events[-1].action.extra["usage"]["prompt_tokens"] > events[0].action.extra["usage"]["prompt_tokens"]


async def test_an_episode_outlives_a_restart_of_its_server(
    school: Served, model: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The server dies after the first turn; one that starts seconds later in its place gets the rest."""
    kind = request.node.callspec.params["school"]
    policy = ChatPolicy(school.model, base_url=school.url, temperature=0.0, max_tokens=200, retries=12)
    restart: asyncio.Task[str] | None = None
    with SearchAgent(corpus(), policy, trajectories=tmp_path / "traces") as agent:
        async for item in agent.stream(QUESTION):
            if isinstance(item, Progress) and isinstance(item.event, TurnClosed) and restart is None:
                school.processes.close()
                new_server = serving_model(model, tmp_path, httpx.URL(school.url).port, kind)
                restart = asyncio.create_task(asyncio.to_thread(school.processes.enter_context, new_server))
        assert isinstance(item, SearchResult)
        assert restart is not None
        await restart
    assert item.error is None
    assert item.stop_reason == "finished"
    assert [document.id for document in item.documents] == ["d34"]
    assert len(checked(item)) == 3
