"""Reading replies: every spelling of a call, and nothing that a model can sample makes it raise or take long."""

from __future__ import annotations

import contextlib
import random
import time

import pytest

from context_agent import ToolCall
from context_agent.harness.profile import default
from context_agent.harness.tools import ToolCallError, check_call, flatten_calls
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.testing.spoiled_replies import NESTED, as_json, mutated, special_ids

RENDERER = HarmonyRenderer()
ARGUMENTS = '{"query":"comets"}'


def calls_of(text: str) -> tuple[ToolCall, ...]:
    return RENDERER.parse(special_ids(text)).calls


@pytest.mark.parametrize(
    "text",
    [
        f"<|channel|>commentary to=functions.search_corpus <|constrain|>json<|message|>{ARGUMENTS}<|call|>",
        f" to=functions.search_corpus<|channel|>commentary json<|message|>{ARGUMENTS}<|call|>",
        f"<|channel|>commentary to=functions.search_corpus<|message|>{ARGUMENTS}",
        f"<|channel|>analysis to=functions.search_corpus code<|message|>{ARGUMENTS}<|call|>",
        (
            f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
            "<|channel|>commentary to=functions.search_corpus "
            f"<|constrain|>json<|message|>{ARGUMENTS}<|call|>"
        ),
        f"<|start|>assistant<|channel|>commentary to=search_corpus <|constrain|>json<|message|>{ARGUMENTS}<|call|>",
    ],
)
def test_a_call_is_read_in_every_spelling(text: str) -> None:
    (call,) = calls_of(text)
    assert (call.name, call.arguments) == ("search_corpus", {"query": "comets"})


def test_several_calls_of_one_reply() -> None:
    call = f"<|channel|>commentary to=functions.search_corpus <|constrain|>json<|message|>{ARGUMENTS}<|call|>"
    calls = calls_of(f"{call}<|start|>assistant{call}<|start|>assistant{call}")
    assert [call.name for call in calls] == ["search_corpus"] * 3
    assert len({call.id for call in calls}) == 3


def test_openai_s_own_wrapper_becomes_the_harness_s() -> None:
    text = '{"tool_uses":[{"recipient_name":"functions.search_corpus","parameters":{"query":"x"}}]}'
    calls = calls_of(f"<|channel|>commentary to=multi_tool_use.parallel <|constrain|>json<|message|>{text}<|call|>")
    (inner,) = flatten_calls(calls, default().tools)
    assert (inner.name, inner.arguments) == ("search_corpus", {"query": "x"})


def test_a_model_that_invents_the_result_has_made_the_call_before_it_and_none_after() -> None:
    calls = calls_of(
        f"<|channel|>commentary to=functions.search_corpus <|constrain|>json<|message|>{ARGUMENTS}<|call|>"
        "<|start|>functions.search_corpus<|channel|>commentary to=assistant<|message|># DOCUMENT ID: d1_0<|end|>"
        '<|start|>assistant<|channel|>commentary to=functions.prune_chunks<|message|>{"chunk_ids":["d1_0"]}<|call|>'
    )
    assert [call.name for call in calls] == ["search_corpus"]


def test_channels() -> None:
    action = RENDERER.parse(
        special_ids(
            "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>commentary<|message|>Say.<|end|>"
            "<|start|>assistant<|channel|>final<|message|><Document id=d1></Document><|return|>"
        )
    )
    assert (action.calls, action.text, action.reasoning) == ((), "<Document id=d1></Document>", "Think.")


def test_mistakes_keep_the_raw_arguments_and_the_unknown_name() -> None:
    (call,) = calls_of('<|channel|>commentary to=functions.fly <|constrain|>json<|message|>{"speed": <|call|>')
    assert (call.name, call.arguments) == ("fly", '{"speed": ')


def test_a_reply_cut_in_its_header_is_a_call_without_arguments() -> None:
    (call,) = calls_of("<|channel|>commentary to=functions.search_corpus <|constrain|>")
    assert call.name == "search_corpus"
    with pytest.raises(ToolCallError):
        check_call(call, default().tools)


def test_arguments_past_100_kb_are_refused_by_length() -> None:
    text = '{"query": "' + "word " * 25_000 + '"}'
    (call,) = calls_of(f"<|channel|>commentary to=functions.search_corpus <|constrain|>json<|message|>{text}<|call|>")
    with pytest.raises(ToolCallError, match="characters"):
        check_call(call, default().tools)


def test_arguments_a_thousand_levels_deep_are_a_mistake() -> None:
    (call,) = calls_of(f"<|channel|>commentary to=functions.search_corpus <|constrain|>json<|message|>{NESTED}<|call|>")
    with pytest.raises(ToolCallError):
        check_call(call, default().tools)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_replies_never_raise_and_never_take_long(seed: int) -> None:
    draw = random.Random(seed)
    profile = default()
    slowest = 0.0
    for _ in range(250):
        ids = mutated(draw)
        start = time.process_time()
        action = RENDERER.parse(ids)
        slowest = max(slowest, time.process_time() - start)
        as_json(action)
        for call in flatten_calls(action.calls, profile.tools):
            # Anything but a mistake, which the episode answers, would end the episode.
            with contextlib.suppress(ToolCallError):
                check_call(call, profile.tools)
    assert slowest < 1, "the benchmark holds it to 50 ms on a quiet machine"
