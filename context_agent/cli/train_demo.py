"""`ctx1 train demo`: trains a tiny policy on a laptop, by demonstrations and then by reinforcement learning."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import console, options

if TYPE_CHECKING:
    from context_agent.train.demo.plan import DemoPlan
    from context_agent.train.demo.report import DemoReport


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs/demo"),
    show_default=True,
    metavar="FOLDER",
    help="Output folder.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed; the toy environment has its own."
)
@click.option("--demonstrations", type=click.IntRange(1), help="Episodes of the expert.  [default: the run file's]")
@click.option("--steps", type=click.IntRange(1), help="Steps of reinforcement learning.  [default: the run file's]")
@click.option("--threads", type=click.IntRange(0), help="Threads of torch; 0: torch's default.")
@click.option("--questions", type=click.IntRange(1), help="Held-out questions to evaluate.  [default: all]")
@click.option(
    "--without-trajectory-reward",
    is_flag=True,
    help="Ablation: no reward for trajectory recall. With --resume it reuses the demonstrations phase of a full demo.",
)
@click.option("--quick", is_flag=True, help="Takes a few minutes: a smaller environment and model, fewer steps.")
@click.option("--resume", is_flag=True, help="Resume the demo in FOLDER; finished phases are skipped.")
@options.common
def demo(*, without_trajectory_reward: bool, resume: bool, as_json: bool, **chosen: Any) -> int:
    """Train a tiny policy from scratch and evaluate it. Needs no GPU and no download.

    A gpt-oss of a few hundred thousand weights learns from a noisy expert and then by reinforcement learning, in the
    production harness, on a generated toy environment. Held-out questions are evaluated before and after, and in half
    the window with pruning and without. Needs the extra `train`.
    """
    from context_agent.train.demo.plan import DemoOptions, make_plan

    plan = make_plan(DemoOptions(trajectory_reward=not without_trajectory_reward, **chosen))
    report = _run(plan, resume=resume)
    if as_json:
        console.print_json(report.data)
    else:
        _show(report, plan)
    return 0


def _run(plan: DemoPlan, *, resume: bool) -> DemoReport:
    from context_agent.train.demo.course import DemoCourse

    def note(text: str) -> None:
        console.note(f"ctx1 train demo: {text}")

    return DemoCourse(plan, resume=resume, note=note, bar=console.progress).run()


def _show(report: DemoReport, plan: DemoPlan) -> None:
    from rich.table import Table

    out = console.stdout()
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
