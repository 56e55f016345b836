"""An engine without a model: it plays scripted ids, keeps what it was sent, and is part of the product for your tests.

engine = FakeEngine([renderer.reply(Action(calls=(ToolCall("search_corpus", {"query": "comets"}),)))])
agent = SearchAgent(corpus, TokenPolicy(engine, renderer))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from context_agent.errors import PolicyError
from context_agent.policies.tokens.engines import Finish, Sample


@dataclass(frozen=True, slots=True)
class Request:
    """One call as the engine got it."""

    prompt: tuple[int, ...]
    max_tokens: int
    stop: tuple[int, ...]
    temperature: float
    top_p: float
    seed: int | None


Reply = Sequence[int] | Callable[[Request], Sequence[int]]
"""The ids of a reply, or a function that makes them from the request."""


class FakeEngine:
    """Plays `replies` in the order of the calls, whichever episode makes them; a sole function answers every call.

    As a model does, a reply ends at the first stop token and at `max_tokens`. `requests` and `samples` hold what came
    and went. Log-probabilities are invented, and differ from id to id, so that a test that mixes them up fails.
    """

    name = "fake"

    def __init__(
        self, replies: Sequence[Reply] | Callable[[Request], Sequence[int]], *, version: str = "fake-0"
    ) -> None:
        self._replies = replies
        self.version = version
        self.requests: list[Request] = []
        self.samples: list[Sample] = []

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
        """The next reply. Raises `PolicyError` when there is none left."""
        request = Request(tuple(prompt), max_tokens, tuple(stop), temperature, top_p, seed)
        reply = self._next(request)
        end = next((index + 1 for index, token in enumerate(reply) if token in request.stop), len(reply))
        ids = tuple(reply[: min(end, max_tokens)])
        finish = Finish.STOP if ids and ids[-1] in request.stop else Finish.LENGTH
        logprobs = tuple(invented(len(request.prompt) + index, token) for index, token in enumerate(ids))
        self.requests.append(request)
        self.samples.append(Sample(ids, logprobs, finish, version=self.version))
        return self.samples[-1]

    def _next(self, request: Request) -> Sequence[int]:
        if callable(self._replies):
            return self._replies(request)
        if len(self.requests) >= len(self._replies):
            raise PolicyError(f"the script has {len(self._replies)} replies, and all are played")
        reply = self._replies[len(self.requests)]
        return reply(request) if callable(reply) else reply


def invented(position: int, token: int) -> float:
    """A log-probability for a test: between -3 and 0, fixed by the position in the sequence and the id."""
    return -3.0 * math.modf(position * 0.754877666 + token * 0.569840291)[0]
