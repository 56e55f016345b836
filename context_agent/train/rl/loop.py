"""`ctx1 train rl` without the command line: everything that a run's file names, put together and set going."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError, MissingExtraError
from context_agent.policies.engines.protocol import Engine
from context_agent.policies.engines.transformers import TransformersEngine
from context_agent.policies.engines.vllm import VllmEngine
from context_agent.train.config import Advance, Note, Run
from context_agent.train.data import Material, agent_of, opened, world_of
from context_agent.train.judge.calibration import bench_of, with_gold
from context_agent.train.models import Loaded, load, searching
from context_agent.train.rl.async_rollouts import overlapped
from context_agent.train.rl.rollouts import Evaluator, Fresh, Rollouts, Step
from context_agent.train.rl.trl_adapter import RowTrainer, arguments
from context_agent.train.rl.weight_sync import Adapters, Broadcast, Shared, Weights
from context_agent.train.training_run import Session, Trained

try:
    from transformers import TrainerCallback
except ImportError:
    raise MissingExtraError("transformers", "train") from None

_Callback: Any = TrainerCallback


def train(run: Run, *, resume: bool = False, note: Note = print, advance: Advance | None = None) -> Trained:
    """Trains by rewards, from the beginning or from the newest checkpoint.

    Raises `ConfigError` for settings that cannot work, `DataError` for questions or rewards that cannot be learned
    from, and `PolicyError` where nothing samples any more; by then the state is saved.
    """
    session = Session(run, "rl", resume=resume, note=note, advance=advance)
    world = world_of(run.data)
    loaded = load(run, world)
    with ExitStack() as stack:
        material = stack.enter_context(opened(run.data, note, world))
        engine, weights = stack.enter_context(sampling(run, loaded))
        searchers = stack.enter_context(searching(run, loaded.tokenizer))
        watch = _Watch(
            run, stack.enter_context(_evaluating(run, material, engine, loaded, session, searchers=searchers))
        )
        bench = stack.enter_context(bench_of(run, material.questions, note, rank=session.rank, ranks=session.ranks))

        def open_agent(engine: Engine) -> AbstractContextManager[SearchAgent]:
            temperature = run.engine.temperature
            return agent_of(run, material.corpus, engine, loaded.renderer, temperature=temperature, searchers=searchers)

        how: dict[str, Any] = {
            "rewards": run.rewards,
            "parl": run.parl,
            "curriculum": run.curriculum,
            "report": watch.played,
            "trajectories": session.out / "trajectories",
            "bench": bench,
            "rank": session.rank,
            "ranks": session.ranks,
        }
        rollouts: Rollouts
        if run.overlap is None:
            rollouts = Rollouts(stack.enter_context(open_agent(engine)), material.questions, run.drawing, **how)
        else:
            parts = overlapped(
                run,
                session,
                material=material,
                loaded=loaded,
                sampled=(engine, weights),
                open_agent=open_agent,
                resume=resume,
                heard=watch.heard,
                **how,
            )
            rollouts, weights = stack.enter_context(parts)
        if session.newest is not None:
            rollouts.restore(session.newest.path)
        trainer = RowTrainer(
            loaded.model,
            Fresh(rollouts, run.loss.staleness, watch.stale),
            args=_arguments(run, session),
            tokenizer=loaded.tokenizer,
            loss=run.loss.kind,
            most_tokens=run.loss.pass_tokens,
            peft_config=loaded.adapter,
            callbacks=[watch],
        )
        weights.begin(trainer)
        watch.trainer, watch.weights = trainer, weights
        return session.train(trainer, lambda folder: rollouts.save(folder, trainer.state.global_step))


@contextmanager
def sampling(run: Run, loaded: Loaded) -> Iterator[tuple[Engine, Weights]]:
    """The engine that samples, and how new weights reach it."""
    chosen = run.engine
    if chosen.kind == "transformers":
        shared = TransformersEngine(loaded.model, name=run.model.name or "tiny", most=chosen.batch, version="0")
        try:
            yield shared, Shared(shared)
        finally:
            shared.close()
        return
    server = VllmEngine(
        chosen.base_url, run.model.name, version="0", timeout=chosen.timeout, concurrency=run.rollouts.concurrency
    )
    if chosen.sync == "nccl":
        yield server, Broadcast(server)
        return
    folder = Path(chosen.adapters or f"{run.out}/adapters")
    yield server, Adapters(server, chosen.base_url, folder, chosen.adapter_name, timeout=chosen.timeout)


class _Watch(_Callback):  # type: ignore[misc]  # transformers' types come and go with it
    """What happens around an update: weights change hands, the policy is evaluated, time is taken."""

    def __init__(self, run: Run, evaluator: Evaluator | None) -> None:
        self._run, self._evaluator = run, evaluator
        self.trainer: Any = None
        self.weights: Any = None
        self._stale = 0
        self._begun = time.perf_counter()

    def stale(self, rows: int) -> None:
        """Rows of the update at hand that were too old."""
        self._stale = rows

    def played(self, step: Step) -> None:
        """The rollouts that the update at hand begins with."""
        self.heard(step.metrics)

    def heard(self, metrics: Mapping[str, float]) -> None:
        """What else is known of the update at hand."""
        self.trainer.record.pending |= metrics

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.weights.push(self.trainer, state.global_step)
        # A line of its own: there is no update that it could go with.
        if state.global_step == 0 and self._evaluator is not None and state.is_world_process_zero:
            self.trainer.log(self._evaluated(0))

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._begun = time.perf_counter()
        self._push(state.global_step)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.weights.before_update()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.weights.after_update()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        step, run = state.global_step, self._run
        measured = {"rows_stale": float(self._stale), "update_seconds": time.perf_counter() - self._begun}
        self.trainer.record.pending |= measured
        every = run.evaluation.every * run.rollouts.substeps
        due = bool(every) and (step % every == 0 or step == state.max_steps)
        if due:
            self._push(step)
            if self._evaluator is not None and state.is_world_process_zero:
                self.trainer.record.pending |= self._evaluated(step)

    def _push(self, step: int) -> None:
        """The trainer's own model has new weights at once; a server gets them before it is asked for new episodes."""
        number, part = divmod(step, self._run.rollouts.substeps)
        if self._run.engine.kind == "transformers" or (part == 0 and number % self._run.engine.every == 0):
            self.weights.push(self.trainer, step)

    def _evaluated(self, step: int) -> dict[str, float]:
        assert self._evaluator is not None
        model = self.trainer.model
        training = model.training
        started = time.perf_counter()
        model.eval()
        found = self._evaluator.evaluate(step)
        model.train(training)
        return {**found, "evaluation_seconds": time.perf_counter() - started}


