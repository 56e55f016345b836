"""A run's folder and the course of its training, whatever trains: begin, go on, stop with a word, leave a model.

OUT/run.json          the run's settings, defaults filled in
OUT/metrics.jsonl     a line for each update
OUT/checkpoints/      the last ones, each whole
OUT/trajectories/     sampled episodes, for `ctx1 view`
OUT/final/            the model, or its adapters, when training is done
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from context_agent.errors import ConfigError, ContextAgentError, DataError, MissingExtraError
from context_agent.train.checkpoints import Checkpoint, Checkpoints, digest
from context_agent.train.config import Run
from context_agent.train.metrics import MetricsLog
from context_agent.train.recorded import TRAINER, Note, Record

try:
    import datasets
    import torch
    from accelerate import PartialState
    from transformers import TrainingArguments
    from transformers.trainer_callback import PrinterCallback, ProgressCallback
    from transformers.utils import logging as transformers_logging
except ImportError as error:
    raise MissingExtraError(error.name or "transformers", "train") from None

PATIENCE = 4 * 3600
"""Seconds that ranks wait for each other: one of them may be evaluating, or sampling much longer than the others."""

Advance = Callable[[int, int], None]
"""Told how many updates of how many are done."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run came to. `begun` is the update that it went on from; `metrics` are the last update's."""

    out: str
    model: str
    updates: int
    begun: int
    metrics: dict[str, Any]
    checkpoints_failed: int

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


