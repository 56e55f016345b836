"""The quality stage: tasks in, those worth training on out, each with its labels; what goes, goes with its reason.

In this order a task is dropped for gold that the index lacks, as a near-duplicate of an earlier one, and, where
attempts are made, for being solved always or never. It is a stage like the others: resumable, a row at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from context_agent.eval.gold import missing_gold
from context_agent.retrieval.protocol import Corpus
from context_agent.synth_data import difficulty
from context_agent.synth_data.duplicates import LIKENESS, Duplicate, duplicates
from context_agent.synth_data.passes import Trial
from context_agent.synth_data.stages import Advance, Dropped, Kept, Report, run
from context_agent.synth_data.task import Task

STAGE = "filter"
NO_GOLD, MISSING, REPEATED = "no gold", "gold not in the index", "near-duplicate"


async def filter_tasks(
    tasks: Sequence[Task],
    corpus: Corpus,
    out: Path,
    *,
    trial: Trial | None = None,
    likeness: float | None = LIKENESS,
    concurrency: int = 8,
    advance: Advance | None = None,
) -> Report:
    """Writes the tasks that stay to `out`; see `stages.run` for the files beside it, and for what it raises.

    `likeness=None` keeps near-duplicates. A task whose attempts broke off is dropped as failed, and tried again by the
    next run. So is one that has become a near-duplicate, or is none any more, because the other tasks have changed.
    """
    repeated = {} if likeness is None else {one.task.id: one for one in duplicates(tasks, likeness=likeness)}
    sieve = _Sieve({task.id: task for task in tasks}, corpus, repeated, trial)
    settings = {"corpus": corpus.name, "likeness": likeness, "passes": None if trial is None else trial.settings}
    rows = [task.to_json() for task in tasks]
    return await run(
        STAGE,
        rows,
        sieve.work,
        out,
        concurrency=concurrency,
        settings=settings,
        beside=lambda row: repeated[row["id"]].reason if row["id"] in repeated else "",
        advance=advance,
    )


class _Sieve:
    """What becomes of one row."""

    def __init__(
        self, tasks: Mapping[str, Task], corpus: Corpus, repeated: Mapping[str, Duplicate], trial: Trial | None
    ) -> None:
        self._tasks, self._corpus, self._repeated, self._trial = tasks, corpus, repeated, trial

    async def work(self, row: Mapping[str, Any]) -> Kept | Dropped:
        task = self._tasks[row["id"]]
        if not task.gold and not task.facts:
            return Dropped(NO_GOLD)
        if missing := await self._aside(missing_gold, self._corpus, [task.asked]):
            return Dropped(MISSING, ", ".join(missing.ids))
        if task.id in self._repeated:
            return Dropped(REPEATED, self._repeated[task.id].reason)
        if self._trial is not None:
            passes = await self._trial.run(task)
            if kind := self._trial.extreme(passes):
                return Dropped(f"{kind} solved", self._trial.told(passes))
            task = self._trial.labelled(task, passes)
        return Kept(((await self._aside(difficulty.labelled, task, self._corpus)).to_json(),))

    async def _aside(self, work: Any, *arguments: Any) -> Any:
        """In a thread where the corpus waits for disk or network, so that other rows go on."""
        return await asyncio.to_thread(work, *arguments) if self._corpus.blocking else work(*arguments)
