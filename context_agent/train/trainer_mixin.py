"""A mixin that adds this project's metrics and checkpoints to a transformers Trainer.

`TrainerMixin` goes before a transformers Trainer in a class's bases. The Trainer itself writes weights (safetensors),
optimizer, scheduler and random state into a partial folder. The folder becomes a checkpoint only when all files are on
disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from context_agent.errors import DivergenceError
from context_agent.policies.tokens.model_files import without_renaming_warning
from context_agent.train.checkpoints import Checkpoints
from context_agent.train.config import Notify
from context_agent.train.metrics_log import MetricsLog

TRAINER_FOLDER = "trainer"
"""The folder in a checkpoint that the Trainer reads and writes."""


SUMMARY_KEY = "train_runtime"
"""The key that marks the Trainer's last log entry. That entry describes the process, not a step."""


IGNORED_METRIC = "num_tokens"
"""A metric that is not logged. TRL counts it from the start of the process, so a resumed run would report another
value.
"""


@dataclass
class RunRecord:
    """The destinations of a run's metrics and checkpoints.

    Attributes:
        metrics: The log of metrics. None on ranks that do not write it.
        checkpoints: The checkpoints of the run.
        note: A function that receives messages for the user.
        more: A function that writes further files into a checkpoint, on each rank.
        advance: A function that receives the number of finished updates.
        pending: Metrics that the next line of the log will contain.
        failed: Number of checkpoints that could not be written.
    """

    metrics: MetricsLog | None
    checkpoints: Checkpoints
    note: Notify
    more: Callable[[Path], None] | None = None
    advance: Callable[[int], None] | None = None
    pending: dict[str, Any] = field(default_factory=dict)
    failed: int = 0


class TrainerMixin:
    """Metrics and atomic checkpoints for a Trainer. If `record` is set before training, they are active.

    The mixin also turns off the Trainer's telemetry.
    """

    record: RunRecord | None = None
    _writing: Path | None = None

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        # PEFT warns when TRL adds the adapters.
        with without_renaming_warning():
            super().__init__(*arguments, **settings)

    def log(self: Any, logs: dict[str, Any], start_time: float | None = None) -> None:
        """Log the metrics together with the pending ones, and write them as a line of the run's metrics."""
        record: RunRecord | None = self.record
        parent: Any = super()
        if record is None or SUMMARY_KEY in logs:
            parent.log(logs, start_time)
            return
        logs.update(record.pending)
        record.pending.clear()
        parent.log(logs, start_time)
        if record.metrics is not None:
            record.metrics.add(self.state.global_step, _finite_metrics(logs))
        if record.advance is not None:
            record.advance(self.state.global_step)

    def report(self, metrics: Mapping[str, float]) -> None:
        """Add metrics to the next line of the log."""
        if self.record is not None:
            self.record.pending |= metrics

    def _get_grad_norm(self: Any, model: Any, grad_norm: Any = None) -> Any:
        """Return the norm of the gradient, which the optimizer is about to use.

        Raise `DivergenceError` if it is not finite. In float16, the loss scale of torch or DeepSpeed skips such
        updates.
        """
        parent: Any = super()
        norm = parent._get_grad_norm(model, grad_norm=grad_norm)  # noqa: SLF001
        if norm is not None and not self.args.fp16 and not math.isfinite(norm):
            raise DivergenceError(
                f"the norm of the gradient of update {self.state.global_step} is {float(norm)}, because a weight, the "
                "loss or its gradient is not finite"
            )
        return norm

    def create_model_card(self, *_: Any, **__: Any) -> None:
        """Do nothing. Checkpoints need no model card."""

    def _send_telemetry(self) -> None:
        """Do nothing. TRL's own method would report the run to huggingface.co."""

    def _get_output_dir(self: Any, trial: Any) -> str:
        parent: Any = super()
        return str(self._writing) if self._writing is not None else str(parent._get_output_dir(trial))  # noqa: SLF001 - the Trainer's hooks are private

    def _save_checkpoint(self: Any, model: Any, trial: Any) -> None:
        """Write a checkpoint.

        If that fails, report the reason, keep the earlier checkpoints, and continue training.
        """
        record: RunRecord | None = self.record
        parent: Any = super()
        if record is None:
            parent._save_checkpoint(model, trial)  # noqa: SLF001
            return
        state = partial(parent._save_checkpoint, model, trial)  # noqa: SLF001
        try:
            for phase in (self._begin, state, self._finish):
                problem = _error_of(phase)
                # All ranks wait for each other here, so no file is renamed before all of them have written.
                if not all_ranks_ok(self.accelerator, problem is None):
                    self._give_up(record, problem)
                    return
        finally:
            self._writing = None

    def _begin(self: Any) -> None:
        checkpoints, step = self.record.checkpoints, self.state.global_step
        self._writing = checkpoints.open(step) if self.accelerator.is_main_process else checkpoints.partial_path(step)

    def _finish(self: Any) -> None:
        record, step = self.record, self.state.global_step
        if record.more is not None:
            record.more(self._writing)
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            (self._writing / f"checkpoint-{step}").rename(self._writing / TRAINER_FOLDER)
            record.checkpoints.commit(step)

    def _give_up(self: Any, record: RunRecord, problem: Exception | None) -> None:
        record.failed += 1
        record.pending["checkpoints_failed"] = float(record.failed)
        if self.accelerator.is_main_process:
            record.checkpoints.discard(self.state.global_step)
            _report_failure(record, self.state.global_step, problem)


def _error_of(phase: Callable[[], None]) -> Exception | None:
    """Run a phase and return the error that it raises, if any.

    If the disk is full, torch raises a RuntimeError and safetensors raises an error of its own.
    """
    try:
        phase()
    except Exception as error:  # noqa: BLE001
        return error
    return None


def all_ranks_ok(accelerator: Any, well: bool) -> bool:
    """Return True if `well` is True on every rank. All ranks must call this together."""
    if accelerator.num_processes == 1:
        return well
    import torch

    return bool(accelerator.gather(torch.tensor([int(well)], device=accelerator.device)).all())


def _report_failure(record: RunRecord, step: int, problem: Exception | None) -> None:
    newest = record.checkpoints.newest()
    last = (
        f"The newest complete checkpoint is of step {newest.step}."
        if newest is not None
        else "There is no checkpoint yet."
    )
    why = f"{type(problem).__name__}: {problem}" if problem is not None else "another rank failed"
    record.note(f"the checkpoint of step {step} could not be written ({why}). {last} Training continues.")


def _finite_metrics(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics for JSON, with None in place of numbers that are not finite."""
    metrics = {key: value for key, value in logs.items() if key != IGNORED_METRIC}
    return {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in metrics.items()}
