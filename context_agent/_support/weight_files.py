"""Files of weights whose bytes depend on their contents alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

HEADER_ALIGNMENT = 8
"""The length of a safetensors header is a multiple of this number of bytes."""


def weight_file(tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Return the contents of a safetensors file. Equal weights and metadata give equal bytes.

    safetensors itself writes the metadata in a random order.
    """
    from safetensors.numpy import save

    data = save(dict(tensors), dict(metadata))
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.dumps(json.loads(data[8:end]), sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    header += b" " * (-len(header) % HEADER_ALIGNMENT)
    return len(header).to_bytes(8, "little") + header + data[end:]
