"""Measure how much the log-probabilities of the sampler and the trainer differ for the same weights, by number type.

    python benchmarks/mismatch.py [--model smollm2] [--rows 8] [--tokens 32] [--types float32 bfloat16] [--threads 2]

The default bounds of `loss.mismatch` are several times the means that this program prints. Replies are sampled in this
process in one batch. A step of the trainer with a learning rate of 0 scores them. Prompts are passages of the
documentation. The program prints the mean and the largest difference over sampled tokens, and the mean ratio. It also
prints the mean difference on the canary, a fixed row that both score. Training in float16 needs a GPU. The program
needs the extra `train`.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from context_agent.policies.tokens.engines import Sample, SampleRequest
from context_agent.policies.tokens.packaged import ADAPTERS
from context_agent.train.batches import WeightedRow
from context_agent.train.config import MISMATCH_BOUNDS, RunConfig
from context_agent.train.rows import TrainingRow
from context_agent.train.run_file import parse_run

DOCS = Path(__file__).parents[1] / "docs"
PROMPT_IDS = 200
CANARY = 128


def main() -> int:
    """Print a line for each type and kind of weights. If a mean is above half of its bound, return 1."""
    import torch

    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default="smollm2")
    options.add_argument("--rows", type=int, default=8)
    options.add_argument("--tokens", type=int, default=32)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--types", nargs="+", choices=list(MISMATCH_BOUNDS), default=list(MISMATCH_BOUNDS))
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    missed = 0
    print(f"{'type':10}{'weights':10}{'mean':>10}{'greatest':>10}{'ratio':>9}{'canary':>10}{'bound':>8}")
    for dtype in chosen.types:
        if dtype == "float16" and not torch.cuda.is_available():
            print("float16   not measured: training in it needs a GPU")
            continue
        for weights in ("adapters", "all"):
            with tempfile.TemporaryDirectory() as folder:
                found = measure(run_of(chosen.model, dtype, weights, folder), chosen.rows, chosen.tokens)
            missed += found["mean"] > MISMATCH_BOUNDS[dtype] / 2
            figures = f"{found['mean']:10.1e}{found['greatest']:10.1e}{found['ratio']:9.4f}{found['canary']:10.1e}"
            print(f"{dtype:10}{weights:10}{figures}{MISMATCH_BOUNDS[dtype]:8g}", flush=True)
    return 1 if missed else 0


def run_of(model: str, dtype: str, weights: str, folder: str) -> RunConfig:
    """Return a run that continues to train the packaged adapters, or a run that trains all weights."""
    adapter = {"adapter": str(ADAPTERS / model)} if weights == "adapters" and (ADAPTERS / model).is_dir() else {}
    described = {"name": model, "dtype": dtype, "renderer": "lines", "gradient_checkpointing": False, **adapter}
    return parse_run({"out": folder, "model": described, "data": {"questions": ["none.jsonl"]}})


def measure(run: RunConfig, rows: int, tokens: int) -> dict[str, float]:
    """Return the differences between sampler and trainer for one run."""
    import torch

    from context_agent.train.models import load_model
    from context_agent.train.rl.row_trainer import RowTrainer, grpo_arguments
    from context_agent.train.rl.samplers import local_engine

    loaded = load_model(run)
    text = "\n\n".join(path.read_text(encoding="utf-8") for path in sorted(DOCS.glob("*.md"))[:4])
    ids = loaded.tokenizer(text)["input_ids"]
    source = _Rows()
    cuda = torch.cuda.is_available()
    trainer: Any = RowTrainer(
        loaded.model,
        source,
        args=grpo_arguments(
            output_dir=run.out,
            max_steps=1,
            learning_rate=0.0,
            save_strategy="no",
            report_to=[],
            logging_steps=1,
            disable_tqdm=True,
            use_cpu=not cuda,
            bf16=run.model.dtype == "bfloat16",
            fp16=run.model.dtype == "float16",
            gradient_checkpointing=False,
        ),
        tokenizer=loaded.tokenizer,
    )
    model = trainer.model.eval()
    engine = local_engine(run, model)
    engine.expect(rows)
    starts = range(0, rows * PROMPT_IDS, PROMPT_IDS)
    prompts = [ids[start : start + PROMPT_IDS - 9 * row] for row, start in enumerate(starts)]
    samples = asyncio.run(_sample(engine, prompts, tokens))
    canary = ids[:CANARY]
    scored = np.array(asyncio.run(engine.score(canary)).logprobs)
    engine.close()
    difference = float(np.abs(scored - np.array(trainer.score(canary))).mean())
    source.items = [_row(prompt, sample) for prompt, sample in zip(prompts, samples, strict=True)]
    trainer.train()
    line = next(entry for entry in trainer.state.log_history if "sampler/ratio_mean" in entry)
    return {
        "mean": line["sampler/logp_difference_mean"],
        "greatest": line["sampler/logp_difference_max"],
        "ratio": line["sampler/ratio_mean"],
        "canary": difference,
    }


class _Rows:
    items: Sequence[WeightedRow] = ()

    def rows(self, update: int) -> Sequence[WeightedRow]:
        """Return the same rows for every update."""
        return self.items


async def _sample(engine: Any, prompts: Sequence[Sequence[int]], tokens: int) -> list[Sample]:
    requests = [SampleRequest(prompt, tokens, seed=number) for number, prompt in enumerate(prompts)]
    return await asyncio.gather(*map(engine.generate, requests))


def _row(prompt: Sequence[int], sample: Sample) -> WeightedRow:
    mask = [*(0 for _ in prompt), *(1 for _ in sample.ids)]
    logprobs = [*(0.0 for _ in prompt), *sample.logprobs]
    return WeightedRow(TrainingRow([*prompt, *sample.ids], mask, logprobs, "e", "g", "0"), 1.0)


if __name__ == "__main__":
    raise SystemExit(main())
