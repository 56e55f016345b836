"""`ctx1 train sft` and `ctx1 train rl`: train by a run file (TOML)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import console
from context_agent.cli import options as cli_options

if TYPE_CHECKING:
    from context_agent.train.config import RunConfig
    from context_agent.train.training_run import TrainingResult


def run_options(command: cli_options.Command) -> cli_options.Command:
    """Adds the options that both commands share."""
    return cli_options.together(
        command,
        click.option(
            "--run",
            "run_file",
            type=click.Path(path_type=Path, dir_okay=False),
            required=True,
            metavar="FILE.toml",
            help="Run file: model, data, rewards, loss, checkpoints. See configs/ for examples.",
        ),
        click.option("--out", metavar="FOLDER", help="Output folder.  [default: `out` of the run file]"),
        click.option("--resume", is_flag=True, help="Resume from the newest complete checkpoint in the output folder."),
        click.option(
            "--dry-run",
            is_flag=True,
            help="Print the settings and the estimated memory and cost of a step. Needs no GPU.",
        ),
        click.option(
            "--model-config",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="config.json",
            help="The model's config.json, for the estimate of an unknown model.",
        ),
        cli_options.told,
    )


@click.command()
@run_options
def sft(**options: Any) -> int:
    """Fine-tune a model on demonstrations (`ctx1 synth trajectories`), with LoRA or all weights.

    Needs the extra `train`. An interrupted run resumes with --resume.
    """

    def train(run: RunConfig, **how: Any) -> TrainingResult:
        from context_agent.train import sft

        return sft.train(run, **how)

    return _run(train, "sft", **options)


@click.command()
@run_options
def rl(**options: Any) -> int:
    """Train a model by reinforcement learning, in the harness that it serves in.

    Needs the extra `train`. The trainer's own model or a vLLM server samples the episodes. Questions need gold
    documents, or a judge. An interrupted run resumes with --resume.
    """

    def train(run: RunConfig, **how: Any) -> TrainingResult:
        from context_agent.train.rl import loop

        return loop.train(run, **how)

    return _run(train, "rl", **options)


def _run(
    train: Callable[..., TrainingResult],
    kind: str,
    *,
    run_file: Path,
    out: str | None,
    resume: bool,
    dry_run: bool,
    model_config: Path | None,
    as_json: bool,
) -> int:
    from context_agent.train.config import read_run

    run = read_run(run_file, {} if out is None else {"out": out})
    if dry_run:
        return _estimate(run, model_config, as_json=as_json)
    if not _is_main_process():
        train(run, resume=resume, note=lambda _: None)
        _exit_worker()
        return 0
    with console.progress("Training", "updates") as advance:
        trained = train(
            run, resume=resume, note=lambda text: console.note(f"ctx1 train {kind}: {text}"), advance=advance
        )
    if as_json:
        console.print_json(trained.to_json())
    else:
        click.echo(f"{trained.updates:,} updates, {trained.first_update:,} before this process. Model: {trained.model}")
    _exit_worker()
    return 0


def _is_main_process() -> bool:
    """Whether this is the only process, or the first that `accelerate launch` started."""
    return os.environ.get("RANK", "0") == "0"


def _exit_worker() -> None:
    """Exits at once if this process is one of several; everything is on disk by now.

    The threads of torch.distributed are still running. A normal exit sometimes aborts or hangs because of them.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _estimate(run: RunConfig, model_config: Path | None, *, as_json: bool) -> int:
    """Prints every setting, then the estimate."""
    from context_agent.train.estimate import estimate_run

    estimate = estimate_run(run, model_config)
    if as_json:
        console.print_json({"run": run.plain(), "estimate": estimate.to_json()})
        return 0
    from context_agent._support.suggest import flat_settings

    for key, value in flat_settings(run.plain()):
        click.echo(f"{key} = {value}")
    click.echo()
    for line in estimate.lines():
        click.echo(line)
    return 0
