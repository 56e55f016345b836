"""Weight syncs of background rollouts: to a copy of the model, and while episodes pause."""

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
    """Return a copy of a trainer's model to sample with. Weights that are not trained are shared, not copied.

    TRL and accelerate give the model a `forward` of its own, a closure over the model. A copy of it would compute with
    the trainer's weights at any moment of an update. The copy has the `forward` of its class.
    """
    frozen = {id(parameter): parameter for parameter in model.parameters() if not parameter.requires_grad}
    copied = copy.deepcopy(model, frozen).eval()
    for module in copied.modules():
        for name in ("forward", "_original_forward"):
            vars(module).pop(name, None)
        # A hook for gradient checkpointing, which cannot be sent to another process.
        if isinstance(module, transformers.PreTrainedModel):
            module.disable_input_require_grads()  # type: ignore[no-untyped-call]
    return copied


class ModelHolder(Protocol):
    """Samples with a model, in this process or another."""

    def load_model(self, model: Any, trained: Sequence[int] = ()) -> None:
        """Sample with this model from now on. `put` brings new values of its `trained` parameters, by index."""

    def put(self, model: Any, version: str) -> int:
        """Send the model's current weights, which sample from the next batch on. Return the bytes that were sent.

        The call does not wait for the current batch.
        """


class CopySync(SeparateWeights):
    """The sampler has a copy of the trainer's model, so that neither waits for the other.

    Weights that are not trained (a base model under adapters) are shared, not copied. A batch is sampled by one
    version: the sampler adopts new weights between two.
    """

    def __init__(self, sampler: ModelHolder) -> None:
        self._sampler = sampler
        self._pushed = -1

    def attach(self, trainer: Any) -> None:
        """Make the copy of the model as the trainer has it, with its adapters."""
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
    """Episodes in the background that can be paused between two turns."""

    def between_turns(self, *, drain: bool) -> AbstractContextManager[None]:
        """Pause the episodes for the block. With `drain` no call is in progress inside it."""


class PausingSync:
    """A weight sync during background rollouts, which pause between two turns."""

    def __init__(self, weights: WeightSync, rollouts: PausableRollouts, *, drain: bool) -> None:
        """With `drain` no call is in progress when weights change, as a server that unloads the last adapter needs."""
        self._weights, self._rollouts, self._drain = weights, rollouts, drain
        self._pushed = -1
        self.seconds = 0.0
        """Seconds that weight syncs have taken, waiting included."""

    def attach(self, trainer: Any) -> None:
        """As the weights do."""
        self._weights.attach(trainer)

    def before_update(self) -> None:
        """As the weights do."""
        self._weights.before_update()

    def after_update(self) -> None:
        """As the weights do."""
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
    """Several weight syncs as one."""

    def __init__(self, every: Sequence[WeightSync]) -> None:
        self._every = every

    def attach(self, trainer: Any) -> None:
        """As each does."""
        for sync in self._every:
            sync.attach(trainer)

    def before_update(self) -> None:
        """As each does."""
        for sync in self._every:
            sync.before_update()

    def after_update(self) -> None:
        """As each does."""
        for sync in self._every:
            sync.after_update()

    def push(self, trainer: Any, step: int) -> SentWeights:
        """As each does."""
        return sum((sync.push(trainer, step) for sync in self._every), NOTHING_SENT)
