"""The gradient of a step on one rank and on two, each rank a process. For test_two_ranks.

    python -m tests.train.rl.two_ranks FOLDER

Writes FOLDER/1.pt and FOLDER/2.pt. Each rank is a fork of a process that has imported everything, with the environment
that `torchrun` gives its ranks.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.train.rl import test_trl_adapter as parts

WORLD_SIZES = (1, 2)
DONE = b"done"


def main(folder: Path) -> int:
    """Runs the ranks of each world size at the same time; returns 0 if all have taken their step.

    Ranks end here, by a signal, once all have said that they are done: a rank that leaves on its own while the
    group's threads run is aborted now and then, and one that takes its group down can wait forever.
    """
    import accelerate  # noqa: F401 - once, for all ranks
    import trl  # noqa: F401

    import context_agent.train.rl.trl_adapter  # noqa: F401

    torch.set_num_threads(1)
    ranks = [rank for size in WORLD_SIZES for rank in started_ranks(size, folder / f"{size}.pt")]
    try:
        return 0 if all(os.read(said, len(DONE)) == DONE for _, said in ranks) else 1
    finally:
        for pid, _ in ranks:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def started_ranks(size: int, out: Path) -> list[tuple[int, int]]:
    """The process ids of the ranks, each with the pipe on which it says that it is done."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    # A single process has no group, as when it is started without `torchrun`.
    return [
        _forked(out, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} if size > 1 else {}) for rank in range(size)
    ]


def _forked(out: Path, environment: dict[str, str]) -> tuple[int, int]:
    said, saying = os.pipe()
    if (pid := os.fork()) != 0:
        os.close(saying)
        return pid, said
    try:
        os.environ.update(environment)
        write_gradients(out)
        os.write(saying, DONE)
        signal.pause()
    except BaseException:  # noqa: BLE001 - the parent reads that nothing was said
        traceback.print_exc()
    finally:
        os._exit(1)


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


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
