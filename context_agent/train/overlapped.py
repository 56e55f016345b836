"""Training that never waits, put together: the copy or the server that samples, the thread that plays, the buffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import Any

from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError
from context_agent.policies.engines.protocol import Engine
from context_agent.policies.engines.transformers import TransformersEngine
from context_agent.train.apart import Apart
from context_agent.train.config import Run
from context_agent.train.data import Material
from context_agent.train.models import Loaded
from context_agent.train.rl.background import Background
from context_agent.train.rl.handover import BetweenTurns, Copied, Together
from context_agent.train.rl.journal import Journal
from context_agent.train.rl.overlap import Heard, Lead, Overlapped
from context_agent.train.rl.parking import Turnstile
from context_agent.train.rl.players import Here, Player
from context_agent.train.rl.weights import Weights
from context_agent.train.sections import Sampler
from context_agent.train.session import Session

OpenAgent = Callable[[Engine], AbstractContextManager[SearchAgent]]


@contextmanager
def overlapped(
    run: Run,
    session: Session,
    *,
    material: Material,
    loaded: Loaded,
    sampled: tuple[Engine, Weights],
    open_agent: OpenAgent,
    resume: bool,
    heard: Heard,
    **how: Any,
) -> Iterator[tuple[Overlapped, Weights]]:
    """The source of rows, and how new weights reach what samples.

    `sampled` is the engine of the synchronous loop with its weights; evaluation goes on using it.
    Raises `ConfigError` and `DataError` for a buffer that the run cannot go on from.
    """
    assert run.overlap is not None
    path = session.out / f"buffer-{session.rank}.jsonl"
    if path.exists() and not resume:
        raise ConfigError(
            f"{path} holds episodes of a run that was ended before its first checkpoint: go on with --resume, or name "
            "another folder with --out"
        )
    settings = run.drawing
    lead = Lead(run.overlap.ahead, run.overlap.quota, run.loss.staleness)
    with ExitStack() as stack:
        journal = stack.enter_context(
            Journal(
                path,
                settings=run.plain(),
                substeps=settings.substeps,
                update=session.begun,
                rank=session.rank,
                ranks=session.ranks,
                note=session.note,
            )
        )
        player, weights = stack.enter_context(_player(run, loaded, open_agent, *sampled))
        background = stack.enter_context(Background(player, journal, settings.concurrency, session.note))
        handed = BetweenTurns(weights, background, drain=run.engine.kind != "transformers")
        rollouts = Overlapped(
            stack.enter_context(open_agent(sampled[0])),
            material.questions,
            settings,
            background=background,
            journal=journal,
            lead=lead,
            heard=heard,
            held=lambda: handed.seconds,
            behind=lambda: next((one.step for one in session.checkpoints.all()), None),
            note=session.note,
            **how,
        )
        every = [sampled[1], handed] if weights is not sampled[1] else [handed]
        yield rollouts, Together(every)


@contextmanager
def _player(
    run: Run, loaded: Loaded, open_agent: OpenAgent, engine: Engine, weights: Weights
) -> Iterator[tuple[Player, Weights]]:
    """Who plays beside the trainer: with a server this process, and else a copy of the model, in a process or here."""
    assert run.overlap is not None
    if run.engine.kind == "transformers" and (run.overlap.sampler or _usual()) is Sampler.PROCESS:
        with closing(Apart(run)) as apart:
            yield apart, Copied(apart)
        return
    with ExitStack() as stack:
        if run.engine.kind == "transformers":
            name = run.model.name or "tiny"
            engine = TransformersEngine(loaded.model, name=name, most=run.engine.batch, version="0")
            stack.callback(engine.close)
            weights = Copied(engine)
        turnstile = Turnstile(engine)
        yield Here(stack.enter_context(open_agent(turnstile)), turnstile), weights


def _usual() -> Sampler:
    import torch

    return Sampler.THREAD if torch.cuda.is_available() else Sampler.PROCESS
