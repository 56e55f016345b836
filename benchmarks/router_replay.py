"""Router replay on a tiny gpt-oss: how much sampler and trainer differ, and how many tokens get other experts.

    python benchmarks/router_replay.py [--rows 24] [--tokens 96] [--seeds 3] [--threads 1]

The sampler has the trainer's weights, but computes slightly different numbers. There are three kinds: noise on the
router's scores as large as bfloat16's rounding, a router that computes in bfloat16, and a whole model in bfloat16. A
step of the trainer with a learning rate of 0 scores its samples, without and with `loss.router_replay`. A flipped token
is one that the trainer sends to other experts than the sampler, in at least one layer. The program needs the extra
`train`.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import io
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from statistics import fmean
from typing import Any

import numpy as np

from context_agent.policies.tokens.engines import Sample, SampleRequest
from context_agent.policies.tokens.routed_experts import unpack
from context_agent.train.batches import WeightedRow
from context_agent.train.config import LossConfig
from context_agent.train.rows import TrainingRow

VOCABULARY, EXPERTS, TOP_K, LAYERS, HIDDEN = 320, 32, 4, 4, 128
PROMPT_IDS = 32
ROUNDING = 2**-8
"""The relative error of a number that is rounded to bfloat16."""
MOST_REMAINING = 0.3
"""The largest share of the difference that may remain with replay."""


def main() -> int:
    """Print a line for each kind of sampler. If replay leaves too much, or tokens flip with it, return 1."""
    import torch
    from transformers.utils import logging

    logging.set_verbosity_error()
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=24)
    options.add_argument("--tokens", type=int, default=96)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--threads", type=int, default=1)
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    missed = 0
    print(f"{'sampler':24}{'without':>10}{'with':>10}{'share':>8}{'flipped':>10}{'with':>6}")
    for name, perturb in SAMPLERS.items():
        found = [compare(perturb, seed, chosen.rows, chosen.tokens) for seed in range(chosen.seeds)]
        without, with_replay, flipped, left = map(fmean, zip(*found, strict=True))
        share = with_replay / without
        missed += left > 0 or share > MOST_REMAINING
        print(f"{name:24}{without:10.1e}{with_replay:10.1e}{share:8.2f}{flipped:10.1%}{left:6.0%}", flush=True)
    return 1 if missed else 0


def compare(perturb: Callable[[Any], Any], seed: int, rows: int, tokens: int) -> tuple[float, float, float, float]:
    """Return the mean difference of log-probabilities without and with replay, then the shares of flipped tokens."""
    from context_agent.policies.tokens.engines.transformers import TransformersEngine

    model = tiny_mixture(seed)
    engine = TransformersEngine(perturb(copy.deepcopy(model).eval()), max_batch=rows)
    engine.expect(rows)
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(1, VOCABULARY, PROMPT_IDS).tolist() for _ in range(rows)]
    samples = asyncio.run(_sample(engine, prompts, tokens))
    engine.close()
    items = [sampled_row(prompt, sample) for prompt, sample in zip(prompts, samples, strict=True)]
    without, flipped = scored(model, items, replay=False)
    with_replay, left = scored(model, items, replay=True)
    return without, with_replay, flipped, left


def tiny_mixture(seed: int) -> Any:
    """Return a gpt-oss with as many experts as the 20b model, random weights, and plain rotary positions."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.GptOssConfig(
        num_hidden_layers=LAYERS,
        num_local_experts=EXPERTS,
        num_experts_per_tok=TOP_K,
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=HIDDEN,
        head_dim=32,
        num_attention_heads=HIDDEN // 32,
        num_key_value_heads=HIDDEN // 64,
        max_position_embeddings=1_024,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        router_aux_loss_coef=0.0,
        # The variance of activations that gpt-oss has at its own width.
        initializer_range=HIDDEN**-0.5,
        pad_token_id=0,
    )
    return transformers.GptOssForCausalLM(config)


def noisy_routers(model: Any) -> Any:
    """Return the model with noise on the scores of its routers."""
    import torch

    def forward(router: Any, hidden: Any) -> Any:
        logits = torch.nn.functional.linear(hidden, router.weight, router.bias)
        logits = logits * (1 + ROUNDING * torch.randn_like(logits))
        best, indices = logits.topk(router.top_k, dim=-1)
        return logits, best.softmax(-1), indices

    return with_router(model, forward)


