"""Files of weights have equal bytes if their contents are equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load

from context_agent._support.weight_files import weight_file


@pytest.mark.parametrize("text", ["", "é", '"\\', "\u2028 long"])
def test_equal_contents_give_equal_bytes_that_safetensors_reads(text: str, tmp_path: Path) -> None:
    tensors = {"b": np.arange(3, dtype=np.float16), "a": np.ones((2, 2), dtype=np.float32)}
    metadata = {f"key {number}": text for number in range(8)}
    # Eight keys in a random order are in the same order in one of 40,320 files.
    assert len({weight_file(tensors, metadata) for _ in range(3)}) == 1
    content = weight_file(tensors, metadata)
    loaded = load(content)
    assert {name: tensor.tolist() for name, tensor in loaded.items()} == {
        name: tensor.tolist() for name, tensor in tensors.items()
    }
    (tmp_path / "weights").write_bytes(content)
    with safe_open(tmp_path / "weights", framework="numpy") as file:
        assert file.metadata() == metadata
