"""What the engine in this process does not read again, and that its log-probabilities stay a forward pass's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from context_agent.policies.tokens.engines import Sample, SampleRequest

torch = pytest.importorskip("torch", reason="the in-process engine needs the train extra (torch)")
transformers = pytest.importorskip("transformers", reason="the in-process engine needs the train extra (transformers)")

from context_agent.policies.tokens.engines.prefix_cache import PrefixCache, supported  # noqa: E402
from context_agent.policies.tokens.engines.transformers import TransformersEngine  # noqa: E402


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
    async def together() -> list[Sample]:
        requests = [SampleRequest(prompt, 9, (), number % 2, 0.9, number) for number, prompt in enumerate(prompts)]
        return await asyncio.gather(*map(engine.generate, requests))

    return asyncio.run(together())


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
