"""The engines of the token policy. An engine runs the model on a server or in this process.

`FakeEngine` has no model. It plays scripted ids and keeps the requests, for tests of this package and of users.

    engine = FakeEngine([renderer.reply(Action(calls=(ToolCall("search_corpus", {"query": "comets"}),)))])
    agent = SearchAgent(corpus, TokenPolicy(engine, renderer))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable

from context_agent.errors import PolicyError


class Finish(StrEnum):
    """Why sampling ended."""

    STOP = "stop"
    """A stop token was sampled. It is the last id."""
    LENGTH = "length"
    """`max_tokens` were sampled."""


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """A prompt, and how to sample a reply of 1 to `max_tokens` ids.

    Attributes:
        prompt: The ids of the prompt.
        max_tokens: Maximum number of ids of the reply.
        stop: The ids that end the reply. Sampling ends at the first of them.
        temperature: The sampling temperature. At temperature 0, the most likely token is always taken.
        top_p: The probability mass for nucleus sampling.
        seed: The seed of the sampling. If it is None, the engine chooses one.
        experts_from: The first position whose experts the sample must have, for a mixture of experts. If it is None,
            the sample has no experts.
    """

    prompt: Sequence[int]
    max_tokens: int = 1
    stop: Sequence[int] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    experts_from: int | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """The reply that was sampled for one prompt.

    Attributes:
        ids: The ids of the reply.
        logprobs: A natural logarithm of a probability for each id, before top-p and at the request's temperature. At
            temperature 0, they are those of temperature 1. vLLM reports those of temperature 1 by default.
        finish: Why sampling ended.
        cached_tokens: The number of prompt ids that came from a prefix cache. None if the engine does not report it.
        version: The version of the weights that sampled.
        experts: The experts that the request wants, packed as in `tokens.routed_experts`. The last position has none,
            because it was sampled but not read.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Finish
    cached_tokens: int | None = None
    version: str = ""
    experts: str = ""


class Engine(Protocol):
    """A sampler of replies. Concurrent episodes share it, and may run on different event loops."""

    @property
    def name(self) -> str:
        """The name that trajectories store, such as `vllm:chromadb/context-1`."""

    async def generate(self, request: SampleRequest) -> Sample:
        """Return one reply. A sampled stop token is its last id. Raise `PolicyError` if the engine cannot continue."""


@dataclass(frozen=True, slots=True)
class Score:
    """The log-probabilities of given ids at temperature 1.

    Attributes:
        logprobs: A log-probability for each id after the first.
        version: The version of the weights.
    """

    logprobs: tuple[float, ...]
    version: str = ""


@runtime_checkable
class ScoringEngine(Protocol):
    """An engine that can also score ids."""

    async def score(self, ids: Sequence[int]) -> Score:
        """Return the log-probabilities of the ids under the present weights.

        Raise `PolicyError` if the engine cannot continue.
        """


@runtime_checkable
class BatchingEngine(Protocol):
    """An engine that batches the episodes of this process, and needs to know how many are running."""

    def expect(self, episodes: int) -> None:
        """Add to the number of running episodes. When they end, the caller passes their negative number."""


ReplyFunction = Callable[[SampleRequest], Sequence[int]]


class FakeEngine:
    """An engine that plays a script instead of running a model.

    As with a model, a reply ends at the first stop token or at `max_tokens`. Log-probabilities are invented. They
    differ from id to id, so a test fails if it confuses them.

    Args:
        replies: The replies in the order of the calls, no matter which episode makes a call. A reply is its ids, or a
            function from the request to the ids. Instead of a list, a single function can answer every call.
        version: The version of the weights that each sample states.

    Attributes:
        requests: The requests of all calls so far.
        samples: The samples that answered them.
    """

    name = "fake"

    def __init__(
        self, replies: Sequence[Sequence[int] | ReplyFunction] | ReplyFunction, *, version: str = "fake-0"
    ) -> None:
        self._replies = replies
        self.version = version
        self.requests: list[SampleRequest] = []
        self.samples: list[Sample] = []

    async def generate(self, request: SampleRequest) -> Sample:
        """Return the next reply. Raise `PolicyError` after the last one."""
        reply = self._next(request)
        end = next((index + 1 for index, token in enumerate(reply) if token in request.stop), len(reply))
        ids = tuple(reply[: min(end, request.max_tokens)])
        finish = Finish.STOP if ids and ids[-1] in request.stop else Finish.LENGTH
        logprobs = tuple(invented_logprob(len(request.prompt) + index, token) for index, token in enumerate(ids))
        self.requests.append(request)
        self.samples.append(Sample(ids, logprobs, finish, version=self.version))
        return self.samples[-1]

    def _next(self, request: SampleRequest) -> Sequence[int]:
        if callable(self._replies):
            return self._replies(request)
        if len(self.requests) >= len(self._replies):
            raise PolicyError(f"all {len(self._replies)} replies of the script are used. Add replies to the script.")
        reply = self._replies[len(self.requests)]
        return reply(request) if callable(reply) else reply


def invented_logprob(position: int, token: int) -> float:
    """Return an invented log-probability between -3 and 0. It depends on the position in the sequence and the id."""
    return -3.0 * math.modf(position * 0.754877666 + token * 0.569840291)[0]
