"""How good the policy is on questions it is not trained on: while it trains, greedily and as it is sampled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from context_agent.agent import SearchAgent
from context_agent.eval.gold import gold_of
from context_agent.harness.trajectory_file import write
from context_agent.questions import Question
from context_agent.train.outcomes import outcome
from context_agent.train.rewards import Rewards, reward
from context_agent.train.rl.playing import Ask, played
from context_agent.train.rl.rollouts import Played, measures, whole

MEASURES = (
    *("reward", "recall", "precision", "trajectory_recall", "prune_accuracy"),
    *("pruned", "pruning", "finished", "turns", "searches"),
    *("spawning", "searchers", "searchers_finished", "critical_steps"),
)
SHOWN = 4
"""Trajectories that are kept of each evaluation and temperature, for `ctx1 view`."""


class Evaluator:
    """Asks the same questions with the same seeds each time, by one agent for each temperature."""

    def __init__(
        self,
        agents: dict[float, SearchAgent],
        questions: Sequence[Question],
        *,
        rewards: Rewards,
        concurrency: int,
        seed: int = 0,
        folder: Path | None = None,
    ) -> None:
        """`rewards` are those that training ends with, so that figures of different steps compare."""
        self._agents, self._questions, self._rewards = agents, list(questions), rewards
        self._concurrency, self._seed, self._folder = concurrency, seed, folder

    def evaluate(self, step: int) -> dict[str, float]:
        """`dev/greedy/recall` and so on: means over episodes; `spoilt` counts those that the world ended."""
        found: dict[str, float] = {}
        for temperature, agent in self._agents.items():
            name = "greedy" if temperature == 0 else f"t{temperature:g}"
            found |= {f"dev/{name}/{key}": value for key, value in self._one(agent, step, name).items()}
        return found

    def _one(self, agent: SearchAgent, step: int, name: str) -> dict[str, float]:
        asks = [Ask(one, self._seed + place, f"{name}-{one.id}") for place, one in enumerate(self._questions)]
        made = asyncio.run(played(agent, asks, self._concurrency))
        done = []
        for ask, trajectory in zip(asks, made, strict=True):
            if whole(trajectory):
                measured = outcome(trajectory, ask.question, gold_of(ask.question, agent.corpus))
                done.append(Played(ask.question, trajectory, measured, reward(measured, self._rewards)))
        self._save(done, step)
        means = measures(done) if done else {}
        return {key: means[key] for key in MEASURES if key in means} | {"spoilt": float(len(asks) - len(done))}

    def _save(self, done: Sequence[Played], step: int) -> None:
        if self._folder is None:
            return
        for one in done[:SHOWN]:
            name = one.trajectory.header.id.replace("/", "_")
            write(one.trajectory, self._folder / f"dev-{step:05d}" / f"{name}.jsonl")
