"""The run that supervised training and reinforcement learning share: its folder, its start, its resume and its end.

OUT/run.json          the run's settings, defaults included
OUT/metrics.jsonl     one line per update
OUT/checkpoints/      the newest checkpoints
OUT/trajectories/     sampled episodes, for `ctx1 view`
OUT/final/            the trained model, or its adapters
OUT/best/             the model with the best evaluation, and that evaluation in `evaluation.json`
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from context_agent._support.atomic_files import replacing
from context_agent._support.small_files import files_in, read_json, require_files
from context_agent.errors import (
    ConfigError,
    ContextAgentError,
    DataError,
    DivergenceError,
    MissingExtraError,
    reason_of,
    single_stops,
)
from context_agent.policies.tokens.trained import FINAL
from context_agent.train.checkpoints import CHECKPOINTS_FOLDER, Checkpoint, Checkpoints, settings_digest
from context_agent.train.config import Notify, OnUpdate, RunConfig, RunKind
from context_agent.train.lineage import RUN_FILE
from context_agent.train.memory_errors import explained_memory_errors
from context_agent.train.metrics_log import METRICS_FILE, MetricsLog
from context_agent.train.models import hub_commit
from context_agent.train.saved_models import SavedModels
from context_agent.train.trainer_mixin import TRAINER_FOLDER, RunRecord, all_ranks_ok
from context_agent.train.trainer_settings import RANK_TIMEOUT, installed_trackers, named_project

try:
    import datasets
    import torch
    from accelerate import PartialState
    from transformers import TrainerCallback
    from transformers.trainer_callback import PrinterCallback, ProgressCallback, TrainerState
    from transformers.utils import logging as transformers_logging
except ImportError as error:
    raise MissingExtraError(error.name or "transformers", "train") from None


MAX_STATE_BYTES = 64_000_000
"""Largest accepted size of the Trainer's state file, in bytes. The file has one entry per step."""
_Callback: Any = TrainerCallback


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


