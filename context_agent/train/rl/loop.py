"""Reinforcement learning: the loop of GRPO and CISPO over episodes, and `ctx1 train rl` without the command line.

A step draws questions, plays `rollouts` episodes of each in the production harness, rewards them, and turns rewards
into advantages by group (GRPO, arXiv 2402.03300). Its rows are trained in `substeps` updates of the policy, with the
loss of the run file (CISPO, arXiv 2506.13585, by default). TRL does an update: loss, optimizer, distribution
(`trl_adapter`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from context_agent.agent import SearchAgent
from context_agent.errors import DataError
from context_agent.harness.trajectory_file import write
from context_agent.policies.tokens.engines import Engine, ScoringEngine
from context_agent.policies.tokens.engines.routers import routers
from context_agent.train.advantages import EpisodeAdvantages, EpisodeReward, group_advantages
from context_agent.train.checkpoints import MetricsLog
from context_agent.train.config import Notify, OnUpdate, RunConfig
from context_agent.train.curriculum import RolloutConfig
from context_agent.train.data import TrainingData, build_agent, environment_of, episode_profile, open_data
from context_agent.train.judge.calibration import judge_gate, questions_with_gold
from context_agent.train.models import LoadedModel, load_model, subagent_engine
from context_agent.train.rl.async_rollouts import open_async_rollouts
from context_agent.train.rl.canary import Canary, canary_row, scorer_of
from context_agent.train.rl.demonstrations import Demonstrations, open_demonstrations
from context_agent.train.rl.episode_table import table_path, table_row, write_page
from context_agent.train.rl.rollout_workers import RolloutPool, play_in_pool
from context_agent.train.rl.rollouts import (
    DevEvaluator,
    EpisodeScorer,
    PlayedEpisodes,
    RolloutRequest,
    Rollouts,
    RolloutSource,
    ScoredEpisode,
    dev_metric,
    played_together,
    step_metrics,
)
from context_agent.train.rl.trl_adapter import CHECKPOINT, LoopDriver, RowTrainer, grpo_config
from context_agent.train.rl.weight_sync import WeightSync, open_sampler
from context_agent.train.rows import (
    StepRows,
    TrainingRow,
    WeightedRow,
    decay_weights,
    fresh_rows,
    minibatches,
    sampled_rows,
)
from context_agent.train.training_run import TrainingResult, TrainingRun
from context_agent.types import Question


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """What the rollouts of a step came to: the rows to train on, metrics over the episodes, and the episodes."""

    number: int
    rows: tuple[WeightedRow, ...]
    metrics: dict[str, float]
    episodes: tuple[ScoredEpisode, ...] = field(repr=False, default=())


@dataclass
class ReinforcementLoop:
    """The loop of one rank. `staleness` is the most updates that a row may be old; `sync_every` is in steps, 0:
    updates.

    `folder` receives the trajectories of some steps, `table` a line for each episode. `evaluator` plays the dev
    questions every `evaluate_every` updates. `demonstrations` join the groups of their questions.
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
    evaluated: Callable[[RowTrainer, dict[str, float]], None] | None = None
    """Called on every rank after an evaluation, with its metrics on the rank that made it."""
    folder: Path | None = None
    table: MetricsLog | None = None
    rank: int = 0
    step: RolloutStep | None = None
    """The step that was collected last."""
    _pending: StepRows = field(default_factory=StepRows)

    @property
    def updates(self) -> int:
        """Updates of the whole run."""
        return self.config.steps * self.config.substeps

    def run(self, trainer: RowTrainer, update: int) -> Iterator[Sequence[WeightedRow]]:
        """Trains from `update` on. TRL takes an optimizer step on the rows that are yielded.

        Raises `PolicyError` for a sampler without the newest weights, and `DataError` if the whole run had nothing to
        train on.
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
            if update == self.updates:
                self._check_end(trainer)
            yield CHECKPOINT

    def collect(self, step: int) -> RolloutStep:
        """Return the rollouts of a step. Raises `PolicyError` if none of its episodes can be rewarded."""
        played = self._play(step, self.rollouts.draw(step))
        questions, refilled = len({request.question.id for request in played.requests}), 0
        for remaining in reversed(range(self.config.refill + 1)):
            scored = self.scorer.score(step, played, step / self.config.steps)
            advantages = self.advantages(step, scored.episodes)
            missing = questions + len(advantages.equal) - len({episode.question.id for episode in scored.episodes})
            more = self.rollouts.refill(step, refilled, missing) if remaining and missing > 0 else []
            if not more:
                break
            refilled += len({request.question.id for request in more})
            played = played_together(played, self._play(step, more))
        rows = weighted_rows(scored.episodes, advantages, self.gamma, self._rows_of)
        metrics = step_metrics(played, scored, advantages, rows)
        if self.config.refill:
            metrics["groups_refilled"] = float(refilled)
        self.step = RolloutStep(step, rows, metrics, scored.episodes)
        self._save_trajectories(self.step)
        if self.table is not None:
            for episode in scored.episodes:
                self.table.add(step, table_row(episode, advantages))
        return self.step

    def advantages(self, step: int, episodes: Sequence[ScoredEpisode]) -> EpisodeAdvantages:
        """Return the advantage of each episode over the others of its question."""
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
        """Return the rows of an update; the rollouts are collected at the first update of their step."""
        step, substep = divmod(update, self.config.substeps)
        if self._pending.step != step:
            self._pending = StepRows(step, minibatches(self.collect(step).rows, self.config.substeps))
        return self._pending.substeps[substep]

    def update_rows(self, trainer: RowTrainer, update: int) -> Sequence[WeightedRow]:
        """Return the rows of an update that are fresh enough to train on, with everything measured so far reported."""
        before = self.step
        rows = self.rows(update)
        if self.canary is not None:
            trainer.report(self.canary.check())
        if self.step is not None and self.step is not before:
            trainer.report(self.step.metrics)
        trainer.report(self.rollouts.update_metrics(rows, update))
        fresh = fresh_rows(rows, update, self.staleness)
        trainer.report({"rows_stale": float(len(rows) - len(fresh))})
        return fresh

    def sync_weights(self, trainer: RowTrainer, update: int) -> None:
        """Sends the new weights to the sampler: after each update, or to a server before new episodes."""
        step, substep = divmod(update, self.config.substeps)
        if not self.sync_every or self._evaluates_at(update) or (substep == 0 and step % self.sync_every == 0):
            self._push(trainer, update)

    def evaluate(self, trainer: RowTrainer, update: int) -> dict[str, float]:
        """Return the metrics of the dev questions; empty on ranks that do not evaluate."""
        metrics: dict[str, float] = {}
        if self.evaluator is not None:
            started = time.perf_counter()
            with trainer.inference():
                metrics = self.evaluator.evaluate(update)
            metrics["evaluation_seconds"] = time.perf_counter() - started
        if self.evaluated is not None:
            self.evaluated(trainer, metrics)
        return metrics

    def save(self, folder: Path, update: int) -> None:
        """Writes the collected rows that updates from `update` on still need; none between two steps."""
        step, substep = divmod(update, self.config.substeps)
        if substep and self._pending.step == step:
            self._pending.save(folder, self.rank)
        self.rollouts.checkpointed()

    def restore(self, folder: Path) -> None:
        """Loads the rollouts that `save` wrote, so that newer weights do not sample a half-used step again."""
        self._pending = StepRows.load(folder, self.rank)

    def _push(self, trainer: RowTrainer, update: int) -> None:
        trainer.report(self.weights.push(trainer, update).metrics)
        if self.canary is not None:
            # A sampler that shares the model scores without dropout, too.
            with trainer.inference():
                self.canary.pushed(trainer, str(update))

    def _check_end(self, trainer: RowTrainer) -> None:
        """Check the last weights that were sent, and that the run has learned at all."""
        if self.canary is not None:
            trainer.report(self.canary.check())
        if not trainer.has_trained:
            raise DataError(
                f"none of {self.updates} updates had a row to train, since all episodes of each question earned the "
                "same: take a policy that succeeds now and then (ctx1 train sft), easier questions, more "
                "rollouts.rollouts, or demonstrations (rollouts.demonstrations)"
            )

    def _play(self, step: int, requests: Sequence[RolloutRequest]) -> PlayedEpisodes:
        played = self.rollouts.play(step, requests)
        return played if self.demonstrations is None else self.demonstrations.join(played)

    def _rows_of(self, episode: ScoredEpisode) -> list[TrainingRow]:
        if episode.demonstrated and self.demonstrations is not None:
            return self.demonstrations.rows(episode)
        return sampled_rows(episode.trajectory, group_id=episode.question.id)

    def _evaluates_at(self, update: int) -> bool:
        return bool(self.evaluate_every) and (update % self.evaluate_every == 0 or update == self.updates)

    def _save_trajectories(self, step: RolloutStep) -> None:
        config = self.config
        if self.folder is None or not config.save_every or step.number % config.save_every or self.rank:
            return
        saved = list(dict.fromkeys(episode.question.id for episode in step.episodes))[: config.save_groups]
        for episode in step.episodes:
            if episode.question.id in saved:
                write(episode.trajectory, self.folder / f"step-{step.number:05d}" / f"{episode.id}.jsonl")


def weighted_rows(
    episodes: Sequence[ScoredEpisode],
    advantages: EpisodeAdvantages,
    gamma: float,
    rows_of: Callable[[ScoredEpisode], list[TrainingRow]],
) -> tuple[WeightedRow, ...]:
    """Return the rows of the episodes that are trained on, with their advantages; `gamma` weighs earlier steps less."""
    weighted: list[WeightedRow] = []
    for episode in episodes:
        advantage = advantages.by_episode.get(episode.id)
        if advantage is None:
            continue
        rows = rows_of(episode)
        weighted += [
            WeightedRow(row, advantage, tuple(weights), episode.demonstrated)
            for row, weights in zip(rows, decay_weights(rows, gamma), strict=True)
        ]
    return tuple(weighted)


def train(
    config: RunConfig,
    *,
    resume: bool = False,
    note: Notify = print,
    advance: OnUpdate | None = None,
    pool: RolloutPool | None = None,
) -> TrainingResult:
    """Trains a policy by reinforcement learning, from the start or from the newest checkpoint.

    A `pool`, which opens a `RolloutSetup` of the run, plays the episodes of the steps in other processes.
    Raises `ConfigError` for settings that cannot work, `DataError` for questions or rewards that nothing can be learned
    from, and `PolicyError` if sampling fails. The state is saved before an error leaves.
    """
    run = TrainingRun(config, "rl", resume=resume, note=note, advance=advance)
    environment = environment_of(config.data)
    loaded = load_model(config, environment)
    if config.loss.router_replay:
        routers(loaded.model)  # refuses a model without any
    with ExitStack() as stack:
        data = stack.enter_context(open_data(config.data, note, environment))
        engine, weights = stack.enter_context(open_sampler(config, loaded))
        subagents = stack.enter_context(subagent_engine(config, loaded.tokenizer, run.device))

        def open_agent(engine: Engine, temperature: float = config.engine.temperature) -> SearchAgent:
            return build_agent(
                config, data.corpus, engine, loaded.renderer, temperature=temperature, searchers=subagents
            )

        judge = stack.enter_context(
            judge_gate(config.judge, run.out, data.questions, note, rank=run.rank, ranks=run.ranks)
        )
        evaluator = stack.enter_context(_open_evaluator(config, data, run, lambda t: open_agent(engine, t)))
        scorer = EpisodeScorer(
            data.corpus,
            data.questions,
            config.rewards,
            parl=config.parl,
            curriculum=config.curriculum,
            judge=judge,
        )
        demonstrations = open_demonstrations(config, loaded.renderer, data.questions, note)
        rollouts: RolloutSource = Rollouts(
            stack.enter_context(open_agent(engine)),
            data.questions,
            config.drawing,
            curriculum=config.curriculum,
            demonstration_count=demonstrations.count,
            budget_of=config.episodes.training_budget,
            rank=run.rank,
            ranks=run.ranks,
            play=None if pool is None else partial(play_in_pool, pool, engine),
        )
        assert isinstance(engine, ScoringEngine)
        score = scorer_of(engine)
        if config.async_rollouts is not None:
            opened = open_async_rollouts(
                config, run, rollouts, loaded, sampler=(engine, weights), open_agent=open_agent, resume=resume
            )
            in_background, weights = stack.enter_context(opened)
            rollouts, score = in_background, in_background.score
        question = data.questions[0].question
        canary = Canary(
            canary_row(loaded.renderer, episode_profile(config), question),
            score,
            bound=config.mismatch_bound,
            timeout=config.engine.timeout,
        )
        loop = ReinforcementLoop(
            rollouts,
            scorer,
            config.drawing,
            weights,
            gamma=config.rewards.gamma,
            staleness=config.loss.staleness,
            sync_every=config.engine.every if config.engine.kind == "vllm" else 0,
            demonstrations=demonstrations,
            canary=canary,
            evaluator=evaluator,
            evaluate_every=config.evaluation.every * config.rollouts.substeps,
            evaluated=partial(_keep_best, run) if _dev_questions(config, data) else None,
            folder=run.out / "trajectories",
            table=stack.enter_context(_open_table(config, run)),
            rank=run.rank,
        )
        if run.newest is not None:
            loop.restore(run.newest.path)
        return _train_with_trl(config, run, loop, loaded)


def _train_with_trl(
    config: RunConfig, run: TrainingRun, loop: ReinforcementLoop, loaded: LoadedModel
) -> TrainingResult:
    driver = LoopDriver(loop)
    trainer = driver.trainer = RowTrainer(
        loaded.model,
        driver,
        args=grpo_config(config, run),
        tokenizer=loaded.tokenizer,
        loss=config.loss,
        mismatch=config.mismatch_bound,
        peft_config=loaded.adapter,
        callbacks=[driver],
    )
    loop.weights.attach(trainer)
    return run.train(trainer, lambda folder: loop.save(folder, trainer.state.global_step))


def _keep_best(run: TrainingRun, trainer: RowTrainer, metrics: dict[str, float]) -> None:
    chosen = run.run.evaluation
    name = dev_metric(chosen.temperatures[0], chosen.best)
    run.consider(trainer, name, metrics.get(name), higher=True)


def _dev_questions(config: RunConfig, data: TrainingData) -> list[Question]:
    """Return the questions that evaluations ask; none if the run does not evaluate."""
    if not config.evaluation.every:
        return []
    return list(questions_with_gold(data.dev)[: config.evaluation.questions])


@contextmanager
def _open_table(config: RunConfig, run: TrainingRun) -> Iterator[MetricsLog]:
    """Open the table of this rank's episodes. At the end, also of a run that fails, write its page."""
    first = -(-run.first_update // config.rollouts.substeps)
    table = MetricsLog(table_path(run.out, run.rank), first=first)
    try:
        yield table
    finally:
        table.close()
        if run.main:
            try:
                write_page(run.out)
            except (OSError, DataError) as error:
                run.note(f"{run.out / 'episodes.html'} could not be written: {error}. The run is not affected")


@contextmanager
def _open_evaluator(
    config: RunConfig,
    data: TrainingData,
    run: TrainingRun,
    open_agent: Callable[[float], AbstractContextManager[SearchAgent]],
) -> Iterator[DevEvaluator | None]:
    """Yield the evaluator; None if there is nothing to evaluate, or another rank does it."""
    questions = _dev_questions(config, data)
    if not questions or not run.main:
        yield None
        return
    with ExitStack() as stack:
        yield DevEvaluator(
            {
                temperature: stack.enter_context(open_agent(temperature))
                for temperature in config.evaluation.temperatures
            },
            questions,
            # Evaluation measures by gold; the judge is not asked.
            rewards=replace(config.curriculum.rewards(config.rewards, 1.0), judge=0.0),
            concurrency=config.rollouts.concurrency,
            seed=config.seed,
            folder=run.out / "trajectories",
        )
