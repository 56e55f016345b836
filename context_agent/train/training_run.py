"""The parts that supervised training and reinforcement learning share: the run's folder, its checkpoints, and its end.

OUT/run.json          the run's settings, defaults included
OUT/metrics.jsonl     one line per update
OUT/checkpoints/      the newest checkpoints
OUT/trajectories/     sampled episodes, for `ctx1 view`
OUT/final/            the trained model, or its adapters
OUT/best/             the model with the best evaluation, and that evaluation in `evaluation.json`
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from context_agent._support.atomic_files import replacing, sync_path
from context_agent._support.locks import NoLocksError, file_lock
from context_agent._support.small_files import files_in, read_json, require_files
from context_agent.errors import ConfigError, ContextAgentError, DataError, MissingExtraError, single_stops
from context_agent.policies.tokens.trained import BEST, EVALUATION_FILE, FINAL, PolicyDescription
from context_agent.train.checkpoints import Checkpoint, Checkpoints, settings_digest
from context_agent.train.config import LoggingConfig, Notify, OnUpdate, RunConfig, RunKind
from context_agent.train.lineage import RUN_FILE, base_name
from context_agent.train.memory_errors import explained_memory_errors
from context_agent.train.metrics_log import MetricsLog
from context_agent.train.trainer_mixin import TRAINER_FOLDER, RunRecord, all_ranks_ok

try:
    import datasets
    import torch
    from accelerate import PartialState
    from transformers import TrainerCallback, TrainingArguments
    from transformers.trainer_callback import PrinterCallback, ProgressCallback, TrainerState
    from transformers.utils import logging as transformers_logging
except ImportError as error:
    raise MissingExtraError(error.name or "transformers", "train") from None


MAX_STATE_BYTES = 64_000_000
"""Largest accepted size of the Trainer's state file, in bytes. The file has one entry per step."""


LOCK_FILE = ".lock"
"""The lock in a run's folder. The process that trains there holds it."""


METRICS_FILE = "metrics.jsonl"


_PARTIAL_FILES = tuple(f".{name}.*.partial" for name in (RUN_FILE, METRICS_FILE, "episodes*.jsonl"))
"""The names that the files of a run have while they are written."""


_Callback: Any = TrainerCallback


RANK_TIMEOUT = 4 * 3600
"""Seconds that ranks wait for each other. One rank may evaluate, or sample much longer than the others."""


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The result of a run.

    Attributes:
        out: The folder of the run.
        model: The folder of the trained model.
        updates: Number of updates, including those before a resume.
        first_update: The update from which this process resumed. 0 if it started from the beginning.
        metrics: The metrics of the last update.
        checkpoints_failed: Number of checkpoints that could not be written.
    """

    out: str
    model: str
    updates: int
    first_update: int
    metrics: dict[str, Any]
    checkpoints_failed: int

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain data, with keys in a fixed order."""
        return asdict(self)


class TimeLimit(_Callback):  # type: ignore[misc]  # the base has no types
    """A time limit that stops a run after the update that reaches it, and saves a checkpoint.

    The clock starts when training starts.
    """

    def __init__(self, minutes: float, trainer: Any, note: Notify) -> None:
        self._seconds, self._trainer, self._note = 60 * minutes, trainer, note
        self._start = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the clock."""
        self._start = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop all ranks if the time of any rank has run out."""
        remaining = self._seconds - (time.monotonic() - self._start)
        if all_ranks_ok(self._trainer.accelerator, remaining > 0):
            return
        control.should_save = control.should_training_stop = True
        if state.global_step < state.max_steps:
            self._note(
                f"the time limit of {self._seconds / 60:g} minutes ended the run after update {state.global_step} of "
                f"{state.max_steps}. To continue, add --resume."
            )


@contextmanager
def locked_folder(out: str | Path) -> Iterator[None]:
    """Keep other processes from training in the folder of a run while the block runs.

    The first rank of a run holds the lock. If the file system has no locks, the folder is not protected.

    Args:
        out: The folder of the run.

    Raises:
        ConfigError: If another process trains in the folder, or if MPI started several processes that do not know of
            each other.
    """
    _check_launcher()
    busy = ConfigError(f"another process trains in {out}. Wait until it ends, or name another folder with --out.")
    with ExitStack() as stack:
        if os.environ.get("RANK", "0") == "0":
            Path(out).mkdir(parents=True, exist_ok=True)
            with suppress(NoLocksError):
                stack.enter_context(file_lock(Path(out, LOCK_FILE), busy=busy))
                # A killed process left them. The other ranks, which write such files too, still wait for this one.
                for left in (path for pattern in _PARTIAL_FILES for path in Path(out).glob(pattern)):
                    left.unlink()
        yield


