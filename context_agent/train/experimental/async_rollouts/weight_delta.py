"""The changes in a model's weights, sent as a file that the receiver checks.

The sender keeps the weights that the receiver is known to have. It writes the bits that differ to a file, which it
replaces as a whole. The receiver accepts the file only if its digest is right and it builds on the receiver's weights.
It refuses a file that is half-written or damaged, or that builds on weights that never arrived. The sender sees the
refusal, and sends all weights the next time.

The digest of a version covers the file, and the file names the digest that it builds on. Equal digests therefore mean
that sender and receiver have applied the same files since all weights were sent.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from context_agent._support.atomic_files import replacing
from context_agent.errors import DataError, MissingExtraError, reason_of

try:
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load, save
except ImportError as error:
    raise MissingExtraError(error.name or "torch", "train") from None


START = hashlib.sha256(b"the weights that both began with").digest()
"""Digest of the weights that sender and receiver share before the first file."""


WHOLE = b""
"""The base of a file that contains all weights."""


MOSTLY_ZERO = 0.5
"""Largest share of nonzero bytes at which bytes are compressed. Others would not become smaller."""


DIGEST_BYTES = hashlib.sha256().digest_size
"""Length of a digest, in bytes."""


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A file of weights that was written.

    Attributes:
        path: The file.
        version: The version of the weights after the file is applied.
        digest: The digest of these weights.
        size: The size of the file, in bytes.
    """

    path: Path
    version: str
    digest: bytes
    size: int


def write_changes(
    path: Path, weights: Sequence[torch.Tensor], known: Sequence[torch.Tensor], *, version: str, base: bytes
) -> WeightFile:
    """Write a file that turns the known weights into the present weights. If the file exists, it is replaced.

    Args:
        path: The file.
        weights: The present weights.
        known: The receiver's weights, of the same shapes. They are not read if all weights are written.
        version: The name of the present weights.
        base: The digest of the receiver's weights. `WHOLE` writes all of the present weights.

    Returns:
        The written file.
    """
    tensors: dict[str, torch.Tensor] = {}
    for index, tensor in enumerate(weights):
        if base == WHOLE:
            tensors[f"{index}"] = tensor.detach().reshape(-1).cpu()
        else:
            tensors |= {f"{index}.{name}": part for name, part in _changed_bytes(tensor, known[index]).items()}
    content = save(tensors, {"version": version, "base": base.hex()})
    digest = hashlib.sha256(content).digest()
    with replacing(path) as file:
        file.write(digest)
        file.write(content)
    return WeightFile(path, version, digest, DIGEST_BYTES + len(content))


def read_changes(path: Path, weights: Sequence[torch.Tensor], *, base: bytes) -> tuple[str, bytes]:
    """Apply a file of changes to the weights, in place.

    Args:
        path: A file of `write_changes`.
        weights: The weights to change. They are changed only if the whole file is valid.
        base: The digest of the weights before the change.

    Returns:
        The version of the changed weights, and its digest.

    Raises:
        DataError: If the file is missing, incomplete, or builds on other weights.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"cannot read {path} ({reason_of(error)}). Send all weights instead of the changes.") from error
    digest, content = data[:DIGEST_BYTES], data[DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        raise DataError(f"{path} is incomplete, because its digest differs. Send all weights instead of the changes.")
    try:
        about, tensors = _metadata(content), load(content)
        before = bytes.fromhex(about["base"])
        changes = [_change(tensors, index, tensor) for index, tensor in enumerate(weights)]
        version = about["version"]
    except (SafetensorError, KeyError, ValueError, TypeError, struct.error, zlib.error) as error:
        raise DataError(f"{path} does not fit the model ({error}). Send all weights instead of the changes.") from error
    if before not in (WHOLE, base):
        raise DataError(
            f"{path} changes the weights {before.hex()[:8]}, but the model has {base.hex()[:8]}. A version is missing, "
            "so send all weights instead of the changes."
        )
    for tensor, (is_whole, values) in zip(weights, changes, strict=True):
        found = values.to(tensor.device)
        bits = found if is_whole else _bits(tensor) ^ found
        tensor.detach().copy_(bits.view(tensor.dtype).view_as(tensor))
    return version, digest


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits of each number as an integer, shape (numbers,). Integers are equal only if all bits are."""
    return tensor.detach().reshape(-1).contiguous().view(_BITS[tensor.element_size()])


def _changed_bytes(tensor: torch.Tensor, known: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the bits that differ, as an exclusive or. Bytes are grouped by their place in a number.

    An update moves a number by little, so its high bytes mostly stay the same. Bytes that are mostly 0 are compressed
    (`z`). Bytes that are all 0 are left out.
    """
    differing = (_bits(tensor) ^ _bits(known)).cpu().numpy().view(np.uint8).reshape(-1, tensor.element_size())
    parts = {}
    for place, column in enumerate(differing.T):
        raw = np.ascontiguousarray(column)
        changed = np.count_nonzero(raw)
        if changed > MOSTLY_ZERO * len(raw):
            parts[f"{place}"] = torch.from_numpy(raw)
        elif changed:
            packed = np.frombuffer(zlib.compress(raw.data, 1), dtype=np.uint8)
            parts[f"{place}z"] = torch.from_numpy(packed.copy())
    return parts


def _change(tensors: dict[str, torch.Tensor], index: int, tensor: torch.Tensor) -> tuple[bool, torch.Tensor]:
    """Return the entry of a file for a tensor: True and the bits of all numbers, or False and the bits to flip."""
    values = tensors.get(f"{index}")
    if values is not None:
        if len(values) != tensor.numel() or values.dtype != tensor.dtype:
            raise ValueError(f"weight {index} has another shape or type in the model")
        return True, _bits(values)
    count, width = tensor.numel(), tensor.element_size()
    differing = np.zeros((count, width), dtype=np.uint8)
    for place in range(width):
        raw, packed = tensors.get(f"{index}.{place}"), tensors.get(f"{index}.{place}z")
        if packed is not None:
            unpacked = zlib.decompressobj().decompress(packed.numpy().tobytes(), count + 1)
            raw = torch.frombuffer(bytearray(unpacked), dtype=torch.uint8)
        if raw is None:
            continue
        if len(raw) != count:
            raise ValueError(f"weight {index} has another shape in the model")
        differing[:, place] = raw.numpy()
    return False, torch.from_numpy(differing.reshape(-1)).view(_BITS[width])


def _metadata(content: bytes) -> dict[str, str]:
    """Return the metadata of a safetensors file. Its JSON header follows 8 bytes that give the header's length."""
    (length,) = struct.unpack_from("<Q", content)
    metadata: dict[str, str] = json.loads(content[8 : 8 + length])["__metadata__"]
    return metadata
