"""The demo from end to end: lessons, an evaluation, rewards, an evaluation, half the window. Each phase resumes.

OUT/sft, OUT/rl       the two runs, as `ctx1 train sft` and `ctx1 train rl` leave them
OUT/evaluations/      a score for each held-out question, by model, window and temperature
OUT/trajectories/     some of the episodes, and OUT/questions.jsonl with their gold, for `ctx1 view`
OUT/report.json, report.html, plot.svg, plot.png
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from context_agent._support.journal import replace_file as replace
from context_agent.errors import ConfigError
from context_agent.questions import Question
from context_agent.train import reinforced, supervised
from context_agent.train.checkpoints import digest
from context_agent.train.config import Run
from context_agent.train.data import world_of
from context_agent.train.proof.asking import Examiner, Scores, Sitting, manner
from context_agent.train.proof.report import Report, reported
from context_agent.train.proof.scores import half_window
from context_agent.train.proof.settings import LESSONS, TEMPERATURES, Plan
from context_agent.train.recorded import Note
from context_agent.train.session import Advance, Trained

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
        self._learn(LESSONS, plan.sft, supervised.train)
        examiner = Examiner(plan, world, self._note)
        _shelve(plan.out / "questions.jsonl", plan.asked(world))
        before = self._sit(examiner, self._sitting("before", plan.sft))
        self._learn(f"rewards{plan.suffix}", plan.rl, reinforced.train)
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
