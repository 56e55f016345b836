"""Models of Anthropic that bind their thinking to the conversation: the real client, and a server that checks it.

The server follows https://platform.claude.com/docs/en/build-with-claude/preserved-thinking.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from context_agent._support.bound_thinking import bound_model
from context_agent.integrations.server.conversation_paths import caching_api
from context_agent.integrations.server.pruned_bodies import BodyPruner
from tests.support.proxied import TOPICS, proxy_client, tool_result
from tests.support.upstream import Received, Reply, upstream

JSON = [("Content-Type", "application/json")]
BOUND, FREE = "claude-opus-5-5", "claude-opus-5"
DROP = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
BETA = "thinking-binding-controls-2026-08-01"


def signature(body: dict[str, Any], messages: list[Any]) -> str:
    """Return the signature of a thought after these messages. It covers all but the thoughts."""
    said = [
        [message["role"], [part for part in message["content"] if part["type"] != "thinking"]]
        if isinstance(message["content"], list)
        else [message["role"], message["content"]]
        for message in messages
    ]
    return hashlib.sha256(json.dumps([body.get("system"), body.get("tools"), said]).encode()).hexdigest()


def thinks_and_calls(received: Received) -> Reply:
    """Answer with a thought and a call. Refuse a thought that is bound to another conversation."""
    body = json.loads(received.body)
    messages = body["messages"]
    may_drop = body.get("thinking") == DROP and BETA in dict(received.headers)["anthropic-beta"].split(",")
    for index, message in enumerate(messages):
        parts = message["content"] if message["role"] == "assistant" else []
        signed = [part["signature"] for part in parts if part["type"] == "thinking"]
        if body["model"] == BOUND and not may_drop and signed not in ([], [signature(body, messages[:index])]):
            error = {"type": "invalid_request_error", "message": "The block is bound to a different conversation."}
            return Reply(json.dumps({"type": "error", "error": error}).encode(), 400, JSON)
    thought = {"type": "thinking", "thinking": "", "signature": signature(body, messages)}
    call = {"type": "tool_use", "id": f"t{len(messages)}", "name": "search", "input": {}}
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": body["model"], "stop_reason": "tool_use"}
    return Reply(json.dumps({**message, "content": [thought, call], "usage": usage}).encode(), 200, JSON)


@pytest.mark.parametrize(
    ("model", "dropped_by", "outcome"),
    [(FREE, "", "pruned"), (BOUND, "", "passed through"), (BOUND, "proxy", "pruned"), (BOUND, "client", "pruned")],
)
def test_no_request_is_refused_because_of_a_prune(model: str, dropped_by: str, outcome: str) -> None:
    anthropic = pytest.importorskip("anthropic")
    fields: dict[str, Any] = {"thinking": DROP} if dropped_by == "client" else {}
    headers = {"anthropic-beta": f"other{',' + BETA if dropped_by == 'client' else ''}"}
    messages: list[Any] = [{"role": "user", "content": "What is known about tides?"}]
    with (
        upstream(thinks_and_calls) as server,
        proxy_client(server.url, drop_thinking=dropped_by == "proxy") as proxy,
        anthropic.Anthropic(base_url=str(proxy.base_url), api_key="k", max_retries=0) as client,
    ):
        for topic in TOPICS[:5]:
            raw = client.messages.with_raw_response.create(
                model=model, max_tokens=99, messages=messages, extra_headers=headers, extra_body=fields
            )
            content = [part.model_dump(mode="json", exclude_none=True) for part in raw.parse().content]
            result = {"type": "tool_result", "tool_use_id": content[-1]["id"], "content": tool_result(topic)}
            messages += [{"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
        report = json.loads(raw.headers["x-context-pruned"])
        page = proxy.get("/_context/report").text
    assert report["outcome"] == outcome
    last = server.requests[-1]
    assert dict(last.headers)["anthropic-beta"].split(",")[0] == "other", "the client's features stay"
    if outcome == "passed through":
        assert json.loads(last.body)["messages"] == messages[:-2]
        assert "--drop-thinking" in report["warnings"][0]
        assert f"not pruned: the requests to {BOUND}" in page
    else:
        assert json.loads(last.body)["messages"] != messages[:-2]
        assert "not pruned" not in page


@pytest.mark.parametrize(
    ("model", "is_bound"),
    [
        ("claude-fable-5-1", True),
        ("anthropic/claude-opus-5.5", True),
        ("us.anthropic.claude-haiku-5-5-v1:0", True),
        ("claude-sonnet-5-5@20260928", True),
        ("claude-sonnet-6", True),
        ("claude-opus-5-20260601", False),
        ("claude-opus-4-20250514", False),
        ("claude-3-5-sonnet-20241022", False),
        ("gpt-5.5", False),
    ],
)
def test_the_version_of_a_model_says_whether_it_binds_its_thinking(model: str, is_bound: bool) -> None:
    assert bool(bound_model({"model": model})) is is_bound
    assert bool(bound_model({}, model)) is is_bound


def test_without_thinking_nothing_is_bound() -> None:
    off: dict[str, Any] = {"model": BOUND, "thinking": {"type": "disabled"}, "messages": [{"content": "Hi"}]}
    assert not bound_model(off)
    assert bound_model({**off, "messages": [{"content": [{"type": "redacted_thinking", "data": "x"}]}]})
    converse = {"additionalModelRequestFields": {"thinking": {"type": "disabled"}}}
    assert not bound_model(converse, "anthropic.claude-opus-5-5-v1:0")


def test_a_body_of_bedrock_gets_no_field_that_needs_a_header(bodies: BodyPruner) -> None:
    path = "/model/us.anthropic.claude-opus-5-5-v1:0/invoke"
    body = json.dumps({"anthropic_version": "bedrock-2023-05-31", "messages": [{"role": "user", "content": "Hi"}]})
    pruned = bodies.prune(body.encode(), "messages", b"", api=caching_api("x", path), model="claude-opus-5-5")
    assert pruned.body == body.encode()
    assert pruned.counts["outcome"] == "passed through"


def test_a_body_without_the_field_keeps_its_bytes_and_its_order(bodies: BodyPruner) -> None:
    body = b'{ "model" : "claude-opus-5-5", "messages": [{"role": "user", "content": "Hi {}"}], "x": 1.0}'
    pruned = bodies.prune(body, "messages", b"", api="anthropic")
    assert pruned.drops_thinking
    assert pruned.body.endswith(body[1:])
    assert json.loads(pruned.body) == {**json.loads(body), "thinking": DROP}


@pytest.fixture
def bodies() -> BodyPruner:
    from context_agent.integrations.conversation_pruners import ConversationPruners

    return BodyPruner(ConversationPruners(), 1_000_000, drop_thinking=True)
