"""verl's servers as an engine: the requests they get, and the samples made of their answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from context_agent.errors import PolicyError
from context_agent.policies.tokens.engines import Finish, SampleRequest
from context_agent.train.experimental.verl.worker import VerlEngine


@dataclass
class Servers:
    """Returns the given answers in order, and records the requests."""

    answers: list[Any]
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def generate(self, request_id: Any, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        self.asked.append({"request": request_id, "prompt": prompt_ids, **sampling_params})
        answer = self.answers[len(self.asked) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


def output(ids: list[int], **changes: Any) -> SimpleNamespace:
    fields: dict[str, Any] = {
        "token_ids": ids,
        "log_probs": [-0.5] * len(ids),
        "stop_reason": "completed",
        "routed_experts": None,
        "extra_fields": {"min_global_steps": 3, "max_global_steps": 4, "num_cached_tokens": 2},
    }
    return SimpleNamespace(**fields | changes)


def make_engine(*answers: Any, **options: Any) -> VerlEngine:
    return VerlEngine(Servers(list(answers)), {"top_k": -1, "temperature": 0.3}, request="r", name="verl:m", **options)


async def generate(engine: VerlEngine, prompt: list[int] | None = None) -> Any:
    return await engine.generate(SampleRequest(prompt or [1, 2, 3], 7, (9,), 1.0, 0.9, 11))


async def test_a_call_says_what_the_policy_asks_for_over_what_verl_gives() -> None:
    servers = Servers([output([5, 9])])
    await generate(VerlEngine(servers, {"top_k": -1, "temperature": 0.3}, request="r", name="n"))
    assert servers.asked == [
        {
            "request": "r",
            "prompt": [1, 2, 3],
            "top_k": -1,
            "temperature": 1.0,
            "top_p": 0.9,
            "max_tokens": 7,
            "stop_token_ids": [9],
            "logprobs": True,
        }
    ]


async def test_seeds_are_sent_when_asked_for() -> None:
    servers = Servers([output([5, 9])])
    await generate(VerlEngine(servers, {}, request="r", name="n", seeded=True))
    assert servers.asked[0]["seed"] == 11


async def test_an_answer_is_a_sample_of_the_oldest_weights_in_it() -> None:
    engine = make_engine(output([5, 9]), output([5, 6]))
    first = await generate(engine)
    assert (first.ids, first.logprobs, first.finish) == ((5, 9), (-0.5, -0.5), Finish.STOP)
    assert (first.version, first.cached_tokens) == ("3", 2)
    assert (await generate(engine)).finish is Finish.LENGTH
    assert engine.versions == [3, 4, 3, 4]
    assert engine.seconds > 0


async def test_weights_that_are_not_named_have_no_version() -> None:
    engine = make_engine(output([5], extra_fields={"min_global_steps": None, "max_global_steps": None}))
    assert (await generate(engine)).version == ""
    assert engine.versions == []


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (output([5, 6], log_probs=None), "calculate_log_probs=True"),
        (output([5, 6], log_probs=[-1.0]), "calculate_log_probs=True"),
        (output([5, 6], stop_reason="aborted"), "aborted a call after 2 tokens"),
        (output([]), "aborted a call after 0 tokens"),
        (RuntimeError("No available servers"), "RuntimeError: No available servers"),
    ],
)
async def test_what_cannot_be_trained_on_ends_the_episode(answer: Any, told: str) -> None:
    with pytest.raises(PolicyError, match=told):
        await generate(make_engine(answer))


async def test_routed_experts_are_those_of_the_call_that_a_row_ends_with() -> None:
    engine = make_engine(*(output([token, 9], routed_experts=f"experts {token}") for token in (5, 6, 7)))
    await generate(engine, [1, 2, 3])
    await generate(engine, [1, 2, 3, 5, 9, 4])
    await generate(engine, [1, 4])
    assert engine.experts([1, 2, 3, 5, 9, 4, 6, 9]) == "experts 6"
    assert engine.experts([1, 4, 7, 9]) == "experts 7"
    # The second call extended the first call's row.
    assert engine.experts([1, 2, 3, 5, 9]) is None
