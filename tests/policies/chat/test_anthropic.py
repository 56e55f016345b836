"""The policy over Anthropic's Messages API: requests and answers by the types of the official client."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, get_type_hints

import httpx
import pytest
from pydantic import TypeAdapter

from context_agent import SearchAgent, SearchResult
from context_agent._support.bound_thinking import DROP_THINKING_BETA, REFUSED_THINKING
from context_agent._support.credentials import ANTHROPIC, key_variable
from context_agent.errors import ConfigError, PolicyError
from context_agent.policies import load_policy
from context_agent.policies.chat import AnthropicPolicy
from context_agent.policies.chat.scripted_server import ScriptedServer, fails, rank_seen, says
from context_agent.pruning.view import ActionTaken
from tests.support.chatting import QUESTION, corpus, search, serving

if TYPE_CHECKING:
    from anthropic.types import Message

THOUGHT = {"type": "thinking", "thinking": "Search for comets first.", "signature": "c2lnbmVk"}
SECRET = {"type": "redacted_thinking", "data": "ZW5jcnlwdGVk"}
USAGE = {
    "input_tokens": 100,
    "cache_read_input_tokens": 640,
    "cache_creation_input_tokens": 60,
    "output_tokens": 33,
    "output_tokens_details": {"thinking_tokens": 21},
}
DONE = says("<Document id=d0></Document>")


def prunes(*ids: str) -> Any:
    return says(calls=[("prune_chunks", {"chunk_ids": list(ids)})])


def policy(server: ScriptedServer, **options: Any) -> AnthropicPolicy:
    defaults: dict[str, Any] = {"model": "scripted", "base_url": server.url, "backoff": 0.01, "timeout": 5.0}
    return AnthropicPolicy(**defaults | options)


def ask(server: ScriptedServer, **options: Any) -> SearchResult:
    with SearchAgent(corpus(), policy(server, **options)) as agent:
        return agent.search(QUESTION)


@cache
def official_type(streamed: bool) -> tuple[TypeAdapter[Any], frozenset[str]]:
    """Return a check of the values of a body by the client's type, and the names of its fields.

    The client takes a second of the processor to import, so that only these tests import it.
    """
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming

    kind = MessageCreateParamsStreaming if streamed else MessageCreateParamsNonStreaming
    return TypeAdapter(kind), frozenset(get_type_hints(kind))


def checked(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body, after a check that no field required by the client's type is missing and none is unknown."""
    values, names = official_type(bool(body.get("stream")))
    values.validate_python(body)
    assert set(body) <= names
    return body


def extras(result: SearchResult) -> list[Mapping[str, Any]]:
    return [event.action.extra for event in result.trajectories[0].events if isinstance(event, ActionTaken)]


def blocks(body: Mapping[str, Any], role: str) -> list[Mapping[str, Any]]:
    return [block for message in body["messages"] if message["role"] == role for block in message["content"]]


# Requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_requests_are_those_of_the_official_client(stream: bool) -> None:
    with serving(search("comets", "stars"), prunes("d0"), search("moons")) as server:
        result = ask(server, stream=stream, reasoning_effort="low")
    bodies = [checked(body) for body in server.chat_bodies()]
    assert result.documents
    assert [len(body["messages"]) for body in bodies] == [1, 3, 5, 7]
    for body in bodies:
        assert [message["role"] for message in body["messages"]] == ["user", "assistant"] * (
            len(body["messages"]) // 2
        ) + ["user"]
        call_ids = [block["id"] for block in blocks(body, "assistant") if block["type"] == "tool_use"]
        result_ids = [block["tool_use_id"] for block in blocks(body, "user") if block["type"] == "tool_result"]
        assert call_ids == result_ids
        assert (body["thinking"], body["output_config"]) == ({"type": "adaptive"}, {"effort": "low"})
        assert "seed" not in body
    assert {tool["name"] for tool in bodies[0]["tools"]} >= {"search_corpus", "prune_chunks"}
    assert server.requests[0].headers["anthropic-version"] == "2023-06-01"


def test_arguments_that_are_no_json_go_back_as_an_object() -> None:
    with serving(says(calls=[("search_corpus", '{"query": comets')])) as server:
        ask(server, stream=True)
    (block,) = blocks(checked(server.chat_bodies()[1]), "assistant")
    assert block["input"] == {"unparsed": '{"query": comets'}


