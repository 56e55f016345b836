"""How weights change hands while episodes are sampled with them: beside a copy, or between two turns of a server."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from typing import Any, Protocol

from context_agent.train.rl.background import Background
from context_agent.train.rl.weights import Weights


class Holder(Protocol):
    """What samples with a model that it is given, in this process or another."""

    def hold(self, model: Any, trained: Sequence[int] = ()) -> None:
        """Samples with this model from now on. `put` brings new values of its `trained` parameters, by place."""

    def put(self, model: Any, version: str) -> None:
        """The weights that this model has now sample from the next batch on. Does not wait for the batch at hand."""


class Copied:
    """What samples has a copy of the trainer's model, so that neither waits for the other.

    Weights that are not trained (a base model under adapters) are shared, not copied. A batch is sampled by one
    version: new weights are taken up between two.
    """

    def __init__(self, sampler: Holder) -> None:
        self._sampler = sampler
        self._pushed = -1

    def begin(self, trainer: Any) -> None:
        """Makes the copy of the model as the trainer has it, with its adapters."""
        model = trainer.accelerator.unwrap_model(trainer.model)
        frozen: dict[int, Any] = {id(one): one for one in model.parameters() if not one.requires_grad}
        made = copy.deepcopy(model, frozen).eval()
        self._sampler.hold(made, [place for place, one in enumerate(model.parameters()) if one.requires_grad])

    def before_update(self) -> None:
        """Nothing: the engine has a copy."""

    def after_update(self) -> None:
        """Nothing."""

    def push(self, trainer: Any, step: int) -> None:
        """Hands over what is trained, once for each update."""
        if step != self._pushed:
            self._sampler.put(trainer.accelerator.unwrap_model(trainer.model), str(step))
            self._pushed = step


class BetweenTurns:
    """Weights that come while episodes are played in the background: those are parked between two turns meanwhile."""

    def __init__(self, weights: Weights, background: Background, *, drain: bool) -> None:
        """`drain`: no call may be at work when weights change, as with a server that takes the last ones off."""
        self._weights, self._background, self._drain = weights, background, drain
        self._pushed = -1
        self.seconds = 0.0
        """Seconds that handing over has taken, waiting included."""

    def begin(self, trainer: Any) -> None:
        """As the weights do."""
        self._weights.begin(trainer)

    def before_update(self) -> None:
        """As the weights do."""
        self._weights.before_update()

    def after_update(self) -> None:
        """As the weights do."""
        self._weights.after_update()

    def push(self, trainer: Any, step: int) -> None:
        """Parks the episodes, hands the weights over, and lets the episodes go on with them."""
        if step == self._pushed:
            return
        started = time.perf_counter()
        with self._background.between_turns(drain=self._drain):
            self._weights.push(trainer, step)
        self._pushed = step
        self.seconds += time.perf_counter() - started


class Together:
    """Several places that weights go to."""

    def __init__(self, every: Sequence[Weights]) -> None:
        self._every = every

    def begin(self, trainer: Any) -> None:
        """Each begins."""
        for one in self._every:
            one.begin(trainer)

    def before_update(self) -> None:
        """Each is told."""
        for one in self._every:
            one.before_update()

    def after_update(self) -> None:
        """Each is told."""
        for one in self._every:
            one.after_update()

    def push(self, trainer: Any, step: int) -> None:
        """To each."""
        for one in self._every:
            one.push(trainer, step)
