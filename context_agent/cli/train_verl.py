"""`ctx1 train verl`: what verl is started with, where one machine is too small."""

from __future__ import annotations

from pathlib import Path

import click

from context_agent.cli import console, options


@click.command()
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE.toml",
    help="The run: model, data, rewards, loss. configs/verl/ has some to begin with.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    metavar="FOLDER",
    help="Where the files go; every machine has to see it under this path.",
)
@click.option(
    "--trainer",
    type=click.Choice(["fsdp", "megatron"]),
    default="fsdp",
    show_default=True,
    help="What trains in verl; they name some settings otherwise.",
)
@options.told
def verl(*, file: Path, out: Path, trainer: str, as_json: bool) -> int:
    """Write what verl needs to train by a run's file on many machines. Nothing is trained here.

    The folder gets the questions of every step in the curriculum's order, verl's settings, and the agent loop that
    plays this harness's episodes. verl has an environment of its own: docs/verl.md.
    """
    from context_agent.train.config import read
    from context_agent.train.verl.dataset import prepare
    from context_agent.train.verl.settings import Trainer

    made = prepare(
        read(file), out, trainer=Trainer(trainer), note=lambda text: console.note(f"ctx1 train verl: {text}")
    )
    if as_json:
        console.print_json(made.to_json())
        return 0
    click.echo(f"{made.rows:,} rows of {made.questions:,} questions, {made.dev:,} to evaluate by, in {made.folder}")
    return 0
