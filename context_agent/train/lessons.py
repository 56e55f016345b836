"""The rows of supervised training, from stored trajectories or from the expert of a toy environment.

This module does not import torch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError, ContextAgentError, DataError
from context_agent.harness.episode import EpisodeRequest
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import read
from context_agent.policies.tokens import VocabularyCounter
from context_agent.policies.tokens.prompt import TokenRenderer
from context_agent.swarm import Swarm
from context_agent.train.agents import episode_profile
from context_agent.train.config import DataConfig, Notify, RunConfig
from context_agent.train.rows import TrainingRow, demonstrated_rows
from context_agent.train.toy.environment import ToyEnvironment, WorldConfig, make_environment
from context_agent.train.toy.expert import LEADING_NOISE, SUBAGENT_NOISE, NoisyExpert

KEPT_FOLDER = "kept"
"""The folder in which `ctx1 synth trajectories` keeps its demonstrations."""


EPISODES_AT_ONCE = 16
"""Episodes that the expert of one environment plays concurrently."""


def demonstration_rows(run: RunConfig, renderer: TokenRenderer, note: Notify) -> Iterator[TrainingRow]:
    """Yield the rows of stored trajectories, or of the expert in the run's toy environment.

    Only one batch of episodes is in memory at a time. An episode that cannot be read is reported and skipped.

    Args:
        run: The run.
        renderer: The renderer of the model's tokenizer.
        note: A function that receives messages about skipped episodes.

    Yields:
        The rows of one episode after another.

    Raises:
        ConfigError: If the run file names no trajectories.
        DataError: If a folder contains no trajectory.
    """
    skipped = 0
    world = run.data.world
    for trajectory in stored_trajectories(run.data) if world is None else _expert_trajectories(run, renderer, world):
        try:
            episode = read(trajectory) if isinstance(trajectory, Path) else trajectory
            yield from demonstrated_rows(episode, renderer)
        except ContextAgentError as error:
            skipped += 1
            note(f"skipped: {error}")
    if skipped:
        note(f"{skipped} trajectories could not be made into rows")


def stored_trajectories(data: DataConfig) -> Iterator[Path]:
    """Yield the trajectory files of `data.trajectories`, folder by folder.

    Args:
        data: The data table of the run file.

    Yields:
        The paths of each folder, sorted.

    Raises:
        ConfigError: If the run file names no trajectories.
        DataError: If a folder contains no trajectory.
    """
    if data.trajectories is None:
        raise ConfigError(
            "the run file names no trajectories. Set data.trajectories to a folder of `ctx1 synth trajectories`."
        )
    trajectories = data.trajectories
    for folder in map(Path, [trajectories] if isinstance(trajectories, str) else trajectories):
        kept = folder / KEPT_FOLDER if (folder / KEPT_FOLDER).is_dir() else folder
        files = sorted(kept.glob("*.jsonl"))
        if not files:
            raise DataError(f"{kept} contains no trajectory. Create some with `ctx1 synth trajectories`.")
        yield from files


def check_trajectories(data: DataConfig) -> None:
    """Raise an error if the run file names no trajectories, or a folder without any. No file is opened."""
    for _ in stored_trajectories(data):
        pass


def _expert_trajectories(run: RunConfig, renderer: TokenRenderer, config: WorldConfig) -> Iterator[Trajectory]:
    """Yield the episodes of the experts, alternating between the environments."""
    world = make_environment(config)
    worlds = (world, *world.others)
    agents = [_expert_agent(run, renderer, world) for world in worlds]
    for first in range(0, run.sft.demonstrations, EPISODES_AT_ONCE * len(worlds)):
        last = min(first + EPISODES_AT_ONCE * len(worlds), run.sft.demonstrations)
        for index, (agent, environment) in enumerate(zip(agents, worlds, strict=True)):
            numbers = range(first + index, last, len(worlds))
            requests = [_expert_request(run, environment, number, number // len(worlds)) for number in numbers]
            yield from asyncio.run(_play_requests(agent, requests))


def _expert_request(run: RunConfig, environment: ToyEnvironment, number: int, turn: int) -> EpisodeRequest:
    """Return the request for one demonstration.

    `number` counts the demonstrations of the run, and `turn` those of the environment. Both start at 0.
    """
    questions = environment.questions["train"]
    question = questions[turn % len(questions)]
    return EpisodeRequest(
        question.question,
        seed=run.seed + number,
        question_id=question.id,
        budget=run.episodes.training_budget(turn),
    )


def _expert_agent(run: RunConfig, renderer: TokenRenderer, world: ToyEnvironment) -> SearchAgent:
    """Return an agent that plays the expert in the run's harness. With a swarm, the expert leads noisy sub-agents."""
    questions, counter = world.questions["train"], VocabularyCounter(renderer)
    breadth = run.episodes.swarm
    led = NoisyExpert(questions, world.titles, SUBAGENT_NOISE, counter)
    return SearchAgent(
        world.corpus,
        NoisyExpert(questions, world.titles, LEADING_NOISE if breadth else None, counter),
        profile=episode_profile(run),
        budget=run.episodes.budget,
        swarm=Swarm(breadth=breadth, policy=led) if breadth else None,
    )


async def _play_requests(agent: SearchAgent, requests: Sequence[EpisodeRequest]) -> list[Trajectory]:
    searches = [
        agent.asearch(request.question, question_id=request.question_id, seed=request.seed, budget=request.budget)
        for request in requests
    ]
    results = await asyncio.gather(*searches)
    return [trajectory for result in results for trajectory in (*result.trajectories, *result.searchers)]
