"""Held-out questions to a trained policy, in the harness it was trained in: scores, and some episodes to look at."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from context_agent.agent import SearchAgent
from context_agent.errors import ConfigError, DataError, MissingExtraError
from context_agent.eval.journal import replace
from context_agent.questions import Question
from context_agent.train import sft
from context_agent.train.checkpoints import digest
from context_agent.train.config import Advance, Episodes, Note, Run
from context_agent.train.data import agent_of, opened, world_of
from context_agent.train.demo.environment import Gym
from context_agent.train.demo.plan import LESSONS, TEMPERATURES, Plan, Score, half_window, load, save, score
from context_agent.train.demo.report import Report, reported
from context_agent.train.models import load as load_model
from context_agent.train.rl import loop
from context_agent.train.rl.loop import sampling
from context_agent.train.rl.rollouts import Ask, played, whole
from context_agent.train.training_run import Trained
from context_agent.trajectory import Trajectory
from context_agent.trajectory_file import write

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


Bar = Callable[[str, str], AbstractContextManager[Advance]]
"""(title, unit) -> a progress bar that is told how many of how many are done."""


class Course:
    """One demo in its folder."""

    def __init__(self, plan: Plan, *, resume: bool, note: Note, bar: Bar) -> None:
        self._plan, self._resume, self._note, self._bar = plan, resume, note, bar
        self._seconds = plan.out / "seconds.json"

    def run(self) -> Report:
        """Goes through all phases, or those that are left, and writes the report.

        Raises `ConfigError` for a folder with another demo or one that is not resumed, and what the phases raise.
        """
        plan = self._plan
        world = world_of(plan.sft.data)
        assert world is not None
        self._learn(LESSONS, plan.sft, sft.train)
        examiner = Examiner(plan, world, self._note)
        _shelve(plan.out / "questions.jsonl", plan.asked(world))
        before = self._sit(examiner, self._sitting("before", plan.sft))
        self._learn(f"rewards{plan.suffix}", plan.rl, loop.train)
        full = self._sitting(f"after{plan.suffix}", plan.rl)
        after = self._sit(examiner, full)
        half = half_window(after[manner(TEMPERATURES[0])], plan.rl.episodes)
        pruning, unpruned = (
            self._sit(examiner, Sitting(f"half-{name}{plan.suffix}", full.model, full.trained, half, prunes))
            for name, prunes in (("pruning", True), ("unpruned", False))
        )
        scores = {"before": before, "after": after, "half": pruning, "half_unpruned": unpruned}
        mine = {name: one for name, one in self._spent().items() if plan.has(name)}
        return reported(plan, scores, half, mine)

    def _learn(self, name: str, run: Run, train: Callable[..., Trained]) -> None:
        """Trains, unless the model is there already."""
        if self._resume and finished(run):
            self._note(f"{name}: trained earlier ({run.out})")
            return
        begun = self._resume and (Path(run.out) / "checkpoints").is_dir()
        self._note(f"{name}: training in {run.out}")
        with self._timed(name, whole=not begun), self._bar(name, "updates") as advance:
            made = train(run, resume=begun, note=lambda text: self._note(f"{name}: {text}"), advance=advance)
        self._note(f"{name}: {made.updates:,} updates, {self._spent()[name]['seconds']:,.0f} s")

    def _sit(self, examiner: Examiner, sitting: Sitting) -> Scores:
        name = f"asking {sitting.name}"
        if (found := examiner.read(sitting)) is not None:
            return found
        with self._timed(name), self._bar(name, "evaluations") as advance:
            made = examiner.examine(sitting, advance)
        told = "; ".join(f"{key} {sum(s.recall for s in found) / len(found):.3f}" for key, found in made.items())
        self._note(f"{name}: output recall {told}, {self._spent()[name]['seconds']:,.0f} s")
        return made

    def _sitting(self, name: str, run: Run) -> Sitting:
        return Sitting(name, Path(run.out) / "final", digest(run.plain()), self._plan.rl.episodes)

    @contextmanager
    def _timed(self, name: str, *, whole: bool = True) -> Iterator[None]:
        """Keeps what the phase took; `whole` is False where an earlier process had done a part of it."""
        began = time.perf_counter()
        yield
        spent = self._spent() | {name: {"seconds": time.perf_counter() - began, "whole": whole}}
        replace(self._seconds, json.dumps(spent, indent=1) + "\n")

    def _spent(self) -> dict[str, Any]:
        return dict(json.loads(self._seconds.read_text(encoding="utf-8"))) if self._seconds.is_file() else {}


def _shelve(path: Path, questions: Sequence[Question]) -> None:
    """The questions with their gold, as `ctx1 view --gold` reads them."""
    lines = ({"id": one.id, "question": one.question, "gold": list(one.gold)} for one in questions)
    replace(path, "".join(json.dumps(line) + "\n" for line in lines))


def finished(run: Run) -> bool:
    """Whether the run's folder holds its final model. Raises `ConfigError` where it holds another run's."""
    out = Path(run.out)
    if not (out / "final").is_dir():
        return False
    about = json.loads((out / "run.json").read_text(encoding="utf-8"))
    if about["digest"] != digest(run.plain()):
        raise ConfigError(
            f"{out} holds a model that was trained with other settings: give the same options as then, or name another "
            "folder with --out"
        )
    return True
