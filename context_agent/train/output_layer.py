"""The output layer of a language model. It computes logits in 32 bits, and only for the positions that need them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from context_agent.errors import MissingExtraError

try:
    import torch
except ImportError as error:
    raise MissingExtraError(error.name or "torch", "train") from None


HEAD_TILE = 32_768
"""Number of vocabulary entries whose weights are converted to 32 bits at a time."""


class Float32Head(torch.nn.Linear):  # type: ignore[misc]  # mypy reads torch as untyped
    """An output layer that computes in 32 bits, even if its weights have fewer bits.

    Logits in 16 bits are rounded by up to 1/16 where they are about 20. The trainer's loss computes logits in 32 bits,
    so the sampler must do the same (MiniMax-M1, arXiv 2506.13585, section 3.2).
    """

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits of hidden states, shape (..., width), as 32-bit numbers of shape (..., vocabulary)."""
        with torch.autocast(hidden.device.type, enabled=False):
            wide = hidden.float()
            tiles = torch.split(self.weight, HEAD_TILE)
            parts = [torch.nn.functional.linear(wide, tile.float()) for tile in tiles]
            logits = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
            bias: torch.Tensor | None = self.bias
            return logits if bias is None else logits + bias.float()


def with_float32_head(model: Any) -> Any:
    """Make the output layer of the model compute in 32 bits, and return the model. The model is changed in place."""
    head = model.get_output_embeddings()
    if type(head) is torch.nn.Linear:
        head.__class__ = Float32Head
    return model


@contextmanager
def only_positions(model: Any, positions: Any) -> Iterator[None]:
    """Compute logits for the given positions only, within the block.

    Inside the block, the layers below the head return hidden states of shape (rows, positions, width). Other threads
    that use the model at the same time get all positions.

    Args:
        model: A causal language model, with or without adapters.
        positions: The indices of the positions, shape (positions,).
    """
    thread = threading.get_ident()

    def narrow(_module: Any, _inputs: Any, output: Any) -> Any:
        if threading.get_ident() == thread:
            output["last_hidden_state"] = output["last_hidden_state"][:, positions]
        return output

    bare = model.get_base_model() if hasattr(model, "get_base_model") else model  # adapters wrap it
    handle = bare.base_model.register_forward_hook(narrow)
    try:
        yield
    finally:
        handle.remove()
