"""The evaluation of a policy on dev questions while it is trained."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from context_agent.agent import SearchAgent
from context_agent.eval.gold import gold_of, questions_digest, questions_with_gold
from context_agent.train.outcome import measure_outcome
from context_agent.train.rewards import compute_reward
from context_agent.train.rl.episode_table import save_trajectories
from context_agent.train.rl.rollouts import RolloutRequest, is_complete, play_episodes
from context_agent.train.rl.scoring import ScoredEpisode, episode_metrics
from context_agent.types import Question

if TYPE_CHECKING:
    from context_agent.train.rl.row_trainer import RowTrainer
    from context_agent.train.training_run import TrainingRun

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
    """An evaluator that plays the dev questions with the same seeds each time, and keeps the best model."""

    def __init__(self, agents: Mapping[float, SearchAgent], questions: Sequence[Question], run: TrainingRun) -> None:
        """Set up the evaluation.

        Args:
            agents: An agent for each temperature. Empty on ranks that do not evaluate.
            questions: The dev questions.
            run: The run, which keeps the best model.
        """
        config = run.config
        self._agents, self._questions, self._run = agents, list(questions), run
        first = config.evaluation.temperatures[0]
        self._best, self._aborted = dev_metric(first, config.evaluation.best), dev_metric(first, "aborted")
        self._digest = questions_digest(questions)
        # The settings at the end of training make the figures of different steps comparable. Evaluation measures by
        # gold, without the judge.
        self._rewards = replace(config.curriculum.rewards(config.rewards, 1.0), judge=0.0)

    def evaluate(self, trainer: RowTrainer, update: int) -> dict[str, float]:
        """Play the dev questions, keep the model if it is the best so far, and return the metrics.

        Every rank must call this.

        Args:
            trainer: The trainer with the model.
            update: The number of updates so far.

        Returns:
            Means over episodes under names such as `dev/greedy/recall`. `aborted` counts the episodes that were
            aborted. On ranks that do not evaluate, there are no metrics.
        """
        metrics: dict[str, float] = {}
        if self._agents:
            started = time.perf_counter()
            with trainer.inference():
                for temperature, agent in self._agents.items():
                    measured = self._evaluate_agent(agent, update, temperature_name(temperature))
                    metrics |= {dev_metric(temperature, key): value for key, value in measured.items()}
            metrics["evaluation_seconds"] = time.perf_counter() - started
        # An evaluation in which episodes were aborted is one of other questions, perhaps of the easy ones alone.
        value = None if metrics.get(self._aborted) else metrics.get(self._best)
        self._run.models.keep_if_best(trainer, self._best, value, higher=True, questions=self._digest)
        return metrics

    def _evaluate_agent(self, agent: SearchAgent, update: int, name: str) -> dict[str, float]:
        requests = [
            RolloutRequest(question, self._run.config.seed + index, f"{name}-{question.id}")
            for index, question in enumerate(self._questions)
        ]
        results = asyncio.run(play_episodes(agent, requests, self._run.config.rollouts.concurrency))
        scored = []
        for request, result in zip(requests, results, strict=True):
            if is_complete(result):
                outcome = measure_outcome(result, request.question, gold_of(request.question, agent.corpus))
                reward = compute_reward(outcome, self._rewards)
                scored.append(ScoredEpisode(request.question, result, outcome, reward))
        means = episode_metrics(scored) if scored else {}
        selected = {key: means[key] for key in DEV_METRICS if key in means}
        selected["aborted"] = float(len(requests) - len(scored))
        folder = self._run.out / "trajectories" / f"dev-{update:05d}"
        return selected | save_trajectories(folder, scored[:SAVED_DEV_EPISODES])


@contextmanager
def open_evaluator(
    run: TrainingRun, dev: Sequence[Question], open_agent: Callable[[float], AbstractContextManager[SearchAgent]]
) -> Iterator[DevEvaluator | None]:
    """Open the agents that evaluate a run. Only the first rank plays.

    Args:
        run: The run.
        dev: The dev questions. Those without gold are left out.
        open_agent: A function that opens an agent with a temperature.

    Yields:
        The evaluator. None if there is nothing to evaluate.
    """
    chosen = run.config.evaluation
    questions = questions_with_gold(dev)[: chosen.questions] if chosen.every else []
    if not questions:
        yield None
        return
    with ExitStack() as stack:
        temperatures = chosen.temperatures if run.main else ()
        agents = {temperature: stack.enter_context(open_agent(temperature)) for temperature in temperatures}
        yield DevEvaluator(agents, questions, run)
