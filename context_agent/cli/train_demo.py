"""`ctx1 train demo`: a tiny policy learns on a laptop what the large ones do, from lessons and then from rewards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from context_agent.cli import console, options

if TYPE_CHECKING:
    from context_agent.train.demo.plan import Plan
    from context_agent.train.demo.report import Report


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("runs/demo"),
    show_default=True,
    metavar="FOLDER",
    help="Where everything goes.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of all chance but the world's."
)
@click.option("--lessons", type=click.IntRange(1), help="Episodes that the teacher shows.  [default: the run file's]")
@click.option("--steps", type=click.IntRange(1), help="Steps by rewards.  [default: the run file's]")
@click.option("--threads", type=click.IntRange(0), help="Threads of torch; 0: as many as it likes.")
@click.option("--questions", type=click.IntRange(1), help="Held-out questions that are asked.  [default: all]")
@click.option(
    "--without-trajectory-reward",
    is_flag=True,
    help="The ablation: no reward for what was encountered. With --resume it shares a full demo's lessons.",
)
@click.option("--quick", is_flag=True, help="A few minutes: a smaller world and model, fewer steps. Shows the path.")
@click.option("--resume", is_flag=True, help="Go on where the demo in FOLDER was ended; what is done is not repeated.")
@options.common
def demo(*, without_trajectory_reward: bool, resume: bool, as_json: bool, **chosen: Any) -> int:
    """Train a tiny policy from scratch, and test it: the proof that it learns. No GPU, no download.

    A gpt-oss of some hundred thousand weights learns from a careless teacher, then by rewards in the production
    harness, on a closed world made on the spot. Held-out questions are asked before and after, and in half the window
    with pruning and without. Needs the extra `train`.
    """
    from context_agent.train.demo.plan import Options, plan

    made = plan(Options(trajectory_reward=not without_trajectory_reward, **chosen))
    report = _run(made, resume=resume)
    if as_json:
        console.print_json(report.data)
    else:
        _show(report, made)
    return 0


def _run(made: Plan, *, resume: bool) -> Report:
    from context_agent.train.course import Course

    def note(text: str) -> None:
        console.note(f"ctx1 train demo: {text}")

    return Course(made, resume=resume, note=note, bar=console.progress).run()


def _show(report: Report, made: Plan) -> None:
    from rich.table import Table

    out = console.stdout()
    table = Table(box=None, pad_edge=False, title_justify="left")
    for name in ("figure", "found", "target", ""):
        table.add_column(name)
    for one in report.targets:
        table.add_row(one.name, one.found, one.wanted, "[green]reached" if one.reached else "[red]missed")
    for name, spent in report.data["seconds"].items():
        table.add_row(f"seconds: {name}", f"{spent['seconds']:,.0f}")
    out.print(_evaluations(report))
    out.print()
    out.print(table)
    out.print()
    for name in ("report.html", "plot.svg", "report.json"):
        out.print(str(made.place(name)), soft_wrap=True)
    out.print(f"ctx1 view {made.out / 'trajectories'} --gold {made.out / 'questions.jsonl'}", soft_wrap=True)


def _evaluations(report: Report) -> Any:
    """The evaluations side by side: a line a figure. Intervals are in the report."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    rows = [[cell.split(" [")[0] for cell in row] for row in report.rows()]
    table.add_column(report.head[0], no_wrap=True)
    for row in rows:
        table.add_column(row[0], justify="right")
    for place, name in enumerate(report.head[1:], start=1):
        table.add_row(name, *(row[place] for row in rows))
    return table
