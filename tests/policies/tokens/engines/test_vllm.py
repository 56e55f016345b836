"""The vLLM engine against a scripted `/v1/completions`: what is asked, what is read, what is refused.

The script stands in for the protocol only; scripts/check_servers.py checks a real server.
"""

from __future__ import annotations

import asyncio
import base64
import io
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from context_agent import Action, SearchAgent, ToolCall
from context_agent.errors import ConfigError, PolicyError
from context_agent.policies.chat.scripted_server import ScriptedServer
from context_agent.policies.tokens import served
from context_agent.policies.tokens.engines import Finish, SampleRequest, invented_logprob
from context_agent.policies.tokens.engines.vllm import VllmEngine
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.policies.tokens.recorded_calls import calls
from context_agent.policies.tokens.routed_experts import unpack
from context_agent.testing.token_episodes import QUESTION, small_corpus
from context_agent.train.rows import sampled_rows

RENDERER = HarmonyRenderer()
SEARCH = RENDERER.reply(Action((ToolCall("search_corpus", {"query": "comets"}),)))
FINAL = RENDERER.reply(Action(text="<Document id=d34></Document>"))
REQUEST = SampleRequest((1, 2), 8, (200_002,), 1.0, 0.9, 7)


def answer(body: Mapping[str, Any], ids: tuple[int, ...], **changed: Any) -> dict[str, Any]:
    """As vLLM 0.31 answers with `return_token_ids` and `logprobs`."""
    prompt = body["prompt"]
    choice = {
        "index": 0,
        "text": "",
        "token_ids": list(ids),
        "prompt_token_ids": list(prompt),
        "finish_reason": "stop",
        "logprobs": {
            "token_logprobs": [invented_logprob(len(prompt) + i, token) for i, token in enumerate(ids)],
            "tokens": [],
        },
        **changed,
    }
    usage = {"prompt_tokens": len(prompt), "prompt_tokens_details": {"cached_tokens": len(prompt) // 16 * 16}}
    return {"id": "cmpl-1", "object": "text_completion", "choices": [choice], "usage": usage}


def ask(server: ScriptedServer, **options: Any) -> Any:
    engine = VllmEngine(server.url, "m", **options)
    return asyncio.run(engine.generate(REQUEST))


def test_an_episode_over_the_wire_is_exact() -> None:
    bodies: list[Mapping[str, Any]] = []

    def completions(body: Mapping[str, Any]) -> tuple[int, Any]:
        bodies.append(body)
        return 200, answer(body, SEARCH if len(bodies) == 1 else FINAL)

    with ScriptedServer(completions=completions) as server:
        policy = served("m", base_url=server.url)
        result = SearchAgent(small_corpus(), policy).search(QUESTION)
    assert [document.id for document in result.documents] == ["d34"]
    (row,) = sampled_rows(result.trajectories[0])
    assert row.input_ids == [*bodies[1]["prompt"], *FINAL]
    assert bodies[1]["prompt"][: len(bodies[0]["prompt"]) + len(SEARCH)] == [*bodies[0]["prompt"], *SEARCH]
    assert row.policy_version == "m"
    assert [call.cached for call in calls(result.trajectories[0])] == [len(b["prompt"]) // 16 * 16 for b in bodies]
    body = bodies[0]
    assert body["stop_token_ids"] == [200_002, 200_012]
    assert (body["temperature"], body["top_p"], body["logprobs"], body["return_token_ids"]) == (1.0, 0.9, 1, True)
    assert body["max_tokens"] == 4096
    assert "cache_salt" not in body


def test_seed_salt_and_further_fields_are_sent_only_where_asked_for() -> None:
    bodies: list[Mapping[str, Any]] = []

    def completions(body: Mapping[str, Any]) -> tuple[int, Any]:
        bodies.append(body)
        return 200, answer(body, (5,))

    with ScriptedServer(completions=completions) as server:
        ask(server)
        ask(server, seeded=False, cache_salt="s" * 43)
        engine = VllmEngine(server.url, "m")
        extra = {"allowed_token_ids": [5]}
        asyncio.run(engine.generate(SampleRequest([1]), extra=extra))
    assert [body.get("seed") for body in bodies] == [7, None, None]
    assert [body.get("cache_salt") for body in bodies] == [None, "s" * 43, None]
    assert [body.get("allowed_token_ids") for body in bodies] == [None, None, [5]]


def test_a_reply_cut_by_length_says_so() -> None:
    with ScriptedServer(completions=lambda body: (200, answer(body, (5, 6), finish_reason="length"))) as server:
        sample = ask(server)
    assert (sample.finish, sample.ids, sample.version) == (Finish.LENGTH, (5, 6), "m")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"token_ids": None}, "no token ids"),
        ({"logprobs": None}, "no token ids or no log-probabilities"),
        ({"prompt_token_ids": [1, 2, 3]}, "changed the prompt"),
    ],
)
def test_a_server_that_is_not_vllm_is_told_so(changed: dict[str, Any], words: str) -> None:
    with (
        ScriptedServer(completions=lambda body: (200, answer(body, (5,), **changed))) as server,
        pytest.raises(PolicyError, match=words),
    ):
        ask(server)


