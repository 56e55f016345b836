"""All model stages in sequence: from random documents to verified tasks of one to four hops with distractors.

Each stage reads the output file of the previous one, so a stage can be run, inspected and repeated by itself. A task
depends only on its own row, so a run with a larger count starts with the tasks of a smaller one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from context_agent._support.question_files import load_rows
from context_agent.errors import ConfigError, DataError
from context_agent.synth_data.llm_stages.context import StageContext
from context_agent.synth_data.llm_stages.distractors import DistractorSettings, distract
from context_agent.synth_data.llm_stages.verification import verify
from context_agent.synth_data.llm_stages.writing import draw_seeds, explore, extend, write
from context_agent.synth_data.stages import (
    ProgressCallback,
    StageFunction,
    StagePool,
    StageReport,
    row_function,
    run_stage,
)

REPLIES_FILE = "replies.jsonl"
"""The name of the reply cache in the folder of the stages."""

StageWatcher = Callable[[str], ProgressCallback | None]
"""A function that is called with a stage's name when the stage starts. It returns the stage's progress callback."""


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """How many documents a pipeline starts from, and which tasks it makes of them.

    Attributes:
        count: The number of documents to start from.
        hops: The smallest and the largest number of hops. The tasks are spread evenly over this range.
        distractors: The settings of the last stage.
        concurrency: The number of rows that are processed at once.
    """

    count: int
    hops: tuple[int, int] = (1, 2)
    distractors: DistractorSettings = field(default_factory=DistractorSettings)
    concurrency: int = 8

    def __post_init__(self) -> None:
        first, last = self.hops
        if self.count < 1 or not 1 <= first <= last:
            raise ConfigError(
                "count must be at least 1, and hops must be a range that starts at 1 or more; got count = "
                f"{self.count}, hops = {first} to {last}"
            )

    def target(self, number: int) -> int:
        """Return the number of hops that the verified task with this index should reach."""
        first, last = self.hops
        return first + number % (last - first + 1)


def stages_folder(out: Path) -> Path:
    """Return the folder of the stages that lead to `out`."""
    return out.with_name(f"{out.name}.stages")


async def make_tasks(
    context: StageContext,
    plan: PipelinePlan,
    out: Path,
    *,
    pool: StagePool | None = None,
    watch: StageWatcher | None = None,
) -> list[StageReport]:
    """Run all stages, write the tasks to `out`, and return a report for each stage.

    If a task cannot be extended, the version that last passed verification stays. If the spending cap halts a stage,
    the reports end with that stage. The same call resumes it.

    Args:
        context: The corpus, the model and the domain.
        plan: The plan of the pipeline.
        out: The file of the tasks.
        pool: Worker processes that do the work. The model in each of their contexts sends its calls to this process.
        watch: A function that is called when a stage starts, and returns its progress callback.

    Raises:
        ConfigError: If the plan has more hops than the domain permits.
        DataError: If the corpus is too small.
    """
    last = plan.hops[1]
    if last > context.domain.max_hops:
        raise ConfigError(
            f"--hops must be at most {context.domain.max_hops} for tasks of domain {context.domain.name}; got {last}"
        )
    pipeline = _Pipeline(context, plan, stages_folder(out), pool, watch)
    seeds = draw_seeds(context.corpus, plan.count, context.model.seed)
    explored = pipeline.single(await pipeline.run("explore", seeds, explore))
    written = await pipeline.run("write", explored, write)
    verified = await pipeline.run("verify", written, verify)
    best = {row["id"]: row for row in verified}
    targets = {row["id"]: plan.target(number) for number, row in enumerate(verified)}
    for level in range(1, last):
        short = [row for name, row in best.items() if row["level"] == level - 1 and targets[name] > level]
        longer = await pipeline.run(f"extend-{level}", short, extend)
        for row in await pipeline.run(f"verify-{level}", longer, verify):
            best[row["id"].removesuffix(f"-{level}")] = row
    settings = plan.distractors
    work = partial(distract, settings=settings)
    await pipeline.run("distract", list(best.values()), work, out, distractor_settings(settings))
    return pipeline.reports


class _Pipeline:
    """A sequence of stages. After a stage is halted, the following stages do nothing."""

    def __init__(
        self,
        context: StageContext,
        plan: PipelinePlan,
        folder: Path,
        pool: StagePool | None,
        watch: StageWatcher | None,
    ) -> None:
        self.reports: list[StageReport] = []
        self._context, self._plan, self._folder, self._pool, self._watch = context, plan, folder, pool, watch

    async def run(
        self,
        stage: str,
        rows: Sequence[Mapping[str, Any]],
        work: StageFunction,
        out: Path | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """Run a stage and return its output rows."""
        if self.reports and self.reports[-1].halted:
            return []
        path = out or self._folder / f"{stage}.jsonl"
        report = await run_llm_stage(
            self._context,
            stage,
            rows,
            work,
            path,
            concurrency=self._plan.concurrency,
            pool=self._pool,
            settings=settings,
            advance=self._watch(stage) if self._watch else None,
        )
        self.reports.append(report)
        return load_stage_rows(path)

    def single(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows, leaving out each row with the same documents as an earlier row."""
        first: dict[frozenset[str], dict[str, Any]] = {}
        for row in rows:
            first.setdefault(frozenset(document["id"] for document in row["documents"]), row)
        if len(first) < len(rows):
            dropped = {"same documents as another": len(rows) - len(first)}
            self.reports.append(
                replace(self.reports[-1], stage="single", inputs=len(rows), kept=len(first), dropped=dropped)
            )
        return list(first.values())


async def run_llm_stage(
    context: StageContext,
    stage: str,
    rows: Iterable[Mapping[str, Any]],
    work: StageFunction,
    out: Path,
    *,
    concurrency: int,
    pool: StagePool | None = None,
    settings: Mapping[str, Any] | None = None,
    advance: ProgressCallback | None = None,
) -> StageReport:
    """Run a stage with the settings of the context. The report has the costs of all runs so far.

    The other arguments are those of `stages.run_stage`.
    """
    journal_settings = {**context.settings, **(settings or {})}
    report = await run_stage(
        stage,
        rows,
        row_function(work, context, pool),
        out,
        concurrency=concurrency if pool is None else pool.capacity,
        settings=journal_settings,
        advance=advance,
    )
    return replace(report, cost=context.model.ledger.to_json())


def load_stage_rows(path: Path, *, problems: list[str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of a stage's output file.

    `question_files.load_rows` describes how invalid lines and `problems` are treated.
    """
    return [dict(row.fields) for row in load_rows(path, _stage_row, problems=problems)]


@dataclass(frozen=True, slots=True)
class _StageRow:
    id: str
    fields: Mapping[str, Any]


def _stage_row(value: object, number: int, location: str) -> _StageRow:
    if not isinstance(value, dict):
        raise DataError(f"{location}: the line is not a JSON object. Correct the line, or delete it.")
    return _StageRow(str(value.get("id") or number), value)


def distractor_settings(settings: DistractorSettings) -> dict[str, Any]:
    """Return the settings that a run must share with the journal of the stage `distract`."""
    return {"distractors": settings.count, "least_distractors": settings.least, "checked": settings.checked}
