"""The loop of reinforcement learning over episodes, with GRPO or CISPO.

A step draws questions and plays `rollouts` episodes of each in the production harness. It rewards them, and turns the
rewards of each group into advantages (GRPO, arXiv 2402.03300). Its rows are trained in `substeps` updates of the policy
with the loss of the run file, which is CISPO by default (arXiv 2506.13585). TRL carries out each update: loss,
optimizer and distribution (`row_trainer`). `LoopDriver` connects the two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from context_agent.errors import ContextAgentError, DataError, MissingExtraError
from context_agent.policies.tokens.engines import Finish
from context_agent.policies.tokens.recorded_calls import calls
from context_agent.train.advantages import EpisodeAdvantages, EpisodeReward, group_advantages
from context_agent.train.batches import StepRows, WeightedRow, fresh_rows, minibatches, trained_tokens
from context_agent.train.config import SAVED_QUESTIONS, RolloutConfig
from context_agent.train.metrics_log import MetricsLog
from context_agent.train.rl.canary import Canary
from context_agent.train.rl.demonstrations import Demonstrations
from context_agent.train.rl.episode_table import save_trajectories, table_row
from context_agent.train.rl.evaluation import DevEvaluator
from context_agent.train.rl.rank_metrics import gathered_metrics
from context_agent.train.rl.rollouts import PlayedEpisodes, RolloutSource, played_together
from context_agent.train.rl.row_trainer import RowTrainer
from context_agent.train.rl.scoring import EpisodeScorer, ScoredEpisode, ScoredEpisodes, episode_metrics
from context_agent.train.rl.weight_sync import WeightSync
from context_agent.train.rows import TrainingRow, decay_weights, sampled_rows

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise MissingExtraError(error.name or "trl", "train") from None


_Callback: Any = TrainerCallback


CHECKPOINT: tuple[WeightedRow, ...] = ()
"""The value that the loop yields when an update is done. TRL then logs, and saves a checkpoint if one is due."""


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """The result of a step's rollouts.

    Attributes:
        number: The step.
        rows: The rows to train on.
        metrics: Metrics over the episodes.
        episodes: The scored episodes.
    """

    number: int
    rows: tuple[WeightedRow, ...]
    metrics: dict[str, float]
    episodes: tuple[ScoredEpisode, ...] = field(repr=False, default=())


@dataclass
class ReinforcementLoop:
    """The loop on one rank.

    Attributes:
        rollouts: The source of episodes.
        scorer: Rewards the episodes.
        config: The rollout settings.
        weights: Sends new weights to the sampler.
        gamma: The decay of an advantage by step.
        staleness: Largest age of a row that is trained on, in updates.
        sync_every: Number of steps between two weight syncs. If it is 0, weights are sent after every update.
        demonstrations: Demonstrations that join the groups of their questions.
        canary: Checks that the sampler has the weights that were sent.
        evaluator: The evaluator that plays the dev questions. None if there are none.
        evaluate_every: Number of updates between two evaluations. 0 means none.
        folder: The folder for the trajectories of some steps.
        table: The log that gets a line for each episode.
        rank: The number of this rank.
        step: The step that was collected last.
        pending: The rows of the current step. A resumed run starts with those of its checkpoint, so that a half-trained
            step is not sampled again with newer weights.
    """

    rollouts: RolloutSource
    scorer: EpisodeScorer
    config: RolloutConfig
    weights: WeightSync
    gamma: float = 1.0
    staleness: int = 8
    sync_every: int = 0
    demonstrations: Demonstrations | None = None
    canary: Canary | None = None
    evaluator: DevEvaluator | None = None
    evaluate_every: int = 0
    folder: Path | None = None
    table: MetricsLog | None = None
    rank: int = 0
    step: RolloutStep | None = None
    pending: StepRows = field(default_factory=StepRows)

    @property
    def updates(self) -> int:
        """Number of updates in the whole run."""
        return self.config.steps * self.config.substeps

    def run(self, trainer: RowTrainer, update: int) -> Iterator[Sequence[WeightedRow]]:
        """Train from an update to the end. TRL takes an optimizer step on the rows that are yielded.

        Args:
            trainer: The trainer.
            update: The first update.

        Yields:
            The rows of an update, and then `CHECKPOINT` when the update is done.

        Raises:
            PolicyError: If the sampler does not have the newest weights.
        """
        self._push(trainer, update)
        if update == 0 and self.evaluate_every and (metrics := self.evaluate(trainer, 0)):
            trainer.log(metrics)
        began, first = time.perf_counter(), update
        while update < self.updates:
            started = time.perf_counter()
            rows = self.update_rows(trainer, update)
            yield rows
            update += 1
            now = time.perf_counter()
            left = (now - began) / (update - first) * (self.updates - update)
            trainer.report({"update_seconds": now - started, "left_seconds": left})
            self.sync_weights(trainer, update)
            if self._evaluates_at(update):
                trainer.report(self.evaluate(trainer, update))
            if update == self.updates and self.canary is not None:
                trainer.report(self.canary.check())
            yield CHECKPOINT

    def collect(self, step: int) -> RolloutStep:
        """Play, reward and save the rollouts of a step.

        Args:
            step: The number of the step.

        Returns:
            The rollouts.

        Raises:
            PolicyError: If none of its episodes can be rewarded.
        """
        sampled = self.rollouts.play(step, self.rollouts.draw(step))
        questions, refilled = len({request.question.id for request in sampled.requests}), 0
        for remaining in reversed(range(self.config.refill + 1)):
            played = sampled if self.demonstrations is None else self.demonstrations.join(sampled)
            scored = self.scorer.score(step, played, step / self.config.steps)
            advantages = self.advantages(step, scored.episodes)
            missing = questions + len(advantages.equal) - len({episode.question.id for episode in scored.episodes})
            more = self.rollouts.refill(step, refilled, missing) if remaining and missing > 0 else []
            if not more:
                break
            refilled += len({request.question.id for request in more})
            sampled = played_together(sampled, self.rollouts.play(step, more))
        rows = weighted_rows(scored.episodes, advantages, self.gamma, self._rows_of, sampled.lost)
        metrics = step_metrics(played, scored, advantages, rows)
        if self.config.refill:
            metrics["groups_refilled"] = float(refilled)
        metrics |= self._save_trajectories(step, scored.episodes)
        self.step = RolloutStep(step, rows, metrics, scored.episodes)
        if self.table is not None:
            for episode in scored.episodes:
                self.table.add(step, table_row(episode, advantages))
        return self.step

    def advantages(self, step: int, episodes: Sequence[ScoredEpisode]) -> EpisodeAdvantages:
        """Return the advantage of each episode over the other episodes of its question."""
        rewards = [
            EpisodeReward(episode.id, episode.question.id, episode.reward.total, episode.demonstrated)
            for episode in episodes
        ]
        config = self.config
        return group_advantages(
            rewards,
            baseline=config.baseline,
            members=config.baseline_members,
            keep_negative=config.keep_negative,
            seed=config.seed + step,
        )

    def rows(self, update: int) -> Sequence[WeightedRow]:
        """Return the rows of an update. The first update of a step collects the step's rollouts."""
        step, substep = divmod(update, self.config.substeps)
        if self.pending.step != step:
            self.pending = StepRows(step, minibatches(self.collect(step).rows, self.config.substeps))
        return self.pending.substeps[substep]

    def update_rows(self, trainer: RowTrainer, update: int) -> Sequence[WeightedRow]:
        """Return the rows of an update that are fresh enough to train on, and report the metrics so far."""
        before = self.step
        rows = self.rows(update)
        if self.canary is not None:
            trainer.report(self.canary.check())
        if self.step is not None and self.step is not before:
            trainer.report(gathered_metrics(trainer.accelerator, self.step.metrics))
        trainer.report(self.rollouts.update_metrics(rows, update))
        fresh = fresh_rows(rows, update, self.staleness)
        trainer.report(gathered_metrics(trainer.accelerator, {"rows_stale": float(len(rows) - len(fresh))}))
        return fresh

    def sync_weights(self, trainer: RowTrainer, update: int) -> None:
        """Send the new weights to the sampler if they are due.

        They are due after each update, or before a server plays new episodes.
        """
        step, substep = divmod(update, self.config.substeps)
        if not self.sync_every or self._evaluates_at(update) or (substep == 0 and step % self.sync_every == 0):
            self._push(trainer, update)

    def evaluate(self, trainer: RowTrainer, update: int) -> dict[str, float]:
        """Evaluate on the dev questions and return the metrics. On ranks that do not evaluate, they are empty."""
        return {} if self.evaluator is None else self.evaluator.evaluate(trainer, update)

    def save(self, folder: Path, update: int) -> None:
        """Write the rows of the current step to a checkpoint, if updates from `update` on still need them."""
        step, substep = divmod(update, self.config.substeps)
        if substep and self.pending.step == step:
            self.pending.save(folder, self.rank)
        self.rollouts.checkpointed()

    def _push(self, trainer: RowTrainer, update: int) -> None:
        trainer.report(self.weights.push(trainer, update).metrics)
        if self.canary is not None:
            # A sampler that shares the model must also score without dropout.
            with trainer.inference():
                self.canary.pushed(trainer, str(update))

    def check_trained(self, trainer: RowTrainer) -> None:
        """Raise `DataError` if the whole run, earlier processes included, had no row to train on."""
        if not trainer.has_trained:
            raise DataError(
                f"none of {self.updates} updates had a row to train, since all episodes of each question earned the "
                "same. Use easier questions, a policy that sometimes succeeds (`ctx1 train sft`), a larger "
                "rollouts.rollouts, or demonstrations (rollouts.demonstrations)."
            )

    def _rows_of(self, episode: ScoredEpisode) -> list[TrainingRow]:
        if episode.demonstrated and self.demonstrations is not None:
            return self.demonstrations.rows(episode)
        return sampled_rows(episode.trajectory, group_id=episode.question.id)

    def _evaluates_at(self, update: int) -> bool:
        return bool(self.evaluate_every) and (update % self.evaluate_every == 0 or update == self.updates)

    def _save_trajectories(self, step: int, episodes: Sequence[ScoredEpisode]) -> dict[str, float]:
        config = self.config
        if self.folder is None or not config.save_every or step % config.save_every or self.rank:
            return {}
        saved = list(dict.fromkeys(episode.question.id for episode in episodes))[:SAVED_QUESTIONS]
        chosen = [episode for episode in episodes if episode.question.id in saved]
        return save_trajectories(self.folder / f"step-{step:05d}", chosen)


