"""Reinforcement learning as a run file describes it. This is `ctx1 train rl` without the command line.

`train` opens everything that the run file names, builds the loop (`train.rl.loop`), and trains with TRL.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from context_agent.agent import SearchAgent
from context_agent.eval.gold import questions_digest
from context_agent.policies.tokens.engines import Engine, ScoringEngine
from context_agent.policies.tokens.engines.routers import routers
from context_agent.train.agents import build_agent, episode_profile
from context_agent.train.batches import StepRows
from context_agent.train.config import Notify, OnUpdate, RunConfig
from context_agent.train.data import corpus_digest, open_data
from context_agent.train.lessons import check_trajectories
from context_agent.train.memory_errors import explained_memory_errors
from context_agent.train.models import WEIGHTS_REMEDY, check_window, initial_weights_digest, load_model
from context_agent.train.rl.canary import Canary, canary_row, scorer_of
from context_agent.train.rl.demonstrations import open_demonstrations
from context_agent.train.rl.episode_table import open_table
from context_agent.train.rl.evaluation import open_evaluator
from context_agent.train.rl.loop import LoopDriver, ReinforcementLoop
from context_agent.train.rl.rollout_pool import RolloutPool, play_in_pool
from context_agent.train.rl.rollouts import Rollouts, RolloutSource
from context_agent.train.rl.row_trainer import RowTrainer, grpo_config
from context_agent.train.rl.samplers import open_sampler, subagent_engine
from context_agent.train.rl.scoring import EpisodeScorer
from context_agent.train.run_lock import locked_folder
from context_agent.train.training_run import TrainingResult, TrainingRun


def train(
    config: RunConfig,
    *,
    resume: bool = False,
    note: Notify = print,
    advance: OnUpdate | None = None,
    pool: RolloutPool | None = None,
) -> TrainingResult:
    """Train a policy by reinforcement learning, from the start or from the newest checkpoint.

    If an error stops the training, the state is saved before the error is raised.

    Args:
        config: The configuration of the run.
        resume: If True, continue from the newest checkpoint.
        note: A function that receives messages for the user.
        advance: A function that receives the number of finished updates and the total number.
        pool: The pool that plays the episodes in other processes. Its workers open a `RolloutSetup` of the run. By
            default this process plays them.

    Returns:
        The result of the run.

    Raises:
        ConfigError: If the settings are invalid or contradict each other.
        DataError: If nothing can be learned from the questions or rewards.
        PolicyError: If sampling fails.
    """
    with ExitStack() as stack:
        stack.enter_context(locked_folder(config.out))
        stack.enter_context(explained_memory_errors("rl"))
        run = TrainingRun(config, "rl", resume=resume, note=note, advance=advance)
        data = stack.enter_context(open_data(config.data, note))
        run.bind_data("questions", questions_digest(data.questions), "Restore the files of data.questions")
        run.bind_data(
            "searched documents",
            corpus_digest(data.corpus),
            "Restore the index of data.path or the files of data.documents",
        )
        run.bind_data("initial weights", initial_weights_digest(config.model), WEIGHTS_REMEDY)
        # What can fail is opened before the weights, which may take minutes.
        if config.rollouts.demonstrations:
            check_trajectories(config.data)
        judge = None
        if config.judge.model:
            from context_agent.train.experimental.judge.calibration_check import open_judge

            judge = stack.enter_context(
                open_judge(config.judge, run.out, data.questions, note, rank=run.rank, ranks=run.ranks)
            )
        loaded = load_model(config)
        run.bind_hub_commit()
        check_window(config, loaded.model)
        if config.loss.router_replay:
            routers(loaded.model)  # refuses a model without any
        engine, weights = stack.enter_context(open_sampler(config, loaded))
        subagents = stack.enter_context(subagent_engine(config, loaded.tokenizer, run.device))

        def open_agent(engine: Engine, temperature: float = config.engine.temperature) -> SearchAgent:
            return build_agent(
                config, data.corpus, engine, loaded.renderer, temperature=temperature, searchers=subagents
            )

        evaluator = stack.enter_context(open_evaluator(run, data.dev, partial(open_agent, engine)))
        scorer = EpisodeScorer(
            data.corpus,
            data.questions,
            config.rewards,
            parl=config.parl,
            curriculum=config.curriculum,
            judge=judge,
        )
        demonstrations = None
        if config.rollouts.demonstrations:
            demonstrations = open_demonstrations(config, loaded.renderer, data.questions, note)
            run.bind_data("demonstrations", demonstrations.digest, "Restore the files of data.trajectories")
        rollouts: RolloutSource = Rollouts(
            stack.enter_context(open_agent(engine)),
            data.questions,
            config.drawing,
            curriculum=config.curriculum,
            demonstration_count=None if demonstrations is None else demonstrations.count,
            budget_of=config.episodes.training_budget,
            rank=run.rank,
            ranks=run.ranks,
            play=None if pool is None else partial(play_in_pool, pool, engine),
        )
        assert isinstance(engine, ScoringEngine)
        score = scorer_of(engine)
        if config.async_rollouts is not None:
            from context_agent.train.experimental.async_rollouts.source import open_async_rollouts

            opened = open_async_rollouts(
                run, rollouts, loaded, sampler=(engine, weights), open_agent=open_agent, resume=resume
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
        pending = StepRows() if run.newest is None else StepRows.load(run.newest.path, run.rank, run.ranks)
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
            folder=run.out / "trajectories",
            table=stack.enter_context(open_table(run, pending.step)),
            rank=run.rank,
            pending=pending,
        )
        driver = LoopDriver(loop)
        trainer = driver.trainer = RowTrainer(
            loaded.model,
            driver,
            args=grpo_config(run),
            tokenizer=loaded.tokenizer,
            loss=config.loss,
            mismatch=config.mismatch_bound,
            peft_config=loaded.adapter,
            callbacks=[driver],
        )
        weights.attach(trainer)
        return run.train(trainer, lambda folder: loop.save(folder, trainer.state.global_step))
