"""The gradient of a step on one rank and on two, each rank a process. For test_two_ranks.

    python -m tests.train.rl.two_ranks FOLDER

Writes FOLDER/1.pt and FOLDER/2.pt. Each rank is a fork of a process that has imported everything, with the environment
that `torchrun` gives its ranks.
"""

from __future__ import annotations

import os
import socket
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.train.rl import test_trl_adapter as parts

WORLD_SIZES = (1, 2)


def main(folder: Path) -> int:
    """Runs the ranks of each world size at the same time; returns the number of ranks that failed."""
    import accelerate  # noqa: F401 - once, for all ranks
    import trl  # noqa: F401

    import context_agent.train.rl.trl_adapter  # noqa: F401

    torch.set_num_threads(1)
    ranks = [pid for size in WORLD_SIZES for pid in started_ranks(size, folder / f"{size}.pt")]
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in ranks)


def started_ranks(size: int, out: Path) -> list[int]:
    """The process ids of the ranks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    # A single process has no group, as when it is started without `torchrun`.
    return [
        _forked(out, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} if size > 1 else {}) for rank in range(size)
    ]


def _forked(out: Path, environment: dict[str, str]) -> int:
    if (pid := os.fork()) != 0:
        return pid
    status = 1
    try:
        os.environ.update(environment)
        write_gradients(out)
        status = 0
    except BaseException:  # noqa: BLE001 - the parent reads the status
        traceback.print_exc()
    finally:
        os._exit(status)


def write_gradients(out: Path) -> None:
    """Rows in parts of unequal length and number; a single rank takes them all. The first rank writes."""
    from accelerate import PartialState

    state = PartialState(cpu=True)
    items = [replace(item, demonstrated=n % 4 == 0) for n, item in enumerate(parts.made_rows(count=11))]
    shares = [items] if state.num_processes == 1 else [items[:8], items[8:]]
    tokenizer = parts.small_tokenizer()
    run_folder = out.with_suffix(f".run{state.process_index}")
    trainer: Any = parts.trainer(parts.model(tokenizer), shares[state.process_index], tokenizer, run_folder)
    gradients = parts.gradients(trainer)
    if state.is_main_process:
        torch.save({name.removeprefix("module."): value for name, value in gradients.items()}, out)
    # A process that leaves while the group's threads still run is aborted now and then.
    state.wait_for_everyone()
    trainer.accelerator.end_training()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
