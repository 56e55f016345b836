"""Compare the CPU time of sampling a batch whose prompts are read at once with one whose prompts are read in parts.

    python benchmarks/sampling.py [--rows 256] [--repeats 3] [--threads 1]
    python benchmarks/sampling.py --step [--repeats 9] [--threads 2]

The model is as large as that of `ctx1 train demo`, with sliding attention in two of three layers, and random weights.
Its states cannot be cached. Prompts have 80 to 290 ids, and replies 16. Both ways should sample the same ids. The
program needs the extra `train`.

`--step` prints the time to choose a token for each row from its scores, without a model. It covers the vocabularies of
SmolLM2 and gpt-oss, with the whole distribution and with a nucleus.
"""

from __future__ import annotations

import argparse
import random
import time
from statistics import median
from typing import Any

from context_agent.policies.tokens.engines import SampleRequest
from context_agent.policies.tokens.engines.sampling import PendingSample, Sampler, sample_batch, split_by_length
from context_agent.policies.tokens.engines.transformers import MOST_PADDED_IDS


def main() -> int:
    """Print the CPU seconds of both ways and their ratio. If any ids differ, return 1."""
    import torch

    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=256)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--step", action="store_true")
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    if chosen.step:
        return _time_steps(chosen.repeats)
    model = _model()
    seconds: dict[str, list[float]] = {"at once": [], "in parts": []}
    sampled: dict[str, list[tuple[int, ...]]] = {}
    for _ in range(chosen.repeats):
        for way, most_ids in (("at once", None), ("in parts", MOST_PADDED_IDS)):
            batch = _batch(chosen.rows, model.config.vocab_size)
            parts = split_by_length(batch, most_ids)
            started = time.process_time()
            for part in parts:
                sample_batch(model, part, pad_id=0)
            seconds[way].append(time.process_time() - started)
            sampled[way] = [tuple(pending.ids) for pending in batch]
            print(f"{way:<10}{len(parts):3} parts {seconds[way][-1]:8.2f} s", flush=True)
    ratio = median(seconds["in parts"]) / median(seconds["at once"])
    same = sum(map(tuple.__eq__, sampled["at once"], sampled["in parts"]))
    print(f"in parts: {ratio:.2f}x the time; {same} of {chosen.rows} replies equal")
    return 0 if same == chosen.rows else 1


STEPS = ((24, 49_152, 20.0), (64, 201_088, None))
"""The rows, the vocabulary, and the maximum milliseconds with the whole distribution."""


def _time_steps(repeats: int) -> int:
    """Print the milliseconds of a step. If one takes longer than its maximum, return 1."""
    import torch

    missed = 0
    for rows, vocabulary, most in STEPS:
        torch.manual_seed(0)
        scores = torch.randn(rows, vocabulary) * 4
        for top_p in (1.0, 0.9):
            times = []
            for _ in range(repeats):
                sampler = Sampler([PendingSample(SampleRequest([1], 9, (), 1.0, top_p, n)) for n in range(rows)], 0)
                started = time.perf_counter()
                sampler(torch.zeros(rows, 1), scores)
                times.append(1e3 * (time.perf_counter() - started))
            # The shortest repeat is the one that other programs disturbed least.
            late = top_p == 1 and most is not None and min(times) > most
            missed += late
            bound = f", at most {most:g}" if top_p == 1 and most is not None else ""
            print(f"{rows} rows x {vocabulary:,}, top-p {top_p:g}: {min(times):.1f} ms{bound}{' MISSED' * late}")
    return 1 if missed else 0


def _model() -> Any:
    import torch
    from transformers import GptOssForCausalLM

    from context_agent.train.tiny_model import for_transformers, own_tokenizer, tiny_config

    torch.manual_seed(0)
    config = tiny_config(for_transformers(own_tokenizer()), hidden=96, layers=3, experts=2, yarn=False)
    return GptOssForCausalLM(config).eval()


def _batch(rows: int, vocabulary: int) -> list[PendingSample]:
    draw = random.Random(0)
    prompts = [[draw.randrange(1, vocabulary) for _ in range(draw.randrange(80, 290))] for _ in range(rows)]
    return [PendingSample(SampleRequest(prompt, max_tokens=16, seed=row)) for row, prompt in enumerate(prompts)]


if __name__ == "__main__":
    raise SystemExit(main())
