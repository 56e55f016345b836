"""`POST /v1/prune`: conversations are pruned, recognized and restored, and errors say what is wrong."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.support.conversations import rendered
from tests.support.held_policy import HeldPolicy
from tests.support.long_conversation import LONG, noises, search
from tests.support.proxied import proxy_conversation
from tests.support.servers import Serve

OPTIONS = {"budget": 300, "effort": "fast", "cached_price": 1.0}


@pytest.mark.parametrize("kind", ["openai", "responses", "anthropic"])
def test_a_conversation_is_pruned_and_comes_back(serve: Serve, kind: str) -> None:
    messages = rendered(kind, LONG)
    with serve() as server:
        answer = server.client.post("/v1/prune", json={"messages": messages, **OPTIONS}).json()
        assert answer["report"]["outcome"] == "pruned"
        assert answer["report"]["kind"] == kind
        assert "Ana Berg was its director" in str(answer["messages"])
        ids = [passage["id"] for passage in answer["report"]["removed"]]
        request = {"messages": answer["messages"], "restore": ids, **OPTIONS}
        restored = server.client.post("/v1/prune", json=request).json()
        assert restored == {"messages": messages, "report": None}


def test_a_conversation_that_grows_keeps_its_prefix_whatever_the_client_sends(serve: Serve) -> None:
    options = {"budget": 300, "effort": "fast"}
    with serve() as server:

        def prune(messages: list[Any]) -> list[Any]:
            return server.client.post("/v1/prune", json={"messages": messages, **options}).json()["messages"]

        first = prune(rendered("openai", LONG))
        longer = rendered("openai", [*LONG, search(9, "It is fine.")])
        assert prune(longer)[: len(first)] == first
        assert prune([*first, *longer[len(first) :]])[: len(first)] == first


def test_users_of_one_client_restore_nothing_of_each_other(serve: Serve) -> None:
    """Both conversations begin alike, and their calls have the same id."""
    messages = rendered("openai", LONG)
    with serve() as server:

        def prune(**fields: Any) -> httpx.Response:
            return server.client.post("/v1/prune", json={**OPTIONS, **fields})

        answer = prune(messages=messages, user="ann").json()
        pruned, ids = answer["messages"], [passage["id"] for passage in answer["report"]["removed"]]
        for other in ({}, {"user": "bob"}):
            assert prune(messages=pruned, restore=ids, **other).status_code == 400
            assert prune(messages=pruned, **other).json()["messages"] == pruned
        assert prune(messages=pruned, restore=ids, user="ann").json()["messages"] == messages


def test_a_broken_conversation_comes_back_with_a_warning(serve: Serve) -> None:
    messages = [{"role": "tool", "tool_call_id": "x", "content": noises(0, 9)}, {}]
    with serve() as server:
        answer = server.client.post("/v1/prune", json={"messages": messages, "budget": 1}).json()
    assert answer["messages"] == messages
    assert answer["report"]["outcome"] == "passed through"
    assert any("result without a call" in warning for warning in answer["report"]["warnings"])


@pytest.mark.parametrize(
    ("body", "status", "code", "message"),
    [
        ({}, 422, "invalid_request", "messages"),
        ({"messages": "hello"}, 422, "invalid_request", "messages"),
        ({"messages": [None]}, 422, "invalid_request", "messages.0"),
        ({"messages": [], "budget": 0}, 422, "invalid_request", "budget: It must be a number of tokens from 1"),
        ({"messages": [], "budget": "8k"}, 422, "invalid_request", "or a share, such as '25%'"),
        ({"messages": [], "budget": "0%"}, 422, "invalid_request", "budget"),
        ({"messages": [], "strategy": "embedding"}, 422, "invalid_request", "strategy"),
        ({"messages": [], "cached_price": 2}, 422, "invalid_request", "cached_price"),
        ({"messages": [], "color": 1}, 422, "invalid_request", "color"),
        ({"messages": [], "restore": ["p1"]}, 400, "unknown_passage", "No passage of it is pruned"),
    ],
)
def test_bad_requests(serve: Serve, body: dict[str, Any], status: int, code: str, message: str) -> None:
    with serve() as server:
        response = server.client.post("/v1/prune", json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert message in response.json()["error"]["message"]
    assert "constrained" not in str(response.json())


def test_a_client_that_hangs_up_frees_the_slot_of_its_prune(serve: Serve) -> None:
    policy = HeldPolicy(at=0)
    with serve(policy, concurrency=1) as server, ThreadPoolExecutor(1) as pool:
        search = pool.submit(server.ask)
        server.until(lambda: server.service.admission.running == 1)
        with httpx.Client(timeout=0.1) as client, pytest.raises(httpx.ReadTimeout):
            client.post(f"{server.url}/v1/prune", json={"messages": proxy_conversation()})
        server.until(lambda: server.service.admission.waiting == 0)
        server.expect('ctx1_requests_total{path="/v1/prune",status="499"}', 1)
        policy.released.set()
        assert search.result().status_code == 200


def test_a_result_that_was_cut_in_the_middle_of_a_character_is_pruned(serve: Serve) -> None:
    """JavaScript writes half of a surrogate pair as an escape."""
    messages = proxy_conversation()
    messages[2]["content"] += r" \ud83d\ude00 a \ud83d b \uDE00\uD83D\ud83d\ude00 c \\ud83d"
    body = json.dumps({"messages": messages, "strategy": "none"}).replace(r"\\", "\\")
    with serve() as server:
        headers = {"Content-Type": "application/json"}
        answer = server.client.post("/v1/prune", content=body.encode(), headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.json()["messages"][2]["content"].endswith("😀 a \ufffd b \ufffd\ufffd😀 c \\ud83d")
