"""How weights change hands while episodes are sampled with them: at a copy's lock, or between two turns of a server."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from typing import Any

from context_agent.policies.engines.transformers import TransformersEngine
from context_agent.train.rl.background import Background
from context_agent.train.rl.weights import Weights


class Copied:
    """The engine samples with a copy of the trainer's model, so that it need not wait while weights are trained.

    Weights that are not trained (a base model under adapters) are shared, not copied. A batch is sampled by one
    version: new weights are put in between two.
    """

    def __init__(self, engine: TransformersEngine) -> None:
        self._engine = engine
        self._pairs: list[tuple[Any, Any]] = []
        self._pushed = -1

    def begin(self, trainer: Any) -> None:
        """Makes the copy of the model as the trainer has it, with its adapters."""
        model = trainer.accelerator.unwrap_model(trainer.model)
        frozen: dict[int, Any] = {id(one): one for one in model.parameters() if not one.requires_grad}
        self._engine.model = copy.deepcopy(model, frozen).eval()
        every = zip(self._engine.model.parameters(), model.parameters(), strict=True)
        self._pairs = [(mine, theirs) for mine, theirs in every if mine is not theirs]

    def before_update(self) -> None:
        """Nothing: the engine has a copy."""

    def after_update(self) -> None:
        """Nothing."""

    def push(self, trainer: Any, step: int) -> None:
        """Copies what is trained, once for each update, when the batch at hand is sampled."""
        import torch

        if step == self._pushed:
            return
        with self._engine.lock, torch.no_grad():
            for mine, theirs in self._pairs:
                mine.copy_(theirs)
            self._engine.version = str(step)
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
