"""`ctx1 train sft` and `ctx1 train rl`: a run that a TOML file describes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import console, options

if TYPE_CHECKING:
    from context_agent.train.config import Run
    from context_agent.train.training_run import Trained


def described(command: options.Command) -> options.Command:
    """The options of a run; the file is the run itself and not this command's flags."""
    return options.together(
        command,
        click.option(
            "--config",
            "file",
            type=click.Path(path_type=Path, dir_okay=False),
            required=True,
            metavar="FILE.toml",
            help="The run: model, data, rewards, loss, checkpoints. configs/ has some to begin with.",
        ),
        click.option("--out", metavar="FOLDER", help="Where everything goes.  [default: the file's]"),
        click.option("--resume", is_flag=True, help="Go on from the newest whole checkpoint in the folder."),
        click.option("--dry-run", is_flag=True, help="Print the settings, the memory and the cost of a step; no GPU."),
        click.option(
            "--model-config",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="config.json",
            help="The model's shape for --dry-run, where it is not known here.",
        ),
        options.told,
    )


@click.command()
@described
def sft(**given: Any) -> int:
    """Teach a model the actions of kept trajectories (`ctx1 synth trajectories`), by LoRA or in full.

    Needs the extra `train`. A run that was ended goes on with --resume as if it had not been.
    """

    def train(run: Run, **how: Any) -> Trained:
        from context_agent.train import sft

        return sft.train(run, **how)

    return _run(train, "sft", **given)


@click.command()
@described
def rl(**given: Any) -> int:
    """Train a model by rewards for the documents it finds, in the harness it will serve in.

    Needs the extra `train`. Episodes are sampled by the trainer's own model or by a vLLM server; questions need gold.
    A run that was ended, at any moment, goes on with --resume as if it had not been.
    """

    def train(run: Run, **how: Any) -> Trained:
        from context_agent.train.rl import loop

        return loop.train(run, **how)

    return _run(train, "rl", **given)


def _run(
    train: Callable[..., Trained],
    kind: str,
    *,
    file: Path,
    out: str | None,
    resume: bool,
    dry_run: bool,
    model_config: Path | None,
    as_json: bool,
) -> int:
    from context_agent.train.config import read

    run = read(file, {} if out is None else {"out": out})
    if dry_run:
        return _estimate(run, model_config, as_json=as_json)
    if not _speaks():
        train(run, resume=resume, note=lambda _: None)
        _leave()
        return 0
    with console.progress("Training", "updates") as advance:
        trained = train(
            run, resume=resume, note=lambda text: console.note(f"ctx1 train {kind}: {text}"), advance=advance
        )
    if as_json:
        console.print_json(trained.to_json())
    else:
        click.echo(f"{trained.updates:,} updates, {trained.begun:,} of them earlier. The model is in {trained.model}")
    _leave()
    return 0


def _speaks() -> bool:
    """Whether this process is the first of those that `accelerate launch` started, or the only one."""
    return os.environ.get("RANK", "0") == "0"


def _leave() -> None:
    """Ends a process that was one of several, at once: everything is written.

    The threads of torch.distributed still run; an interpreter that is taken down around them now and then aborts, or
    waits for them for ever.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _estimate(run: Run, model_config: Path | None, *, as_json: bool) -> int:
    """The settings as they stand, then what they need."""
    from context_agent.train.estimate import report

    found = report(run, model_config)
    if as_json:
        console.print_json({"run": run.plain(), "estimate": found.to_json()})
        return 0
    from context_agent.train.checkpoints import flat

    for key, value in flat(run.plain()):
        click.echo(f"{key} = {value}")
    click.echo()
    for line in found.lines():
        click.echo(line)
    return 0