def rounded_routers(model: Any) -> Any:
    """Return the model with routers that compute in bfloat16."""
    import torch

    def forward(router: Any, hidden: Any) -> Any:
        half = [value.bfloat16() for value in (hidden, router.weight, router.bias)]
        logits = torch.nn.functional.linear(*half)
        best, indices = logits.topk(router.top_k, dim=-1)
        return logits, best.softmax(-1).float(), indices

    return with_router(model, forward)


def with_router(model: Any, forward: Callable[[Any, Any], Any]) -> Any:
    """Return the model with another function as the forward pass of its routers."""
    from context_agent.policies.tokens.engines.routers import routers

    for router in routers(model):
        router.forward = forward.__get__(router)
    return model


def in_bfloat16(model: Any) -> Any:
    """Return the model with weights and activations in bfloat16."""
    return model.bfloat16()


SAMPLERS: dict[str, Callable[[Any], Any]] = {
    "noise on the router": noisy_routers,
    "router in bfloat16": rounded_routers,
    "model in bfloat16": in_bfloat16,
}


async def _sample(engine: Any, prompts: Sequence[Sequence[int]], tokens: int) -> list[Sample]:
    requests = [SampleRequest(ids, tokens, seed=number, experts_from=0) for number, ids in enumerate(prompts)]
    return await asyncio.gather(*map(engine.generate, requests))


def sampled_row(prompt: Sequence[int], sample: Sample) -> WeightedRow:
    """Return a row of one call, sampled with the newest weights."""
    mask = [*(0 for _ in prompt), *(1 for _ in sample.ids)]
    logprobs = [*(0.0 for _ in prompt), *sample.logprobs]
    return WeightedRow(TrainingRow([*prompt, *sample.ids], mask, logprobs, "e", "g", "0", sample.experts), 1.0)


def scored(model: Any, items: Sequence[WeightedRow], *, replay: bool) -> tuple[float, float]:
    """Return the mean difference between the trainer's and the sampler's log-probabilities, and the share of flipped
    tokens.
    """
    from context_agent.train.rl.row_trainer import RowTrainer, grpo_arguments
    from context_agent.train.tiny_model import for_transformers, tiny_tokenizer

    class Rows:
        def rows(self, update: int) -> Sequence[WeightedRow]:
            return items

    with tempfile.TemporaryDirectory() as folder:
        trainer: Any = RowTrainer(
            copy.deepcopy(model),
            Rows(),
            args=grpo_arguments(
                output_dir=folder,
                max_steps=1,
                learning_rate=0.0,
                save_strategy="no",
                report_to=[],
                logging_steps=1,
                disable_tqdm=True,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
            ),
            tokenizer=for_transformers(tiny_tokenizer(["search the corpus"] * 9, size=VOCABULARY)),
            loss=LossConfig(router_replay=replay),
        )
        routed = routed_by(trainer)
        with redirect_stdout(io.StringIO()):  # TRL prints each update
            trainer.train()
    line = next(entry for entry in trainer.state.log_history if "sampler/logp_difference_mean" in entry)
    recorded = {tuple(item.row.input_ids): unpack(item.row.experts) for item in items}
    differs = [(np.sort(routed[ids]) != np.sort(experts)).any((1, 2)) for ids, experts in recorded.items()]
    return line["sampler/logp_difference_mean"], float(np.concatenate(differs).mean())


def routed_by(trainer: Any) -> dict[tuple[int, ...], Any]:
    """Return a mapping from each row's ids to the experts that the trainer's forward pass chose for them.

    The mapping is empty at first. It fills while the trainer runs, one row per pass.
    """
    from context_agent.policies.tokens.engines.routers import recorded_experts

    routed: dict[tuple[int, ...], Any] = {}
    compute_loss = trainer.compute_loss

    def compute(model: Any, inputs: Any) -> Any:
        with recorded_experts(model, rows=1) as record:
            loss = compute_loss(model, inputs)
        routed[tuple(inputs.ids[0].tolist())] = record.row(0)[:-1]
        return loss

    trainer.compute_loss = compute
    return routed


if __name__ == "__main__":
    raise SystemExit(main())