class LoopDriver(_Callback):  # type: ignore[misc]  # the base has no types
    """A driver that runs the loop inside TRL's training, as the trainer's source of rows and as a callback.

    Normally TRL controls the training. Here the loop controls it. TRL resumes the loop when it needs the rows of an
    update, and again when the update is done.
    """

    def __init__(self, loop: ReinforcementLoop) -> None:
        self._loop = loop
        self._running: Iterator[Sequence[WeightedRow]] | None = None
        self._error: ContextAgentError | None = None
        self.trainer: Any = None
        """Set it before training."""

    def rows(self, update: int) -> Sequence[WeightedRow]:
        """Run the loop until it yields the rows of the next update, and return them."""
        if self._running is None:
            self._running = self._loop.run(self.trainer, update)
        return next(self._running)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Keep the sampler from reading weights while they change."""
        self._loop.weights.before_update()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Let the sampler read the changed weights."""
        self._loop.weights.after_update()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Run the loop to its checkpoint. If that raises an error, keep it until TRL has logged the completed
        update.
        """
        assert self._running is not None
        try:
            next(self._running)
        except ContextAgentError as error:
            self._error = error

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Raise the error that the end of the last update left, if any."""
        self._raise()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Raise the error that the end of the last update left, if any. Check that the whole run has trained."""
        self._raise()
        if state.global_step >= self._loop.updates:
            self._loop.check_trained(self.trainer)

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


def weighted_rows(
    episodes: Sequence[ScoredEpisode],
    advantages: EpisodeAdvantages,
    gamma: float,
    rows_of: Callable[[ScoredEpisode], list[TrainingRow]],
    lost: AbstractSet[str] = frozenset(),
) -> tuple[WeightedRow, ...]:
    """Return the rows of the episodes that are trained on, with their advantages.

    Args:
        episodes: The episodes of the step.
        advantages: Their advantages. An episode without one is not trained on.
        gamma: The decay of an advantage by step. Earlier steps weigh less.
        rows_of: A function that returns the rows of an episode.
        lost: Ids of the episodes that lost weights sampled.

    Returns:
        The rows, episode by episode.
    """
    weighted: list[WeightedRow] = []
    for episode in episodes:
        advantage = advantages.by_episode.get(episode.id)
        if advantage is None:
            continue
        rows = rows_of(episode)
        weighted += [
            WeightedRow(row, advantage, tuple(weights), episode.demonstrated, episode.id in lost)
            for row, weights in zip(rows, decay_weights(rows, gamma), strict=True)
        ]
    return tuple(weighted)


def demonstration_metrics(
    episodes: Sequence[ScoredEpisode], advantages: EpisodeAdvantages, rows: Sequence[WeightedRow]
) -> dict[str, float]:
    """Return the metrics of a step's demonstrations.

    They are their number, the number that is trained on, means over them, and their share of the positive advantages.
    If there are no demonstrations, return no metrics.
    """
    demonstrations = [episode for episode in episodes if episode.demonstrated]
    if not demonstrations:
        return {}
    demonstration_rows = [item for item in rows if item.demonstrated]
    gains = {name: max(advantage, 0.0) for name, advantage in advantages.by_episode.items()}
    gained = sum(gains.get(episode.id, 0.0) for episode in demonstrations)
    return {
        "demonstrations/episodes": float(len(demonstrations)),
        "demonstrations/trained": float(sum(episode.id in advantages.by_episode for episode in demonstrations)),
        "demonstrations/rows": float(len(demonstration_rows)),
        "demonstrations/tokens": float(trained_tokens(demonstration_rows)),
        "demonstrations/reward": fmean(episode.reward.total for episode in demonstrations),
        "demonstrations/recall": fmean(episode.outcome.recall for episode in demonstrations),
        "demonstrations/searches": fmean(len(episode.outcome.queries) for episode in demonstrations),
        "demonstrations/advantage_share": gained / (sum(gains.values()) or 1.0),
    }


def step_metrics(
    played: PlayedEpisodes, scored: ScoredEpisodes, advantages: EpisodeAdvantages, rows: Sequence[WeightedRow]
) -> dict[str, float]:
    """Return the metrics of a step. Those of demonstrations have names of their own."""
    episodes = [episode for episode in scored.episodes if not episode.demonstrated]
    sampled_rows = [item for item in rows if not item.demonstrated]
    sampled_calls = [call for episode in episodes for call in calls(episode.trajectory)]
    sampled = sum(len(call.output) for call in sampled_calls)
    counts = {
        "episodes": len(episodes),
        "groups_equal": len(advantages.equal),
        "episodes_trained": sum(episode.id in advantages.by_episode for episode in episodes),
        "rows": len(sampled_rows),
        "replies_truncated": sum(call.finish == Finish.LENGTH for call in sampled_calls),
        "tokens_sampled": sampled,
        "tokens_trained": trained_tokens(sampled_rows),
    }
    return {
        **episode_metrics(episodes),
        **demonstration_metrics(scored.episodes, advantages, rows),
        **{name: float(count) for name, count in counts.items()},
        **scored.metrics,
        "rollout_seconds": played.seconds,
        "sampled_per_second": sampled / max(played.seconds, 1e-9),
        **played.metrics,
    }