@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_go_back_unchanged_and_in_their_place(stream: bool) -> None:
    thinks = says("I search.", calls=[("search_corpus", {"query": "comets"})], blocks=[THOUGHT, SECRET])
    with serving(thinks, search("stars")) as server:
        result = ask(server, stream=stream)
    content = checked(server.chat_bodies()[2])["messages"][1]["content"]
    assert content[:2] == [THOUGHT, SECRET]
    assert [block["type"] for block in content[2:]] == ["text", "tool_use"]
    first = next(event.action for event in result.trajectories[0].events if isinstance(event, ActionTaken))
    assert first.reasoning == THOUGHT["thinking"]


def test_thoughts_between_calls_stay_between_them() -> None:
    later = {**THOUGHT, "thinking": "And stars."}
    content = [
        THOUGHT,
        {"type": "tool_use", "id": "a", "name": "search_corpus", "input": {"query": "comets"}},
        later,
        {"type": "tool_use", "id": "b", "name": "search_corpus", "input": {"query": "stars"}},
    ]
    with serving(says(blocks=content, finish="tool_calls")) as server:
        ask(server)
    assert checked(server.chat_bodies()[1])["messages"][1]["content"] == content


def test_a_reply_of_thoughts_alone_is_nudged_with_a_text_behind_them() -> None:
    with serving(says(blocks=[THOUGHT]), DONE) as server:
        result = ask(server)
    last = checked(server.chat_bodies()[1])["messages"]
    assert [block["type"] for block in last[1]["content"]] == ["thinking", "text"]
    assert last[2]["role"] == "user"
    assert result.trajectories[0].end is not None


@pytest.mark.parametrize(("tokens", "kind"), [(2000, "enabled"), (1000, "disabled")])
def test_a_thinking_budget_fits_below_the_reply_s_tokens(tokens: int, kind: str) -> None:
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 4096}}
    with serving(DONE) as server:
        ask(server, max_tokens=tokens, extra_body=thinking)
    (body,) = map(checked, server.chat_bodies())
    assert body["thinking"]["type"] == kind
    assert body["thinking"].get("budget_tokens", 0) < body["max_tokens"]


# The prefix cache -------------------------------------------------------------------------------------------------

LOOKBACK = 20
"""Blocks before a mark in which the API looks for what it cached."""


class Cache:
    """What the API would read from its cache: the longest prefix that an earlier request marked."""

    def __init__(self) -> None:
        self.entries: set[str] = set()

    def read(self, body: Mapping[str, Any]) -> int:
        """The number of blocks that are read from the cache; then stores the request's own marks."""
        prefix, hashes, marks = "", [], []
        for number, block in enumerate(_blocks(body)):
            prefix += json.dumps({key: value for key, value in block.items() if key != "cache_control"})
            hashes.append(prefix)
            marks += [number] if "cache_control" in block else []
        assert len(marks) <= 4
        prefix_lengths = [
            index + 1
            for mark in marks
            for index in range(mark, max(-1, mark - LOOKBACK), -1)
            if hashes[index] in self.entries
        ]
        self.entries |= {hashes[mark] for mark in marks}
        return max(prefix_lengths, default=0)


