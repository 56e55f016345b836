"""All stages in a row: from documents drawn at random to verified tasks of one to four hops with their distractors.

Each stage reads what the one before wrote, so any of them can be run by itself, looked at, and run again. What a task
becomes depends on its own row alone: a longer run begins with the tasks of a shorter one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from context_agent.errors import ConfigError, DataError
from context_agent.questions import load_rows
from context_agent.synth_data.llm_stages.context import StageContext
from context_agent.synth_data.llm_stages.distract import DistractorSettings, distract
from context_agent.synth_data.llm_stages.verify import verify
from context_agent.synth_data.llm_stages.writing import draw_seeds, explore, extend, write
from context_agent.synth_data.stages import ProgressCallback, RowFunction, StageReport, run_stage

REPLIES_FILE = "replies.jsonl"
"""The model's answers, in the folder of the stages."""

StageWatcher = Callable[[str], ProgressCallback | None]
"""Called with a stage's name when it begins; gives what its progress is told to."""


@dataclass(frozen=True, slots=True)
class PipelinePlan:
    """How many tasks are begun, and how long they become: evenly spread from the first to the last of `hops`."""

    count: int
    hops: tuple[int, int] = (1, 2)
    mining: DistractorSettings = field(default_factory=DistractorSettings)
    concurrency: int = 8

    def __post_init__(self) -> None:
        first, last = self.hops
        if self.count < 1 or not 1 <= first <= last:
            raise ConfigError(f"count must be at least 1, and hops a range from 1; got {self.count} and {self.hops}")

    def target(self, number: int) -> int:
        """The hops that the task of this number, from 0 and among those verified, should reach."""
        first, last = self.hops
        return first + number % (last - first + 1)


def stages_folder(out: Path) -> Path:
    """Where the stages of an output file leave theirs."""
    return out.with_name(f"{out.name}.stages")


async def make_tasks(
    shop: StageContext, plan: PipelinePlan, out: Path, *, watch: StageWatcher | None = None
) -> list[StageReport]:
    """Runs all stages, writes the tasks to `out`, and returns a report for each stage.

    A task that cannot be made longer stays as it last passed verification. Where the cap ends a stage, the reports end
    with it, and the same call goes on later. Raises `ConfigError`, and `DataError` for a corpus too small.
    """
    last = plan.hops[1]
    if last > shop.domain.max_hops:
        raise ConfigError(f"tasks of {shop.domain.name} have at most {shop.domain.max_hops} hops; got {last}")
    line = _Pipeline(shop, plan, stages_folder(out), watch)
    drawn = draw_seeds(shop.corpus, plan.count, shop.model.seed)
    explored = line.single(await line.run("explore", drawn, partial(explore, shop)))
    written = await line.run("write", explored, partial(write, shop))
    verified = await line.run("verify", written, partial(verify, shop))
    best = {row["id"]: row for row in verified}
    targets = {row["id"]: plan.target(number) for number, row in enumerate(verified)}
    for level in range(1, last):
        short = [row for name, row in best.items() if row["level"] == level - 1 and targets[name] > level]
        longer = await line.run(f"extend-{level}", short, partial(extend, shop))
        for row in await line.run(f"verify-{level}", longer, partial(verify, shop)):
            best[row["id"].removesuffix(f"-{level}")] = row
    mining = plan.mining
    await line.run("distract", list(best.values()), partial(distract, shop, mining), out, distractor_settings(mining))
    return line.reports


class _Pipeline:
    """The stages one after another; those behind one that was halted do nothing."""

    def __init__(self, shop: StageContext, plan: PipelinePlan, folder: Path, watch: StageWatcher | None) -> None:
        self.reports: list[StageReport] = []
        self._shop, self._plan, self._folder, self._watch = shop, plan, folder, watch

    async def run(
        self,
        stage: str,
        rows: Sequence[Mapping[str, Any]],
        work: RowFunction,
        out: Path | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> list[dict[str, Any]]:
        """The stage's output rows."""
        if self.reports and self.reports[-1].halted:
            return []
        path = out or self._folder / f"{stage}.jsonl"
        report = await run_llm_stage(
            self._shop,
            stage,
            rows,
            work,
            path,
            concurrency=self._plan.concurrency,
            settings=settings,
            advance=self._watch(stage) if self._watch else None,
        )
        self.reports.append(report)
        return load_stage_rows(path)

    def single(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows without those whose documents an earlier row has: two starts may lead to the same material."""
        first: dict[frozenset[str], dict[str, Any]] = {}
        for row in rows:
            first.setdefault(frozenset(one["id"] for one in row["documents"]), row)
        if len(first) < len(rows):
            dropped = {"same documents as another": len(rows) - len(first)}
            self.reports.append(
                replace(self.reports[-1], stage="single", inputs=len(rows), kept=len(first), dropped=dropped)
            )
        return list(first.values())


async def run_llm_stage(
    shop: StageContext,
    stage: str,
    rows: Iterable[Mapping[str, Any]],
    work: RowFunction,
    out: Path,
    *,
    concurrency: int,
    settings: Mapping[str, Any] | None = None,
    advance: ProgressCallback | None = None,
) -> StageReport:
    """`stages.run` with the workshop's settings; the report has the ledger of all runs so far."""
    told = {**shop.settings, **(settings or {})}
    report = await run_stage(stage, rows, work, out, concurrency=concurrency, settings=told, advance=advance)
    return replace(report, cost=shop.model.ledger.to_json())


def load_stage_rows(path: Path, *, problems: list[str] | None = None) -> list[dict[str, Any]]:
    """The rows of a stage's output, as the next one takes them; bad lines as `questions.load_rows` treats them."""
    return [dict(row.fields) for row in load_rows(path, _stage_row, problems=problems)]


@dataclass(frozen=True, slots=True)
class _StageRow:
    id: str
    fields: Mapping[str, Any]


def _stage_row(value: object, number: int, place: str) -> _StageRow:
    if not isinstance(value, dict):
        raise DataError(f"{place}: not an object with fields")
    return _StageRow(str(value.get("id") or number), value)


def distractor_settings(mining: DistractorSettings) -> dict[str, Any]:
    """What the journal of `distract` must agree on."""
    return {"distractors": mining.count, "least_distractors": mining.least, "checked": mining.checked}
