"""Large models' shapes with random weights: a LoRA step of the trainer, and sampling by the engine of this process.

The run files of configs/ have the settings, and the assumptions with which the figures are compared.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from context_agent.policies.tokens.engines import Engine, SampleRequest
from context_agent.train.batches import WeightedRow
from context_agent.train.config import RunConfig
from context_agent.train.estimate import estimate_run
from context_agent.train.rows import TrainingRow
from context_agent.train.run_file import read_run
from gpu.part import Clock, Row, Scale, memory_row

ROOT = Path(__file__).resolve().parents[2]
UPDATES = 3
"""Number of updates. The first one compiles and allocates. The others are timed."""
SAMPLED_SHARE = 6
"""Number of a row's tokens for each sampled token, as the run files' `[expected]` assumes."""


def gpt_oss_20b(scale: Scale, folder: Path, clock: Clock) -> Iterator[Row]:
    """Measure gpt-oss-20b's shape."""
    # Eager attention is the only one with gradients for the sinks that every version of torch has.
    yield from measure(scale, folder, gpt_oss_config(scale), "gpt-oss-20b-1gpu.toml", "eager")


def qwen3_4b(scale: Scale, folder: Path, clock: Clock) -> Iterator[Row]:
    """Measure Qwen3-4B's shape."""
    yield from measure(scale, folder, qwen3_config(scale), "qwen3-4b-1gpu.toml", "sdpa")


def gpt_oss_config(scale: Scale) -> Any:
    """Return transformers' configuration of gpt-oss in the scale's shape. Its defaults are those of the large model."""
    from transformers import GptOssConfig

    config = GptOssConfig(**scale.gpt_oss, router_aux_loss_coef=0.0)
    config.architectures = ["GptOssForCausalLM"]
    return config


def qwen3_config(scale: Scale) -> Any:
    """Return the configuration that Qwen/Qwen3-4B-Instruct-2507 is published with, in the scale's shape."""
    from transformers import Qwen3Config

    shape = {
        "hidden_size": 2_560,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 9_728,
        "vocab_size": 151_936,
    }
    config = Qwen3Config(**(shape | dict(scale.qwen3)), tie_word_embeddings=True)
    config.architectures = ["Qwen3ForCausalLM"]
    return config


class SameRows:
    """Two random rows, which are the same for each update, and the times at which they were taken."""

    def __init__(self, tokens: int, vocabulary: int) -> None:
        import torch

        draw = torch.Generator().manual_seed(0)
        ids = torch.randint(0, vocabulary, (2, tokens), generator=draw).tolist()
        mask = [int(index >= tokens - tokens // SAMPLED_SHARE) for index in range(tokens)]
        logprobs = [-8.0 * use for use in mask]
        self._rows = [
            WeightedRow(TrainingRow(row, mask, logprobs, f"e{number}", "g"), advantage)
            for number, (row, advantage) in enumerate(zip(ids, (1.0, -1.0), strict=True))
        ]
        self.times: list[float] = []

    def rows(self, update: int) -> Sequence[WeightedRow]:
        """Return both rows."""
        self.times.append(time.perf_counter())
        return self._rows


def measure(scale: Scale, folder: Path, config: Any, run_file: str, attention: str) -> Iterator[Row]:
    """Train LoRA adapters on the shape in the trainer's own path, then sample with the same weights."""
    import torch
    import transformers

    from context_agent.train.models import autocast_dtype
    from context_agent.train.output_layer import with_float32_head

    run = shape_run(scale, config, folder, run_file, attention)
    estimate = estimate_run(run)
    with torch.device(scale.device):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, run.model.dtype), attn_implementation=attention
        )
    if autocast_dtype(run.model) is not None:
        model = with_float32_head(model)
    weights = sum(parameter.numel() for parameter in model.parameters())
    yield Row("", "weights", f"{weights / 1e9:.4g} billion", f"{estimate.shape.parameters / 1e9:.4g} by --dry-run")
    source = SameRows(scale.row_tokens, config.vocab_size)
    trainer = lora_trainer(scale, folder, run, model, source)
    trainer.train()
    seconds = (time.perf_counter() - source.times[1]) / (UPDATES - 1)
    yield Row(
        "",
        "tokens a second, trained",
        f"{2 * scale.row_tokens / seconds:,.0f} in rows of {scale.row_tokens:,}",
        f"{run.expected.trained_per_second:,.0f} assumed by configs/{run_file}",
    )
    yield memory_row(scale, estimate.memory.peak)
    trained = trainer.model
    trainer.optimizer = trainer.lr_scheduler = None
    gc.collect()
    yield sampling_row(scale, trained.eval(), config.vocab_size, run, run_file)


def shape_run(scale: Scale, config: Any, folder: Path, run_file: str, attention: str) -> RunConfig:
    """Return the run of a file of configs/, with the shape in a folder and a trainer that has the GPU alone."""
    shape = folder / "shape"
    config.save_pretrained(shape)
    changes = {
        "model.name": str(shape),
        "model.attention": attention,
        "model.dtype": "bfloat16" if scale.gpu else "float32",
        "expected.longest_row": scale.row_tokens,
        "expected.server_gpus": 1,
        "expected.server_sequences": scale.requests,
    }
    return read_run(ROOT / "configs" / run_file, changes)


def lora_trainer(scale: Scale, folder: Path, run: RunConfig, model: Any, source: SameRows) -> Any:
    """Return the project's trainer on the rows of the source."""
    from context_agent.train.models import lora_adapter
    from context_agent.train.rl.row_trainer import RowTrainer, grpo_arguments
    from context_agent.train.tiny_model import for_transformers, own_tokenizer

    arguments = grpo_arguments(
        output_dir=str(folder / "trainer"),
        max_steps=UPDATES,
        bf16=scale.gpu,
        use_cpu=not scale.gpu,
        gradient_checkpointing=scale.gpu,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    return RowTrainer(
        model,
        source,
        args=arguments,
        tokenizer=for_transformers(own_tokenizer()),
        loss=run.loss,
        peft_config=lora_adapter(run.model, model.config.num_hidden_layers),
    )


def sampling_row(scale: Scale, model: Any, vocabulary: int, run: RunConfig, run_file: str) -> Row:
    """Sample replies on random prompts, all at the same time, with the engine of this process."""
    import torch

    from context_agent.policies.tokens.engines.transformers import TransformersEngine

    prompts = torch.randint(0, vocabulary, (scale.requests, scale.prompt)).tolist()
    engine = TransformersEngine(model, name="shape", max_batch=scale.requests, wait=0.2)
    try:
        asyncio.run(replies(engine, prompts[:1], 2))
        start = time.perf_counter()
        count = asyncio.run(replies(engine, prompts, scale.reply))
        seconds = time.perf_counter() - start
    finally:
        engine.close()
    return Row(
        "",
        "tokens a second, sampled in this process",
        f"{count / seconds:,.0f}: {scale.requests} replies of {scale.reply} at once, prompts of {scale.prompt:,}",
        f"{run.expected.sampled_per_second:,.0f} assumed by configs/{run_file}",
    )


async def replies(engine: Engine, prompts: Sequence[list[int]], length: int) -> int:
    """Sample one reply of this length on each prompt. Return the number of sampled ids."""
    samples = await asyncio.gather(
        *(engine.generate(SampleRequest(prompt, max_tokens=length, seed=0)) for prompt in prompts)
    )
    return sum(len(sample.ids) for sample in samples)
