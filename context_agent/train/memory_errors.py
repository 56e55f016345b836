"""Errors of torch and Python about too little memory, as errors that name the settings which need less."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from context_agent.errors import ConfigError, MissingExtraError
from context_agent.train.config import RunKind

try:
    import torch
except ImportError:
    raise MissingExtraError("torch", "train") from None


MEMORY_SETTINGS: dict[RunKind, str] = {
    "sft": "sft.rows_per_pass, model.lora.rank or the window of the trajectories",
    "rl": "engine.batch, loss.pass_tokens, model.lora.rank or episodes.window",
}
"""The settings of each kind of training that need less memory if they are lower."""


CPU_ALLOCATOR_MESSAGES = ("can't allocate memory", "not enough memory")
"""Parts of the messages of torch's CPU allocator, which raises a plain RuntimeError."""


@contextmanager
def explained_memory_errors(kind: RunKind) -> Iterator[None]:
    """Raise `ConfigError` if the block runs out of memory.

    Args:
        kind: Supervised training (`sft`) or reinforcement learning (`rl`).

    Raises:
        ConfigError: If there is not enough memory. The message names the settings that need less.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        first = (str(error).splitlines() or [""])[0]
        if not isinstance(error, (MemoryError, torch.OutOfMemoryError)) and not any(
            part in first for part in CPU_ALLOCATOR_MESSAGES
        ):
            raise
        reason = f" ({first})" if first else ""
        raise ConfigError(
            f"there is not enough memory{reason}. Lower {MEMORY_SETTINGS[kind]}, or set model.gradient_checkpointing = "
            "true. `--dry-run` estimates the memory."
        ) from error
