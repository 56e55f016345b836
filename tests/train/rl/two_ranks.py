"""Run by `torchrun`: the gradient of a step on this many ranks, written by the first of them. For test_two_ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from tests.train.rl import test_trl_adapter as parts


def main(out: str) -> None:
    """Rows in parts of unequal length and number; one rank takes them all."""
    from accelerate import PartialState

    torch.set_num_threads(1)
    state = PartialState(cpu=True)
    items = parts.made_rows(count=11)
    cut = [items] if state.num_processes == 1 else [items[:8], items[8:]]
    tokenizer = parts.small_tokenizer()
    model = parts.model(tokenizer)
    made: Any = parts.trainer(model, cut[state.process_index], tokenizer, Path(out).parent / "run")
    found = parts.gradients(made)
    if state.is_main_process:
        torch.save({name.removeprefix("module."): value for name, value in found.items()}, out)
    # A process that leaves while the group's threads still run is aborted now and then.
    state.wait_for_everyone()
    made.accelerator.end_training()


if __name__ == "__main__":
    main(sys.argv[1])
