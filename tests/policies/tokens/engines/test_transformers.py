"""The in-process engine: batches, seeds, stop tokens, and log-probabilities that a forward pass agrees with.

Prefixes that the engine does not compute again, without a change of the log-probabilities.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from context_agent import Budget, MemoryCorpus, SearchAgent
from context_agent.errors import ConfigError, PolicyError
from context_agent.policies.tokens import TokenPolicy
from context_agent.policies.tokens.engines import Finish, Sample, SampleRequest
from context_agent.policies.tokens.engines.prefix_cache import PrefixCache, supported
from context_agent.policies.tokens.engines.sampling import PendingSample, Sampler, drawn, likeliest, split_by_length
from context_agent.policies.tokens.engines.transformers import TransformersEngine
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.policies.tokens.recorded_calls import calls
from context_agent.policies.tokens.vocabularies import TokenizerVocabulary
from context_agent.testing.forced_episodes import forced, worst_difference
from context_agent.testing.token_episodes import QUESTION, small_corpus
from context_agent.train.rows import sampled_rows

torch = pytest.importorskip("torch", reason="the in-process engine needs the train extra (torch)")
transformers = pytest.importorskip("transformers", reason="the in-process engine needs the train extra (transformers)")

from context_agent.train.tiny_model import tiny_gpt_oss  # noqa: E402


@pytest.fixture(scope="module")
def corpus() -> MemoryCorpus:
    return small_corpus()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, HarmonyRenderer]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    folder: Path = tiny_gpt_oss(tmp_path_factory.mktemp("tiny"))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    yield model, HarmonyRenderer(TokenizerVocabulary(tokenizer, "tiny"))
    torch.set_num_threads(threads)


def generate(engine: TransformersEngine, *requests: dict[str, Any]) -> list[Sample]:
    defaults = {"max_tokens": 6, "top_p": 0.9, "seed": 1}

    async def generate_all() -> list[Sample]:
        return await asyncio.gather(
            *(engine.generate(SampleRequest(**{**defaults, **request})) for request in requests)
        )

    try:
        return asyncio.run(generate_all())
    finally:
        engine.close()


def test_a_seed_s_tokens_do_not_depend_on_the_batch(tiny: tuple[Any, HarmonyRenderer]) -> None:
    requests = [{"prompt": list(range(20, 20 + n)), "seed": n, "max_tokens": 4 + n} for n in (3, 9, 5)]
    single = [generate(TransformersEngine(tiny[0]), request)[0] for request in requests]
    batched = generate(TransformersEngine(tiny[0], wait=0.2), *requests)
    assert [sample.ids for sample in batched] == [sample.ids for sample in single]
    assert [len(sample.ids) for sample in batched] == [7, 13, 9]
    for in_batch, by_itself in zip(batched, single, strict=True):
        assert max(abs(a - b) for a, b in zip(in_batch.logprobs, by_itself.logprobs, strict=True)) <= 1e-5
    assert len({generate(TransformersEngine(tiny[0]), {"prompt": [30], "seed": s})[0].ids for s in range(5)}) == 5


def test_requests_of_the_same_moment_share_a_batch(tiny: tuple[Any, HarmonyRenderer]) -> None:
    model, _ = tiny
    widths: list[int] = []

    class Watching(type(model)):  # type: ignore[misc]
        def generate(self, input_ids: Any, **options: Any) -> Any:
            widths.append(len(input_ids))
            return super().generate(input_ids=input_ids, **options)

    kind = model.__class__
    model.__class__ = Watching
    try:
        generate(TransformersEngine(model, wait=0.3, max_batch=4), *[{"prompt": [9, n]} for n in range(5)])
    finally:
        model.__class__ = kind
    assert sorted(widths) == [1, 4]


def test_greedy_and_a_narrow_top_p_take_the_likeliest(tiny: tuple[Any, HarmonyRenderer]) -> None:
    model, _ = tiny
    with torch.inference_mode():
        best = int(model(torch.tensor([[40, 41]])).logits[0, -1].argmax())
    greedy, narrow = generate(
        TransformersEngine(model),
        {"prompt": [40, 41], "temperature": 0.0, "max_tokens": 1},
        {"prompt": [40, 41], "top_p": 1e-6, "max_tokens": 1, "seed": None},
    )
    assert greedy.ids == narrow.ids == (best,)


@pytest.mark.parametrize("vocabulary", [5, 64, 3_000])
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0])
def test_the_nucleus_is_that_of_a_whole_sort(vocabulary: int, scale: float) -> None:
    """Flat distributions, whose nucleus is most of the vocabulary, and peaked ones, whose nucleus is one token."""
    torch.manual_seed(vocabulary)
    logprobs = torch.log_softmax(torch.randn(4, vocabulary) * scale, -1)
    logprobs[0, : vocabulary // 2] = -torch.inf
    shares = [0.999999, 0.9, 0.5, 1e-9]
    mass, order = likeliest(logprobs, shares)
    by_sort, places = logprobs.exp().sort(descending=True)
    before = by_sort.cumsum(-1, dtype=torch.float64) - by_sort
    for row, share in enumerate(shares):
        expected = by_sort[row][before[row] < share]
        kept = mass[row] > 0
        assert torch.equal(mass[row][kept], expected[expected > 0])
        if scale:
            assert set(order[row][kept].tolist()) == set(places[row][before[row] < share][expected > 0].tolist())


def test_a_draw_is_in_proportion_to_the_mass() -> None:
    mass = torch.tensor([[0.0, 3.0, 0.0, 1.0, 4.0, 0.0]])
    points = (torch.arange(8_000, dtype=torch.float64) / 8_000).unsqueeze(1)
    choices = drawn(mass.expand(8_000, -1), points)
    assert choices.bincount(minlength=6).tolist() == [0, 3_000, 0, 1_000, 4_000, 0]
    last = torch.tensor([[1 - 2.0**-53]], dtype=torch.float64)
    assert drawn(mass, last).tolist() == [4], "the last id has no mass"


def sampler_of(*options: dict[str, float]) -> Sampler:
    return Sampler([PendingSample(SampleRequest([1], 9, seed=row, **each)) for row, each in enumerate(options)], 0)


def test_a_whole_distribution_is_drawn_from_without_sorting_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("sorted")

    scores = torch.randn(3, 500)
    for name in ("sort", "argsort", "topk"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
    sampler_of({}, {"temperature": 0.7}, {"temperature": 0.0})(torch.zeros(3, 1), scores)
    with pytest.raises(AssertionError, match="sorted"):
        sampler_of({}, {"top_p": 0.9}, {})(torch.zeros(3, 1), scores)


def test_a_row_draws_the_same_token_beside_a_row_with_a_nucleus() -> None:
    scores = torch.randn(2, 500)
    alone = sampler_of({})
    alone(torch.zeros(1, 1), scores[:1])
    beside = sampler_of({}, {"top_p": 0.5})
    beside(torch.zeros(2, 1), scores)
    assert alone._batch[0].ids == beside._batch[0].ids


def test_logprobs_are_those_at_the_temperature(tiny: tuple[Any, HarmonyRenderer]) -> None:
    """What the ratio of a loss needs: the log-probability with which the token was drawn."""
    model, _ = tiny
    warm, greedy = generate(
        TransformersEngine(model),
        {"prompt": [40, 41], "temperature": 0.5, "top_p": 1.0, "max_tokens": 3},
        {"prompt": [40, 41], "temperature": 0.0, "max_tokens": 3},
    )
    for reply, temperature in ((warm, 0.5), (greedy, 1.0)):
        with torch.inference_mode():
            logits = model(torch.tensor([[40, 41, *reply.ids]])).logits[0, 1:-1].float()
        expected = torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(reply.ids)[:, None])[:, 0]
        assert (expected - torch.tensor(reply.logprobs)).abs().max() < 1e-5


def test_ids_are_scored_as_a_forward_pass_scores_them_also_between_batches(tiny: tuple[Any, HarmonyRenderer]) -> None:
    model, _ = tiny
    engine, ids = TransformersEngine(model, version="7"), [40, 41, 42, 43]

    async def sample_and_score() -> Any:
        engine.expect(2)
        request = SampleRequest([5, 6], 4, seed=1)
        first = asyncio.create_task(engine.generate(request))
        # The batch waits for a second request, and the score does not wait for the batch.
        scored = await engine.score(ids)
        assert not first.done()
        await asyncio.gather(first, engine.generate(request))
        return scored

    scored = asyncio.run(sample_and_score())
    engine.close()
    assert scored.version == "7"
    assert scored.logprobs == pytest.approx(forward_logprobs(model, ids[:1], tuple(ids[1:])).tolist(), abs=1e-6)


def test_a_stop_token_is_the_last_id_and_only_the_asked_ones_stop(
    tiny: tuple[Any, HarmonyRenderer], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, renderer = tiny
    return_id, call_id = renderer.stop
    forced(monkeypatch, [call_id, 50, return_id, 51])
    (with_both,) = generate(TransformersEngine(model), {"prompt": [9], "stop": renderer.stop})
    assert (with_both.ids, with_both.finish) == ((call_id,), Finish.STOP)
    forced(monkeypatch, [call_id, 50, return_id, 51])
    (with_return,) = generate(TransformersEngine(model), {"prompt": [9], "stop": (return_id,)})
    assert with_return.ids == (call_id, 50, return_id), "the model's own end tokens do not stop it"


def test_sampled_logprobs_are_those_of_a_forward_pass_on_the_row(
    tiny: tuple[Any, HarmonyRenderer], corpus: MemoryCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's replies are forced, so that episodes have turns and prunes; the log-probabilities are its own."""
    from context_agent.testing.forced_episodes import forced_episodes

    model, renderer = tiny
    results = forced_episodes(model, renderer, corpus, monkeypatch, seed=2, rollouts=2)
    rows = [row for result in results for row in sampled_rows(result.trajectories[0])]
    assert len(rows) > len(results), "some episode pruned"
    assert worst_difference(model, rows) <= 1e-5


