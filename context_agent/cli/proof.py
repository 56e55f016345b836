"""The command `ctx1 proof`, which measures the results table of the README on this machine.

It uses a small bundled sample in the folder `proof_data`. Each set has a folder in the native format of benchmarks. Its
`about.json` states the set's source and license. `scripts/build_proof_sample.py` draws the sample.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from context_agent.cli import output
from context_agent.cli.parameters import CommonOptions
from context_agent.cli.worker_options import worker_machines
from context_agent.text.counts import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from context_agent.eval.benchmarks.loading import Benchmark
    from context_agent.eval.evaluation import PreparedBenchmark
    from context_agent.eval.records import EvalRecord
    from context_agent.eval.statistics import Figure

METRIC = "recall@5"
OWN_SOURCE = "written for this project"
"""The source of the sets that are not public."""
ONE_SHOT_SYSTEMS = ("bm25", "dense", "hybrid")
TABLE_HEADINGS = {"bm25": "BM25", "dense": "dense", "hybrid": "hybrid", "fast": "fast", "careful": "careful"}
"""Headings of the table. The keys are the names in the JSON."""


@dataclass(frozen=True, slots=True)
class ProofRow:
    """The recall of each question with every way of searching, for one set or for all sets."""

    name: str
    recalls: Mapping[str, Sequence[float]]

    @property
    def best_one_shot(self) -> str:
        """The one-shot search with the highest mean. If several have the same mean, it is the first of them."""
        return max(ONE_SHOT_SYSTEMS, key=lambda system: sum(self.recalls[system]))

    def figure(self, system: str) -> Figure:
        """Return the mean recall with its 95% interval."""
        from context_agent.eval.statistics import Figure

        return Figure.of(self.recalls[system])

    def gain(self) -> Figure:
        """Return the mean difference between the careful agent and the best one-shot search, paired by question."""
        from context_agent.eval.statistics import Figure

        pairs = zip(self.recalls["careful"], self.recalls[self.best_one_shot], strict=True)
        return Figure.of([agent - one_shot for agent, one_shot in pairs])

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return {
            "set": self.name,
            "questions": len(self.recalls["careful"]),
            **{system: asdict(self.figure(system)) for system in TABLE_HEADINGS},
            "best_one_shot": self.best_one_shot,
            "gain": asdict(self.gain()),
        }


def proof(*, common: CommonOptions = CommonOptions()) -> int:
    """Compare the agent with one-shot searches on bundled questions.

    The command prints recall@5 of BM25, dense and hybrid search, and of the agent with both efforts. It works offline.
    On two free cores it takes about half a minute. The exit code is 1 if the agent finds less than the best one-shot
    search, or if a question fails.
    """
    started = time.perf_counter()
    benchmarks = sample()
    with tempfile.TemporaryDirectory(prefix="ctx1-proof-") as folder:
        records = _answer(benchmarks, Path(folder))
    rows = [_row(benchmark, records) for benchmark in benchmarks]
    total = _pooled(rows)
    failures = [record for answers in records.values() for record in answers if record.error is not None]
    seconds = time.perf_counter() - started
    passed = total.gain().mean >= 0 and not failures
    if common.json:
        output.print_json(
            {
                "metric": METRIC,
                "sample": [_description(benchmark) for benchmark in benchmarks],
                "sets": [row.to_json() for row in rows],
                "all": total.to_json(),
                "failed_questions": [record.question for record in failures],
                "passed": passed,
                "seconds": round(seconds, 1),
            }
        )
    else:
        _show(output.stdout(), [*rows, total], benchmarks, seconds)
    if failures:
        output.note(f"{counted(len(failures), 'question')} failed. The first error is: {failures[0].error}")
    elif not passed:
        output.note(
            f"the agent finds less than {TABLE_HEADINGS[total.best_one_shot]}. Check the installation with "
            "`ctx1 doctor`."
        )
    return 0 if passed else 1


def sample() -> list[Benchmark]:
    """Return the bundled sets.

    The sets of Wikipedia articles come first. The sets that were written for this project follow.
    """
    from context_agent.eval.benchmarks.loading import load_native

    benchmarks = []
    root = Path(str(files("context_agent.cli") / "proof_data"))
    for file in root.glob("*/about.json"):
        about = json.loads(file.read_text(encoding="utf-8"))
        name = about.pop("name")
        benchmarks.append(replace(load_native(name, file.parent), **about))
    return sorted(benchmarks, key=lambda benchmark: (benchmark.source == OWN_SOURCE, benchmark.name.casefold()))


def _answer(benchmarks: Sequence[Benchmark], folder: Path) -> dict[str, list[EvalRecord]]:
    """Return the records of all questions for each way of searching."""
    from context_agent.eval.evaluation import EvalOptions, evaluate, prepare
    from context_agent.eval.systems import find_systems
    from context_agent.policies import load_policy

    prepared: list[PreparedBenchmark] = []
    with output.progress("Indexing", "sets") as advance:
        for number, benchmark in enumerate(benchmarks):
            advance(number, len(benchmarks))
            prepared.append(prepare(benchmark, cache=folder / "cache"))
    records: dict[str, list[EvalRecord]] = {}
    questions = sum(len(benchmark.questions) for benchmark in benchmarks)
    with worker_machines(None) as machines, output.progress("Asking", "answers") as advance:

        def run(name: str, systems: Sequence[str], effort: str, progress: Callable[[int, int], None]) -> None:
            policy = partial(load_policy, "bridge", effort=effort)
            answers = evaluate(
                prepared,
                find_systems(systems),
                EvalOptions(policy),
                folder=folder / name,
                concurrency=machines.cores,
                machines=machines,
                progress=progress,
            )
            for record in answers:
                records.setdefault(effort if record.system == "agent" else record.system, []).append(record)

        total = questions * len(TABLE_HEADINGS)
        first = questions * (len(ONE_SHOT_SYSTEMS) + 1)
        run("careful", [*ONE_SHOT_SYSTEMS, "agent"], "careful", lambda done, _: advance(done, total))
        run("fast", ["agent"], "fast", lambda done, _: advance(first + done, total))
    return records


def _row(benchmark: Benchmark, records: Mapping[str, Sequence[EvalRecord]]) -> ProofRow:
    recalls = {
        system: [record.scores[METRIC] or 0.0 for record in records[system] if record.benchmark == benchmark.name]
        for system in TABLE_HEADINGS
    }
    return ProofRow(benchmark.name, recalls)


def _pooled(rows: Sequence[ProofRow]) -> ProofRow:
    return ProofRow(
        "all", {system: [value for row in rows for value in row.recalls[system]] for system in TABLE_HEADINGS}
    )


def _description(benchmark: Benchmark) -> dict[str, Any]:
    return {
        "set": benchmark.name,
        "about": benchmark.about,
        "source": benchmark.source,
        "license": benchmark.license,
        "questions": len(benchmark.questions),
        "passages": len(benchmark.documents),
    }


def _show(out: Console, rows: Sequence[ProofRow], benchmarks: Sequence[Benchmark], seconds: float) -> None:
    out.print(_table(rows))
    questions = len(rows[-1].recalls["careful"])
    passages = sum(len(benchmark.documents) for benchmark in benchmarks)
    out.print(
        f"\nThe sample: {questions} questions over {passages:,} passages, drawn at random from dev "
        "questions of public sets and test questions of corpora written for this project. Nothing in this package was "
        f"trained on these questions. Brackets are 95% intervals. Measured in {seconds:.0f} s."
    )


def _table(rows: Sequence[ProofRow]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in (f"{METRIC} (questions)", *TABLE_HEADINGS.values(), "careful less best one-shot"):
        table.add_column(heading, justify="left" if "(" in heading else "right", no_wrap=True)
    for row in rows:
        figures = [f"{row.figure(system).mean:.3f}" for system in TABLE_HEADINGS]
        figures[-1] = str(row.figure("careful"))
        gain = row.gain()
        cells = [f"{row.name} ({len(row.recalls['careful'])})", *figures]
        cells.append(f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]")
        table.add_row(*cells, style="bold" if row is rows[-1] else None)
    return table
