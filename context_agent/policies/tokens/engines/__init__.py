"""What a token policy needs from whatever runs the model."""

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
class Sample:
    """What was sampled on one prompt.

    `logprobs` are natural logarithms, one an id, of the model's own distribution: before temperature and top-p.
    `cached_tokens` counts the prompt ids that came from a prefix cache, None where the engine does not say.
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

    async def generate(
        self,
        prompt: Sequence[int],
        *,
        max_tokens: int,
        stop: Sequence[int],
        temperature: float,
        top_p: float,
        seed: int | None,
    ) -> Sample:
        """One reply of 1 to `max_tokens` ids; a stop token that was sampled is its last id.

        Temperature 0 takes the likeliest token. Raises `PolicyError` when it cannot go on.
        """


@runtime_checkable
class Gathering(Protocol):
    """An engine that batches the episodes of this process, and likes to know how many there are."""

    def expect(self, episodes: int) -> None:
        """So many more episodes are at work, or fewer, if negative. Who adds some takes them off again."""
