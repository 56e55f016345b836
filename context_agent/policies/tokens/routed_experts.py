"""The experts that the tokens of a mixture of experts were routed to, and their text in records and rows.

A sampler and a trainer of the same weights compute with different kernels and types. Where two experts score nearly
alike, they choose different ones, and the token's log-probability jumps. A trainer that replays the sampler's choices
does not have this difference (R3, arXiv 2510.11370).

A text has the shape, the bytes of a number, and the numbers themselves, compressed: `120x24x4:1:eJx...`.
"""

from __future__ import annotations

import base64
import zlib

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import DataError

Experts = NDArray[np.int32]
"""Numbers of experts, shape (positions, layers, top k). A position without a record has `UNRECORDED`."""
UNRECORDED = -1


def unrecorded(positions: int, like: Experts) -> Experts:
    """Return unrecorded positions with the same numbers of layers and choices as another array."""
    return np.full((positions, *like.shape[1:]), UNRECORDED, dtype=np.int32)


def pack(experts: Experts | None) -> str:
    """Return the experts as text. None gives an empty text."""
    if experts is None:
        return ""
    size = 1 if experts.max(initial=UNRECORDED) < np.iinfo(np.uint8).max else 2
    # The greatest number of the type means that there is no record.
    numbers = experts.astype(f"<u{size}")
    shape = "x".join(map(str, experts.shape))
    return f"{shape}:{size}:{base64.b64encode(zlib.compress(numbers.tobytes())).decode()}"


def unpack(text: str) -> Experts:
    """Return the experts of a text. Raise `DataError` if it is damaged."""
    try:
        spelled, size, data = text.split(":")
        positions, layers, top_k = map(int, spelled.split("x"))
        length = positions * layers * top_k * int(size)
        # A damaged text must not unpack to more than it says.
        raw = zlib.decompressobj().decompress(base64.b64decode(data, validate=True), length + 1)
        numbers = np.frombuffer(raw, dtype=f"<u{int(size)}").reshape(positions, layers, top_k)
    except (ValueError, TypeError, OverflowError, zlib.error) as error:
        raise DataError(f"cannot read recorded experts ({error}). Sample the episode again.") from None
    experts = numbers.astype(np.int32)
    experts[numbers == np.iinfo(numbers.dtype).max] = UNRECORDED
    return experts
