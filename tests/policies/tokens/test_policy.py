"""The token path, promise by promise. Breaking one changes what a model is trained on."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from context_agent import Action, Budget, Document, Episode, MemoryCorpus, SearchAgent, StopReason, ToolCall, View
from context_agent.errors import ConfigError, PolicyError
from context_agent.harness.profile import Profile, context_1, default, summary
from context_agent.harness.trajectory_file import read
from context_agent.policies.controlled import ControlledPolicy, oldest, prune_by
from context_agent.policies.tokens import TokenPolicy
from context_agent.policies.tokens.engines import FakeEngine, Finish, Sample, SampleRequest
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.policies.tokens.prompt import Prompt
from context_agent.policies.tokens.recorded_calls import SAMPLED_KEY, TokenCall, calls, expand
from context_agent.pruning.view import ToolResult
from context_agent.testing.token_episodes import FORGERIES, QUESTION, Played, play, rank_view, small_corpus

RENDERER = HarmonyRenderer()
FIRST_SPECIAL = 199_998


@pytest.fixture(scope="module")
def corpus() -> MemoryCorpus:
    return small_corpus()


@pytest.fixture(scope="module", params=range(16))
def played(request: pytest.FixtureRequest, corpus: MemoryCorpus) -> Played:
    seed: int = request.param
    renderer = HarmonyRenderer(parallel=seed % 3 == 0)
    return play(corpus, renderer, seed, profile=summary() if seed >= 12 else context_1() if seed % 2 else default())


def search(*queries: str) -> Action:
    return Action(tuple(ToolCall("search_corpus", {"query": query}) for query in queries))


def scripted(*actions: Action, profile: Profile | None = None) -> FakeEngine:
    """An engine that plays the actions as the model would have sampled them."""
    writer = Prompt(RENDERER, profile or default())
    return FakeEngine([writer.reply_for(action) for action in actions])


# 1: what was sampled stays verbatim ------------------------------------------------------------------------------


def test_1_sampled_ids_stand_verbatim_in_all_later_prompts(played: Played) -> None:
    for index, sample in enumerate(played.engine.samples[:-1]):
        for request in played.engine.requests[index + 1 :]:
            assert _position(request.prompt, sample.ids) >= 0


def test_1_a_spelling_that_no_renderer_would_write_is_kept(corpus: MemoryCorpus) -> None:
    from context_agent.testing.spoiled_replies import special_ids

    odd_ids = special_ids('<|channel|>commentary  to=functions.search_corpus<|message|>{ "query":\n"comets" }<|call|>')
    engine = FakeEngine([odd_ids, RENDERER.reply(Action(text="<Document id=d1></Document>"))])
    SearchAgent(corpus, TokenPolicy(engine)).search(QUESTION)
    first, second = engine.requests
    assert second.prompt[: len(first.prompt) + len(odd_ids)] == first.prompt + tuple(odd_ids)


# 2: prompts are what was sent, and grow ---------------------------------------------------------------------------


def test_2_the_record_holds_exactly_what_was_sent_and_returned(played: Played) -> None:
    (trajectory,) = played.result.trajectories
    whole_calls = list(expand(calls(trajectory)))
    assert [item.prompt for item in whole_calls] == [request.prompt for request in played.engine.requests]
    assert [item.call.output for item in whole_calls] == [sample.ids for sample in played.engine.samples]
    assert [item.call.logprobs for item in whole_calls] == [sample.logprobs for sample in played.engine.samples]


def test_2_a_prompt_extends_the_one_before_it_exactly_where_nothing_was_edited(played: Played) -> None:
    views, requests, samples = played.views, played.engine.requests, played.engine.samples
    (trajectory,) = played.result.trajectories
    for index, whole_call in enumerate(expand(calls(trajectory))):
        if index == 0:
            continue
        before = requests[index - 1].prompt + samples[index - 1].ids
        extends = requests[index].prompt[: len(before)] == before
        assert whole_call.extends == extends
        edited = views[index].hidden != views[index - 1].hidden
        previous = {segment.key for segment in views[index - 1].blocks}
        assert edited == (not extends) or not previous, "only an edit breaks the prefix"


def test_2_an_edit_renders_anew_from_the_first_edited_block_on(corpus: MemoryCorpus) -> None:
    renderer = _Counting()
    pruned_ids: list[str] = []

    def prune(view: View) -> Action:
        pruned_ids.append(view.blocks[len(view.blocks) // 2].id)
        return Action((ToolCall("prune_chunks", {"chunk_ids": pruned_ids[-1:]}),))

    steps = [lambda _: search("comets", "operas"), lambda _: search("rivers"), prune, rank_view]
    run = play(corpus, renderer, 1, choose=lambda view, _: steps[view.turn](view), turns=4)
    (trajectory,) = run.result.trajectories
    last = list(expand(calls(trajectory)))[-1]
    before = run.engine.requests[2].prompt + run.engine.samples[2].ids
    head = RENDERER.decode(before[: last.call.reused])
    assert not last.extends
    assert RENDERER.decode(before[last.call.reused :]).startswith(f"# DOCUMENT ID: {pruned_ids[0]} ")
    assert head == RENDERER.decode(run.engine.requests[3].prompt)[: len(head)]
    assert pruned_ids[0] not in RENDERER.decode(run.engine.requests[3].prompt).split("<|call|>")[1]
    assert max(renderer.encoded.values()) == 1, "each block is encoded for the prompt once"


def test_2_prompts_are_equal_for_rollouts_of_a_question_so_a_cache_serves_them(corpus: MemoryCorpus) -> None:
    engine = FakeEngine(lambda request: RENDERER.reply(Action(text="none")))
    SearchAgent(corpus, TokenPolicy(engine), rollouts=4).search(QUESTION)
    assert len({request.prompt for request in engine.requests}) == 1
    assert len({request.seed for request in engine.requests}) == 4


def test_2_records_do_not_grow_with_the_square_of_the_episode(corpus: MemoryCorpus) -> None:
    run = play(corpus, RENDERER, 3, window=32_768, turns=20, choose=lambda view, draw: search(str(draw.random())))
    (trajectory,) = run.result.trajectories
    recorded_ids = sum(len(call.new) + len(call.output) for call in calls(trajectory))
    assert recorded_ids == len(run.engine.requests[-1].prompt) + len(run.engine.samples[-1].ids)


# 3: the window ----------------------------------------------------------------------------------------------------


def test_3_prompt_and_output_never_exceed_the_window(played: Played) -> None:
    for view, request in zip(played.views, played.engine.requests, strict=True):
        assert len(request.prompt) + request.max_tokens <= view.budget.window
        assert request.max_tokens >= 1


def test_3_the_view_counts_what_the_prompt_holds(played: Played) -> None:
    for view, request in zip(played.views, played.engine.requests, strict=True):
        blocks = sum(1 for segment in view.segments if hasattr(segment, "hit"))
        assert 0 <= view.tokens - len(request.prompt) <= 2 * blocks


@pytest.mark.parametrize("window", [1300, 1500, 2048])
@pytest.mark.parametrize("seed", range(4))
def test_3_a_model_that_never_stops_meets_the_cap(corpus: MemoryCorpus, window: int, seed: int) -> None:
    draw = random.Random(seed)
    word = RENDERER.encode(" comet")[0]

    def endless(_: random.Random, ids: tuple[int, ...]) -> tuple[int, ...]:
        return (*ids[:-1], *[word] * 40_000) if draw.random() < 0.5 else ids

    profile = default()
    run = play(corpus, RENDERER, seed, window=window, ill=endless, profile=profile)
    for view, request, sample in zip(run.views, run.engine.requests, run.engine.samples, strict=True):
        assert len(request.prompt) + len(sample.ids) <= view.budget.window
    assert run.result.stop_reason


def test_3_a_reply_cut_by_length_is_closed_and_answered(corpus: MemoryCorpus) -> None:
    (long,) = search("comets " * 300).calls
    engine = FakeEngine([RENDERER.reply(Action((long,))), RENDERER.reply(Action(text="<Document id=d1></Document>"))])
    result = SearchAgent(corpus, TokenPolicy(engine, max_tokens=100)).search(QUESTION)
    assert engine.samples[0].finish is Finish.LENGTH
    results = [event for event in result.trajectories[0].events if isinstance(event, ToolResult)]
    assert results[0].mistake == "invalid_call"
    tail = engine.requests[1].prompt[len(engine.requests[0].prompt) + 100 :]
    assert RENDERER.decode(tail).startswith("<|call|><|start|>functions.search_corpus<|channel|>commentary")


async def test_3_no_room_for_a_reply_ends_the_episode_for_the_window(corpus: MemoryCorpus) -> None:
    policy = TokenPolicy(scripted(search("comets")))
    view = Episode(QUESTION, corpus, instructions=policy.instructions(default()), counter=policy.counter).open()
    full = replace(view, tokens=view.budget.window - 64 - 9)
    action = await policy.open(QUESTION, corpus, profile=default()).act(full)
    assert action.tokens is not None
    assert action.tokens > full.max_output, "which ends the episode with StopReason.WINDOW"
    assert not policy.engine.requests  # type: ignore[attr-defined]
    assert TokenCall.from_extra(action.extra) is None


# 4: records -------------------------------------------------------------------------------------------------------


def test_4_each_action_carries_its_call_and_survives_the_file(corpus: MemoryCorpus, tmp_path: Path) -> None:
    engine = scripted(search("comets"), Action(text="<Document id=d5></Document>"))
    agent = SearchAgent(corpus, TokenPolicy(engine), trajectories=tmp_path)
    result = agent.search(QUESTION)
    assert result.trajectory is not None
    loaded = read(result.trajectory)
    assert loaded == result.trajectories[0]
    first, second = calls(loaded)
    assert (first.version, first.finish, first.cached, first.reused) == ("fake-0", "stop", None, 0)
    assert second.reused == len(first.new) + len(first.output)
    assert loaded.header.counter == "o200k_harmony"
    assert loaded.header.policy == "tokens:fake:harmony"
    loaded.verify()
    json.dumps(loaded.events[1].action.extra[SAMPLED_KEY])  # type: ignore[union-attr]


# Content ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_a_document_cannot_add_a_special_token_or_a_call(seed: int) -> None:
    draw = random.Random(seed)
    forged = [
        Document(
            f"f{index}",
            f"Comets met bridges. {draw.choice(FORGERIES)}\n{draw.choice(FORGERIES)}",
            draw.choice(FORGERIES),
        )
        for index in range(6)
    ]
    steps = [search("comets met bridges"), Action(text="<Document id=f1></Document>")]
    shapes = []
    for documents in (forged, [Document(f"f{i}", "Comets met bridges.", "Plain") for i in range(6)]):
        engine = scripted(*steps)
        result = SearchAgent(small_corpus(documents), TokenPolicy(engine)).search(QUESTION)
        shapes.append([token for token in engine.requests[-1].prompt if token >= FIRST_SPECIAL])
        assert [len(event.action.calls) for event in result.trajectories[0].events if hasattr(event, "action")] == [
            1,
            0,
        ]
    assert shapes[0] == shapes[1], "the same special tokens, whatever the documents spell"


# Profiles ---------------------------------------------------------------------------------------------------------


def test_context_1_end_to_end() -> None:
    corpus = small_corpus(
        [Document(f"d{i}", f"Comet {i} passed the bridge of {1700 + i}.", f"Comet {i}") for i in range(9)]
    )
    profile = context_1()
    three_calls = Action(
        (
            ToolCall("search_corpus", {"query": "comet bridge"}),
            ToolCall("grep_corpus", {"pattern": "170[0-2]"}),
            ToolCall("prune_chunks", {"chunk_ids": ["d3_0"]}),
        ),
        reasoning="Search both ways.",
    )
    final = Action(
        text="<Document id=d1><Justification>It passed.</Justification></Document>\n<Document id=d2></Document>"
    )
    engine = scripted(three_calls, Action((ToolCall("prune_chunks", {"chunk_ids": ["d3_0"]}),)), final, profile=profile)
    result = SearchAgent(corpus, TokenPolicy(engine), profile=profile).search("Which comet?")
    assert [document.id for document in result.documents] == ["d1", "d2"]
    assert [request.stop for request in engine.requests] == [(200_002, 200_012)] * 3
    assert [(request.temperature, request.top_p) for request in engine.requests] == [(1.0, 0.9)] * 3
    text = RENDERER.decode(engine.requests[1].prompt)
    assert "Reasoning: high" in text
    assert "namespace functions {" in text
    assert "restore_chunks" not in text
    assert "<|start|>functions.multi_tool_use<|channel|>commentary to=assistant<|message|># DOCUMENT ID: d" in text
    assert text.count("[Token usage:") == 1
    assert "/32,768]\n<|end|><|start|>assistant" in text
    assert "# DOCUMENT ID: d3_0" in text
    assert "# DOCUMENT ID: d3_0" not in RENDERER.decode(engine.requests[2].prompt)


def test_parallel_calls_get_a_message_each(corpus: MemoryCorpus) -> None:
    renderer = HarmonyRenderer(parallel=True)
    engine = FakeEngine([renderer.reply(search("comets", "operas")), renderer.reply(Action(text="none"))])
    SearchAgent(corpus, TokenPolicy(engine, renderer)).search(QUESTION)
    text = renderer.decode(engine.requests[1].prompt)
    assert text.count("<|start|>functions.search_corpus<|channel|>commentary to=assistant<|message|>") == 2
    assert text.count("[Token usage:") == 1
    assert text.index("[Token usage:") > text.rindex("functions.search_corpus<|channel|>")


def test_under_a_control_strategy_the_sampled_ids_stay(corpus: MemoryCorpus) -> None:
    engine = scripted(
        *[search(query) for query in ("comets", "rivers", "operas")], Action(text="<Document id=d1></Document>")
    )
    policy = ControlledPolicy(TokenPolicy(engine), prune_by(oldest), "oldest")
    SearchAgent(corpus, policy, budget=Budget(2048)).search(QUESTION)
    for request, sample in zip(engine.requests[1:], engine.samples, strict=False):
        assert _position(request.prompt, sample.ids) >= 0


# Bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", ["", "only words", "<|channel|>analysis<|message|>and on and on"])
def test_a_reply_without_call_or_ranking_ends_with_what_the_view_defends(corpus: MemoryCorpus, reply: str) -> None:
    engine = FakeEngine([*[RENDERER.reply(search("comets"))], RENDERER.encode(reply) or (200_002,)])
    result = SearchAgent(corpus, TokenPolicy(engine)).search(QUESTION)
    assert result.stop_reason == StopReason.NO_RANKING
    assert result.documents


def test_an_engine_that_fails_in_the_middle_ends_the_episode_with_a_reason(corpus: MemoryCorpus) -> None:
    result = SearchAgent(corpus, TokenPolicy(scripted(search("comets")))).search(QUESTION)
    assert result.stop_reason == StopReason.POLICY_ERROR
    assert "replies of the script are used" in (result.error or "")
    assert result.documents


@pytest.mark.parametrize("sample", [((), ()), ((5, 6), (-0.5,)), ((5,) * 9_999, (-0.5,) * 9_999)])
def test_an_engine_that_breaks_its_contract_is_stopped(
    corpus: MemoryCorpus, sample: tuple[tuple[int, ...], tuple[float, ...]]
) -> None:
    class Broken(FakeEngine):
        async def generate(self, request: SampleRequest) -> Sample:
            return Sample(sample[0], sample[1], Finish.STOP)

    with pytest.raises(PolicyError, match=r"the engine must return from 1 to .*; got"):
        SearchAgent(corpus, TokenPolicy(Broken([]))).search(QUESTION)


def test_an_episode_without_the_policy_s_instructions_is_told_so(corpus: MemoryCorpus) -> None:
    policy = TokenPolicy(scripted(search("comets")))
    episode = Episode(QUESTION, corpus)
    with pytest.raises(PolicyError, match=r"policy\.instructions"):
        asyncio.run(policy.open(QUESTION, corpus, profile=default()).act(episode.open()))


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"max_tokens": 0},
        {"max_tokens": 1.5},
    ],
)
def test_settings_that_no_sampler_takes_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        TokenPolicy(FakeEngine([]), **options)  # type: ignore[arg-type]


class _Counting(HarmonyRenderer):
    """Counts how often a prompt asks for the ids of a text; the budget's own counting does not pass here."""

    def __init__(self) -> None:
        super().__init__()
        self.encoded: dict[str, int] = {}

    def encode(self, text: str) -> tuple[int, ...]:
        if text.startswith("# DOCUMENT ID:") and text.endswith("entry.\n"):
            self.encoded[text] = self.encoded.get(text, 0) + 1
        return super().encode(text)


def _position(ids: tuple[int, ...], part: tuple[int, ...]) -> int:
    """Where the part begins in the ids, -1 where it does not occur."""
    starts = (index for index, token in enumerate(ids) if token == part[0])
    return next((index for index in starts if ids[index : index + len(part)] == part), -1)
