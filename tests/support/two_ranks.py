"""The gradient of a step on one rank and on two for each loss, each rank a process. For test_two_ranks.

    python -m tests.support.two_ranks FOLDER

Writes FOLDER/1.pt and FOLDER/2.pt, and the loss on held-out rows to FOLDER/1.held_out and FOLDER/2.held_out. Each rank
is a fork of a process that has imported everything, with the environment that `torchrun` gives its ranks.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import torch

from context_agent.train.config import Loss
from tests.support import row_trainer

WORLD_SIZES = (1, 2)
PROCESSES = multiprocessing.get_context("fork")


def main(folder: Path) -> int:
    """Run the ranks of all world sizes at the same time; return 0 if all of them took their step, otherwise 1.

    The ranks are killed once all have reported. A rank that exits while the group's threads run is aborted now and
    then, and one that destroys its group can wait forever.
    """
    import accelerate  # noqa: F401 - once, for all ranks
    import trl  # noqa: F401

    import context_agent.train.rl.row_trainer  # noqa: F401

    torch.set_num_threads(1)
    ranks = [rank for size in WORLD_SIZES for rank in start_ranks(size, folder / f"{size}.pt")]
    waiting = {reports for _, reports in ranks}
    try:
        while waiting:
            for reports in wait(waiting):
                reports.recv()
                waiting.remove(reports)
    except EOFError:  # a rank ended without a report, and has printed why; another may wait for it
        return 1
    finally:
        for process, _ in ranks:
            process.kill()
            process.join()
    return 0


def start_ranks(size: int, out: Path) -> list[tuple[ForkProcess, Connection]]:
    """Return the processes of the ranks, each with the connection on which it reports that its step is done."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    # A single process has no group, as when it is started without `torchrun`.
    return [
        _start(out, {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} if size > 1 else {}) for rank in range(size)
    ]


def _start(out: Path, environment: dict[str, str]) -> tuple[ForkProcess, Connection]:
    reports, sender = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_take_step, args=(out, environment, sender))
    process.start()
    sender.close()
    return process, reports


def _take_step(out: Path, environment: dict[str, str], sender: Connection) -> None:
    os.environ.update(environment)
    write_gradients(out)
    write_held_out_loss(out.with_suffix(".held_out"))
    sender.send("done")
    signal.pause()


def write_gradients(out: Path) -> None:
    """Rows in parts of unequal length and number; a single rank takes them all. The first rank writes.

    As in a run, all rows of an episode are on one rank.
    """
    from accelerate import PartialState

    state = PartialState(cpu=True)
    items = [replace(item, demonstrated=n % 4 == 0) for n, item in enumerate(row_trainer.made_rows(count=11))]
    parts = [[item for item in items if (item.row.episode_id == "e2") is last] for last in (False, True)]
    shares = [items] if state.num_processes == 1 else parts
    tokenizer = row_trainer.small_tokenizer()
    run_folder = out.with_suffix(f".run{state.process_index}")
    by_loss = {}
    for loss in Loss:
        trainer: Any = row_trainer.trainer(
            row_trainer.model(tokenizer), shares[state.process_index], tokenizer, run_folder, loss=loss, pass_tokens=90
        )
        gradients = row_trainer.gradients(trainer)
        by_loss[loss.value] = {name.removeprefix("module."): value for name, value in gradients.items()}
    if state.is_main_process:
        torch.save(by_loss, out)


def write_held_out_loss(out: Path) -> None:
    """Five rows in batches of two: with two ranks, accelerate repeats three of them. The first rank writes."""
    from datasets import Dataset

    from context_agent.train.sft import RowSftTrainer, sft_arguments

    rows = [item.row for item in row_trainer.made_rows(count=5)]
    held_out = Dataset.from_dict(
        {"input_ids": [row.input_ids for row in rows], "completion_mask": [row.loss_mask for row in rows]}
    )
    tokenizer = row_trainer.small_tokenizer()
    trainer: Any = RowSftTrainer(
        model=row_trainer.model(tokenizer),
        args=sft_arguments(output_dir=str(out.parent), use_cpu=True, per_device_eval_batch_size=2, report_to=[]),
        train_dataset=held_out,
        eval_dataset=held_out,
        processing_class=tokenizer,
    )
    loss = trainer.held_out_loss()
    if trainer.accelerator.is_main_process:
        out.write_text(repr(loss))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
