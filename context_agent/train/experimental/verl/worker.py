"""The engine over verl's servers, and the objects that the episodes of a worker share. This module does not import
verl.

One engine serves the calls of one episode. It sends token ids and receives ids and log-probabilities. All calls use one
request id and go to one server, so they use the same prefix cache. Routed experts are stored for the row that ends with
the call.
"""

from __future__ import annotations

import atexit
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from context_agent.errors import PolicyError, reason_of
from context_agent.eval.gold import Gold, gold_of
from context_agent.policies.tokens.engines import Finish, Sample, SampleRequest
from context_agent.policies.tokens.prompt import TokenRenderer
from context_agent.retrieval.corpus import Corpus
from context_agent.train.config import RunConfig
from context_agent.train.data import open_corpus
from context_agent.train.run_file import parse_run
from context_agent.types import Question

Ids = tuple[int, ...]


class VerlClient(Protocol):
    """The part of verl's `LLMServerClient` that is used. It answers with verl's `TokenOutput`."""

    async def generate(self, request_id: Any, *, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Any:
        """Sample a continuation of the prompt's ids."""


class VerlEngine:
    """An engine that samples one episode's replies.

    Attributes:
        name: The name of the model.
        seconds: Time spent waiting for replies.
        versions: The oldest and the newest weights of each call, by the trainer's steps.
    """

    def __init__(
        self, client: VerlClient, settings: Mapping[str, Any], *, request: str, name: str, seeded: bool = False
    ) -> None:
        """Set up the engine of an episode.

        Args:
            client: verl's client.
            settings: The sampling parameters that verl gives an agent loop. The parameters of a call override them.
            request: The request id of all calls.
            name: The name of the model.
            seeded: If True, send the seed of each call. Without seeds, verl's deterministic mode would give all
                rollouts of a question the same seed. With seeds, a server samples more slowly.
        """
        self._client = client
        self._settings = dict(settings)
        self._request = request
        self._seeded = seeded
        self._experts: dict[Ids, Any] = {}
        self._ended: Ids = ()
        self.name = name
        self.seconds = 0.0
        self.versions: list[int] = []

    async def generate(self, request: SampleRequest) -> Sample:
        """Sample one reply.

        Args:
            request: The prompt and the sampling parameters.

        Returns:
            The reply.

        Raises:
            PolicyError: If the server fails, aborts the call, or sends no log-probabilities.
        """
        sampling = {
            **self._settings,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "max_tokens": request.max_tokens,
            "stop_token_ids": list(request.stop),
            "logprobs": True,
        }
        if self._seeded and request.seed is not None:
            sampling["seed"] = request.seed
        started = time.perf_counter()
        try:
            output = await self._client.generate(
                self._request, prompt_ids=list(request.prompt), sampling_params=sampling
            )
        except Exception as error:  # Ray wraps whatever a server raises in types of its own
            raise PolicyError(
                f"a verl server failed ({type(error).__name__}: {reason_of(error)}). See its log."
            ) from error
        self.seconds += time.perf_counter() - started
        return self._sample(tuple(request.prompt), output, frozenset(request.stop))

    def experts(self, row: Sequence[int]) -> Any:
        """Return the routed experts of a row's tokens, by token, layer and slot.

        If the servers do not report them, return None.
        """
        return self._experts.get(tuple(row))

    def _sample(self, prompt: Ids, output: Any, stop: frozenset[int]) -> Sample:
        ids = tuple(output.token_ids)
        if output.stop_reason in {"aborted", "abort"} or not ids:
            raise PolicyError(
                f"a verl server aborted a call after {len(ids)} tokens ({output.stop_reason}). If the trainer changes "
                "weights while episodes run, use an asynchronous trainer, whose client resumes calls."
            )
        if output.log_probs is None or len(output.log_probs) != len(ids):
            raise PolicyError(
                "a verl server sent tokens without log-probabilities. "
                "Set actor_rollout_ref.rollout.calculate_log_probs=True."
            )
        self._remember(prompt, ids, output.routed_experts)
        extra = output.extra_fields
        versions = [int(extra[key]) for key in ("min_global_steps", "max_global_steps") if extra.get(key) is not None]
        self.versions += versions
        return Sample(
            ids,
            tuple(map(float, output.log_probs)),
            Finish.STOP if ids[-1] in stop else Finish.LENGTH,
            cached_tokens=extra.get("num_cached_tokens"),
            version=str(versions[0]) if versions else "",
        )

    def _remember(self, prompt: Ids, ids: Ids, experts: Any) -> None:
        """Store the experts of a call. A call that extends the previous one replaces it.

        Both calls form one row, and the later call has all of the row's experts.
        """
        if experts is None:
            return
        if prompt[: len(self._ended)] == self._ended:
            self._experts.pop(self._ended, None)
        self._ended = (*prompt, *ids)
        self._experts[self._ended] = experts


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The open corpus of a run and its renderer. The tasks of an event loop can share it.

    Attributes:
        run: The run.
        corpus: The corpus.
        renderer: The renderer of the model.
    """

    run: RunConfig
    corpus: Corpus
    renderer: TokenRenderer
    _gold: dict[str, Gold] = field(default_factory=dict)

    def gold(self, question: Question) -> Gold:
        """Return the question's gold in the corpus. It is looked up once."""
        if question.id not in self._gold:
            self._gold[question.id] = gold_of(question, self.corpus)
        return self._gold[question.id]


def worker_context(plain: Mapping[str, Any]) -> WorkerContext:
    """Return the context of a run that is given as plain data (`RunConfig.plain`).

    A process opens it once and closes it at exit.
    """
    return _open_context(json.dumps(plain, sort_keys=True))


@lru_cache(maxsize=1)
def _open_context(plain: str) -> WorkerContext:
    from context_agent.train.models import load_renderer

    run = parse_run(json.loads(plain))
    _, renderer = load_renderer(run)
    stack = ExitStack()
    atexit.register(stack.close)
    return WorkerContext(run, stack.enter_context(open_corpus(run.data)), renderer)
