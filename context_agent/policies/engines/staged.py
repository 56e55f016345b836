"""Weights on their way from a trainer to a model that samples: put down at any time, taken up between two batches.

The trainer need not wait for the batch at hand, which may take longer than an update. It costs a second copy of what is
trained. The copies lie in memory that another process sees as well, if it is to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Staged:
    """New values for some parameters of a model, and the version that they are. One side puts, the other takes.

    Hold `lock` for either; it is never held for longer than copying takes.
    """

    def __init__(self, model: Any, places: Sequence[int], *, lock: Any, named: Any) -> None:
        """`places` are those of the parameters in `model.parameters()`; their values are taken down as they are now.

        `named.value`, bytes, is the version of the values that were put last.
        """
        every = list(model.parameters())
        self._places = list(places)
        self._slots = [every[place].detach().clone() for place in self._places]
        self.lock, self._named = lock, named
        self._taken: bytes = named.value

    def share(self) -> None:
        """Moves the copies to memory that two processes see, where they are not a GPU's already."""
        for slot in self._slots:
            slot.share_memory_()

    def put(self, model: Any, version: str) -> None:
        """The values that this model's parameters have now are those of `version`."""
        import torch

        every = list(model.parameters())
        with torch.no_grad():
            for place, slot in zip(self._places, self._slots, strict=True):
                slot.copy_(every[place])
        self._named.value = version.encode()

    def take(self, model: Any) -> str:
        """The model's parameters get what was put last. Returns the version that they are now."""
        import torch

        if self._named.value != self._taken:
            every = list(model.parameters())
            with torch.no_grad():
                for place, slot in zip(self._places, self._slots, strict=True):
                    every[place].copy_(slot)
            self._taken = self._named.value
        return self._taken.decode()
