"""Bad servers and bad models: an episode ends with a stated reason and the best ranking that its view defends."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from context_agent import Limits, SearchAgent
from context_agent._support.http_client import FIRST_CONTACT_RETRIES, retry_after
from context_agent.errors import PolicyError
from context_agent.policies.chat.policy import NUDGE, ChatPolicy
from context_agent.policies.chat.scripted_server import ScriptedAnswer, fails, says
from context_agent.pruning.view import ActionTaken
from tests.support.chatting import DONE, QUESTION, ask, corpus, policy, search, serving
from tests.support.http_server import Response, http_server

VLLM_CONTEXT = (
    "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (5000 in the messages, "
    "4000 in the completion). Please reduce the length of the messages or completion."
)
CONTEXT_REFUSALS = {
    "vllm": (400, {"error": {"message": VLLM_CONTEXT, "type": "BadRequestError", "code": 400}}),
    "vllm output": (
        400,
        {
            "error": {
                "message": "'max_tokens' or 'max_completion_tokens' is too large: 31000. This model's maximum context "
                "length is 8192 tokens and your request has 900 input tokens (31000 > 8192 - 900)."
            }
        },
    ),
    "sglang": (
        400,
        {
            "object": "error",
            "message": "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested "
            "a total of 32000 tokens.",
        },
    ),
    "llama.cpp": (
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size (8192 tokens), try increasing it",
                "type": "exceed_context_size_error",
                "n_ctx": 8192,
            }
        },
    ),
    "hosted": (
        400,
        {
            "error": {
                "message": "This model's maximum context length is 8,192 tokens.",
                "code": "context_length_exceeded",
                "type": "invalid_request_error",
            }
        },
    ),
}


def actions_of(result: Any) -> list[ActionTaken]:
    return [event for event in result.trajectories[0].events if isinstance(event, ActionTaken)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# Servers ----------------------------------------------------------------------------------------------------------


def test_a_server_that_is_down_is_told_soon() -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    start = time.perf_counter()
    with pytest.raises(PolicyError, match=r"cannot connect.*server is running") as excinfo:
        SearchAgent(corpus(), ChatPolicy("m", base_url=url, backoff=0.01)).search(QUESTION)
    assert url in str(excinfo.value)
    assert f"{FIRST_CONTACT_RETRIES + 1} tries" in str(excinfo.value)
    assert time.perf_counter() - start < 20


def test_a_slow_server_is_not_waited_for_longer_than_the_timeout() -> None:
    with (
        serving(*[search("comets", delay=30)] * 4) as server,
        pytest.raises(PolicyError, match=r"no answer within 0\.5 s \(2 tries"),
    ):
        ask(server, timeout=0.5, retries=1)


def test_a_slow_server_that_recovers_is_asked_again() -> None:
    with serving(search("comets", delay=9), search("comets")) as server:
        assert ask(server, timeout=1.5).stop_reason == "finished"


def test_the_deadline_bounds_an_action_with_all_its_tries() -> None:
    start = time.perf_counter()
    with (
        serving(*[search("comets", delay=30)] * 9) as server,
        pytest.raises(PolicyError, match=r"within the deadline of 0\.5 s"),
    ):
        ask(server, timeout=20, deadline=0.5)
    assert time.perf_counter() - start < 20


def test_a_failure_after_something_was_found_keeps_what_was_found() -> None:
    with serving(search("comets"), *[fails(500, "out of memory")] * 3) as server:
        result = ask(server, retries=2)
    assert result.stop_reason == "policy_error"
    assert len(result.documents) == 2
    assert "out of memory" in str(result.error)
    assert "3 tries" in str(result.error)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 529])
def test_what_may_pass_is_tried_again(status: int) -> None:
    with serving(fails(status, "later"), search("comets"), fails(status, "later")) as server:
        assert ask(server).stop_reason == "finished"
    assert len(server.requests) == 4


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 422, 501])
def test_what_will_not_pass_is_not_tried_again(status: int) -> None:
    with serving(search("comets"), fails(status, "no")) as server:
        result = ask(server)
    assert result.stop_reason == "policy_error"
    assert len(server.chat_bodies()) == 2


@pytest.mark.parametrize(
    "words",
    [
        "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.",
        "Tool call validation failed: parameters for tool search_corpus did not match schema",
    ],
)
def test_a_call_that_the_server_finds_miswritten_is_sampled_again(words: str) -> None:
    with serving(fails(400, words), search("comets"), DONE) as server:
        assert ask(server).error is None
    assert len(server.chat_bodies()) == 3


@pytest.mark.parametrize("status", [413, 429])
def test_a_request_beyond_the_rate_of_the_account_is_told_at_once(status: int) -> None:
    words = "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 33024."
    with serving(fails(status, words)) as server, pytest.raises(PolicyError, match=r"smaller --max-tokens.*33024"):
        ask(server)
    assert len(server.chat_bodies()) == 1


def test_a_request_with_too_many_bytes_is_not_explained_by_a_rate() -> None:
    with serving(fails(413, "Request too large")) as server, pytest.raises(PolicyError) as excinfo:
        ask(server)
    assert "per minute" not in str(excinfo.value)


def test_a_web_page_instead_of_json_is_told_at_once() -> None:
    page = Response(b"\n<!DOCTYPE html><html>Sign in</html>", headers={"Content-Type": "text/html"})
    with http_server(page) as server, pytest.raises(PolicyError, match=r"web page.*Check the address"):
        SearchAgent(corpus(), ChatPolicy("m", base_url=server.url())).search(QUESTION)
    assert len(server.requests) == 1


def test_of_a_gateway_s_error_page_the_title_is_told() -> None:
    page = Response(b"<html><head><title>502 Bad&nbsp;Gateway</title></head><body><hr>nginx</body></html>", 502)
    with http_server(page) as server, pytest.raises(PolicyError, match=r"HTTP 502: 502 Bad Gateway \("):
        SearchAgent(corpus(), ChatPolicy("m", base_url=server.url(), retries=0)).search(QUESTION)


def test_a_storm_of_errors_is_outlasted() -> None:
    storm = [fails(status, "busy") for status in (429, 503, 429, 500, 502)]
    with serving(search("comets"), *storm) as server:
        result = ask(server, retries=6)
    assert result.stop_reason == "finished"
    assert len(server.requests) == 7


def test_retry_after_is_honoured() -> None:
    with serving(fails(429, headers={"Retry-After": "0.4"}), DONE) as server:
        start = time.perf_counter()
        ask(server)
        assert time.perf_counter() - start >= 0.4


def test_a_retry_after_past_the_deadline_ends_it_at_once() -> None:
    start = time.perf_counter()
    with (
        serving(fails(429, "quota", headers={"Retry-After": "3600"})) as server,
        pytest.raises(PolicyError, match=r"quota.*asks to wait 3600 s, which is past the deadline"),
    ):
        ask(server, deadline=60)
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize(
    ("headers", "least", "most"),
    [
        ({"retry-after": "2"}, 2, 2),
        ({"retry-after": "1.5"}, 1.5, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25, 0.25),
        ({"retry-after": format_datetime(datetime.now(UTC) + timedelta(days=1), usegmt=True)}, 80_000, 86_400),
        ({"retry-after": format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)}, 0, 0),
        ({"retry-after": "soon"}, 0, 0),
        ({"retry-after": "-3"}, 0, 0),
        ({"retry-after": "inf"}, 0, 0),
        ({"retry-after": "nan"}, 0, 0),
        ({}, 0, 0),
    ],
)
def test_retry_after_in_every_form(headers: Mapping[str, str], least: float, most: float) -> None:
    assert least <= retry_after(headers) <= most


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_is_cut_is_asked_for_again(stream: bool) -> None:
    with serving(search("comets", "operas", cut=True), search("comets"), says("words " * 50, cut=True)) as server:
        result = ask(server, stream=stream)
    assert result.stop_reason == "finished"
    assert result.turns == 1


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": None}, {"choices": [3]}, {"error": "overloaded"}])
def test_an_answer_without_a_message_is_asked_for_again(body: dict[str, Any]) -> None:
    with serving(ScriptedAnswer(body=body), search("comets")) as server:
        result = ask(server)
    assert result.stop_reason == "finished"


def test_a_restart_in_the_middle_is_waited_for() -> None:
    with serving() as server:

        def bounce() -> None:
            server.stop()
            time.sleep(0.5)
            server.start()

        restarting = threading.Thread(target=bounce)

        def restart(_: Mapping[str, Any]) -> ScriptedAnswer:
            restarting.start()
            return search("bridges", delay=20)

        server.play(search("comets"), restart, search("operas"))
        result = ask(server, backoff=0.1, timeout=30)
        restarting.join()
    assert result.stop_reason == "finished"
    assert result.turns == 2
    assert len(server.chat_bodies()) == 4


def test_a_wrong_model_name_is_told_with_the_models_there_are() -> None:
    with serving(models=("qwen3-8b", "gpt-oss-20b")) as server, pytest.raises(PolicyError) as excinfo:
        ask(server, model="gpt-oss-20B")
    assert "does not have the model 'gpt-oss-20B'" in str(excinfo.value)
    assert "qwen3-8b, gpt-oss-20b" in str(excinfo.value)
    assert "Did you mean 'gpt-oss-20b'?" in str(excinfo.value)


def test_a_wrong_path_is_told() -> None:
    with serving() as server, pytest.raises(PolicyError, match=r"/models.*Check the API's address"):
        ask(server, base_url=server.url.replace("/v1", "/api/v2"))


@pytest.mark.parametrize("name", CONTEXT_REFUSALS)
def test_a_context_below_the_budget_says_how_to_lower_the_window(name: str) -> None:
    with serving(search("comets"), fails(*CONTEXT_REFUSALS[name])) as server:
        result = ask(server)
    assert result.stop_reason == "policy_error"
    assert len(result.documents) == 2
    assert "window of 32,768 tokens" in str(result.error)
    assert "--window 7372" in str(result.error)
    assert len(server.chat_bodies()) == 2


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "max_tokens"),
        ("[{'type': 'extra_forbidden', 'loc': ('body', 'seed'), 'msg': 'Extra inputs are not permitted'}]", "seed"),
        ("property 'reasoning_content' is unsupported", "reasoning_content"),
        ("Unrecognized request argument supplied: stream_options", "stream_options"),
    ],
)
def test_a_field_that_the_server_refuses_is_left_out(message: str, field: str) -> None:
    def refuses(body: Mapping[str, Any]) -> ScriptedAnswer:
        refused = field in body or any(field in item for item in body["messages"])
        return fails(400, message) if refused else DONE

    first = search("comets", reasoning="hm", reasoning_field="reasoning_content")
    steps = [first] if field == "reasoning_content" else []
    with serving(*steps, *[refuses] * 4) as server:
        result = ask(server, stream=True)
    assert result.error is None
    assert actions_of(result)[-1].action.extra["left_out"] == [field]
    if field == "max_tokens":
        assert server.chat_bodies()[-1]["max_completion_tokens"] > 0


def test_a_refused_field_is_left_out_by_all_requests_that_were_on_their_way() -> None:
    both_sent = threading.Barrier(2, timeout=20)

    def refuses(body: Mapping[str, Any]) -> ScriptedAnswer:
        if "seed" not in body:
            return says("ready")
        both_sent.wait()
        return fails(400, "Extra inputs are not permitted: seed")

    async def both(chat: ChatPolicy) -> list[Any]:
        asked = [chat.ask([{"role": "user", "content": "?"}], room=100, seed=0) for _ in range(2)]
        return await asyncio.gather(*asked)

    with serving(*[refuses] * 4) as server:
        replies = asyncio.run(both(policy(server)))
    assert [(reply.text, omitted) for reply, omitted in replies] == [("ready", ("seed",))] * 2


def test_what_the_user_asked_for_is_not_left_out() -> None:
    with serving(fails(400, "temperature is not supported")) as server, pytest.raises(PolicyError, match="temperature"):
        ask(server, temperature=0.3)
    with serving(fails(400, "seed is not supported")) as server, pytest.raises(PolicyError, match="seed"):
        ask(server, extra_body={"seed": 7})


def test_the_users_own_limit_of_a_reply_stays_if_max_tokens_is_refused() -> None:
    refused = fails(400, "Use 'max_completion_tokens' instead of 'max_tokens'.")
    with serving(refused, search("comets"), DONE) as server:
        ask(server, extra_body={"max_completion_tokens": 99})
    assert {body["max_completion_tokens"] for body in server.chat_bodies()} == {99}
    assert "max_tokens" not in server.chat_bodies()[-1]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (500, "tools param requires --jinja flag"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (400, "registry.ollama.ai/library/gemma3:4b does not support tools"),
        (404, "No endpoints found that support tool use."),
    ],
)
def test_a_server_without_tools_is_told_at_once_with_the_text_protocol(status: int, words: str) -> None:
    with serving(fails(status, words)) as server, pytest.raises(PolicyError) as excinfo:
        ask(server)
    assert words in str(excinfo.value)
    assert "--tools text" in str(excinfo.value)
    assert len(server.chat_bodies()) == 1


def test_a_refused_schema_of_a_tool_is_no_server_without_tools() -> None:
    refused = fails(400, "tools.0.custom.input_schema: Field required")
    with serving(refused) as server, pytest.raises(PolicyError, match="Field required") as excinfo:
        ask(server)
    assert "--tools text" not in str(excinfo.value)


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens is too large: {n}. This model supports at most 8192 completion tokens, whereas you provided {n}.",
        "`max_tokens` must be less than or equal to `8192`, the maximum value is less than the `context_window`",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
        "max_tokens: {n} > 8192, which is the maximum allowed number of output tokens for claude-3-5-haiku",
        "too many tokens: max tokens must be less than or equal to 8,192, the maximum output length for this model",
        "Requests with max_tokens > 8192 must have stream=true",
    ],
)
def test_a_model_with_short_replies_is_asked_for_as_much_as_it_can_write(message: str) -> None:
    def refuses(body: Mapping[str, Any]) -> ScriptedAnswer:
        return fails(400, message.format(n=body["max_tokens"])) if body["max_tokens"] > 8192 else DONE

    with serving(refuses, search("comets"), refuses) as server:
        result = ask(server)
    assert result.error is None
    assert [body["max_tokens"] for body in server.chat_bodies()[1:]] == [8192, 8192]


def test_the_bound_of_another_setting_is_not_taken_for_that_of_a_reply() -> None:
    words = "max_tokens is fine, but temperature must be less than or equal to 2"
    with serving(fails(400, words)) as server, pytest.raises(PolicyError, match="temperature"):
        ask(server, temperature=3.0)


def test_the_users_own_limit_of_a_reply_is_not_lowered() -> None:
    words = "max_tokens is too large: 9000. This model supports at most 8192 completion tokens."
    for options in ({"max_tokens": 9000}, {"extra_body": {"max_completion_tokens": 9000}}):
        with serving(fails(400, words)) as server, pytest.raises(PolicyError, match="at most 8192"):
            ask(server, **options)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ScriptedAnswer(message={"content": None, "refusal": "I cannot help with that."}), "I cannot help with that"),
        (says(finish="content_filter"), "content filter"),
    ],
)
def test_a_refusal_of_the_model_ends_the_episode_with_its_reason(answer: ScriptedAnswer, reason: str) -> None:
    with serving(search("comets"), answer) as server:
        result = ask(server)
    assert result.stop_reason == "policy_error"
    assert reason in str(result.error)
    assert len(result.documents) == 2


def test_an_error_inside_a_choice_is_tried_again() -> None:
    error = {"code": 502, "message": "Provider returned error"}
    failed = {"choices": [{"message": {"content": ""}, "finish_reason": "error", "error": error}]}
    with serving(ScriptedAnswer(body=failed), search("comets")) as server:
        result = ask(server)
    assert result.stop_reason == "finished"
    assert len(server.chat_bodies()) == 3


def test_the_episodes_time_limit_goes_before_the_policys() -> None:
    with serving(search("comets"), search("operas", delay=20)) as server:
        result = ask(server, limits=Limits(seconds=2.5))
    assert result.stop_reason == "time"
    assert result.documents


# Models -----------------------------------------------------------------------------------------------------------


def test_a_model_that_never_calls_a_tool_is_nudged_once() -> None:
    with serving(says("The answer is Halley."), says("Halley, as I said.")) as server:
        result = ask(server)
    assert result.stop_reason == "no_ranking"
    assert len(server.chat_bodies()) == 2
    assert server.chat_bodies()[1]["messages"][-1] == {"role": "user", "content": NUDGE}
    assert actions_of(result)[0].action.extra["nudged"]["text"] == "The answer is Halley."


@pytest.mark.parametrize("tools", ["native", "text"])
def test_a_model_that_emits_only_reasoning_is_nudged_and_goes_on(tools: Any) -> None:
    call = '<tool_call>{"name": "search_corpus", "arguments": {"query": "comets"}}</tool_call>'
    searching = search("comets") if tools == "native" else says(call)
    with serving(says(reasoning="Let me think."), searching) as server:
        result = ask(server, tools=tools)
    assert result.stop_reason == "finished"
    messages = server.chat_bodies()[1]["messages"]
    assert messages[-2]["reasoning"] == "Let me think."
    assert actions_of(result)[0].action.extra["nudged"]["reasoning"] == "Let me think."
    assert len(server.chat_bodies()[2]["messages"]) == 4


def test_a_model_that_emits_only_reasoning_again_ends_with_what_is_in_view() -> None:
    silent = says(reasoning="Hmm.", usage={"prompt_tokens": 900, "completion_tokens": 40}, finish="length")
    with serving(search("comets"), silent, silent) as server:
        result = ask(server)
    assert result.stop_reason == "no_ranking"
    assert len(result.documents) == 2
    assert len(server.chat_bodies()) == 3


def test_a_ranking_that_the_server_took_for_reasoning_counts() -> None:
    """vLLM's parser for Qwen3 takes a reply without think tags for reasoning."""
    with serving(search("comets"), says(reasoning="<Document id=d19></Document>")) as server:
        result = ask(server)
    assert result.stop_reason == "finished"
    assert [document.id for document in result.documents] == ["d19"]