class StopBySigterm(_Callback):  # type: ignore[misc]  # the base has no types
    """A stop that ends a run after the update in which SIGTERM arrives, and saves a checkpoint.

    Schedulers of clusters send this signal before they kill a process.

    Attributes:
        stopped: True if the signal ended the run before its last update.
    """

    def __init__(self, trainer: Any, note: Notify) -> None:
        self._trainer, self._note = trainer, note
        self._requested = self.stopped = False

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Wait for the signal during the block. A second signal ends the process at once.

        Outside the main thread, and if the program handles the signal itself, do nothing.
        """
        own = threading.current_thread() is threading.main_thread()
        if not own or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
            yield
            return
        signal.signal(signal.SIGTERM, self._request)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Stop all ranks if one of them received the signal."""
        if all_ranks_ok(self._trainer.accelerator, not self._requested) or state.global_step >= state.max_steps:
            return
        self.stopped = control.should_save = control.should_training_stop = True

    def _request(self, *_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._requested = True
        # Even if nobody reads the notes any more, or the signal interrupted another note, the run saves a checkpoint.
        with suppress(OSError, RuntimeError):
            self._note(
                "SIGTERM arrived, so the run stops after this update. To stop it at once, send the signal again."
            )


class WarmupCheck(_Callback):  # type: ignore[misc]  # the base has no types
    """A check that the learning rate reaches its peak before the run ends."""

    def __init__(self, note: Notify) -> None:
        self._note = note

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tell the user if the warmup is longer than the run."""
        if args.warmup_steps > state.max_steps:
            self._note(
                f"optimizer.warmup = {int(args.warmup_steps)} is longer than the run of {state.max_steps} updates, so "
                "the learning rate stays below its peak. Lower optimizer.warmup."
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
            ConfigError: If the folder holds another run, a run that `resume` does not continue, or a trained model
                whose checkpoints were deleted.
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
            self.out / CHECKPOINTS_FOLDER, kind=kind, settings=config.plain(), keep=config.checkpoints.keep
        )
        self.models = SavedModels(config, note, main=self.main)
        self.newest = self._checkpoint_to_resume(resume)
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]
        datasets.disable_progress_bars()
        self.trackers = installed_trackers(config.logging)

    @property
    def first_update(self) -> int:
        """The number of updates that were made before this process began."""
        return self.newest.step if self.newest is not None else 0

    def bind_data(self, kind: str, digest: str, remedy: str) -> None:
        """Record the data that the run learns from in its checkpoints, and refuse to resume with other data.

        Args:
            kind: What the data is, such as `questions`.
            digest: A digest of the data.
            remedy: What a user can do if the data has changed.

        Raises:
            ConfigError: If the checkpoint to resume from was trained on other data.
        """
        if self.newest is not None and self.newest.data.get(kind, digest) != digest:
            raise ConfigError(
                f"the {kind} have changed since {self.newest.path} was written. {remedy}, or name another folder "
                "with --out."
            )
        self.checkpoints.data[kind] = digest

    def bind_hub_commit(self) -> None:
        """Record the commit of a model from the Hugging Face hub, and refuse to resume with another. Load it before.

        Raises:
            ConfigError: If the model's files on the hub have changed since the checkpoint to resume from.
        """
        if commit := hub_commit(self.config.model):
            kind = "files of model.name on the Hugging Face hub"
            before = "" if self.newest is None else self.newest.data.get(kind, "")
            self.bind_data(kind, commit, f'Set model.revision = "{before}" to use the earlier ones')

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
            KeyboardInterrupt: If Ctrl-C or SIGTERM stops the run. The message says how to continue.
        """
        for printer in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(printer)
        trainer.add_callback(WarmupCheck(self.note))
        if self.config.minutes:
            trainer.add_callback(TimeLimit(self.config.minutes, trainer, self.note))
        trainer.add_callback(stop := StopBySigterm(trainer, self.note))
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
            with named_project(self.config.logging), explained_memory_errors(self.kind), stop.listening():
                trainer.train(resume_from_checkpoint=resume_folder)
            if stop.stopped:
                raise KeyboardInterrupt  # noqa: TRY301 - an interrupt ends here, however it arrived
        except ContextAgentError as error:
            finished = trainer.state.global_step >= trainer.state.max_steps
            raise self._with_advice(
                trainer, error, resumable=not (finished and isinstance(error, DataError))
            ) from error
        except KeyboardInterrupt as error:
            newest = self.checkpoints.newest()
            advice = "To start again, run the same command." if newest is None else "To continue, add --resume."
            raise KeyboardInterrupt(f"{self._saved_state()} {advice}") from error
        except UnpicklingError as error:
            raise ConfigError(
                f"{resume_folder} contains more than numbers, and code of a checkpoint is never run. Resume from a "
                "checkpoint of this machine, or delete the folder to resume from the checkpoint before."
            ) from error
        finally:
            if metrics is not None:
                metrics.close(self.note)
        try:
            model = self.models.save(trainer, FINAL)
        except DataError as error:
            raise self._with_advice(trainer, error) from error
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
        if newest is None:
            self.models.check_replaceable()
        if self.main:
            self.out.mkdir(parents=True, exist_ok=True)
            self.checkpoints.sweep()
            self.models.repair(keep_best=newest is not None)
            if resume and newest is None:
                self.note(f"{self.checkpoints.folder} has no complete checkpoint, so training starts from update 0")
            elif newest is not None:
                self.note(f"training resumes from update {newest.step} ({newest.path})")
        return newest

    def _progress(self, trainer: Any) -> Callable[[int], None] | None:
        advance = self._advance
        return None if advance is None else lambda step: advance(step, trainer.state.max_steps)

    def _with_advice(self, trainer: Any, error: ContextAgentError, *, resumable: bool = True) -> ContextAgentError:
        """Save the state before the failed update, and return the error with advice on how to continue.

        If a run is not `resumable`, all its updates are made, so that resuming it with the same settings does nothing.
        Weights that are not finite are not saved. They would replace an older checkpoint.
        """
        step = trainer.state.global_step
        newest = self.checkpoints.newest()
        diverged = isinstance(error, DivergenceError)
        unsaved = self.ranks == 1 and step and (newest is None or newest.step != step)
        if unsaved and not (diverged and _has_broken_weights(trainer.model)):
            trainer.model.zero_grad()
            trainer._save_checkpoint(trainer.model, None)  # noqa: SLF001 - the Trainer has no public way
            newest = self.checkpoints.newest()
        if diverged:
            advice = self._divergence_remedy()
        elif not resumable:
            advice = (
                "To train longer, raise rollouts.steps and add --resume. To change other settings, name another folder "
                "with --out."
            )
        else:
            advice = f"Fix the cause, then {'add --resume to continue' if newest is not None else 'start again'}."
        advised = copy(error)
        advised.args = (single_stops(f"{error}. {self._saved_state()} {advice}"),)
        return advised

    def _divergence_remedy(self) -> str:
        """Return how to train after a divergence. A resumed run cannot change the learning rate."""
        table = "sft" if self.kind == "sft" and self.config.sft.learning_rate else "optimizer"
        rate = self.config.learning_rate(self.kind)
        return (
            f"A resumed run repeats the update with the same learning rate of {rate:g}. "
            f"If the update fails again, lower {table}.learning_rate and name another folder with --out."
        )

    def _saved_state(self) -> str:
        """Return a sentence about the newest checkpoint."""
        newest = self.checkpoints.newest()
        return "No update is saved yet." if newest is None else f"The state of update {newest.step} is saved."


def _has_broken_weights(model: Any) -> bool:
    """Return True if a trained weight is not finite."""
    return not all(weights.isfinite().all() for weights in model.parameters() if weights.requires_grad)


def _check_state(checkpoint: Checkpoint) -> None:
    """Raise `ConfigError` if the Trainer's state file is damaged or belongs to another step."""
    file = checkpoint.path / TRAINER_FOLDER / "trainer_state.json"
    try:
        problem = "it is of another step" if _state_in(file).global_step != checkpoint.step else ""
    except (OSError, ValueError, TypeError) as error:
        problem = reason_of(error)
    if problem:
        raise ConfigError(f"{file} is damaged ({problem}). Delete {checkpoint.path} to resume from the one before.")


def _state_in(file: Path) -> TrainerState:
    return TrainerState(**read_json(file, MAX_STATE_BYTES))