@contextmanager
def _evaluating(
    run: Run, material: Material, engine: Engine, loaded: Loaded, session: Session, *, searchers: Engine | None
) -> Iterator[Evaluator | None]:
    """None where nothing is to be evaluated, or not by this rank."""
    chosen = run.evaluation
    if not chosen.every or not with_gold(material.dev) or not session.main:
        yield None
        return
    with ExitStack() as stack:
        agents = {
            temperature: stack.enter_context(
                agent_of(run, material.corpus, engine, loaded.renderer, temperature=temperature, searchers=searchers)
            )
            for temperature in chosen.temperatures
        }
        yield Evaluator(
            agents,
            with_gold(material.dev)[: chosen.questions],
            # What is measured is what the gold says; nobody is paid to judge it.
            rewards=replace(run.curriculum.rewards(run.rewards, 1.0), judge=0.0),
            concurrency=run.rollouts.concurrency,
            seed=run.seed,
            folder=session.out / "trajectories",
        )


def _arguments(run: Run, session: Session) -> Any:
    """TRL's settings. Raises `ConfigError` where its client to a server cannot be had."""
    settings = {**session.arguments(), "max_steps": run.updates, "beta": run.loss.kl}
    if run.engine.kind == "vllm" and run.engine.sync == "nccl":
        settings |= {
            "use_vllm": True,
            "vllm_mode": "server",
            "vllm_server_base_url": run.engine.base_url.rstrip("/").removesuffix("/v1"),
            "vllm_server_timeout": run.engine.timeout,
        }
        try:
            import vllm  # noqa: F401 - told here rather than by TRL
        except ImportError:
            raise ConfigError('engine.sync = "nccl" needs vllm beside the trainer: pip install vllm') from None
    return arguments(run.loss.kind, cap=run.loss.cap, clip=run.loss.clip, **settings)
