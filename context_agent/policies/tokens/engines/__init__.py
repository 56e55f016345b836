"""What the token policy needs from an engine: whatever runs the model, on a server or in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable


class Finish(StrEnum):
    """Why sampling ended."""

    STOP = "stop"
    """A stop token was sampled; it is the last id."""
    LENGTH = "length"
    """`max_tokens` were sampled."""


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """A prompt, and how to sample a reply of 1 to `max_tokens` ids.

    Sampling ends at the first id in `stop`. Temperature 0 takes the likeliest token.
    """

    prompt: Sequence[int]
    max_tokens: int = 1
    stop: Sequence[int] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """What was sampled on one prompt.

    `logprobs` are natural logarithms, one per id, of the model's own distribution: before temperature and top-p.
    `cached_tokens` counts the prompt ids that came from a prefix cache, None if the engine does not report it.
    `version` names the weights that sampled.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Finish
    cached_tokens: int | None = None
    version: str = ""


class Engine(Protocol):
    """Samples replies. Shared by concurrent episodes, which may run on different event loops."""

    @property
    def name(self) -> str:
        """Written into trajectories, e.g. `vllm:chromadb/context-1`."""

    async def generate(self, request: SampleRequest) -> Sample:
        """One reply; a sampled stop token is its last id. Raises `PolicyError` when it cannot continue."""


@runtime_checkable
class BatchingEngine(Protocol):
    """An engine that batches the episodes of this process, and needs to know how many there are."""

    def expect(self, episodes: int) -> None:
        """Adds to the number of running episodes. Whoever adds some subtracts them again with a negative number."""
