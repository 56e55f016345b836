"""Router replay: recorded experts are those that were computed with, and the trainer computes with the same ones."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from context_agent.errors import ConfigError, DataError
from context_agent.policies.tokens.engines import Finish, Sample, SampleRequest
from context_agent.policies.tokens.recorded_calls import TokenCall, first_recorded
from context_agent.policies.tokens.routed_experts import UNRECORDED, pack, unpack
from context_agent.testing import tiny_runs
from context_agent.train.batches import StepRows, WeightedRow
from context_agent.train.rows import TrainingRow, rows_of_calls
from tests.support.row_trainer import VOCABULARY, gradients, small_tokenizer, trainer

torch = pytest.importorskip("torch")
pytest.importorskip("trl")
transformers = pytest.importorskip("transformers")

from context_agent.policies.tokens.engines.routers import (  # noqa: E402
    recorded_experts,
    replayed_experts,
    routers,
)
from context_agent.policies.tokens.engines.transformers import TransformersEngine  # noqa: E402

SHAPE = {
    "num_hidden_layers": 3,
    "num_experts_per_tok": 2,
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 64,
    "head_dim": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 256,
    "initializer_range": 0.125,
    "pad_token_id": 0,
}
KINDS = ["gpt-oss", "qwen3-moe", "mixtral"]


def mixture(kind: str = "gpt-oss") -> Any:
    """A mixture of 16 experts with random weights."""
    torch.manual_seed(0)
    if kind == "gpt-oss":
        rope = {"rope_type": "default", "rope_theta": 10_000.0}
        config = transformers.GptOssConfig(**SHAPE, num_local_experts=16, sliding_window=32, rope_parameters=rope)
        return transformers.GptOssForCausalLM(config)
    if kind == "qwen3-moe":
        config = transformers.Qwen3MoeConfig(**SHAPE, num_experts=16, moe_intermediate_size=64)
        return transformers.Qwen3MoeForCausalLM(config)
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(**SHAPE, num_local_experts=16))


def rounded(model: Any) -> Any:
    """The model, whose routers compute in bfloat16, as a sampler's may."""

    def forward(router: Any, hidden: Any) -> Any:
        logits = torch.nn.functional.linear(*(part.bfloat16() for part in (hidden, router.weight, router.bias)))
        best, indices = logits.topk(router.top_k, dim=-1)
        return logits, best.softmax(-1).float(), indices

    for router in routers(model):
        router.forward = forward.__get__(router)
    return model


def play(engine: TransformersEngine, turns: Sequence[tuple[int, Sequence[int]]], episode: int) -> list[TokenCall]:
    """The calls of an episode, each with how many ids it keeps and what it adds."""
    ids: list[int] = []
    played = []
    for seed, (kept, new) in enumerate(turns):
        reused = min(kept, len(ids))
        ids = [*ids[:reused], *new]
        request = SampleRequest(tuple(ids), 12, seed=100 * episode + seed, experts_from=first_recorded(reused))
        sample: Sample = asyncio.run(engine.generate(request))
        ids += sample.ids
        played.append(TokenCall(reused, tuple(new), sample.ids, sample.logprobs, "0", experts=sample.experts))
    return played


def sampled_items(model: Any, episodes: int = 6) -> list[WeightedRow]:
    """Rows of episodes of three calls, of which the last one is behind an edit."""
    engine = TransformersEngine(model.eval(), wait=0)
    items = []
    for episode in range(episodes):
        new = np.random.default_rng(episode).integers(1, VOCABULARY, (3, 15)).tolist()
        played = play(engine, [(0, new[0]), (999, new[1][:4]), (9 + episode, new[2][:7])], episode)
        rows = list(rows_of_calls(played, episode_id=f"e{episode}", group_id="g"))
        assert len(rows) == 2
        items += [WeightedRow(row, 0.5 - episode % 2) for row in rows]
    engine.close()
    return items


@cache
def items_of_rounded_routers() -> list[WeightedRow]:
    return sampled_items(rounded(mixture()))


def last_line(row_trainer: Any) -> dict[str, float]:
    return next(line for line in row_trainer.state.log_history if "sampler/logp_difference_mean" in line)


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_experts_are_those_of_a_plain_pass(kind: str) -> None:
    model = mixture(kind)
    for item in sampled_items(model, episodes=2):
        with torch.no_grad(), recorded_experts(model, rows=1) as record:
            model(input_ids=torch.tensor([item.row.input_ids]))
        assert np.array_equal(np.sort(unpack(item.row.experts)), np.sort(record.row(0)[:-1]))