class Session:
    """One command's hold on a run's folder."""

    def __init__(self, run: Run, kind: str, *, resume: bool, note: Note, advance: Advance | None = None) -> None:
        """`kind` is `sft` or `rl`. Raises `ConfigError` for a folder with another run, or one that is not resumed."""
        self.run, self.kind, self.note, self._advance = run, kind, note, advance
        self.out = Path(run.out)
        # Here a process joins the others, and by nothing later: without a GPU that has to be said.
        state = PartialState(cpu=not torch.cuda.is_available(), timeout=timedelta(seconds=PATIENCE))
        self.rank, self.ranks = int(state.process_index), int(state.num_processes)
        self.main = bool(state.is_main_process)
        self.checkpoints = Checkpoints(
            self.out / "checkpoints", kind=kind, settings=run.plain(), keep=run.checkpoints.keep
        )
        self.newest = self._found(resume)
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]
        datasets.disable_progress_bars()
        for name in run.logging.to:
            if find_spec(name) is None:
                raise ConfigError(f"logging.to names {name}, which is not installed: pip install {name}")

    @property
    def begun(self) -> int:
        """Updates that were made before this process began."""
        return self.newest.step if self.newest is not None else 0

    def arguments(self) -> dict[str, Any]:
        """What TRL's configurations are told, whichever trainer it is."""
        run, chosen = self.run, self.run.optimiser
        return {
            "output_dir": str(self.out / TRAINER),
            "learning_rate": chosen.learning_rate,
            "adam_beta1": chosen.betas[0],
            "adam_beta2": chosen.betas[1],
            "weight_decay": chosen.weight_decay,
            "max_grad_norm": chosen.max_grad_norm,
            "lr_scheduler_type": chosen.schedule,
            "warmup_steps": chosen.warmup,
            "seed": run.seed,
            "save_strategy": "steps",
            "save_steps": run.checkpoints.every,
            "logging_steps": 1,
            "logging_nan_inf_filter": False,
            "report_to": list(run.logging.to),
            "run_name": run.logging.run or self.out.name,
            "project": run.logging.project,
            "use_cpu": not torch.cuda.is_available(),
            "bf16": run.model.dtype == "bfloat16",
            "fp16": run.model.dtype == "float16",
            "disable_tqdm": True,
            "ddp_timeout": PATIENCE,
            **_checkpointing(run.model.gradient_checkpointing),
        }

    def train(self, trainer: Any, more: Callable[[Path], None] | None = None) -> Trained:
        """Trains to the end and saves the model. `more` writes what else a checkpoint holds.

        Where the world or the data stop it, the state is saved first, and the error says how to go on.
        """
        for printer in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(printer)
        metrics = MetricsLog(self.out / "metrics.jsonl", first=self.begun + 1) if self.main else None
        record = Record(metrics, self.checkpoints, self.note, more, self._told(trainer))
        trainer.record = record
        if self.main:
            about = {"kind": self.kind, "digest": digest(self.run.plain()), **self.run.plain()}
            (self.out / "run.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        place = None if self.newest is None else str(self.newest.path / TRAINER)
        try:
            trainer.train(resume_from_checkpoint=place)
        except ContextAgentError as error:
            raise self._stopped(trainer, record, error) from error
        finally:
            if metrics is not None:
                metrics.close()
        model = self._leave(trainer)
        # A rank that ends while the group's threads still run is aborted now and then.
        trainer.accelerator.end_training()
        last = next((dict(line) for line in reversed(trainer.state.log_history) if "loss" in line), {})
        return Trained(str(self.out), str(model), trainer.state.global_step, self.begun, last, record.failed)

    def _found(self, resume: bool) -> Checkpoint | None:
        newest = self.checkpoints.newest() if resume else None
        if not resume and (there := self.checkpoints.all()):
            raise ConfigError(
                f"{self.out} holds a run that came to update {there[-1].step}: go on with --resume, or name another "
                "folder with --out"
            )
        if self.main:
            self.out.mkdir(parents=True, exist_ok=True)
            self.checkpoints.sweep()
            if resume and newest is None:
                self.note(f"there is no whole checkpoint in {self.checkpoints.folder}: it begins at the beginning")
            elif newest is not None:
                self.note(f"going on from update {newest.step} ({newest.path})")
        return newest

    def _told(self, trainer: Any) -> Callable[[int], None] | None:
        if self._advance is None:
            return None
        advance = self._advance
        return lambda step: advance(step, trainer.state.max_steps)

    def _stopped(self, trainer: Any, record: Record, error: ContextAgentError) -> ContextAgentError:
        """The error with what to do about it; the state before the update that failed is saved."""
        step = trainer.state.global_step
        there = self.checkpoints.all()
        if self.ranks == 1 and step and not (there and there[-1].step == step):
            trainer.model.zero_grad()
            trainer._save_checkpoint(trainer.model, None)  # noqa: SLF001 - the Trainer has no public way
            there = self.checkpoints.all()
        saved = f"the state of update {there[-1].step} is saved" if there else "no update was made yet"
        how = "add --resume to go on from there" if there else "start again"
        return type(error)(f"{error}. {saved[0].upper()}{saved[1:]}; when this is mended, {how}")

    def _leave(self, trainer: Any) -> Path:
        """Writes the model, whole or not at all. Raises `DataError` where it cannot be written."""
        final, partial = self.out / "final", self.out / ".final.partial"
        try:
            if self.main:
                shutil.rmtree(partial, ignore_errors=True)
            trainer.accelerator.wait_for_everyone()
            trainer.save_model(str(partial))
            if self.main:
                shutil.rmtree(final, ignore_errors=True)
                partial.rename(final)
        # torch and safetensors have errors of their own for a disk that is full.
        except Exception as error:
            raise DataError(
                f"the model could not be written to {final}: {error}. The last checkpoint is whole: make room, and "
                "go on with --resume"
            ) from error
        return final


def _checkpointing(wanted: bool) -> dict[str, Any]:
    """The setting by the name that this transformers has for it: 5.23 renamed it, and warns of the old one."""
    kind = "activation" if "activation_checkpointing" in {one.name for one in fields(TrainingArguments)} else "gradient"
    return {f"{kind}_checkpointing": wanted, f"{kind}_checkpointing_kwargs": {"use_reentrant": False}}
