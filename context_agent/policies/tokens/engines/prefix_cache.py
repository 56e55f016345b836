"""The keys and values of earlier prompts.

The next prompt of an episode is mostly its last prompt, followed by the reply and the results. After a prune, the two
prompts share only the part before the first pruned passage. The part that a prompt shares with a cached one is not
computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from context_agent.policies.tokens.engines.routers import joined, recorded_experts
from context_agent.policies.tokens.routed_experts import Experts, unrecorded

if TYPE_CHECKING:
    import torch


MOST_BYTES = 2 << 30
"""Memory for keys and values over all prompts: 46,000 tokens of SmolLM2-135M in float32, or 14,000 of Qwen3-4B in
bfloat16.
"""
States = tuple[tuple["torch.Tensor", "torch.Tensor"], ...]
"""Keys and values of each layer, shape (1, heads, tokens, size of a head)."""


@dataclass(frozen=True, slots=True)
class _Entry:
    ids: tuple[int, ...]
    states: States
    experts: Experts | None = None

    @property
    def bytes(self) -> int:
        return sum(keys.nbytes + values.nbytes for keys, values in self.states)


def supported(model: Any) -> bool:
    """Return True if every layer of the model attends to all earlier tokens and to nothing else."""
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    layers = DynamicCache(config=model.config).layers
    return bool(layers) and all(type(layer) is DynamicLayer for layer in layers)


class PrefixCache:
    """The states of the latest prompts that were sampled on. It belongs to one set of weights."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._entries: list[_Entry] = []

    def states(self, model: Any, ids: Sequence[int]) -> tuple[States, int]:
        """Return the states of all but the last of the ids, and how many of them were known."""
        import torch
        from transformers import DynamicCache

        prompt = tuple(ids[:-1])
        best = max(self._entries, key=lambda entry: _shared(entry.ids, prompt), default=None)
        shared = 0 if best is None else _shared(best.ids, prompt)
        cache: Any = DynamicCache() if best is None or not shared else DynamicCache(_first(best.states, shared))
        if shared < len(prompt):
            fresh = torch.tensor([prompt[shared:]], device=model.device)
            model(input_ids=fresh, past_key_values=cache, use_cache=True, logits_to_keep=1)
        return tuple((layer.keys, layer.values) for layer in cache.layers), shared

    def experts(self, model: Any, ids: Sequence[int]) -> tuple[States, int, Experts]:
        """Return `states`, and the experts that all but the last of the ids were routed to when they were read."""
        prompt = tuple(ids[:-1])
        best = max(self._entries, key=lambda entry: _shared(entry.ids, prompt), default=None)
        with recorded_experts(model, rows=1) as record:
            states, shared = self.states(model, ids)
        fresh = record.row(0)
        earlier = None if best is None or best.experts is None else best.experts[:shared]
        return states, shared, joined([unrecorded(shared, like=fresh) if earlier is None else earlier, fresh])

    def keep(self, ids: Sequence[int], states: States, experts: Experts | None = None) -> None:
        """Store the states of the ids. States of a beginning of them are dropped, and the oldest beyond the limit."""
        stored = tuple(ids)
        self._entries = [entry for entry in self._entries if stored[: len(entry.ids)] != entry.ids]
        self._entries.append(_Entry(stored, states, experts))
        while self._entries and sum(entry.bytes for entry in self._entries) > self._most_bytes:
            self._entries.pop(0)


def stacked(rows: Sequence[States]) -> Any:
    """Return the states of several prompts as one cache, padded on the left."""
    import torch
    from transformers import DynamicCache

    width = max(row[0][0].shape[2] for row in rows)

    def padded(tensor: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(tensor, (0, 0, width - tensor.shape[2], 0))

    def joined(layer: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cat([padded(keys) for keys, _ in layer]), torch.cat([padded(values) for _, values in layer])

    return DynamicCache([joined(layer) for layer in zip(*rows, strict=True)])


def row_states(cache: Any, row: int, start: int, end: int) -> States:
    """Return the states of one row of a batch, from position `start` to `end`, as a copy."""
    return tuple(
        (layer.keys[row : row + 1, :, start:end].clone(), layer.values[row : row + 1, :, start:end].clone())
        for layer in cache.layers
    )


def _first(states: States, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(keys[:, :, :count], values[:, :, :count]) for keys, values in states]


def _shared(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the common beginning of two sequences of ids."""
    most = min(len(first), len(second))
    return next((place for place in range(most) if first[place] != second[place]), most)