def test_a_ranking_drafted_in_thoughts_that_were_cut_does_not() -> None:
    cut = says(reasoning="Perhaps <Document id=d19></Document>, or", finish="length")
    with serving(search("comets"), cut, says("<Document id=d34></Document>")) as server:
        result = ask(server)
    assert [document.id for document in result.documents] == ["d34"]


def test_the_nudged_reply_gets_the_room_that_is_left() -> None:
    silent = says(reasoning="Hmm.", usage={"prompt_tokens": 900, "completion_tokens": 5000})
    with serving(silent, DONE) as server:
        ask(server)
    first, second = server.chat_bodies()
    assert second["max_tokens"] == first["max_tokens"] - 5000


def test_a_model_that_calls_the_same_tool_for_ever_is_ended_by_the_limits() -> None:
    with serving(*[search("comets", limit=1)] * 100) as server:
        result = ask(server, limits=Limits(turns=12))
    assert result.stop_reason == "turns"
    assert result.documents


def test_ids_that_were_never_seen_are_dropped() -> None:
    final = says("<Document id=nowhere></Document>\n<Document id=d19></Document>\n<Document id=d9999></Document>")
    with serving(search("comets"), final) as server:
        result = ask(server)
    assert result.stop_reason == "finished"
    assert [document.id for document in result.documents] == ["d19"]
    assert result.trajectories[0].end is not None
    assert result.trajectories[0].end.dropped == {"unseen": 2}