def test_rollouts_of_an_untrained_model_end_with_a_stated_reason(
    tiny: tuple[Any, HarmonyRenderer], corpus: MemoryCorpus
) -> None:
    model, renderer = tiny
    engine = TransformersEngine(model, version="step-3")
    policy = TokenPolicy(engine, renderer, max_tokens=24)
    with SearchAgent(corpus, policy, budget=Budget(4096), rollouts=4, seed=5) as agent:
        first, second = agent.search(QUESTION), agent.search(QUESTION)
    engine.close()
    assert first.stop_reason == "no_ranking"
    sampled = [[call.output for call in calls(t)] for t in first.trajectories]
    assert sampled == [[call.output for call in calls(t)] for t in second.trajectories], "equal seeds, equal tokens"
    rows = [row for trajectory in first.trajectories for row in sampled_rows(trajectory)]
    assert {row.policy_version for row in rows} == {"step-3"}
    assert worst_difference(model, rows) <= 1e-5


def test_a_prompt_past_the_model_s_positions_is_refused(tiny: tuple[Any, HarmonyRenderer]) -> None:
    with pytest.raises(PolicyError, match="positions"):
        generate(TransformersEngine(tiny[0]), {"prompt": [1] * 131_072})


def test_the_positions_of_a_model_that_also_reads_images_are_those_of_its_text(
    tiny: tuple[Any, HarmonyRenderer], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import Gemma3Config

    monkeypatch.setattr(tiny[0], "config", Gemma3Config(text_config={"max_position_embeddings": 64}))
    with pytest.raises(PolicyError, match="the model's 64 positions"):
        generate(TransformersEngine(tiny[0]), {"prompt": [1] * 65})


def test_a_model_that_fails_fails_those_who_asked_and_serves_the_next(tiny: tuple[Any, HarmonyRenderer]) -> None:
    engine = TransformersEngine(tiny[0])
    with pytest.raises(PolicyError, match="failed"):
        generate(engine, {"prompt": [10**7]})
    assert generate(engine, {"prompt": [5]})[0].ids


def test_closing_ends_the_thread_and_a_later_request_starts_one(tiny: tuple[Any, HarmonyRenderer]) -> None:
    earlier = set(threading.enumerate())
    engine = TransformersEngine(tiny[0])
    for _ in range(2):
        assert generate(engine, {"prompt": [5, 6]})
        assert not any(thread.name == "ctx1-generate" for thread in set(threading.enumerate()) - earlier)


def test_settings_that_cannot_work_are_refused(tiny: tuple[Any, HarmonyRenderer]) -> None:
    with pytest.raises(ConfigError, match="max_batch"):
        TransformersEngine(tiny[0], max_batch=0)


def test_a_batch_is_parted_where_padding_would_cost_much() -> None:
    def pending_samples(*lengths: int) -> list[PendingSample]:
        return [PendingSample(SampleRequest([1] * length)) for length in lengths]

    def parts(batch: list[PendingSample], most_ids: int | None = None) -> list[list[int]]:
        return [[len(pending.request.prompt) for pending in part] for part in split_by_length(batch, most_ids)]

    assert parts(pending_samples()) == []
    assert parts(pending_samples(9, 10, 8)) == [[9, 10, 8]]
    assert parts(pending_samples(100, 10, 12, 90)) == [[10, 12], [90, 100]]
    # Half of the batch is a quarter shorter: an eighth is padding.
    assert parts(pending_samples(100, 75)) == [[100, 75]]
    # No part holds more padded ids than are read at once, unless it is one prompt.
    assert parts(pending_samples(9, 10, 8, 7), 40) == [[9, 10, 8, 7]]
    assert parts(pending_samples(9, 10, 8, 7), 24) == [[7, 8], [9, 10]]
    assert parts(pending_samples(3, 50, 4, 3, 2), 12) == [[2, 3, 3], [4], [50]]


@pytest.fixture(scope="module")
def llama() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=200,
    )
    return transformers.LlamaForCausalLM(config).eval()


