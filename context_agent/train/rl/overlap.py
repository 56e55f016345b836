"""Rollouts that are sampled while updates are made: the source of rows of training that never waits.

While step n is trained, the episodes of up to `ahead` later steps are being sampled. A step takes the groups that it
asked, or with a `quota` below 1 goes on without the last of them: those stay at work, under newer weights, and are
taken by a later step. No group is left so long that its rows would be older than the bound on staleness.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from context_agent.agent import SearchAgent
from context_agent.errors import DataError
from context_agent.questions import Question
from context_agent.train.batches import Weighted
from context_agent.train.rl.background import Background
from context_agent.train.rl.journal import Consumed, Journal
from context_agent.train.rl.playing import Ask, group_of
from context_agent.train.rl.rollouts import Rollouts, RolloutSettings, Step
from context_agent.train.rl.staleness import age

Heard = Callable[[Mapping[str, float]], None]


@dataclass(frozen=True, slots=True)
class Lead:
    """How far sampling may go before training: steps `ahead`, the `quota` of its groups that a step waits for, and
    the most updates that a row may be old.
    """

    ahead: int
    quota: float
    bound: int


class Overlapped(Rollouts):
    """The rows of each optimiser step, sampled in the background. A `Source` for the trainer, as `Rollouts` is."""

    def __init__(
        self,
        agent: SearchAgent,
        questions: Sequence[Question],
        settings: RolloutSettings,
        *,
        background: Background,
        journal: Journal,
        lead: Lead,
        heard: Heard = lambda _: None,
        held: Callable[[], float] = lambda: 0.0,
        behind: Callable[[], int | None] = lambda: None,
        note: Callable[[str], None] = lambda _: None,
        **how: Any,
    ) -> None:
        """`heard` gets the metrics of each update, `held` says how many seconds handing weights over has taken.

        `behind` names the oldest update that a run may go back to. `how` is as for `Rollouts`.
        """
        super().__init__(agent, questions, settings, **how)
        self._background, self._journal, self._lead = background, journal, lead
        self._heard, self._held, self._behind, self._note = heard, held, behind, note
        self._groups: dict[str, list[Ask]] = {}
        self._offered = journal.first
        self._told: dict[str, float] = {}
        for number in sorted(set(map(_step, journal.left))):
            self._offer(ask for ask in self.asks(number) if group_of(ask.episode) in journal.left)

    def rows(self, step: int) -> Sequence[Weighted]:
        """The rows of an optimiser step. Blocks until there are enough; meanwhile and after, later ones are sampled."""
        last = min(step // self.settings.substeps + self._lead.ahead, self.settings.steps - 1)
        while self._offered <= last:
            self._offer(self.asks(self._offered))
            self._offered += 1
        items = super().rows(step)
        ages = [age(item.row, step) for item in items]
        measured = {f"staleness/{old}": float(count) for old, count in sorted(Counter(map(_bounded, ages)).items())}
        if ages:
            measured |= {"staleness/mean": fmean(map(_bounded, ages)), "staleness/max": float(_bounded(max(ages)))}
        self._heard(measured | {"episodes_parked": self._since("parked", self._background.parked)})
        return items

    def play(self, number: int) -> Step:
        """Takes the episodes of a step. Raises `PolicyError` where not one of them could be rewarded."""
        started = time.perf_counter()
        taken = self._background.wait(lambda: self._takeable(number))
        waited = time.perf_counter() - started
        left = tuple(group for group in self._due(number) if group not in taken)
        self._journal.consume(Consumed(number, tuple(taken), left))
        asks = [ask for group in taken for ask in self._groups.pop(group)]
        made = [self._background.take(ask.episode) for ask in asks]
        more = {
            "trainer_waited_seconds": waited + self._since("held", self._held()),
            "sampler_waited_seconds": self._since("idle", self._background.idle_seconds),
            "episodes_mixed": self._since("mixed", self._background.mixed),
            "groups_left": float(len(left)),
        }
        return self.reckoned(number, asks, made, waited, more)

    def save(self, folder: Path, step: int) -> None:
        """As `Rollouts`; and the journal loses what no checkpoint needs. Where that fails, it stays as it is."""
        super().save(folder, step)
        if (behind := self._behind()) is not None:
            try:
                self._journal.compact(behind)
            except DataError as error:
                self._note(f"the buffer was not made smaller: {error}")

    def _offer(self, asks: Iterable[Ask]) -> None:
        offered = list(asks)
        for ask in offered:
            self._groups.setdefault(group_of(ask.episode), []).append(ask)
        self._background.offer(offered)

    def _due(self, number: int) -> list[str]:
        return [group for group in self._groups if _step(group) <= number]

    def _takeable(self, number: int) -> list[str] | None:
        """The groups that the step takes, None while it has to wait."""
        due = self._due(number)
        over = [group for group in due if all(self._background.over(ask.episode) for ask in self._groups[group])]
        late = set(due).difference(over)
        if not late:
            return over
        if number == self.settings.steps - 1 or len(over) < math.ceil(self._lead.quota * len(due)):
            return None
        return None if any(self._too_old_after(group, number) for group in late) else over

    def _too_old_after(self, group: str, number: int) -> bool:
        """Whether the group's rows would pass the bound in the last update of the step after this one."""
        known = [self._background.oldest(ask.episode) for ask in self._groups[group]]
        oldest = min((one for one in known if one is not None), default=None)
        return oldest is not None and (number + 2) * self.settings.substeps - 1 - oldest > self._lead.bound

    def _since(self, name: str, value: float) -> float:
        """How much a sum has grown since it was asked for last."""
        before, self._told[name] = self._told.get(name, 0.0), float(value)
        return float(value) - before


def _step(group: str) -> int:
    return int(group.partition("-")[0])


def _bounded(old: int) -> int:
    """An age as it is shown: weights that a kill took back were newer than those now trained."""
    return max(0, old)