def _blocks(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from body["tools"]
    yield from body["system"]
    for message in body["messages"]:
        yield from ({**block, "role": message["role"]} for block in message["content"])


def test_a_prune_costs_what_follows_the_pruned_block_alone() -> None:
    searches = [search(f"comets {number}", f"stars {number}", limit=3) for number in range(9)]

    def prune_of_turn(turn: int) -> Any:
        def step(body: Mapping[str, Any]) -> Any:
            text = str(body["messages"][2 * turn + 2])
            return prunes(re.findall(r"# DOCUMENT ID: (\w+)", text)[0])

        return step

    steps = [*searches[:6], prune_of_turn(2), *searches[6:], prune_of_turn(5), rank_seen]
    with serving(*steps) as server:
        ask(server)
    prompt_cache = Cache()
    blocks_read = [prompt_cache.read(checked(body)) for body in server.chat_bodies()]
    block_counts = [sum(1 for _ in _blocks(body)) for body in server.chat_bodies()]
    before_turn_2 = [
        sum(1 for _ in _blocks({**body, "messages": body["messages"][:5]})) for body in server.chat_bodies()
    ]
    before_turn_5 = [
        sum(1 for _ in _blocks({**body, "messages": body["messages"][:11]})) for body in server.chat_bodies()
    ]
    for number in range(1, len(blocks_read)):
        if number == 7:  # after the prune in turn 2: turns 0 and 1 are read
            assert blocks_read[number] == before_turn_2[number]
        elif number == 11:  # after the prune in turn 5
            assert before_turn_2[number] <= blocks_read[number] <= before_turn_5[number]
        else:
            assert blocks_read[number] == block_counts[number - 1]


# Replies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_usage_counts_what_the_cache_held(stream: bool) -> None:
    with serving(search("comets", usage=USAGE)) as server:
        result = ask(server, stream=stream, max_tokens=64)
    assert extras(result)[0]["usage"] == {
        "prompt_tokens": 800,
        "completion_tokens": 33,
        "cached_tokens": 640,
        "cache_write_tokens": 60,
        "reasoning_tokens": 21,
    }


@pytest.mark.parametrize(
    ("usage", "kept"),
    [
        ({**USAGE, "input_tokens": "many"}, {"completion_tokens": 33, "reasoning_tokens": 21}),
        ({**USAGE, "cache_read_input_tokens": -5}, None),
        ({"input_tokens": 10**9, "output_tokens": 10**9}, {}),
        ({}, {}),
    ],
)
def test_impossible_counts_are_ignored(usage: dict[str, Any], kept: dict[str, int] | None) -> None:
    with serving(search("comets", usage=usage)) as server:
        recorded_usage = extras(ask(server, max_tokens=64))[0]["usage"]
    assert recorded_usage == kept if kept is not None else recorded_usage.get("cached_tokens") is None


@pytest.mark.parametrize(
    ("sent", "finish"),
    [("tool_use", "tool_calls"), ("max_tokens", "length"), ("end_turn", "stop"), ("pause_turn", "pause_turn")],
)
def test_stop_reasons_are_those_of_a_chat_completion(sent: str, finish: str) -> None:
    with serving(search("comets", finish=sent)) as server:
        assert extras(ask(server))[0]["finish_reason"] == finish


def test_a_refusal_ends_the_episode_with_what_was_found() -> None:
    with serving(search("comets"), says("No.", finish="refusal")) as server:
        result = ask(server)
    end = result.trajectories[0].end
    assert end is not None
    assert (end.stop_reason, end.error) == (
        "policy_error",
        "the model refused to continue. Ask in other words, or use another model.",
    )
    assert result.documents


# Errors and keys --------------------------------------------------------------------------------------------------


def overloaded(status: int, kind: str, message: str) -> Any:
    return fails(status, {"type": "error", "error": {"type": kind, "message": message}}, headers={"retry-after": "0"})


def test_what_passes_is_retried() -> None:
    cut = says(calls=[("search_corpus", {"query": "comets"})], cut=True)
    with serving(
        overloaded(529, "overloaded_error", "Overloaded"), overloaded(429, "rate_limit_error", "slow down"), cut, DONE
    ) as server:
        assert ask(server, stream=True).trajectories[0].end.error is None  # type: ignore[union-attr]
    assert len(server.chat_bodies()) == 4


@pytest.mark.parametrize(
    ("answer", "explained"),
    [
        (overloaded(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"), "180000"),
        (overloaded(404, "not_found_error", "model: scriptd"), "the server lists the model 'scripted'"),
        (overloaded(401, "authentication_error", "invalid x-api-key"), "no key was sent"),
        (overloaded(400, "invalid_request_error", "temperature: may only be 1"), "temperature: may only be 1"),
    ],
)
def test_what_stays_is_explained(answer: Any, explained: str) -> None:
    with serving(answer) as server, pytest.raises(PolicyError, match=re.escape(explained)):
        ask(server)


@pytest.mark.parametrize("body", [{"type": "message"}, {"type": "message", "content": [], "stop_reason": None}, {}])
def test_no_message_is_retried_and_reported(body: dict[str, Any]) -> None:
    with serving(*[fails(200, body)] * 2) as server, pytest.raises(PolicyError, match="incomplete message"):
        ask(server, retries=1)


def test_the_key_goes_in_its_own_header_from_the_variable_with_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_KEY", "sk-ant-of-this-test")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-somebody-else")
    with serving(
        says("the key is sk-ant-of-this-test <Document id=d0></Document>"), key="sk-ant-of-this-test"
    ) as server:
        result = ask(server, api_key_env="CLAUDE_KEY")
    assert server.requests[0].headers["x-api-key"] == "sk-ant-of-this-test"
    assert "authorization" not in server.requests[0].headers
    assert "sk-ant" not in str(result.trajectories[0].events)


def test_no_other_host_gets_anthropic_s_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-somebody-else")
    with serving(DONE) as server:
        ask(server)
    assert not {"x-api-key", "authorization"} & set(server.requests[0].headers)
    official = "https://api.anthropic.com/v1"
    assert AnthropicPolicy("m").endpoint.api_key_env == "ANTHROPIC_API_KEY"
    for address in ("http://api.anthropic.com/v1", "https://api.anthropic.com.evil.org/v1", official + ":444"):
        assert key_variable(httpx.URL(address.replace("/v1:444", ":444/v1")), None, ANTHROPIC) is None
    assert key_variable(httpx.URL(official), None) is None


# By name ----------------------------------------------------------------------------------------------------------


def test_it_is_opened_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CTX1_BASE_URL", "CTX1_MODEL", "CTX1_API_KEY_ENV"):
        monkeypatch.delenv(name, raising=False)
    loaded = load_policy("anthropic", model="claude", reasoning_effort="low", tools=None)
    assert isinstance(loaded, AnthropicPolicy)
    assert (loaded.name, loaded.endpoint.base_url) == ("anthropic@claude", "https://api.anthropic.com/v1")
    with pytest.raises(ConfigError, match="no option 'tools'"):
        load_policy("anthropic", model="claude", tools="text")
    with pytest.raises(ConfigError, match="must not set system"):
        load_policy("anthropic", model="claude", extra_body={"system": "x"})


# The scripted server ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_the_official_client_reads_the_scripted_server(stream: bool) -> None:
    import anthropic

    scripted = says("Now.", calls=[("search_corpus", {"query": "comets"})], blocks=[THOUGHT, SECRET], usage=USAGE)
    request: Any = {"model": "scripted", "max_tokens": 64, "messages": [{"role": "user", "content": QUESTION}]}
    with serving(scripted) as server, anthropic.Anthropic(base_url=server.url[:-3], api_key="k") as client:
        if stream:
            with client.messages.stream(**request) as events:
                message: Message = events.get_final_message()
        else:
            message = client.messages.create(**request)
    assert [block.type for block in message.content] == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert message.content[0].to_dict() == THOUGHT
    assert message.content[3].to_dict()["input"] == {"query": "comets"}
    assert (message.stop_reason, message.usage.cache_read_input_tokens) == ("tool_use", 640)


def test_thinking_of_another_kind_than_adaptive_stays_as_it_is() -> None:
    thinking = {"type": "between_tools"}
    with serving([search("comets"), DONE], models=["claude-sonnet-5-5"]) as server:
        ask(server, model="claude-sonnet-5-5", extra_body={"thinking": thinking})
    assert server.requests[-1].body["thinking"] == thinking


def test_a_server_that_refuses_bound_thinking_may_drop_it_from_then_on() -> None:
    refused = overloaded(400, "invalid_request_error", f"messages.1.content.0: thinking is {REFUSED_THINKING}")
    with serving(search("comets"), refused, DONE, models=["claude-opus-5-5"]) as server:
        assert ask(server, model="claude-opus-5-5").trajectories[0].end.error is None  # type: ignore[union-attr]
        *before, last = [request for request in server.requests if request.path.endswith("/messages")]
    assert len(before) == 2
    for request in before:
        assert "thinking" not in request.body
        assert "anthropic-beta" not in request.headers
    assert last.body["thinking"] == {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert last.headers["anthropic-beta"] == DROP_THINKING_BETA


@pytest.mark.parametrize(("model", "is_bound"), [("claude-opus-5-5", True), ("claude-opus-5", False)])
def test_anthropics_own_server_may_drop_thinking_from_the_start(model: str, is_bound: bool) -> None:
    own = AnthropicPolicy(model)
    messages = [{"role": "system", "content": "Answer."}, {"role": "user", "content": QUESTION}]
    assert (own.endpoint._headers().get("anthropic-beta") == DROP_THINKING_BETA) is is_bound
    assert ("thinking" in own._body(messages, None, 64, 0)) is is_bound