@pytest.mark.parametrize("broken", [{"choices": []}, {"choices": None}, {"choices": [None]}, "abort"])
def test_a_broken_answer_is_asked_again(broken: Any) -> None:
    count = 0

    def completions(body: Mapping[str, Any]) -> tuple[int, Any]:
        nonlocal count
        count += 1
        if count == 1:
            return 200, answer(body, (), finish_reason="abort") if broken == "abort" else broken
        return 200, answer(body, (5,))

    with ScriptedServer(completions=completions) as server:
        engine = VllmEngine(server.url, "m")
        engine.endpoint.backoff = 0.01
        sample = asyncio.run(engine.generate(SampleRequest([1])))
    assert (sample.ids, count) == ((5,), 2)


def test_a_refusal_is_final() -> None:
    with (
        ScriptedServer(completions=lambda _: (400, {"error": {"message": "the prompt is too long"}})) as server,
        pytest.raises(PolicyError, match="too long"),
    ):
        ask(server)


def test_a_model_behind_a_template_needs_a_tokenizer_that_loads(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the template renderer's tokenizer needs the train extra")
    with pytest.raises(ConfigError, match="does not exist"):
        served("m", tokenizer="/no/such/folder")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="cannot load the tokenizer"):
        served("m", tokenizer=str(tmp_path))


def test_the_prompt_is_not_changed_by_what_comes_after() -> None:
    """The engine is given the actor's own list, which grows; the body holds a copy."""
    draw = random.Random(0)
    prompt = [draw.randint(0, 99) for _ in range(10)]
    with ScriptedServer(completions=lambda body: (200, answer(body, (5,)))) as server:
        engine = VllmEngine(server.url, "m")
        work = engine.generate(SampleRequest(prompt, temperature=0.0))
        assert asyncio.run(work).cached_tokens == 0


def scored(prompt_logprobs: Any) -> Any:
    def completions(body: Mapping[str, Any]) -> tuple[int, Any]:
        assert body["prompt"] == [5, 6, 7]
        assert body["prompt_logprobs"] == 1
        return 200, {"choices": [{"text": "", "finish_reason": "length", "prompt_logprobs": prompt_logprobs}]}

    with ScriptedServer(completions=completions) as server:
        return asyncio.run(VllmEngine(server.url, "m", version="4").score([5, 6, 7]))


def test_given_ids_are_scored_by_prompt_logprobs() -> None:
    """As vLLM answers: nothing for the first id, then an object with the id itself and the likeliest one."""
    entry = {"9": {"logprob": -0.1, "rank": 1, "decoded_token": "x"}}
    score = scored([None, {"6": {"logprob": -2.5, "rank": 3, "decoded_token": "y"}, **entry}, {"7": {"logprob": -1}}])
    assert score.logprobs == (-2.5, -1.0)
    assert score.version == "4"


@pytest.mark.parametrize(
    "prompt_logprobs",
    [None, [], [None, {"6": {"logprob": -1}}], [None, {"6": {"logprob": -1}}, {"8": {"logprob": -1}}],
     [None, {"6": {"logprob": "x"}}, {"7": {"logprob": -1}}], [None, {"6": -1}, {"7": {"logprob": 5.0}}]],
)  # fmt: skip
def test_a_server_that_does_not_score_the_ids_is_told_so(prompt_logprobs: Any) -> None:
    with pytest.raises(PolicyError, match="log-probabilities of the prompt"):
        scored(prompt_logprobs)


def in_base64(array: Any) -> str:
    file = io.BytesIO()
    np.save(file, array)
    return base64.b64encode(file.getvalue()).decode()


def ask_for_experts(value: Any) -> Any:
    """The sample of a prompt of two ids and a reply of three, from a server with these routed experts."""
    changed = {} if value is None else {"routed_experts": value}
    with ScriptedServer(completions=lambda body: (200, answer(body, (5, 6, 200_002), **changed))) as server:
        engine = VllmEngine(server.url, "m", retries=0)
        return asyncio.run(engine.generate(replace(REQUEST, experts_from=1)))


@pytest.mark.parametrize("kind", ["uint8", "int16", "int32"])
def test_routed_experts_are_read_from_the_position_that_was_asked_for(kind: str) -> None:
    experts = np.arange(4 * 3 * 2).reshape(4, 3, 2)
    sample = ask_for_experts(in_base64(experts.astype(kind)))
    assert np.array_equal(unpack(sample.experts), experts[1:])


def test_experts_that_nobody_asked_for_are_not_kept() -> None:
    value = in_base64(np.zeros((4, 3, 2), np.uint8))
    with ScriptedServer(completions=lambda body: (200, answer(body, (5, 6, 200_002), routed_experts=value))) as server:
        assert ask(server).experts == ""


def claims_more() -> str:
    """An array whose header claims 8 TB."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"shape": (4, 10**6, 2 * 10**6), "fortran_order": False, "descr": "|u1"})
    return base64.b64encode(file.getvalue()).decode()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "start vLLM 0.22 or newer with --enable-return-routed-experts"),
        ([[[1]]], "start vLLM 0.22 or newer"),
        ("no base64", "cannot be read"),
        (base64.b64encode(b"not numpy").decode(), "cannot be read"),
        (claims_more(), "cannot be read"),
        (in_base64(np.zeros((3, 3, 2), np.uint8)), r"the shape \(3, 3, 2\)"),
        (in_base64(np.zeros((4, 3), np.uint8)), r"the shape \(4, 3\)"),
        (in_base64(np.full((4, 3, 2), -1)), "from -1 to 0"),
        (in_base64(np.zeros((4, 3, 2))), "type float64"),
        (in_base64(np.array([[[None]]] * 4)), "cannot be read"),
    ],
)
def test_routed_experts_that_are_missing_or_wrong_are_refused(value: Any, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        ask_for_experts(value)