def sample(engine: TransformersEngine, prompts: list[list[int]]) -> list[Sample]:
    async def generate_all() -> list[Sample]:
        requests = [SampleRequest(prompt, 9, (), number % 2, 0.9, number) for number, prompt in enumerate(prompts)]
        return await asyncio.gather(*map(engine.generate, requests))

    return asyncio.run(generate_all())


def forward_logprobs(model: Any, prompt: list[int], reply: tuple[int, ...]) -> Any:
    with torch.no_grad():
        scores = torch.log_softmax(model(torch.tensor([[*prompt, *reply]])).logits, -1)
    return scores[0, len(prompt) - 1 : -1].gather(1, torch.tensor(reply)[:, None]).squeeze(1)


def test_a_prompt_costs_what_it_adds_and_scores_as_a_forward_pass_does(llama: Any) -> None:
    engine = TransformersEngine(llama, max_batch=3, wait=0.2, pad_id=0)
    prompts = [[number + 1] * (5 + 8 * number) for number in range(3)]
    for turn in range(4):
        samples = sample(engine, prompts)
        for number, (prompt, reply) in enumerate(zip(prompts, samples, strict=True)):
            expected = forward_logprobs(llama, prompt, reply.ids)
            assert (expected - torch.tensor(reply.logprobs)).abs().max() < 1e-5
            # The second turn continues the reply, the third was pruned after four tokens, the fourth is new.
            assert reply.cached_tokens == [0, len(prompt) - 4, 4, 0][turn]
            prompts[number] = [[*prompt, *reply.ids, 7, 8, 9], [*prompt[:4], 150, 151], [160 + number, 170, 180]][
                turn % 3
            ]
    engine.close()


