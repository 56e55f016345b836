"""`ctx1 train verl`: prepares training on several machines with verl."""

from __future__ import annotations

from pathlib import Path

import click

from context_agent.cli import console, options


@click.command()
@click.option(
    "--run",
    "run_file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE.toml",
    help="Run file: model, data, rewards, loss. See configs/verl/ for examples.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="FOLDER",
    help="Output folder; every machine must see it under this path.",
)
@click.option(
    "--trainer",
    type=click.Choice(["fsdp", "megatron"]),
    default="fsdp",
    show_default=True,
    help="verl's training backend; their setting names differ.",
)
@options.told
def verl(*, run_file: Path, out: Path, trainer: str, as_json: bool) -> int:
    """Write the files that verl needs to train by a run file on several machines. Trains nothing.

    The folder receives the questions of every step in curriculum order, verl's settings, and the agent loop that plays
    the episodes. verl needs its own environment: see docs/verl.md.
    """
    from context_agent.train.config import read_run
    from context_agent.train.verl.folder import VerlTrainer, prepare

    prepared = prepare(
        read_run(run_file),
        out,
        trainer=VerlTrainer(trainer),
        note=lambda text: console.note(f"ctx1 train verl: {text}"),
    )
    if as_json:
        console.print_json(prepared.to_json())
        return 0
    counts = f"{prepared.rows:,} rows of {prepared.questions:,} questions, {prepared.dev:,} for evaluation"
    click.echo(f"{counts}, in {prepared.folder}")
    return 0
