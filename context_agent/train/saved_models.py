"""The models that a run writes: the last one, and the one with the best evaluation."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from context_agent._support.atomic_files import sync_path
from context_agent._support.small_files import read_json
from context_agent.errors import ConfigError, DataError, MissingExtraError, reason_of
from context_agent.policies.tokens.trained import BEST, EVALUATION_FILE, FINAL, PolicyDescription
from context_agent.train.config import Notify, RunConfig
from context_agent.train.lineage import RUN_FILE, base_model_name

try:
    import torch
except ImportError as error:
    raise MissingExtraError(error.name or "torch", "train") from None


class SavedModels:
    """The models in the folder of a run. A folder is replaced completely or not at all."""

    def __init__(self, config: RunConfig, note: Notify, *, main: bool) -> None:
        """Open the models of a run.

        Args:
            config: The configuration of the run.
            note: A function that receives messages for the user.
            main: True in the process that writes. In the others, only the trainer is asked for its weights.
        """
        self._config, self._note, self._main = config, note, main
        self._out = Path(config.out)

    def check_replaceable(self) -> None:
        """Raise `ConfigError` if a run from update 0 would replace a model that no such run is known to have left.

        A run that is killed before its first checkpoint may leave a best model, but no final one.
        """
        names = (FINAL,) if (self._out / RUN_FILE).is_file() else (FINAL, BEST)
        if found := next((name for name in names if (self._out / name).exists()), None):
            raise ConfigError(
                f"{self._out / found} exists, but {self._out} has no complete checkpoint to resume from, so this run "
                "would replace the model. Name another folder with --out, or move the model."
            )

    def repair(self, *, keep_best: bool) -> None:
        """Finish the replacement of a model that a killed process left. Without `keep_best`, delete the best model."""
        for model in (self._out / BEST, self._out / FINAL):
            if _replaced(model).is_dir() and not model.exists():
                _replaced(model).rename(model)
            for left in (_partial(model), _replaced(model)):
                shutil.rmtree(left, ignore_errors=True)
        if not keep_best:
            shutil.rmtree(self._out / BEST, ignore_errors=True)

    def keep_if_best(
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
            self.save(trainer, BEST, evaluation)
        except DataError as error:
            self._note(f"{error}. Training continues.")

    def save(self, trainer: Any, name: str, evaluation: Mapping[str, Any] | None = None) -> Path:
        """Write the model and its evaluation completely to a folder of the run, or leave the folder as it was.

        Args:
            trainer: The trainer with the model. Every rank must call this.
            name: The name of the folder.
            evaluation: The evaluation of the model.

        Returns:
            The folder of the model.

        Raises:
            DataError: If the model cannot be written.
        """
        final = self._out / name
        partial = _partial(final)
        try:
            if self._main:
                shutil.rmtree(partial, ignore_errors=True)
            trainer.accelerator.wait_for_everyone()
            with _rounded_weights(trainer, self._config.model.dtype):
                trainer.save_model(str(partial))
            if self._main:
                policy_description(self._config).save(partial)
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
            if self._main:
                # On a full disk, what was written would take the space of the next checkpoint.
                shutil.rmtree(partial, ignore_errors=True)
            raise DataError(f"the model could not be written to {final} ({reason_of(error)})") from error
        return final

    def _is_best(self, evaluation: Mapping[str, Any], *, higher: bool) -> bool:
        value, same = evaluation["value"], {key: evaluation.get(key) for key in ("metric", "questions")}
        if value is None or not math.isfinite(value):
            return False
        try:
            before = read_json(self._out / BEST / EVALUATION_FILE)
            best = float(before["value"])
            comparable = all(before.get(key, wanted) == wanted for key, wanted in same.items())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return True
        return not comparable or (value > best if higher else value < best)


def _partial(model: Path) -> Path:
    """Return the name of a model's folder while it is written."""
    return model.with_name(f".{model.name}.partial")


def _replaced(model: Path) -> Path:
    """Return the name of a model's folder while another model takes its place."""
    return model.with_name(f".{model.name}.old")


def policy_description(run: RunConfig) -> PolicyDescription:
    """Return the description that is saved with the run's model.

    It has the prompt format, and the harness in which the model is trained.
    """
    model, episodes = run.model, run.episodes
    return PolicyDescription(
        base=base_model_name(model.name),
        revision=model.revision,
        renderer=model.renderer.value,
        reasoning_effort=model.reasoning_effort,
        parallel=model.parallel,
        profile=episodes.profile,
        window=episodes.window,
        max_tokens=run.engine.max_tokens,
        shown=episodes.shown,
        per_call=episodes.per_call,
    )


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
