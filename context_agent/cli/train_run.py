"""`ctx1 train sft`, `rl` and `verl`: training by a run file (TOML)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from context_agent.cli import options, output
from context_agent.cli.command import FILE, FOLDER, OWN, Json, Option, command

if TYPE_CHECKING:
    from context_agent.train.config import RunConfig
    from context_agent.train.training_run import TrainingResult


@dataclass(frozen=True, slots=True)
class RunFileOptions:
    """What both trainers take."""

    SECTION: ClassVar[str] = OWN

    run_file: options.RunFile
    out: Annotated[str | None, Option("Output folder.", metavar="FOLDER", default="out of the run file")] = None
    resume: Annotated[bool, Option("Resume from the newest complete checkpoint in the output folder.")] = False
    dry_run: Annotated[
        bool, Option("Print the settings and the estimated memory and cost of a step. Needs no GPU.")
    ] = False
    model_config: Annotated[
        Path | None, Option("config.json of a model that the estimate does not know.", FILE, "config.json")
    ] = None


@command
def sft(*, run: RunFileOptions, as_json: Json) -> int:
    """Fine-tune a language model on demonstrations.

    Trains LoRA adapters or all weights on the output of `ctx1 synth trajectories`. Needs the extra train.
    """

    def train(config: RunConfig, **settings: Any) -> TrainingResult:
        from context_agent.train import sft

        return sft.train(config, **settings)

    return _run(train, run, as_json=as_json)


@command
def rl(*, run: RunFileOptions, as_json: Json) -> int:
    """Train a language model by reinforcement learning.

    The model plays episodes in the harness in which it will serve. The trainer's own model or a vLLM server samples
    them. Questions need gold documents, or a judge. Needs the extra train.
    """

    def train(config: RunConfig, **settings: Any) -> TrainingResult:
        from context_agent.train.rl import loop

        return loop.train(config, **settings)

    return _run(train, run, as_json=as_json)


@command
def verl(
    *,
    run_file: options.RunFile,
    out: Annotated[Path, Option("Output folder; every machine must see it under this path.", FOLDER)],
    trainer: Annotated[
        Literal["fsdp", "megatron"], Option("Training backend of verl; the names of their settings differ.")
    ] = "fsdp",
    as_json: Json,
) -> int:
    """Write the files for training with verl.

    Prepares training on several machines and trains nothing. The folder gets the questions of every step in curriculum
    order, verl's settings, and the agent loop that plays the episodes. verl needs its own environment (docs/verl.md).
    """
    from context_agent.train.config import read_run
    from context_agent.train.verl.folder import VerlTrainer, prepare

    prepared = prepare(read_run(run_file), out, trainer=VerlTrainer(trainer), note=output.note)
    sizes = f"{prepared.rows:,} rows of {prepared.questions:,} questions, {prepared.dev:,} for evaluation"
    output.result(prepared.to_json(), f"{sizes}, in {prepared.folder}", as_json=as_json)
    return 0


def _run(train: Callable[..., TrainingResult], run: RunFileOptions, *, as_json: bool) -> int:
    from context_agent.train.config import read_run

    config = read_run(run.run_file, {} if run.out is None else {"out": run.out})
    if run.dry_run:
        return _estimate(config, run.model_config, as_json=as_json)
    if not _is_main_process():
        train(config, resume=run.resume, note=lambda _: None)
        _exit_worker()
        return 0
    with output.progress("Training", "updates") as advance:
        trained = train(config, resume=run.resume, note=output.note, advance=advance)
    text = f"{trained.updates:,} updates, {trained.first_update:,} of them in earlier runs. Model: {trained.model}"
    output.result(trained.to_json(), text, as_json=as_json)
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


def _estimate(config: RunConfig, model_config: Path | None, *, as_json: bool) -> int:
    """Prints every setting, then the estimate."""
    from context_agent._support.suggest import flat_settings
    from context_agent.train.estimate import estimate_run

    estimate = estimate_run(config, model_config)
    settings = [f"{key} = {value}" for key, value in flat_settings(config.plain())]
    text = "\n".join([*settings, "", *estimate.lines()])
    output.result({"run": config.plain(), "estimate": estimate.to_json()}, text, as_json=as_json)
    return 0
