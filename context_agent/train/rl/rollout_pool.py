"""A pool of processes, on this machine or others, that plays the episodes of a step.

The processes sample from the run's model server. The trainer sends requests with the name of the weights, and receives
trajectories. A trainer's own model cannot be sent to other machines, so the pool needs `engine.kind = "vllm"`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass

from context_agent._support.worker_pool import CallParent, JobLost, WorkerPool
from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError, PolicyError
from context_agent.policies.tokens.engines import Engine
from context_agent.policies.tokens.engines.vllm import VllmEngine
from context_agent.train.agents import build_agent
from context_agent.train.config import RunConfig
from context_agent.train.data import open_corpus
from context_agent.train.models import load_renderer
from context_agent.train.rl.rollouts import EpisodeResult, RolloutRequest, play_episode
from context_agent.train.rl.samplers import served_engine


@dataclass(frozen=True, slots=True)
class ServedEpisode:
    """An episode to play with a model on the server.

    Attributes:
        request: The episode.
        model: The name of the model on the server.
        version: The version of its weights.
    """

    request: RolloutRequest
    model: str
    version: str


RolloutPool = WorkerPool[ServedEpisode, EpisodeResult]
"""A pool whose jobs are served episodes and whose results are trajectories or errors."""


@dataclass(frozen=True, slots=True)
class RolloutSetup:
    """The setup of a worker, which opens the run's corpus, tokenizer and agent.

    All machines must have the corpus and the tokenizer under the same paths.

    Attributes:
        run: The run.
    """

    run: RunConfig

    def check(self) -> None:
        """Raise `ConfigError` if only the trainer's process can play the run's episodes."""
        if self.run.engine.kind != "vllm":
            raise ConfigError(
                "--processes and --ray need a model server, since other processes cannot sample from the trainer's "
                'own model. Set engine.kind = "vllm".'
            )
        if self.run.async_rollouts is not None or self.run.episodes.searchers is not None:
            raise ConfigError(
                "--processes and --ray cannot be combined with [async_rollouts] or episodes.searchers, which need the "
                "trainer's process. Remove them."
            )

    def open(self, call: CallParent) -> Callable[[ServedEpisode], Callable[[], EpisodeResult]]:
        """Open the agent of a worker, and return a function that prepares an episode. The agent stays open until the
        process ends.
        """
        run, stack = self.run, ExitStack()
        corpus = stack.enter_context(open_corpus(run.data))
        _, renderer = load_renderer(run)
        engine = served_engine(run)
        agent = stack.enter_context(build_agent(run, corpus, engine, renderer, temperature=run.engine.temperature))
        return lambda episode: lambda: _play_served(agent, engine, episode)


def play_in_pool(pool: RolloutPool, engine: Engine, requests: Sequence[RolloutRequest]) -> list[EpisodeResult]:
    """Play the requests in the pool. The results are the same as in one process.

    If an episode's process dies twice, the result of the episode is an error.

    Args:
        pool: The pool.
        engine: The trainer's engine. Weight syncs keep its model and version up to date.
        requests: The episodes.

    Returns:
        The results, in the order of the requests.
    """
    assert isinstance(engine, VllmEngine)
    futures = [pool.submit(ServedEpisode(request, engine.model, engine.version)) for request in requests]
    return [_result(future) for future in futures]


def _play_served(agent: SearchAgent, engine: VllmEngine, episode: ServedEpisode) -> EpisodeResult:
    # All episodes in progress belong to one step, so they use one version.
    engine.model, engine.version = episode.model, episode.version
    return asyncio.run(play_episode(agent, episode.request))


def _result(future: Future[EpisodeResult]) -> EpisodeResult:
    try:
        return future.result()
    except JobLost as lost:
        return PolicyError(str(lost))
