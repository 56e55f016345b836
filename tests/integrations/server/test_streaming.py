"""Server-sent events, and clients that hang up."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from context_agent import ScriptedPolicy
from context_agent.errors import PolicyError
from context_agent.harness.trajectory_file import read
from context_agent.integrations.server import endpoints
from context_agent.integrations.server.streams import with_heartbeat
from context_agent.pruning.view import View
from context_agent.testing.actions import prune, restore, search
from context_agent.types import Action
from tests.support.held_policy import HeldPolicy
from tests.support.servers import Running, Serve, one_search


def events(text: str) -> list[tuple[str, Any]]:
    """The events of a stream as pairs of name and data, without comments."""
    pairs = []
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if not line.startswith(":")]
        if lines:
            fields = dict(line.split(": ", 1) for line in lines)
            pairs.append((fields["event"], json.loads(fields["data"])))
    return pairs


def test_a_search_is_told_as_it_happens_and_ends_with_its_answer(serve: Serve) -> None:
    policy = ScriptedPolicy(
        [search("comets", limit=3), lambda view: prune(view.blocks[0].id), lambda view: restore(view.pruned[0].id)]
    )
    with serve(policy) as server:
        response = server.ask(stream=True, k=2)
        retrieved = server.ask(k=2).json()
    assert response.headers["content-type"].startswith("text/event-stream")
    stream_events = events(response.text)
    names = [name for name, _ in stream_events]
    assert names == ["turn", "result", "turn", "edit", "result", "turn", "edit", "result", "turn", "end"]
    by_name = dict(reversed(stream_events))
    assert by_name["turn"]["calls"][0] == {"name": "search_corpus", "arguments": {"query": "comets", "limit": 3}}
    chunks = by_name["result"]["chunks"]
    assert [chunk["rank"] for chunk in chunks] == [1, 2, 3]
    edits = [data for name, data in stream_events if name == "edit"]
    assert edits[0]["pruned"] == edits[1]["restored"] == [chunks[0]["id"]]
    end = stream_events[-1][1]
    assert end["documents"] == retrieved["documents"]
    assert end["request_id"] == response.headers["x-request-id"]
    assert end["usage"]["turns"] == 3


def test_the_accept_header_asks_for_events_too(serve: Serve) -> None:
    with serve() as server:
        response = server.client.post(
            "/v1/retrieve", json={"question": "comets?"}, headers={"Accept": "text/event-stream"}
        )
    assert events(response.text)[-1][0] == "end"


def test_events_come_when_they_happen(serve: Serve) -> None:
    policy = HeldPolicy(at=1)
    with serve(policy) as server:
        request = {"question": "comets?", "stream": True}
        with server.client.stream("POST", "/v1/retrieve", json=request) as response:
            lines = (line for line in response.iter_lines() if line.startswith("event:"))
            assert next(lines) == "event: turn", "the first turn is told while the second one waits"
            policy.released.set()
            assert list(lines)[-1] == "event: end"


def test_signs_of_life(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "HEARTBEAT_SECONDS", 0.1)
    policy, text = HeldPolicy(at=0), ""
    with (
        serve(policy) as server,
        server.client.stream("POST", "/v1/retrieve", json={"question": "comets?", "stream": True}) as response,
    ):
        for piece in response.iter_text():
            text += piece
            if text.count(": alive") >= 4:
                policy.released.set()
    assert text.startswith(": alive\n\n")
    assert [name for name, _ in events(text)] == ["turn", "result", "turn", "end"]


def test_a_failure_is_the_last_event(serve: Serve) -> None:
    def fail(view: View) -> Action:
        raise PolicyError("/secret/place")

    with serve(ScriptedPolicy([fail])) as server:
        response = server.ask(stream=True)
        server.expect('ctx1_errors_total{code="policy_error"}', 1)
    ((name, data),) = events(response.text)
    assert (name, data["error"]["code"]) == ("error", "policy_error")
    assert "secret" not in response.text


def check_cancelled(server: Running, folder: Path) -> None:
    """Check that the slot is soon free and that the trajectory was cancelled."""
    server.until(lambda: server.service.admission.running == 0)
    (path,) = folder.glob("*.jsonl")
    end = read(path).end
    assert end is not None
    assert end.stop_reason == "cancelled"
    server.expect('ctx1_requests_total{path="/v1/retrieve",status="499"}', 1)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_stops_its_search(serve: Serve, tmp_path: Path, stream: bool) -> None:
    policy = ScriptedPolicy([search("comets")] * 100, delay=0.1)
    with serve(policy, concurrency=1) as server:
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as connection:
            body = json.dumps({"question": "comets?", "stream": stream}).encode()
            head = f"POST /v1/retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
            server.until(lambda: server.service.admission.running == 1)
            time.sleep(0.3)
        check_cancelled(server, tmp_path / "trajectories")
        assert server.service.admission.waiting == 0


def test_a_client_that_hangs_up_in_the_queue_leaves_it(serve: Serve) -> None:
    with serve(one_search(0.6), concurrency=1) as server:
        with httpx.Client(timeout=0.2) as client:
            for _ in range(2):
                with pytest.raises(httpx.ReadTimeout):
                    client.post(f"{server.url}/v1/retrieve", json={"question": "comets?"})
        server.until(lambda: server.service.admission.waiting == 0 and server.service.admission.running == 0)
        assert server.ask().status_code == 200


async def test_leaving_a_beating_stream_ends_its_source() -> None:
    ended = []

    async def source() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    stream = with_heartbeat(source(), 0.05)
    assert [await anext(stream), await anext(stream)] == [1, None]
    await stream.aclose()
    assert ended == [True]


async def test_a_beating_stream_gives_everything_and_raises_what_its_source_raises() -> None:
    async def source() -> AsyncIterator[int]:
        for number in range(5):
            yield number
        raise ValueError("over")

    stream = with_heartbeat(source(), 5)
    assert [await anext(stream) for _ in range(5)] == list(range(5))
    with pytest.raises(ValueError, match="over"):
        await anext(stream)
