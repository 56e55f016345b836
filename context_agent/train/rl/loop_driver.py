"""A driver that runs a training loop, written as a generator, inside TRL's training.

Normally TRL controls the training. With `LoopDriver`, the loop (`train.rl.loop`) controls it. TRL resumes the loop when
it needs the rows of an update, and again when the update is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from context_agent.errors import ContextAgentError, MissingExtraError
from context_agent.train.batches import WeightedRow
from context_agent.train.rl.row_trainer import RowTrainer
from context_agent.train.rl.weight_sync import WeightSync

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise MissingExtraError(error.name or "trl", "train") from None


_Callback: Any = TrainerCallback


CHECKPOINT: tuple[WeightedRow, ...] = ()
"""The value that a loop yields when an update is done. TRL then logs, and saves a checkpoint if one is due."""


class UpdateLoop(Protocol):
    """A training loop as a generator. For each update it yields the rows, and then `CHECKPOINT`."""

    @property
    def weights(self) -> WeightSync:
        """The weight sync that sends new weights to the sampler."""

    def run(self, trainer: RowTrainer, update: int) -> Iterator[Sequence[WeightedRow]]:
        """Run the loop from an update on. For each update, yield its rows and then `CHECKPOINT`."""


class LoopDriver(_Callback):  # type: ignore[misc]  # the base has no types
    """A driver that is both the trainer's source of rows and one of TRL's callbacks."""

    def __init__(self, loop: UpdateLoop) -> None:
        self._loop = loop
        self._running: Iterator[Sequence[WeightedRow]] | None = None
        self._error: ContextAgentError | None = None
        self.trainer: Any = None
        """Set it before training."""

    def rows(self, update: int) -> Sequence[WeightedRow]:
        """Run the loop until it yields the rows of the next update, and return them."""
        if self._running is None:
            self._running = self._loop.run(self.trainer, update)
        return next(self._running)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Keep the sampler from reading weights while they change."""
        self._loop.weights.before_update()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Let the sampler read the changed weights."""
        self._loop.weights.after_update()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Run the loop to its checkpoint. If that raises an error, keep it until TRL has logged the completed
        update.
        """
        assert self._running is not None
        try:
            next(self._running)
        except ContextAgentError as error:
            self._error = error

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Raise the error that the end of the last update left, if any."""
        self._raise()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Raise the error that the end of the last update left, if any."""
        self._raise()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
