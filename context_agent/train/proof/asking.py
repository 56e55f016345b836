"""Held-out questions to a trained policy, in the harness it was trained in: scores, and some episodes to look at."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from context_agent.agent import SearchAgent
from context_agent.errors import DataError, MissingExtraError
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import write
from context_agent.train.data import opened
from context_agent.train.demo.gym import Gym
from context_agent.train.harness import agent_of
from context_agent.train.models import load as load_model
from context_agent.train.proof.scores import Score, load, save, score
from context_agent.train.proof.settings import TEMPERATURES, Plan
from context_agent.train.recorded import Note
from context_agent.train.reinforced import sampling
from context_agent.train.rl.playing import Ask, played
from context_agent.train.rl.rollouts import whole
from context_agent.train.sections import Episodes
from context_agent.train.session import Advance

try:
    from transformers.utils import logging as transformers_logging
except ImportError:
    raise MissingExtraError("transformers", "train") from None

SHOWN = 24
"""Episodes of an evaluation that are kept for `ctx1 view`."""


@dataclass(frozen=True, slots=True)
class Sitting:
    """One evaluation: whose model, in which harness, and whether its prunes are carried out."""

    name: str
    model: Path
    trained: str
    """Digest of the run that made the model."""
    episodes: Episodes
    prunes: bool = True


Scores = dict[str, list[Score]]
"""By `greedy` or `t1`."""


def manner(temperature: float) -> str:
    """The name of a temperature."""
    return f"t{temperature:g}" if temperature else "greedy"


class Examiner:
    """Asks the same questions with the same seeds each time. What was asked before is read again, not asked."""

    def __init__(self, plan: Plan, world: Gym, note: Note) -> None:
        self._plan, self._world, self._note = plan, world, note
        self._questions = plan.asked(world)

    def read(self, sitting: Sitting) -> Scores | None:
        """The scores of every temperature, None where one was not asked yet."""
        found = self._known(sitting)
        return found if len(found) == len(TEMPERATURES) else None

    def examine(self, sitting: Sitting, advance: Advance) -> Scores:
        """The scores of every temperature. Raises `DataError` where an episode could not be run to an end."""
        found = self._known(sitting)
        missing = [one for one in TEMPERATURES if manner(one) not in found]
        if missing:
            with self._agents(sitting, missing) as agents:
                for place, (temperature, agent) in enumerate(zip(missing, agents, strict=True)):
                    advance(place, len(missing))
                    found[manner(temperature)] = self._ask(sitting, temperature, agent)
        return found

    def _known(self, sitting: Sitting) -> Scores:
        read = {manner(one): load(self._file(sitting, one), self._about(sitting, one)) for one in TEMPERATURES}
        return {name: scores for name, scores in read.items() if scores is not None}

    def _ask(self, sitting: Sitting, temperature: float, agent: SearchAgent) -> list[Score]:
        name = f"{sitting.name}-{manner(temperature)}"
        seed = self._plan.rl.seed * len(self._questions)
        asks = [Ask(one, seed + place, f"{name}-{one.id}") for place, one in enumerate(self._questions)]
        ended = asyncio.run(played(agent, asks, self._plan.rl.rollouts.concurrency))
        done = [one for one in ended if whole(one)]
        if len(done) < len(asks):
            why = next(str(one) for one in ended if not whole(one))[:200]
            raise DataError(
                f"{len(asks) - len(done)} of {len(asks)} episodes of {name} came to no end of their own: {why}"
            )
        pairs = zip(done, self._questions, strict=True)
        scores = [score(one, asked, agent.corpus, self._plan.judged) for one, asked in pairs]
        self._keep(name, done)
        save(self._file(sitting, temperature), scores, self._about(sitting, temperature))
        return scores

    def _keep(self, name: str, episodes: Sequence[Trajectory]) -> None:
        for one in episodes[:SHOWN]:
            write(one, self._plan.out / "trajectories" / name / f"{one.header.id.replace('/', '_')}.jsonl")

    def _file(self, sitting: Sitting, temperature: float) -> Path:
        return self._plan.out / "evaluations" / f"{sitting.name}-{manner(temperature)}.jsonl"

    def _about(self, sitting: Sitting, temperature: float) -> dict[str, object]:
        """What decides the scores beside the code."""
        return {
            "trained": sitting.trained,
            "questions": len(self._questions),
            "temperature": temperature,
            "episodes": sitting.episodes.model_dump(mode="json"),
            "prunes": sitting.prunes,
            "seed": self._plan.rl.seed,
        }

    @contextmanager
    def _agents(self, sitting: Sitting, temperatures: Sequence[float]) -> Iterator[list[SearchAgent]]:
        """An agent for each temperature on one model."""
        rl = self._plan.rl
        chosen = rl.model.model_copy(update={"name": str(sitting.model)})
        run = rl.model_copy(update={"model": chosen, "episodes": sitting.episodes})
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call, unused-ignore]
        loaded = load_model(run, self._world)
        with ExitStack() as stack:
            material = stack.enter_context(opened(run.data, self._note, self._world))
            engine, _ = stack.enter_context(sampling(run, loaded))
            made = (
                agent_of(run, material.corpus, engine, loaded.renderer, temperature=one, prunes=sitting.prunes)
                for one in temperatures
            )
            yield [stack.enter_context(one) for one in made]
