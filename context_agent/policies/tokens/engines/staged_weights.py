"""Weights that a trainer has stored for a sampler, which takes them between two batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class NewWeights(Protocol):
    """Weights that a trainer has sent and the model does not have yet. Hold `lock` to take them."""

    lock: Any

    def take(self, model: Any) -> str:
        """Bring the model up to date. Return the version of its weights."""


class StagedWeights:
    """New values for some of a model's parameters.

    A trainer may store them at any time, and the sampler takes them later. So the trainer does not wait for the current
    batch, which may take longer than an update. This costs memory for a second copy of the trained parameters. Hold
    `lock` to store or to take values.
    """

    def __init__(self, model: Any, indices: Sequence[int], *, lock: Any, version: Any) -> None:
        """Copy the present values of the parameters at `indices` in `model.parameters()`.

        `version.value` has the version of the latest stored values, in bytes.
        """
        self._indices = list(indices)
        self._slots = [parameter.detach().clone() for parameter in self._parameters(model)]
        self.lock, self._version = lock, version
        self._taken_version: bytes = version.value

    def put(self, model: Any, version: str) -> int:
        """Store the model's present values as those of `version`. Return the number of bytes that were copied."""
        self._copy(self._parameters(model), self._slots)
        self._version.value = version.encode()
        return sum(slot.nbytes for slot in self._slots)

    def take(self, model: Any) -> str:
        """Copy the latest stored values into the model, and return their version."""
        if self._version.value != self._taken_version:
            self._copy(self._slots, self._parameters(model))
            self._taken_version = self._version.value
        return self._taken_version.decode()

    def _parameters(self, model: Any) -> list[Any]:
        parameters = list(model.parameters())
        return [parameters[index] for index in self._indices]

    @staticmethod
    def _copy(sources: Sequence[Any], targets: Sequence[Any]) -> None:
        import torch

        with torch.no_grad():
            for source, target in zip(sources, targets, strict=True):
                target.copy_(source)
