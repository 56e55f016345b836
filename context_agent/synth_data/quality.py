"""The quality stage, which drops tasks that are not worth training on, and labels the others with their difficulty.

A task is dropped if it has no question or no gold, or if the index lacks its gold. Near-duplicates of earlier tasks
(`duplicates`) are also dropped. With pass@N (`attempts`), tasks that are always or never solved are dropped, too. The
stage is resumable (`stages`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from context_agent.eval.data_checks import missing_gold
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.attempts import PassAtN
from context_agent.synth_data.difficulty import label_difficulty
from context_agent.synth_data.duplicates import MIN_SIMILARITY, find_duplicates
from context_agent.synth_data.json_files import encode_row
from context_agent.synth_data.stages import (
    DroppedRow,
    KeptRows,
    ProgressCallback,
    RowOutcome,
    StagePool,
    StageReport,
    off_loop,
    row_function,
    run_stage,
)
from context_agent.synth_data.task import Task, task_of

STAGE = "filter"


NO_QUESTION, NO_GOLD = "no question", "no gold"
MISSING, REPEATED = "gold is not in the index", "near-duplicate"


async def filter_tasks(
    tasks: Sequence[Task],
    corpus: Corpus,
    out: Path,
    *,
    pass_at_n: PassAtN | None = None,
    min_similarity: float | None = MIN_SIMILARITY,
    concurrency: int = 8,
    pool: StagePool | None = None,
    advance: ProgressCallback | None = None,
) -> StageReport:
    """Write the tasks that stay to `out`.

    If an attempt fails, the task is dropped as failed, and the next run tries it again. If other tasks change, a task
    can become a near-duplicate or cease to be one. It is then processed again.

    Args:
        tasks: The tasks.
        corpus: The index that the tasks are about.
        out: The file of the tasks that stay. `stages.run_stage` describes the files next to it, and the errors.
        pass_at_n: The attempts at each task. If None, no attempts are made.
        min_similarity: The smallest similarity for which two tasks are near-duplicates. If None, near-duplicates stay.
        concurrency: The number of tasks that are processed at once.
        pool: Worker processes that do the work. Their context is a `TaskFilter`.
        advance: A function that is called with the number of finished tasks and the total.

    Returns:
        The report of the stage.
    """
    duplicates = [] if min_similarity is None else find_duplicates(tasks, min_similarity=min_similarity)
    repeated = {duplicate.task.id: duplicate.reason for duplicate in duplicates}
    sieve = TaskFilter(corpus, pass_at_n)

    async def work(row: Mapping[str, Any]) -> RowOutcome:
        function = partial(TaskFilter.work, repeated=repeated.get(row["id"], ""))
        return await row_function(function, sieve, pool)(row)

    settings = {
        "corpus": corpus.name,
        "min_similarity": min_similarity,
        "passes": None if pass_at_n is None else pass_at_n.settings,
    }
    rows = [json.loads(encode_row(task.to_json())) for task in tasks]
    return await run_stage(
        STAGE,
        rows,
        work,
        out,
        concurrency=concurrency if pool is None else pool.capacity,
        settings=settings,
        depends_on=lambda row: repeated.get(row["id"], ""),
        advance=advance,
    )


class TaskFilter:
    """A filter that drops or labels tasks one by one."""

    def __init__(self, corpus: Corpus, pass_at_n: PassAtN | None) -> None:
        self._corpus, self._pass_at_n = corpus, pass_at_n

    async def work(self, row: Mapping[str, Any], repeated: str) -> RowOutcome:
        """Return the labeled task of a row, or the reason why it is dropped.

        Args:
            row: The task as a row.
            repeated: A description of the task that it repeats. Empty if it repeats none.
        """
        task = task_of(row, f"task {row['id']!r}")
        if not task.question.strip():
            return DroppedRow(NO_QUESTION)
        if not task.gold and not task.facts:
            return DroppedRow(NO_GOLD)
        if missing := await off_loop(self._corpus, lambda: missing_gold(self._corpus, [task.as_question])):
            return DroppedRow(MISSING, ", ".join(missing.ids))
        if repeated:
            return DroppedRow(REPEATED, repeated)
        if self._pass_at_n is not None:
            passes = await self._pass_at_n.run(task)
            if kind := self._pass_at_n.extreme(passes):
                return DroppedRow(f"{kind} solved", self._pass_at_n.describe(passes))
            task = self._pass_at_n.label(task, passes)
        labeled = await off_loop(self._corpus, lambda: label_difficulty(task, self._corpus))
        return KeptRows((labeled.to_json(),))