@pytest.mark.parametrize("kind", KINDS)
def test_experts_of_a_batch_are_recorded_without_its_padding(kind: str) -> None:
    model = mixture(kind).eval()
    engine = TransformersEngine(model, max_batch=3)
    engine.expect(3)
    prompts = [list(range(1, 20)), list(range(30, 37)), [5] * 11]

    async def sample() -> list[Sample]:
        requests = [SampleRequest(ids, 2 + 3 * number, seed=1, experts_from=0) for number, ids in enumerate(prompts)]
        return await asyncio.gather(*map(engine.generate, requests))

    samples = asyncio.run(sample())
    engine.close()
    for prompt, found in zip(prompts, samples, strict=True):
        with torch.no_grad(), recorded_experts(model, rows=1) as record:
            model(input_ids=torch.tensor([[*prompt, *found.ids]]))
        assert np.array_equal(np.sort(unpack(found.experts)), np.sort(record.row(0)[:-1]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_replayed_pass_takes_the_experts_and_its_own_scores(kind: str) -> None:
    model = mixture(kind)
    ids = torch.randint(1, VOCABULARY, (2, 10))
    layers = len(routers(model))
    choices = [torch.randperm(16)[:2] for _ in range(2 * 10 * layers)]
    experts = torch.stack(choices).reshape(2, 10, layers, 2)
    experts[:, -3:] = UNRECORDED
    with torch.no_grad(), recorded_experts(model, rows=2) as record:
        model(input_ids=ids)
    own = torch.from_numpy(np.stack([record.row(0), record.row(1)]))
    with replayed_experts(model, experts) as replay, recorded_experts(model, rows=2) as record:
        model(input_ids=ids, use_cache=False).logits.log_softmax(-1)[..., 3].sum().backward()
    used = torch.from_numpy(np.stack([record.row(0), record.row(1)]))
    assert torch.equal(used[:, :-3], experts[:, :-3].int())
    assert not torch.equal(own[:, :-3], experts[:, :-3].int())
    assert replay.recorded.sum() == 2 * 7
    assert not replay.flipped[:, -3:].any()
    assert replay.flipped[:, :-3].any()
    assert all(router.weight.grad.abs().sum() > 0 for router in routers(model)), "the weights are computed anew"
    with replayed_experts(model, own.long()):
        repeated = model(input_ids=ids, use_cache=False).logits
    assert torch.allclose(repeated, model(input_ids=ids, use_cache=False).logits, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="all weights"),
        pytest.param({"pass_tokens": 200}, id="padded passes"),
        pytest.param({"gradient_checkpointing": True, "pass_tokens": 200}, id="checkpointed"),
        pytest.param({"lora": ["q_proj"], "gradient_checkpointing": True}, id="adapters"),
        pytest.param({"lora": ["q_proj"], "experts": True, "pass_tokens": 200}, id="adapters of experts"),
    ],
)
def test_replay_takes_away_what_a_rounded_router_adds(options: dict[str, Any], tmp_path: Path) -> None:
    model, settings = mixture(), dict(options)
    tokenizer = small_tokenizer()
    if lora := settings.pop("lora", None):
        from peft import LoraConfig

        stacked = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"] if settings.pop("experts", False) else None
        settings["peft_config"] = LoraConfig(r=4, target_modules=lora, target_parameters=stacked, lora_dropout=0.0)
    items = items_of_rounded_routers()
    lines = {}
    for replay in (False, True):
        chosen = {**settings, "router_replay": replay}
        row_trainer = trainer(copy.deepcopy(model), items, tokenizer, tmp_path / str(replay), **chosen)
        row_trainer.train()
        lines[replay] = last_line(row_trainer)
    assert "sampler/experts_flipped" not in lines[False]
    assert lines[True]["sampler/experts_flipped"] > 0.01
    assert lines[True]["sampler/logp_difference_mean"] <= 0.3 * lines[False]["sampler/logp_difference_mean"]


