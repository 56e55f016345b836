"""What the doctor sees of a model server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from context_agent.errors import ConfigError
from context_agent.policies.chat.probe import ServerCheck, inspect_server
from context_agent.policies.chat.scripted_server import ScriptedAnswer, fails, says
from tests.support.chatting import search, serving


def checks(url: str, model: str | None = "scripted", **options: Any) -> dict[str, ServerCheck]:
    return {check.name: check for check in inspect_server(url, model, **{"timeout": 5.0, **options})}


def taking(length: int) -> Any:
    """A server that takes prompts of up to `length` words."""

    def answer(body: Mapping[str, Any]) -> ScriptedAnswer:
        words = len(str(body["messages"][-1]["content"]).split())
        if words > length:
            return fails(400, f"This model's maximum context length is {length} tokens.")
        return says("a", usage={"prompt_tokens": words + 9, "completion_tokens": 1})

    return answer


def test_a_good_server() -> None:
    with serving(search("bridges", reasoning="Call it."), model_length=40_960) as server:
        report = checks(server.url)
    assert [check.status for check in report.values()] == ["ok"] * 4
    assert list(report) == ["server", "model", "tools", "context"]
    assert "search_corpus" in report["tools"].detail
    assert "'reasoning'" in report["tools"].detail
    assert "40,960" in report["context"].detail


def test_without_a_model_the_servers_first_is_taken() -> None:
    with serving(search("bridges"), models=("first", "second"), model_length=40_960) as server:
        assert checks(server.url, None)["model"].detail == "first"


def test_a_server_that_is_down() -> None:
    (check,) = inspect_server("http://127.0.0.1:9/v1", "m", timeout=5)
    assert check.status == "fail"
    assert "cannot connect" in check.detail
    assert "running" not in check.fix  # the finding says so already
    assert "start" not in check.fix
    assert "--base-url" in check.fix


def test_a_wrong_key() -> None:
    with serving(key="right") as server:
        (check,) = inspect_server(server.url, "scripted", timeout=5)
    assert check.status == "fail"
    assert "CTX1_API_KEY" in check.detail


def test_a_model_that_is_not_there() -> None:
    with serving(models=("gpt-oss-20b",)) as server:
        report = checks(server.url, "gpt-oss-20B")
    assert report["model"].status == "fail"
    assert "Did you mean 'gpt-oss-20b'?" in report["model"].detail
    assert report["chat"].status == "fail"
    assert "context" not in report


def test_a_server_that_ignores_the_models_name() -> None:
    with serving(search("bridges"), models=("real", "alias"), model_length=40_960) as server:
        listed = server.listed()
        server.listed = lambda: {**listed, "data": listed["data"][:1]}  # type: ignore[method-assign]
        report = checks(server.url, "alias")
    assert report["model"].status == "warn"
    assert report["model"].detail.endswith("The server answered anyway.")


def test_a_server_that_answers_to_a_misspelled_model() -> None:
    with serving(search("bridges"), models=("gpt-oss-20b", "gpt-oss-20B"), model_length=40_960) as server:
        listed = server.listed()
        server.listed = lambda: {**listed, "data": listed["data"][:1]}  # type: ignore[method-assign]
        report = checks(server.url, "gpt-oss-20B")
    assert report["model"].detail.endswith(
        "It has gpt-oss-20b. Did you mean 'gpt-oss-20b'? The server answered anyway."
    )


@pytest.mark.parametrize(
    "reply", [says("I cannot."), says('<tool_call>{"name": "search_corpus"}</tool_call>'), says(reasoning="hm")]
)
def test_a_model_that_calls_no_tool(reply: ScriptedAnswer) -> None:
    with serving(reply, model_length=40_960) as server:
        report = checks(server.url)
    assert report["tools"].status == "warn"
    assert "--tools text" in report["tools"].fix


def test_a_server_that_refuses_tools_but_answers() -> None:
    with serving(fails(400, "does not support tools"), says("hello"), model_length=40_960) as server:
        report = checks(server.url)
    assert report["tools"].status == "warn"
    assert "does not support tools" in report["tools"].detail


def test_a_context_shorter_than_the_window() -> None:
    with serving(search("bridges"), model_length=8192) as server:
        report = checks(server.url)
    assert report["context"].status == "fail"
    assert report["context"].fix.startswith("--window 8192")
    with serving(search("bridges"), model_length=8192) as server:
        assert checks(server.url, window=8192)["context"].status == "ok"


def test_a_context_that_is_not_told_is_tried_out_only_on_request() -> None:
    with serving(search("bridges")) as server:
        assert checks(server.url)["context"].status == "warn"
        assert max(len(str(body["messages"])) for body in server.chat_bodies()) < 1000
    with serving(search("bridges"), taking(40_000)) as server:
        assert checks(server.url, probe=True)["context"].status == "ok"
    with serving(search("bridges"), taking(8192)) as server:
        check = checks(server.url, probe=True)["context"]
    assert check.status == "fail"
    assert "--window 7372" in check.detail


def test_a_server_that_cuts_prompts_and_says_nothing() -> None:
    cut = says("a", usage={"prompt_tokens": 4096, "completion_tokens": 1})
    with serving(search("bridges"), cut) as server:
        check = checks(server.url, probe=True)["context"]
    assert check.status == "fail"
    assert "cut to 4,096" in check.detail
    assert "num_ctx" in check.fix


def test_token_ids() -> None:
    choice = {"text": "x", "token_ids": [7], "logprobs": {"token_logprobs": [-0.1], "tokens": ["x"]}}
    cases = [
        (lambda body: (200, {"choices": [choice]}), "ok", "returns ids and logprobs"),
        (lambda body: (200, {"choices": [{"text": "x"}]}), "fail", "no ids and no logprobs"),
        (lambda body: (400, {"detail": "prompt must be a string"}), "fail", "must be a string"),
    ]
    for completions, status, detail in cases:
        with serving(search("bridges"), model_length=40_960, completions=completions) as server:
            report = checks(server.url, tokens=True)
        assert report["token ids"].status == status
        assert detail in report["token ids"].detail


def test_a_wrong_address_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ConfigError):
        inspect_server("localhost:8000", "m")
