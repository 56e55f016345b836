"""Recording and replay of the experts that the routers of a mixture of experts choose.

A router of transformers is a module that scores the experts of each token, takes the `top_k` best with `torch.topk`,
and returns logits, weights, and the numbers of the experts. Replay answers that one call with the recorded experts and
their scores. So the router's own formula computes the weights from its own scores, and gradients flow as usual.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from context_agent.errors import ConfigError, DataError
from context_agent.policies.tokens.routed_experts import Experts

if TYPE_CHECKING:
    import torch


def routers(model: Any) -> list[Any]:
    """Return the model's routers, in the order of the layers.

    Raises:
        ConfigError: If the model has no routers whose choice can be replayed.
    """
    found = [module for module in model.modules() if _is_router(module)]
    if not found:
        raise ConfigError(
            f"loss.router_replay = true, but {type(model).__name__} has no router that chooses experts by torch.topk. "
            "If the model is not a mixture of experts, leave out loss.router_replay."
        )
    return found


def _is_router(module: Any) -> bool:
    sizes = (getattr(module, "top_k", None), getattr(module, "num_experts", None))
    return type(module).__name__.endswith("Router") and all(isinstance(size, int) for size in sizes)


class ExpertRecord:
    """The experts that a model's routers have chosen, in the order of the positions that it has read."""

    def __init__(self, found: Sequence[Any], rows: int) -> None:
        self._rows = rows
        self._chosen: list[list[torch.Tensor]] = [[] for _ in found]
        self._shape = len(found), found[0].top_k

    def add(self, layer: int, chosen: torch.Tensor) -> None:
        """Add what a router chose for the next positions of each row, shape (rows * positions, top k)."""
        import torch

        self._chosen[layer].append(chosen.detach().reshape(self._rows, -1, chosen.shape[-1]).to(torch.int32))

    def row(self, row: int) -> Experts:
        """Return the experts of one row. If nothing was read, the array is empty."""
        import torch

        if not all(self._chosen):
            return np.zeros((0, *self._shape), dtype=np.int32)
        layers = [torch.cat([part[row] for part in parts]) for parts in self._chosen]
        experts: Experts = torch.stack(layers, dim=1).cpu().numpy()
        return experts


@contextmanager
def recorded_experts(model: Any, rows: int) -> Iterator[ExpertRecord]:
    """Record the experts for the ids that the model reads in this thread within the block, `rows` rows at a time."""
    thread, found = threading.get_ident(), routers(model)
    record = ExpertRecord(found, rows)

    def note(layer: int, _module: Any, _inputs: Any, output: Any) -> None:
        if threading.get_ident() == thread:
            record.add(layer, output[2])

    with ExitStack() as stack:
        for layer, router in enumerate(found):
            stack.callback(router.register_forward_hook(partial(note, layer)).remove)
        yield record


class ExpertReplay:
    """The recorded experts for a forward pass, and the positions at which the model would have chosen others.

    Attributes:
        recorded: True at a position with recorded experts, shape (rows, positions).
        flipped: True at a position where the model would have chosen other experts in some layer, shape
            (rows, positions).
    """

    def __init__(self, experts: torch.Tensor) -> None:
        """Store the experts, shape (rows, positions, layers, top k). Where they are `UNRECORDED`, the model chooses."""
        import torch

        self._experts = experts
        self.recorded = (experts >= 0).all(-1).all(-1)
        self.flipped = torch.zeros_like(self.recorded)

    def apply(self, layer: int, module: Any, inputs: Any, output: Any) -> Any:
        """Return a router's output with the recorded experts, as a hook of its forward pass."""
        import torch

        # A sampler that shares the model reads without gradients, and makes its own choices.
        if torch.is_inference_mode_enabled():
            return None
        own = output[2]
        recorded = self._experts[:, :, layer].reshape(-1, own.shape[-1])
        if len(recorded) != len(own):
            raise DataError(
                f"{len(recorded)} positions have recorded experts, but the model reads {len(own)}. Use the same model "
                "in the sampler and the trainer."
            )
        known = recorded[:, :1] >= 0
        chosen = torch.where(known, recorded, own)
        differs = (chosen.sort(-1).values != own.sort(-1).values).any(-1)
        self.flipped |= differs.reshape(self.flipped.shape)
        with _choice(chosen):
            return module.forward(*inputs)


@contextmanager
def replayed_experts(model: Any, experts: torch.Tensor) -> Iterator[ExpertReplay]:
    """Let the model's routers choose the recorded experts within the block.

    The backward pass must run in the block, because activations that are computed again must take the same experts.

    Args:
        model: A mixture of experts, with or without adapters.
        experts: The numbers of experts, shape (rows, positions, layers, top k). Where a number is `UNRECORDED`, the
            model chooses.

    Yields:
        The replay.
    """
    replay = ExpertReplay(experts)
    with ExitStack() as stack:
        for layer, router in enumerate(routers(model)):
            stack.callback(router.register_forward_hook(partial(replay.apply, layer)).remove)
        yield replay


def _choice(chosen: torch.Tensor) -> Any:
    """Return a context manager in which `torch.topk` returns these choices with their scores."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Choice(TorchFunctionMode):  # type: ignore[misc]  # mypy reads torch as untyped
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if func not in (torch.topk, torch.Tensor.topk):
                return result
            scores = args[0] if args else kwargs["input"]
            indices = chosen.to(result.indices.dtype).reshape(result.indices.shape)
            return torch.return_types.topk((scores.gather(-1, indices), indices))

    return Choice()


def check_experts(experts: Experts, found: Sequence[Any], positions: int) -> None:
    """Check that recorded experts fit a row with this number of positions.

    The last position may be missing, since the model has not read it.

    Raises:
        DataError: If the experts are from another model or for other positions.
    """
    top_k, count = found[0].top_k, found[0].num_experts
    if experts.shape != (positions - 1, len(found), top_k) or experts.max(initial=0) >= count:
        raise DataError(
            f"the recorded experts of {positions} ids must have the shape ({positions - 1}, {len(found)}, {top_k}) "
            f"and numbers below {count}; got the shape {experts.shape} and numbers up to {experts.max(initial=0)}. "
            "Use the same model in the sampler and the trainer."
        )


def joined(parts: Sequence[Experts]) -> Experts:
    """Return experts of consecutive positions as one array."""
    return np.concatenate(parts)
