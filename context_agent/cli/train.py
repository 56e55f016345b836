"""The commands `ctx1 train sft` and `ctx1 train rl`, which train a language model as a run file says."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.parameters import EXISTING_FILE, OWN, CommonOptions, options_in
from context_agent.cli.worker_options import ProcessesOption, RayOption, worker_pool

if TYPE_CHECKING:
    from context_agent.train.config import RunConfig, RunKind
    from context_agent.train.training_run import TrainingResult


RunFile = Annotated[
    Path,
    EXISTING_FILE,
    Parameter(
        help="Run file with the settings; the repository has examples in configs/.", name="--run", metavar="FILE.toml"
    ),
]
SetOption = Annotated[
    tuple[str, ...],
    Parameter(
        help="Override a setting of the run file, such as rollouts.groups=8; repeatable. VALUE is TOML.",
        name="--set",
        metavar="KEY=VALUE",
    ),
]


@options_in(OWN)
@dataclass(frozen=True, slots=True)
class RunFileOptions:
    """The options that both trainers have."""

    run_file: RunFile
    changes: SetOption = ()
    start: Annotated[str | None, Parameter(name="--from", metavar="FOLDER")] = None
    """Start from the model that the run in this folder trained. smollm2 means the adapter that ships for this model.
    With base, start from the model of the run file."""
    out: Annotated[str | None, Parameter(metavar="FOLDER", show_default="out of the run file")] = None
    """Output folder."""
    resume: bool = False
    """Resume from the newest checkpoint in the output folder. rollouts.steps and sft.epochs may be raised."""
    dry_run: bool = False
    """Print the settings and the estimated memory and cost. This needs no GPU."""
    model_config: Annotated[Path | None, EXISTING_FILE, Parameter(metavar="config.json")] = None
    """config.json of a model that the estimate does not know."""

    def load(self, kind: RunKind) -> RunConfig:
        """Return the run from the file, with the changes and the starting model that the options name."""
        from context_agent.train.checkpoints import has_checkpoint
        from context_agent.train.lineage import BASE_MODEL, check_start, started_from
        from context_agent.train.run_file import parse_changes, read_run

        changes = parse_changes(self.changes) | ({} if self.out is None else {"out": self.out})
        config = read_run(self.run_file, changes)
        if self.start not in {None, BASE_MODEL}:
            started = started_from(config, self.start or "")
            if _is_main_process():
                output.note(f"training starts from {started.model.adapter or started.model.name}")
            return started
        if kind == "rl" and self.start is None and not (self.resume and has_checkpoint(config.out)):
            check_start(config)
        return config


def sft(*, run: RunFileOptions, common: CommonOptions = CommonOptions()) -> int:
    """Fine-tune a language model on demonstrations.

    The command trains LoRA adapters or all weights on the output of `ctx1 synth trajectories`. Some of the
    demonstrations are held out to measure the loss. The command needs the extra train.
    """

    def train(config: RunConfig, **settings: Any) -> TrainingResult:
        from context_agent.train import sft

        return sft.train(config, **settings)

    return _run("sft", train, run, as_json=common.json)


def rl(
    *,
    run: RunFileOptions,
    processes: ProcessesOption = None,
    ray: RayOption = None,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Train a language model by reinforcement learning.

    The model plays episodes in the harness that also runs it in production. The trainer's own model or a vLLM server
    samples the replies. With a server, other processes can play the episodes. Questions need gold documents, or a
    judge. --from starts with the model that `ctx1 train sft` trained. The command needs the extra train.
    """

    def train(config: RunConfig, **settings: Any) -> TrainingResult:
        from context_agent.train import reinforcement
        from context_agent.train.rl.rollout_pool import RolloutSetup

        setup, concurrency = RolloutSetup(config), config.rollouts.concurrency
        if ray is not None or (processes or 1) > 1:
            setup.check()
        with worker_pool(setup, processes, ray, concurrency=concurrency) as pool:
            return reinforcement.train(config, pool=pool, **settings)

    return _run("rl", train, run, as_json=common.json)


def _run(kind: RunKind, train: Callable[..., TrainingResult], run: RunFileOptions, *, as_json: bool) -> int:
    config = run.load(kind)
    if run.dry_run:
        return _estimate(config, kind, run.model_config, as_json=as_json)
    if not _is_main_process():
        train(config, resume=run.resume, note=lambda _: None)
        _exit_worker()
        return 0
    # Trackers print; standard output is for the result.
    with redirect_stdout(sys.stderr), output.progress("Training", "updates") as advance:
        trained = train(config, resume=run.resume, note=output.note, advance=advance)
    text = f"{trained.updates:,} updates, {trained.first_update:,} of them in earlier runs. Model: {trained.model}"
    output.result(trained.to_json(), text, as_json=as_json)
    _exit_worker()
    return 0


def _is_main_process() -> bool:
    """Return True if this is the only process, or the first one that `accelerate launch` started."""
    return os.environ.get("RANK", "0") == "0"


def _exit_worker() -> None:
    """If this process is one of several, end it at once. All results are already on disk.

    The threads of torch.distributed are still running. A normal exit sometimes aborts or hangs because of them.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _estimate(config: RunConfig, kind: RunKind, model_config: Path | None, *, as_json: bool) -> int:
    """Print every setting, then the estimate."""
    from context_agent._support.suggest import flat_settings
    from context_agent.train.estimate import estimate_run

    estimate = estimate_run(config, model_config, kind=kind)
    settings = [f"{key} = {value}" for key, value in flat_settings(config.plain())]
    text = "\n".join([*settings, "", *estimate.lines()])
    output.result({"run": config.plain(), "estimate": estimate.to_json()}, text, as_json=as_json)
    return 0
