"""The evaluation of a policy on dev questions while it is trained."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from context_agent.agent import SearchAgent
from context_agent.eval.gold import gold_of
from context_agent.train.outcome import measure_outcome
from context_agent.train.rewards import RewardConfig, compute_reward
from context_agent.train.rl.episode_table import save_trajectories
from context_agent.train.rl.rollouts import RolloutRequest, is_complete, play_episodes
from context_agent.train.rl.scoring import ScoredEpisode, episode_metrics
from context_agent.types import Question

DEV_METRICS = (
    *("reward", "recall", "precision", "trajectory_recall", "prune_accuracy"),
    *("pruned", "pruning", "finished", "turns", "searches"),
    *("spawning", "searchers", "searchers_finished", "critical_steps"),
)
"""The metrics of an evaluation that are logged."""


SAVED_DEV_EPISODES = 4
"""Number of trajectories that are saved for each evaluation and temperature, for `ctx1 view`."""


def temperature_name(temperature: float) -> str:
    """Return the name of a temperature in metrics, such as `greedy` or `t1`."""
    return "greedy" if temperature == 0 else f"t{temperature:g}"


def dev_metric(temperature: float, name: str) -> str:
    """Return the name under which a metric of an evaluation is logged."""
    return f"dev/{temperature_name(temperature)}/{name}"


class DevEvaluator:
    """An evaluator that plays the dev questions with the same seeds each time, with one agent for each temperature."""

    def __init__(
        self,
        agents: Mapping[float, SearchAgent],
        questions: Sequence[Question],
        *,
        rewards: RewardConfig,
        concurrency: int,
        seed: int = 0,
        folder: Path | None = None,
    ) -> None:
        """Set up the evaluation.

        Args:
            agents: An agent for each temperature.
            questions: The dev questions.
            rewards: The reward settings at the end of training, so that figures of different steps are comparable.
            concurrency: Number of episodes that run concurrently.
            seed: The seed of the first question.
            folder: The folder for some of the trajectories. If it is None, no trajectory is saved.
        """
        self._agents, self._questions, self._rewards = agents, list(questions), rewards
        self._concurrency, self._seed, self._folder = concurrency, seed, folder

    def evaluate(self, update: int) -> dict[str, float]:
        """Play the dev questions and return the metrics.

        Args:
            update: The number of updates so far.

        Returns:
            Means over episodes under names such as `dev/greedy/recall`. `aborted` counts the episodes that were
            aborted.
        """
        metrics: dict[str, float] = {}
        for temperature, agent in self._agents.items():
            measured = self._evaluate_agent(agent, update, temperature_name(temperature))
            metrics |= {dev_metric(temperature, key): value for key, value in measured.items()}
        return metrics

    def _evaluate_agent(self, agent: SearchAgent, update: int, name: str) -> dict[str, float]:
        requests = [
            RolloutRequest(question, self._seed + index, f"{name}-{question.id}")
            for index, question in enumerate(self._questions)
        ]
        results = asyncio.run(play_episodes(agent, requests, self._concurrency))
        scored = []
        for request, result in zip(requests, results, strict=True):
            if is_complete(result):
                outcome = measure_outcome(result, request.question, gold_of(request.question, agent.corpus))
                reward = compute_reward(outcome, self._rewards)
                scored.append(ScoredEpisode(request.question, result, outcome, reward))
        means = episode_metrics(scored) if scored else {}
        selected = {key: means[key] for key in DEV_METRICS if key in means}
        selected["aborted"] = float(len(requests) - len(scored))
        if self._folder is None:
            return selected
        return selected | save_trajectories(self._folder / f"dev-{update:05d}", scored[:SAVED_DEV_EPISODES])
