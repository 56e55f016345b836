"""`ctx1 train demo`: trains a small policy on a laptop, by demonstrations and then by reinforcement learning."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from context_agent.cli import output
from context_agent.cli.command import COUNT, COUNT_OR_ZERO, EXISTING_FOLDER, FOLDER, Json, Option, command, essential

if TYPE_CHECKING:
    from context_agent.train.demo.plan import DemoPlan
    from context_agent.train.demo.report import DemoReport


@essential("out model data demonstrations steps questions quick resume seed")
@command
def demo(
    *,
    out: Annotated[Path, Option("Output folder.", FOLDER)] = Path("runs/demo"),
    model: Annotated[
        Literal["tiny", "smollm2"],
        Option("A model of a few hundred thousand weights from scratch, or SmolLM2-135M with LoRA adapters."),
    ] = "tiny",
    data: Annotated[
        Path | None,
        Option(
            "Documents and questions for smollm2: a folder of `ctx1 synth split`.",
            EXISTING_FOLDER,
            default="an invented world",
        ),
    ] = None,
    demonstrations: Annotated[
        int | None,
        Option("Number of episodes of the expert; with smollm2, of questions.", COUNT, default="the run file's"),
    ] = None,
    steps: Annotated[
        int | None, Option("Number of steps of reinforcement learning.", COUNT, default="the run file's")
    ] = None,
    questions: Annotated[
        int | None, Option("Number of held-out questions to evaluate.", COUNT, default="all; with smollm2 80, or 16")
    ] = None,
    threads: Annotated[int | None, Option("Threads of torch; 0 for torch's own default.", COUNT_OR_ZERO)] = None,
    without_trajectory_reward: Annotated[
        bool,
        Option("Ablation: no reward for trajectory recall. With --resume it reuses the demonstrations of a full demo."),
    ],
    quick: Annotated[bool, Option("Use less data, a smaller model if possible, and fewer steps.")],
    resume: Annotated[bool, Option("Resume the demo in FOLDER; finished phases are skipped.")],
    seed: Annotated[int, Option("Random seed of the training.", COUNT_OR_ZERO)] = 0,
    as_json: Json,
) -> int:
    """Train a small language model on a laptop.

    A gpt-oss of a few hundred thousand weights learns from a noisy expert and then by reinforcement learning, in the
    production harness, on a generated toy environment. With --model smollm2, SmolLM2-135M learns from the oracle's
    lessons on questions about text. Held-out questions are evaluated before and after, and in half the window with
    pruning and without. Needs no GPU and no download, only the extra train (and smollm2).
    """
    from context_agent.train.demo.plan import DemoOptions, make_plan

    plan = make_plan(
        DemoOptions(
            out,
            seed,
            steps=steps,
            demonstrations=demonstrations,
            threads=threads,
            questions=questions,
            trajectory_reward=not without_trajectory_reward,
            quick=quick,
            model=model,
            data=data,
        )
    )
    report = _run(plan, resume=resume)
    if as_json:
        output.print_json(report.data)
    else:
        _show(report, plan)
    return 0


def _run(plan: DemoPlan, *, resume: bool) -> DemoReport:
    from context_agent.train.demo.course import DemoCourse

    return DemoCourse(plan, resume=resume, note=output.note, bar=output.progress).run()


def _show(report: DemoReport, plan: DemoPlan) -> None:
    from rich.table import Table

    out = output.stdout()
    table = Table(box=None, pad_edge=False, title_justify="left")
    for name in ("figure", "found", "target", ""):
        table.add_column(name)
    for target in report.targets:
        table.add_row(target.name, target.found, target.wanted, "[green]reached" if target.reached else "[red]missed")
    for name, spent in report.data["seconds"].items():
        table.add_row(f"seconds: {name}", f"{spent['seconds']:,.0f}")
    out.print(_evaluations(report))
    out.print()
    out.print(table)
    out.print()
    for name in ("report.html", "plot.svg", "report.json"):
        out.print(str(plan.place(name)), soft_wrap=True)
    out.print(f"ctx1 view {plan.out / 'trajectories'} --gold {plan.out / 'questions.jsonl'}", soft_wrap=True)


def _evaluations(report: DemoReport) -> Any:
    """The evaluations side by side: a line a figure. Intervals are in the report."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    rows = [[cell.split(" [")[0] for cell in row] for row in report.rows()]
    table.add_column(report.head[0], no_wrap=True)
    for row in rows:
        table.add_column(row[0], justify="right")
    for column, name in enumerate(report.head[1:], start=1):
        table.add_row(name, *(row[column] for row in rows))
    return table