def test_other_weights_read_everything_anew(llama: Any) -> None:
    engine = TransformersEngine(llama, version="1", pad_id=0)
    prompt = [5, 6, 7, 8]
    assert sample(engine, [prompt])[0].cached_tokens == 0
    assert sample(engine, [prompt])[0].cached_tokens == 3
    engine.version = "2"
    assert sample(engine, [prompt])[0].cached_tokens == 0
    engine.close()


def test_the_prompts_of_episodes_that_ended_are_read_anew(llama: Any) -> None:
    """A resumed run does not play an evaluation again, so the evaluation must not change how prompts are read."""
    engine = TransformersEngine(llama, version="1", pad_id=0)
    prompt = [5, 6, 7, 8]
    engine.expect(2)
    assert [reply.cached_tokens for reply in sample(engine, [prompt, prompt])] == [0, 0]
    engine.expect(-1)
    assert sample(engine, [prompt])[0].cached_tokens == 3
    engine.expect(-1)
    engine.expect(1)
    assert sample(engine, [prompt])[0].cached_tokens == 0
    engine.close()


def test_memory_is_bounded_in_bytes(llama: Any) -> None:
    cache = PrefixCache(most_bytes=3 * 10 * 2 * 2 * 2 * 8 * 4)
    prompts = [[number] * 11 for number in range(1, 6)]
    with torch.inference_mode():
        for prompt in prompts:
            cache.keep(prompt[:-1], cache.states(llama, prompt)[0])
        assert [cache.states(llama, prompt)[1] for prompt in prompts] == [0, 0, 10, 10, 10]
        small = PrefixCache(most_bytes=1)
        small.keep(prompts[0][:-1], small.states(llama, prompts[0])[0])
        assert small.states(llama, prompts[0])[1] == 0


def test_a_model_with_a_sliding_window_is_not_cached() -> None:
    config = transformers.MistralConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        vocab_size=50,
        sliding_window=8,
    )
    assert not supported(transformers.MistralForCausalLM(config))
