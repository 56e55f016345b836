"""A trainer of fixed rows with a tiny model."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from context_agent.train.batches import WeightedRow
from context_agent.train.config import Loss, LossConfig
from context_agent.train.rows import TrainingRow

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
VOCABULARY = 320


class Fixed:
    """A source with the same rows at each step."""

    def __init__(self, items: Sequence[WeightedRow]) -> None:
        self.items = items

    def rows(self, step: int) -> Sequence[WeightedRow]:
        return self.items


def small_tokenizer() -> Any:
    from context_agent.train.tiny_model import for_transformers, tiny_tokenizer

    return for_transformers(tiny_tokenizer(["search the corpus for comets and operas"] * 9, size=VOCABULARY))


def model(tokenizer: Any) -> Any:
    from context_agent.train.tiny_model import tiny_config

    torch.manual_seed(0)
    config = tiny_config(tokenizer, positions=128, yarn=False)
    config.vocab_size = VOCABULARY
    return transformers.GptOssForCausalLM(config)


def trainer(
    model: Any, items: Sequence[WeightedRow], tokenizer: Any, out: Path, loss: Loss = Loss.CISPO, **options: Any
) -> Any:
    """Return a trainer of fixed rows. Options are those of `[loss]`, the bound `mismatch`, and TRL's."""
    from context_agent.train.rl.row_trainer import RowTrainer, grpo_arguments

    named = {field.name for field in fields(LossConfig)} - {"mismatch"}
    chosen = LossConfig(kind=loss, **{name: options.pop(name) for name in named & set(options)})
    mismatch, peft_config = options.pop("mismatch", math.inf), options.pop("peft_config", None)
    settings = {"max_steps": 1, "learning_rate": 0.0, "max_grad_norm": 0.0, "save_strategy": "no", "logging_steps": 1}
    settings |= options
    args = grpo_arguments(output_dir=str(out), use_cpu=True, bf16=False, report_to=[], disable_tqdm=True, **settings)
    return RowTrainer(
        model,
        Fixed(items),
        args=args,
        tokenizer=tokenizer,
        loss=chosen,
        mismatch=mismatch,
        peft_config=peft_config,
    )


def gradients(row_trainer: Any) -> dict[str, Any]:
    """Train one step and return the gradients that reach the optimizer."""
    captured: dict[str, Any] = {}

    class CaptureGradients(transformers.TrainerCallback):  # type: ignore[misc]
        def on_pre_optimizer_step(self, *_: Any, model: Any, **__: Any) -> None:
            captured.update({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})

    row_trainer.add_callback(CaptureGradients())
    row_trainer.train()
    return captured


def made_rows(seed: int = 0, count: int = 9, *, weights: bool = False) -> list[WeightedRow]:
    rng = random.Random(seed)
    return [_row(rng, f"e{number % 3}", rng.randrange(5, 40), weights=weights) for number in range(count)]


def _row(rng: random.Random, episode: str, length: int, *, weights: bool) -> WeightedRow:
    ids = [rng.randrange(VOCABULARY) for _ in range(length)]
    mask = [0, 1, *(int(rng.random() < 0.4) for _ in range(length - 2))]
    logprobs = [-3 - 4 * rng.random() if sampled else 0.0 for sampled in mask]
    scale = tuple(rng.random() * sampled for sampled in mask) if weights else ()
    return WeightedRow(TrainingRow(ids, mask, logprobs, episode, "g"), rng.uniform(-1, 1), scale)
