"""Weight syncs for background rollouts. They send weights to a copy of the model, or pause episodes while the weights
change.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from context_agent.errors import MissingExtraError
from context_agent.train.rl.weight_sync import NOTHING_SENT, SentWeights, SeparateWeights, WeightSync, full_bytes

try:
    import transformers
except ImportError as error:
    raise MissingExtraError(error.name or "transformers", "train") from None


def sampling_copy(model: Any) -> Any:
    """Return a copy of a trainer's model for sampling. Weights that are not trained are shared instead of copied.

    TRL and accelerate replace the model's `forward` with a closure over the model. A copy of that closure would compute
    with the trainer's weights, even during an update. The copy therefore uses the `forward` of its class.
    """
    frozen = {id(parameter): parameter for parameter in model.parameters() if not parameter.requires_grad}
    copied = copy.deepcopy(model, frozen).eval()
    for module in copied.modules():
        for name in ("forward", "_original_forward"):
            vars(module).pop(name, None)
        # The hook for gradient checkpointing cannot be sent to another process.
        if isinstance(module, transformers.PreTrainedModel):
            module.disable_input_require_grads()
    return copied


class ModelHolder(Protocol):
    """An object that samples with a model, in this process or another."""

    def load_model(self, model: Any, trained: Sequence[int] = ()) -> None:
        """Sample with this model from now on. `put` sends new values of its `trained` parameters, given by index."""

    def put(self, model: Any, version: str) -> int:
        """Send the model's current weights, and return the number of bytes. The next batch is sampled with them.

        The call does not wait until the current batch is done.
        """


class CopySync(SeparateWeights):
    """A weight sync for a sampler that has a copy of the trainer's model. Sampler and trainer do not wait for each
    other.

    Weights that are not trained, such as a base model under adapters, are shared instead of copied. One version samples
    a whole batch, because the sampler takes new weights only between batches.
    """

    def __init__(self, sampler: ModelHolder) -> None:
        self._sampler = sampler
        self._pushed = -1

    def attach(self, trainer: Any) -> None:
        """Give the sampler a copy of the trainer's model, with its adapters."""
        model = trainer.accelerator.unwrap_model(trainer.model)
        trained = [index for index, parameter in enumerate(model.parameters()) if parameter.requires_grad]
        self._sampler.load_model(sampling_copy(model), trained)

    def push(self, trainer: Any, step: int) -> SentWeights:
        """Send the trained weights, once for each update."""
        if step == self._pushed:
            return NOTHING_SENT
        model = trainer.accelerator.unwrap_model(trainer.model)
        sent = self._sampler.put(model, str(step))
        self._pushed = step
        return SentWeights(sent, full_bytes(model))


class PausableRollouts(Protocol):
    """Background episodes that can be paused between two turns."""

    def between_turns(self, *, drain: bool) -> AbstractContextManager[None]:
        """Pause the episodes within the block. With `drain`, no call is in progress inside it."""


class PausingSync:
    """A weight sync that pauses background episodes between two turns.

    Attributes:
        seconds: Time that weight syncs have taken, in seconds, including waiting.
    """

    def __init__(self, weights: WeightSync, rollouts: PausableRollouts, *, drain: bool) -> None:
        """Wrap a weight sync.

        Args:
            weights: The weight sync.
            rollouts: The episodes to pause.
            drain: If True, no call is in progress when weights change. A server that unloads the last adapter needs
                this.
        """
        self._weights, self._rollouts, self._drain = weights, rollouts, drain
        self._pushed = -1
        self.seconds = 0.0

    def attach(self, trainer: Any) -> None:
        """Attach the wrapped sync to the trainer."""
        self._weights.attach(trainer)

    def before_update(self) -> None:
        """Prepare the wrapped sync for a change of weights."""
        self._weights.before_update()

    def after_update(self) -> None:
        """Let the wrapped sync continue after a change of weights."""
        self._weights.after_update()

    def push(self, trainer: Any, step: int) -> SentWeights:
        """Pause the episodes, send the weights, and let the episodes continue."""
        if step == self._pushed:
            return NOTHING_SENT
        started = time.perf_counter()
        with self._rollouts.between_turns(drain=self._drain):
            sent = self._weights.push(trainer, step)
        self._pushed = step
        self.seconds += time.perf_counter() - started
        return sent


class CombinedSync:
    """Several weight syncs that act as one."""

    def __init__(self, every: Sequence[WeightSync]) -> None:
        self._every = every

    def attach(self, trainer: Any) -> None:
        """Attach each sync to the trainer."""
        for sync in self._every:
            sync.attach(trainer)

    def before_update(self) -> None:
        """Prepare each sync for a change of weights."""
        for sync in self._every:
            sync.before_update()

    def after_update(self) -> None:
        """Let each sync continue after a change of weights."""
        for sync in self._every:
            sync.after_update()

    def push(self, trainer: Any, step: int) -> SentWeights:
        """Send the weights with each sync, and return the total size."""
        return sum((sync.push(trainer, step) for sync in self._every), NOTHING_SENT)
