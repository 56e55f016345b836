"""The input of a part of the check, and the rows that it yields."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from context_agent.errors import DataError
from context_agent.train.estimate import GB

OK, MISSED, SKIPPED, FAILED = "ok", "MISSED", "skipped", "FAILED"


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of the table, with its expected value."""

    part: str
    figure: str
    value: str
    reference: str = ""
    verdict: str = OK


@dataclass(frozen=True, slots=True)
class Clock:
    """The time of a part, in seconds from its start. A part plans its work by `left` and ends by itself."""

    seconds: float
    start: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds that are left. The number is negative if the time is up."""
        return self.seconds - (time.monotonic() - self.start)


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of the parts. A shape changes a configuration of transformers."""

    gpu: bool
    gpt_oss: Mapping[str, Any]
    qwen3: Mapping[str, Any]
    row_tokens: int
    """Number of ids of a row of the LoRA step."""
    requests: int
    """Number of replies that are sampled at the same time."""
    prompt: int
    reply: int
    """Maximum number of tokens of a sampled reply."""
    entities: int
    """Number of documents of the invented world in which a tiny model plays."""
    lessons: int
    """Number of demonstrations from which it learns before it earns rewards."""
    episodes: int
    """Number of episodes of an update in the invented world."""
    updates: int
    questions: int
    """Number of held-out questions of each set that SmolLM2 answers."""

    @property
    def device(self) -> str:
        """torch's name of the machine's accelerator."""
        return "cuda" if self.gpu else "cpu"


FULL = Scale(
    gpu=True,
    gpt_oss={"num_hidden_layers": 24, "num_local_experts": 32},
    qwen3={},
    row_tokens=4_096,
    requests=32,
    prompt=512,
    reply=64,
    entities=240,
    lessons=2_400,
    episodes=64,
    updates=12,
    questions=100,
)
SMALL = Scale(
    gpu=False,
    gpt_oss={
        "num_hidden_layers": 2,
        "num_local_experts": 4,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": 2_048,
    },
    qwen3={
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "vocab_size": 2_048,
    },
    row_tokens=32,
    requests=2,
    prompt=16,
    reply=8,
    entities=50,
    lessons=60,
    episodes=4,
    updates=2,
    questions=2,
)

Part = Callable[[Scale, Path, Clock], Iterator[Row]]
"""A function that measures one thing in a folder of its own, and yields its rows as they come."""


def trained_updates(scale: Scale, train: Callable[[], int], wanted: int) -> int:
    """Train, and return the number of updates.

    In the self-test, the model earns nothing. A run that trains nothing ends with an error after its last update.
    """
    try:
        return train()
    except DataError:
        if scale.gpu:
            raise
        return wanted


def within(value: float, bound: float) -> str:
    """Return the verdict on a figure that has a bound."""
    return OK if value <= bound else MISSED


def memory_row(scale: Scale, estimate: float) -> Row:
    """Return the row with the most memory that torch used, compared with an estimate in bytes."""
    import torch

    reference = f"{estimate / GB:.1f} GB by --dry-run"
    if not scale.gpu:
        return Row("", "memory of a LoRA step", "no GPU in the self-test", reference, SKIPPED)
    peak = torch.cuda.max_memory_allocated()
    return Row("", "memory of a LoRA step", f"{peak / GB:.1f} GB", reference, within(peak, estimate))
