"""Models of Anthropic that bind their thinking to the conversation: the real client, and a server that checks it.

The server follows https://platform.claude.com/docs/en/build-with-claude/preserved-thinking.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from typing import Any

import pytest

from context_agent._support.bound_thinking import binds_thinking
from context_agent.integrations.conversation_pruners import ConversationPruners
from context_agent.integrations.server.conversation_paths import bedrock_operation
from context_agent.integrations.server.pruned_bodies import BodyPruner
from tests.support.proxied import CHAT, TOPICS, conversation, proxy_client, tool_result
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
def test_no_client_sees_that_thinking_was_refused_because_of_a_prune(model: str, dropped_by: str, outcome: str) -> None:
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
    assert (BETA in dict(last.headers)["anthropic-beta"]) is (model == BOUND)
    was_refused = model == BOUND and dropped_by != "client"
    assert len(server.requests) == 5 + was_refused, "later requests are not refused"
    if outcome == "passed through":
        assert json.loads(last.body)["messages"] == messages[:-2]
        assert "--drop-thinking" in report["warnings"][0]
        assert f"not pruned: the requests to {BOUND}" in page
    else:
        assert json.loads(last.body)["messages"] != messages[:-2]
        assert "not pruned" not in page


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_other_errors_reach_the_client_as_they_are(encoding: str) -> None:
    error = b'{"error": {"message": "prompt is too long"}}' + b" " * 200_000
    sent = gzip.compress(error) if encoding == "gzip" else error
    with (
        upstream(lambda _: Reply(sent, 400, [*JSON, ("Content-Encoding", encoding)])) as server,
        proxy_client(server.url) as client,
    ):
        answer = client.post(CHAT, json={"model": BOUND, "messages": conversation(6)})
    assert (answer.status_code, answer.content) == (400, error)
    assert len(server.requests) == 1


def test_a_request_is_sent_again_only_once() -> None:
    error = b"The block is bound to a different conversation."
    with upstream(lambda _: Reply(error, 400)) as server, proxy_client(server.url) as client:
        answers = [client.post("/v1/messages", json={"messages": conversation(6)}) for _ in range(2)]
        page = client.get("/_context/report").text
    assert [(answer.status_code, answer.content) for answer in answers] == [(400, error)] * 2
    assert len(server.requests) == 3
    assert "not pruned" not in page, "the server accepted no request"


def test_a_refusal_of_what_was_not_changed_is_the_clients() -> None:
    error = b"The block is bound to a different conversation."
    with upstream(lambda _: Reply(error, 400)) as server, proxy_client(server.url) as client:
        answer = client.post("/v1/messages", json={"model": BOUND, "messages": conversation(1)})
    assert (answer.status_code, answer.content) == (400, error)
    assert len(server.requests) == 1


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
    assert binds_thinking({"model": model}) is is_bound
    assert not binds_thinking({"model": model, "thinking": {"type": "disabled"}})


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "enabled", "budget_tokens": 2_000}},
    ],
)
def test_a_body_that_would_be_invalid_gets_no_field(bodies: BodyPruner, fields: dict[str, Any]) -> None:
    body = json.dumps({**fields, "messages": [{"role": "user", "content": "Hi"}]}).encode()
    assert bodies.prune(body, "messages", b"").body == body


@pytest.mark.parametrize("thinking", ["", '"thinking" :{"type": "adaptive"}, '])
def test_a_body_gets_the_field_and_keeps_its_other_bytes(bodies: BodyPruner, thinking: str) -> None:
    rest = b'"messages": [{"role": "user", "content": "Hi"}], "x": 1.0}'
    pruned = bodies.prune(b'{ "model" : "m", ' + thinking.encode() + rest, "messages", b"")
    assert (pruned.drops_thinking, pruned.betas) == (True, BETA)
    assert pruned.body.endswith(rest)
    assert json.loads(pruned.body) == {**json.loads(b"{" + rest), "model": "m", "thinking": DROP}


@pytest.mark.parametrize(
    ("operation", "sent", "added"),
    [
        ("invoke", {}, {"thinking": DROP, "anthropic_beta": [BETA]}),
        ("invoke", {"anthropic_beta": ["other", BETA]}, {"thinking": DROP, "anthropic_beta": ["other", BETA]}),
        ("converse", {}, {"additionalModelRequestFields": {"thinking": DROP, "anthropic_beta": [BETA]}}),
        (
            "converse",
            {"additionalModelRequestFields": {"top_k": 5, "anthropic_beta": ["other"]}},
            {"additionalModelRequestFields": {"top_k": 5, "thinking": DROP, "anthropic_beta": ["other", BETA]}},
        ),
        ("converse", {"additionalModelRequestFields": {"thinking": {"type": "disabled"}}}, {}),
    ],
)
def test_a_body_for_bedrock_names_the_feature_itself(
    bodies: BodyPruner, operation: str, sent: dict[str, Any], added: dict[str, Any]
) -> None:
    request = {**sent, "messages": [{"role": "user", "content": "Hi"}]}
    pruned = bodies.prune(json.dumps(request).encode(), "messages", b"", bedrock=operation)
    assert (pruned.drops_thinking, pruned.betas) == (bool(added), "")
    assert json.loads(pruned.body) == {**request, **added}


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/model/anthropic.claude-opus-5-5-v1:0/invoke", "invoke"),
        ("/bedrock/model/m/invoke-with-response-stream", "invoke"),
        ("/model/m/converse", "converse"),
        ("/model/m/converse-stream/", "converse"),
        ("/v1/messages", ""),
        ("/model/m/invoke/v1/messages", ""),
    ],
)
def test_the_path_says_where_the_feature_is_named(path: str, operation: str) -> None:
    assert bedrock_operation(path) == operation


@pytest.fixture
def bodies() -> BodyPruner:
    """A pruner of bodies whose first conversation was refused."""
    pruner = BodyPruner(ConversationPruners(), 1_000_000, drop_thinking=True)
    pruner.note_refusal(1)
    return pruner