def test_checkpointed_and_padded_passes_have_the_same_gradient(tmp_path: Path) -> None:
    model, tokenizer = mixture(), small_tokenizer()
    items = sampled_items(rounded(copy.deepcopy(model)), episodes=3)
    options: list[dict[str, Any]] = [{}, {"pass_tokens": 200}, {"gradient_checkpointing": True}]
    every = [
        gradients(trainer(copy.deepcopy(model), items, tokenizer, tmp_path, router_replay=True, **option))
        for option in options
    ]
    for other in every[1:]:
        largest = max(float(gradient.abs().max()) for gradient in every[0].values())
        assert max(float((every[0][name] - other[name]).abs().max()) for name in every[0]) <= 1e-5 * largest


def test_rows_without_a_record_train_by_the_trainer_s_own_routing(tmp_path: Path) -> None:
    model, tokenizer = mixture(), small_tokenizer()
    items = sampled_items(copy.deepcopy(model), episodes=2)
    bare = [WeightedRow(TrainingRow(**{**fields(item.row), "experts": ""}), item.advantage) for item in items]
    same = gradients(trainer(copy.deepcopy(model), bare, tokenizer, tmp_path, router_replay=True))
    plain = gradients(trainer(copy.deepcopy(model), bare, tokenizer, tmp_path))
    assert all(torch.equal(same[name], plain[name]) for name in plain)


def fields(row: TrainingRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in TrainingRow.__slots__}


@pytest.mark.parametrize("changed", ["layers", "positions", "numbers"])
def test_experts_of_another_model_are_refused(changed: str, tmp_path: Path) -> None:
    model, tokenizer = mixture(), small_tokenizer()
    item = sampled_items(copy.deepcopy(model), episodes=1)[0]
    experts = unpack(item.row.experts)
    wrong = {"layers": experts[:, :2], "positions": experts[:-1], "numbers": experts + 9}[changed]
    row = TrainingRow(**{**fields(item.row), "experts": pack(wrong)})
    with pytest.raises(DataError, match="Use the same model in the sampler"):
        trainer(model, [WeightedRow(row, 1.0)], tokenizer, tmp_path, router_replay=True).train()


def test_a_model_without_routers_is_refused() -> None:
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1, vocab_size=VOCABULARY
    )
    with pytest.raises(ConfigError, match="LlamaForCausalLM has no router"):
        routers(transformers.LlamaForCausalLM(config))


def test_rows_in_a_checkpoint_keep_their_experts(tmp_path: Path) -> None:
    items = sampled_items(mixture(), episodes=1)
    StepRows(3, [items]).save(tmp_path, 0)
    assert StepRows.load(tmp_path, 0).substeps == [items]


def test_a_paused_episode_keeps_its_experts() -> None:
    from context_agent.train.experimental.async_rollouts.rollout_log import RecordedCall, paused_record

    call = RecordedCall("digest", Sample((1,), (-1.0,), Finish.STOP, experts=pack(np.ones((2, 3, 4), np.int32))))
    record = json.loads(json.dumps(paused_record("e", 0, [call])))
    assert RecordedCall.of(record["calls"][0]) == call


@pytest.mark.usefixtures("forked_rollouts")
@pytest.mark.parametrize("sampler", ["thread", "process", None])
def test_a_run_replays_what_it_samples(sampler: str | None, student: Path, tmp_path: Path) -> None:
    from context_agent.train import reinforcement

    changes: dict[str, Any] = {"async_rollouts": {"max_steps_ahead": 1, "sampler": sampler}} if sampler else {}
    run = tiny_runs.rewards(
        student,
        tmp_path,
        rollouts={"steps": 3},
        loss={"router_replay": True},
        evaluation={"every": 0},
        **changes,
    )
    reinforcement.train(run, note=lambda _: None)
    lines = tiny_runs.timeless(tmp_path)
    flipped = [line["sampler/experts_flipped"] for line in lines if "sampler/experts_flipped" in line]
    assert flipped
    assert flipped[0] == 0, "the sampler computes as the trainer does"
    sent = [line["sync/bytes"] / line["sync/full_bytes"] for line in lines if "sync/bytes" in line]
    assert bool(sent) == (sampler is not None), "a sampler that shares the model is sent nothing"
    assert all(0 < share < 1.1 for share in sent)
    if sampler == "process":
        assert min(sent) < 0.97, "rows of words that were not read have not changed"