def _check_launcher() -> None:
    """Raise `ConfigError` if MPI started several processes without the variables of `torch.distributed`."""
    sizes = {name: os.environ.get(name, "") for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")}
    several = [f"{name}={size}" for name, size in sizes.items() if size.isdecimal() and int(size) > 1]
    if several and "RANK" not in os.environ:
        raise ConfigError(
            f"MPI started several processes ({several[0]}), but RANK is not set, so each of them would train alone. "
            "Start the run with `accelerate launch` instead of mpirun."
        )


class TrainingRun:
    """A run of a training command. It writes its state, metrics and results to one folder."""

    def __init__(
        self, config: RunConfig, kind: RunKind, *, resume: bool, note: Notify, advance: OnUpdate | None = None
    ) -> None:
        """Prepare the folder and choose the checkpoint to resume from.

        Args:
            config: The configuration of the run.
            kind: Supervised training (`sft`) or reinforcement learning (`rl`).
            resume: If True, continue from the newest checkpoint.
            note: A function that receives messages for the user.
            advance: A function that receives the number of finished updates and the total number.

        Raises:
            ConfigError: If the folder holds another run, or a run that `resume` does not continue.
        """
        self.config, self.note, self._advance = config, note, advance
        self.kind: RunKind = kind
        self.out = Path(config.out)
        # The process joins the other ranks here. Without a GPU this needs `cpu`.
        state = PartialState(cpu=not torch.cuda.is_available(), timeout=timedelta(seconds=RANK_TIMEOUT))
        self.rank, self.ranks = int(state.process_index), int(state.num_processes)
        self.main = bool(state.is_main_process)
        self.device = state.device
        """The device that this process trains on."""
        self.checkpoints = Checkpoints(
            self.out / "checkpoints", kind=kind, settings=config.plain(), keep=config.checkpoints.keep
        )
        self.newest = self._checkpoint_to_resume(resume)
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]
        datasets.disable_progress_bars()
        self.trackers = _trackers(config.logging)

    @property
    def first_update(self) -> int:
        """The number of updates that were made before this process began."""
        return self.newest.step if self.newest is not None else 0

    def trainer_settings(self) -> dict[str, Any]:
        """Return the settings that both of TRL's trainers take."""
        config, chosen = self.config, self.config.optimizer
        return {
            "output_dir": str(self.out / TRAINER_FOLDER),
            "learning_rate": config.learning_rate(self.kind),
            "adam_beta1": chosen.betas[0],
            "adam_beta2": chosen.betas[1],
            "weight_decay": chosen.weight_decay,
            "max_grad_norm": chosen.max_grad_norm,
            "lr_scheduler_type": chosen.schedule,
            "warmup_steps": chosen.warmup,
            "seed": config.seed,
            "save_strategy": "steps",
            "save_steps": config.checkpoints.every,
            "logging_steps": 1,
            "logging_nan_inf_filter": False,
            "report_to": list(self.trackers),
            "run_name": config.logging.run or self.out.name,
            "project": config.logging.project,
            "use_cpu": not torch.cuda.is_available(),
            "bf16": config.model.dtype == "bfloat16",
            "fp16": config.model.dtype == "float16",
            "disable_tqdm": True,
            "ddp_timeout": RANK_TIMEOUT,
            **_checkpointing(config.model.gradient_checkpointing),
            **_local_trackio(),
        }

    def train(self, trainer: Any, more: Callable[[Path], None] | None = None) -> TrainingResult:
        """Train to the end and save the model.

        Args:
            trainer: A Trainer with `TrainerMixin`.
            more: A function that writes further files into each checkpoint.

        Returns:
            The result of the run.

        Raises:
            ContextAgentError: If a server or the data stops the run. The state is saved first. The message says how to
                continue.
            ConfigError: If the checkpoint to resume from contains code.
        """
        for printer in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(printer)
        if self.config.minutes:
            trainer.add_callback(TimeLimit(self.config.minutes, trainer, self.note))
        # A run that starts from update 0 also repeats the evaluation before the first update.
        first = 0 if self.newest is None else self.newest.step + 1
        metrics = MetricsLog(self.out / METRICS_FILE, first=first) if self.main else None
        record = RunRecord(metrics, self.checkpoints, self.note, more, self._progress(trainer))
        trainer.record = record
        if self.main:
            about = {"kind": self.kind, "digest": settings_digest(self.config.plain()), **self.config.plain()}
            with replacing(self.out / RUN_FILE, shared=True) as file:
                file.write(json.dumps(about, indent=1).encode() + b"\n")
        resume_folder = None if self.newest is None else str(self.newest.path / TRAINER_FOLDER)
        try:
            with explained_memory_errors(self.kind):
                trainer.train(resume_from_checkpoint=resume_folder)
        except ContextAgentError as error:
            raise self._with_advice(trainer, error) from error
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(f"{self._saved_state()} To continue, add --resume.") from error
        except UnpicklingError as error:
            raise ConfigError(
                f"{resume_folder} contains more than numbers, and code of a checkpoint is never run. Resume from a "
                "checkpoint of this machine, or delete the folder to resume from the checkpoint before."
            ) from error
        finally:
            if metrics is not None:
                metrics.close(self.note)
        model = self._save_model(trainer, FINAL)
        # If a rank exits while threads of its process group still run, it is sometimes aborted.
        trainer.accelerator.end_training()
        last = next((dict(line) for line in reversed(trainer.state.log_history) if "loss" in line), {})
        return TrainingResult(
            str(self.out), str(model), trainer.state.global_step, self.first_update, last, record.failed
        )

    def _checkpoint_to_resume(self, resume: bool) -> Checkpoint | None:
        # The run writes to files of these names. A link would lead it out of the folder.
        require_files(files_in(self.out), links=False)
        newest = self.checkpoints.newest() if resume else None
        if newest is not None:
            _check_state(newest)
        for path in self.checkpoints.newer(newest) if resume else ():
            self.note(f"{path} is damaged, so it is left out")
        if not resume and (existing := self.checkpoints.all()):
            raise ConfigError(
                f"{self.out} has a run that reached update {existing[-1].step}. Resume it with --resume, or name "
                "another folder with --out."
            )
        if self.main:
            self.out.mkdir(parents=True, exist_ok=True)
            self.checkpoints.sweep()
            for model in (self.out / BEST, self.out / FINAL):
                # A process was killed while it replaced the model.
                if _replaced(model).is_dir() and not model.exists():
                    _replaced(model).rename(model)
                for left in (_partial(model), _replaced(model)):
                    shutil.rmtree(left, ignore_errors=True)
            if newest is None:
                shutil.rmtree(self.out / BEST, ignore_errors=True)
            if resume and newest is None:
                self.note(f"{self.checkpoints.folder} has no complete checkpoint, so training starts from update 0")
            elif newest is not None:
                self.note(f"training resumes from update {newest.step} ({newest.path})")
        return newest

    def _progress(self, trainer: Any) -> Callable[[int], None] | None:
        advance = self._advance
        return None if advance is None else lambda step: advance(step, trainer.state.max_steps)

    def _with_advice(self, trainer: Any, error: ContextAgentError) -> ContextAgentError:
        """Save the state before the failed update, and return the error with advice on how to continue."""
        step = trainer.state.global_step
        newest = self.checkpoints.newest()
        if self.ranks == 1 and step and (newest is None or newest.step != step):
            trainer.model.zero_grad()
            trainer._save_checkpoint(trainer.model, None)  # noqa: SLF001 - the Trainer has no public way
            newest = self.checkpoints.newest()
        how = "add --resume to continue" if newest is not None else "start again"
        advised = copy(error)
        advised.args = (single_stops(f"{error}. {self._saved_state()} Fix the cause, then {how}."),)
        return advised

    def _saved_state(self) -> str:
        """Return a sentence about the newest checkpoint."""
        newest = self.checkpoints.newest()
        return "No update is saved yet." if newest is None else f"The state of update {newest.step} is saved."

    def consider(
        self, trainer: Any, metric: str, value: float | None, *, higher: bool, questions: str | None = None
    ) -> None:
        """If the evaluation of this update is the best so far, keep the model. Every rank must call this.

        Only evaluations by the same metric on the same questions are compared. If the model cannot be written, the
        reason is reported and training continues.

        Args:
            trainer: The trainer with the model.
            metric: The name of the metric.
            value: The metric of this update. None on ranks that do not evaluate.
            higher: True if a higher value is better.
            questions: A digest of the questions of the evaluation. None if a resumed run cannot change them.
        """
        evaluation = {"update": trainer.state.global_step, "metric": metric, "value": value}
        evaluation |= {} if questions is None else {"questions": questions}
        if not _first_of_ranks(trainer.accelerator, self._is_best(evaluation, higher=higher)):
            return
        try:
            self._save_model(trainer, BEST, evaluation)
        except DataError as error:
            self.note(f"{error}. Training continues.")

    def _is_best(self, evaluation: Mapping[str, Any], *, higher: bool) -> bool:
        value, same = evaluation["value"], {key: evaluation.get(key) for key in ("metric", "questions")}
        if value is None or not math.isfinite(value):
            return False
        try:
            before = read_json(self.out / BEST / EVALUATION_FILE)
            best = float(before["value"])
            comparable = all(before.get(key, wanted) == wanted for key, wanted in same.items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return True
        return not comparable or (value > best if higher else value < best)

    def _save_model(self, trainer: Any, name: str, evaluation: Mapping[str, Any] | None = None) -> Path:
        """Write the model and its evaluation completely to a folder of the run, or leave the folder as it was.

        Raise `DataError` if the model cannot be written.
        """
        final = self.out / name
        partial = _partial(final)
        try:
            if self.main:
                shutil.rmtree(partial, ignore_errors=True)
            trainer.accelerator.wait_for_everyone()
            with _rounded_weights(trainer, self.config.model.dtype):
                trainer.save_model(str(partial))
            if self.main:
                policy_description(self.config).save(partial)
                if evaluation is not None:
                    (partial / EVALUATION_FILE).write_text(json.dumps(evaluation) + "\n", encoding="utf-8")
                for written in (*partial.rglob("*"), partial):
                    sync_path(written)
                replaced = _replaced(final)
                if final.exists():
                    final.rename(replaced)
                partial.rename(final)
                shutil.rmtree(replaced, ignore_errors=True)
        # If the disk is full, torch and safetensors raise errors of their own.
        except Exception as error:
            raise DataError(
                f"the model could not be written to {final} ({error}). The newest checkpoint is complete. Free disk "
                "space, and continue with --resume."
            ) from error
        return final


def _partial(model: Path) -> Path:
    """Return the name of a model's folder while it is written."""
    return model.with_name(f".{model.name}.partial")


def _replaced(model: Path) -> Path:
    """Return the name of a model's folder while another model takes its place."""
    return model.with_name(f".{model.name}.old")


def _check_state(checkpoint: Checkpoint) -> None:
    """Raise `ConfigError` if the Trainer's state file is damaged or belongs to another step."""
    file = checkpoint.path / TRAINER_FOLDER / "trainer_state.json"
    try:
        problem = "it is of another step" if _state_in(file).global_step != checkpoint.step else ""
    except (OSError, ValueError, TypeError) as error:
        problem = str(error)
    if problem:
        raise ConfigError(f"{file} is damaged ({problem}). Delete {checkpoint.path} to resume from the one before.")


def _state_in(file: Path) -> TrainerState:
    return TrainerState(**read_json(file, MAX_STATE_BYTES))


def policy_description(run: RunConfig) -> PolicyDescription:
    """Return the description that is saved with the run's model.

    It has the prompt format, and the harness in which the model is trained.
    """
    model, episodes = run.model, run.episodes
    return PolicyDescription(
        base=base_name(model.name),
        revision=model.revision,
        renderer=model.renderer.value,
        reasoning_effort=model.reasoning_effort,
        parallel=model.parallel,
        profile=episodes.profile,
        window=episodes.window,
        max_tokens=run.engine.max_tokens,
    )


def _trackers(logging: LoggingConfig) -> tuple[str, ...]:
    """Return the trackers that the run names. If it names none, return trackio if it is installed.

    Raise `ConfigError` if a named tracker is not installed.
    """
    if logging.to is None:
        return ("trackio",) if _is_installed("trackio") else ()
    for name in logging.to:
        if not _is_installed(name):
            raise ConfigError(f"logging.to names {name}, which is not installed. Run `pip install {name}`.")
    return logging.to


def _is_installed(name: str) -> bool:
    """Return True if a package is installed. A folder of that name in the working directory does not count."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None


def _first_of_ranks(accelerator: Any, value: bool) -> bool:
    """Return the first rank's value on every rank."""
    if accelerator.num_processes == 1:
        return value
    from accelerate.utils import broadcast_object_list

    return bool(broadcast_object_list([value])[0])


@contextmanager
def _rounded_weights(trainer: Any, dtype: str) -> Iterator[None]:
    """Convert the weights to the run's type within the block, if the run trains all weights in 32 bits.

    Sharded weights are not converted.
    """
    if dtype == "float32":
        yield
        return
    model = trainer.accelerator.unwrap_model(trainer.model)
    whole = str(trainer.accelerator.distributed_type).rpartition(".")[2] in {"NO", "MULTI_GPU", "MULTI_CPU"}
    parameters = list(model.parameters()) if whole and not hasattr(model, "peft_config") else []
    trained = [parameter.data for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.data = parameter.data.to(getattr(torch, dtype))
        yield
    finally:
        for parameter, data in zip(parameters, trained, strict=True):
            parameter.data = data


def _checkpointing(enabled: bool) -> dict[str, Any]:
    """Return the setting for activation checkpointing under the name that the installed transformers uses.

    Version 5.23 renamed the setting, and warns about the old name.
    """
    kind = (
        "activation"
        if "activation_checkpointing" in {field.name for field in fields(TrainingArguments)}
        else "gradient"
    )
    return {f"{kind}_checkpointing": enabled, f"{kind}_checkpointing_kwargs": {"use_reentrant": False}}


def _local_trackio() -> dict[str, Any]:
    """Return the settings that make trackio write to this machine only, also at the end of a run."""
    private = {"trackio_space_id": None, "trackio_static_space_id": False}
    names = {field.name for field in fields(TrainingArguments)}
    return {name: value for name, value in private.items() if name in names}