def test_a_ranking_of_nothing_but_unseen_ids_falls_back_on_the_view() -> None:
    with serving(search("comets"), says("<Document id=nowhere></Document>")) as server:
        result = ask(server)
    assert result.stop_reason == "no_ranking"
    assert len(result.documents) == 2


def test_a_call_and_a_ranking_at_once_is_a_call() -> None:
    reply = says("<Document id=d0></Document>", calls=[("search_corpus", {"query": "comets", "limit": 1})])
    with serving(reply) as server:
        assert ask(server).turns == 1


def test_a_reply_longer_than_the_window_ends_the_episode_with_a_ranking() -> None:
    endless = says("operas and bridges " * 20_000, calls=[("search_corpus", {"query": "operas"})])
    with serving(search("comets"), endless) as server:
        result = ask(server)
    assert result.stop_reason == "window"
    assert result.documents


def test_hundreds_of_calls_at_once_are_survived() -> None:
    with serving(says(calls=[("search_corpus", {"query": f"comets {number}"}) for number in range(300)])) as server:
        result = ask(server)
    assert result.error is None
    assert result.documents


def test_one_failing_rollout_does_not_cost_the_others_theirs() -> None:
    with serving(search("comets"), search("comets"), fails(400, "no")) as server:
        result = ask(server, rollouts=2)
    assert result.documents
    assert "refused" in str(result.error)


def test_a_policy_survives_its_errors() -> None:
    with serving(fails(400, "no"), search("comets")) as server:
        chat_policy = policy(server)
        with SearchAgent(corpus(), chat_policy) as agent:
            with pytest.raises(PolicyError):
                agent.search(QUESTION)
            assert agent.search(QUESTION).stop_reason == "finished"
