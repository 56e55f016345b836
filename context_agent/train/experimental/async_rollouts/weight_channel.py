"""A channel that carries a model's weights to another process: the sender, the receiver, and the memory they share.

The weights themselves go through a file of changes (`weight_delta`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from context_agent._support.child_process import start_resource_tracker
from context_agent.errors import DataError, MissingExtraError
from context_agent.train.experimental.async_rollouts.weight_delta import (
    DIGEST_BYTES,
    START,
    WHOLE,
    WeightFile,
    read_changes,
    write_changes,
)

try:
    import torch
except ImportError:
    raise MissingExtraError("torch", "train") from None

VERSION_BYTES = 64
"""Longest name of a version, in bytes."""


class WeightChannel:
    """The memory that both processes share in addition to the file. It contains the newest version and the digest of
    the last accepted file.

    Hold `lock` to write or read the file.
    """

    def __init__(self, context: Any, path: Path, version: str) -> None:
        """Create the channel.

        Args:
            context: The multiprocessing context of the receiving process.
            path: The file.
            version: The name of the weights that both processes have.
        """
        self.path = path
        start_resource_tracker()
        self.lock = context.Lock()
        self.version = context.Array("c", VERSION_BYTES, lock=False)
        self.version.value = version.encode()
        self.taken = context.Array("c", 2 * DIGEST_BYTES + 1, lock=False)
        self.taken.value = START.hex().encode()
        self.refused = context.Value("b", 0, lock=False)


class WeightSender:
    """A sender of changes in some of a model's weights. It keeps a copy of the weights that the receiver has."""

    def __init__(self, model: Any, indices: Sequence[int], channel: WeightChannel) -> None:
        """Copy the weights that the receiver has.

        Args:
            model: The model.
            indices: Indices of the sent weights in `model.parameters()`. The receiver has their present values.
            channel: The channel to the receiver.
        """
        self.lock, self._channel, self._indices = channel.lock, channel, list(indices)
        self._known = [tensor.clone() for tensor in selected(model, self._indices)]
        self._base = START
        self._pending: WeightFile | None = None

    def put(self, model: Any, version: str) -> int:
        """Write the changes since the receiver's version, and return the size in bytes. The caller holds the lock."""
        if self._pending is not None and self._channel.taken.value == self._pending.digest.hex().encode():
            self._base = self._confirmed()
        base = WHOLE if self._channel.refused.value else self._base
        weights = selected(model, self._indices)
        self._pending = write_changes(self._channel.path, weights, self._known, version=version, base=base)
        self._channel.refused.value = 0
        self._channel.version.value = version.encode()
        return self._pending.size

    def _confirmed(self) -> bytes:
        """Mark the weights that the receiver has accepted as known, and return their digest."""
        try:
            return read_changes(self._channel.path, self._known, base=self._base)[1]
        except DataError:
            return WHOLE


class WeightReceiver:
    """A receiver of the weights that a `WeightSender` sends.

    The object can be sent to the process that runs the model.
    """

    def __init__(self, indices: Sequence[int], channel: WeightChannel) -> None:
        self.lock, self._channel, self._indices = channel.lock, channel, list(indices)
        self._seen: bytes = channel.version.value
        self._version: str = self._seen.decode()
        self._digest = START

    @property
    def folder(self) -> Path:
        """The folder of the file."""
        return self._channel.path.parent

    def take(self, model: Any) -> str:
        """Bring the model's weights up to date, and return their version.

        If the file is refused, the weights and the version stay the same.
        """
        if self._channel.version.value != self._seen:
            self._seen = self._channel.version.value
            try:
                found = read_changes(self._channel.path, selected(model, self._indices), base=self._digest)
            except DataError:
                self._channel.refused.value = 1
            else:
                self._version, self._digest = found
                self._channel.taken.value = self._digest.hex().encode()
        return self._version


def selected(model: Any, indices: Sequence[int]) -> list[torch.Tensor]:
    """Return the parameters of a model that have these indices."""
    parameters = list(model.parameters())
    return [parameters[index].detach() for index in indices]
