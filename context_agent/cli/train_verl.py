"""The command `ctx1 train verl`, which writes the files for training with verl."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from context_agent.cli import output
from context_agent.cli.parameters import OUTPUT_FOLDER, CommonOptions
from context_agent.cli.train import RunFile, SetOption


def verl(
    *,
    run_file: RunFile,
    changes: SetOption = (),
    out: Annotated[Path, OUTPUT_FOLDER],
    trainer: Literal["fsdp", "megatron"] = "fsdp",
    common: CommonOptions = CommonOptions(),
) -> int:
    """Write the files for training with verl.

    The command prepares training on several machines and trains nothing. It writes the questions of every step in
    curriculum order, verl's settings, and the agent loop that plays the episodes. verl needs its own environment
    (docs/verl.md).

    Args:
        out: Output folder; every machine must see it under this path.
        trainer: Training backend of verl. Each backend has its own names of settings.
    """
    from context_agent.train.experimental.verl.folder import prepare
    from context_agent.train.experimental.verl.settings import VerlTrainer
    from context_agent.train.run_file import parse_changes, read_run

    prepared = prepare(read_run(run_file, parse_changes(changes)), out, trainer=VerlTrainer(trainer), note=output.note)
    sizes = f"{prepared.rows:,} rows of {prepared.questions:,} questions, {prepared.dev:,} for evaluation"
    output.result(prepared.to_json(), f"{sizes}, in {prepared.folder}", as_json=common.json)
    return 0
