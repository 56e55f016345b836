"""Three seeds of `ctx1 train demo`, each with its ablation: what was reached beside what should be, and the curves.

    python benchmarks/train_demo.py [--out runs/train-demo] [--seeds 0,1,2] [--jobs 2] [--plot docs/train-demo.svg]

A seed's demonstrations are shared by both of its runs by rewards, with r_trajectory and without. Runs are processes of
one thread each; what was done is not done again, so a program that was ended goes on when it is started again. Figures
pool the tasks: a task's value is the mean over seeds, and tasks are resampled (paired bootstrap, 95 %).

Whether the policy collapses without r_trajectory, as the Context-1 report tells (section 3: "to one broad search"), is
judged on the held-out questions after training, against the full reward: `collapse` where both the searches an episode
and the trajectory recall are lower, their intervals below 0, and fewer searches are left than the demonstrations had
taught; `weaker` where both are lower but not that; else `none`. Needs the extras `train` and `plots`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from context_agent.eval.statistics import Figure
from context_agent.train.checkpoints import read_metrics
from context_agent.train.demo import report
from context_agent.train.demo.plan import ABLATION, RECIPES
from context_agent.train.demo.report import DemoScore, load_scores, paired_differences

VARIANTS = {"full": "", "ablation": ABLATION}
LABELS = {"full": "full reward", "ablation": "without r_trajectory"}
SITTINGS = ("after", "half-pruning", "half-unpruned")
MANNERS = ("t1", "greedy")
TARGETS = RECIPES["tiny"].targets
COMPARED = ("recall", "seen", "searches", "calls")

_ABLATED = tuple(f"{one}{ABLATION}" for one in SITTINGS)

Asked = Mapping[str, Sequence[Sequence[DemoScore]]]
"""By sitting: the scores of each seed."""


def main() -> int:
    """Runs what is missing, then prints the figures; 1 where a target was missed."""
    options = _options()
    seeds = [int(one) for one in options.seeds.split(",")]
    folders = [options.out / f"seed-{seed}" for seed in seeds]
    ablated = [options.out / f"seed-{seed}" for seed in options.ablate or seeds]
    if not set(ablated) <= set(folders):
        raise SystemExit(f"--ablate names seeds that are not among --seeds {options.seeds}")
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [
            pool.submit(_trained, folder, seed, options, ablated=folder in ablated)
            for folder, seed in zip(folders, seeds, strict=True)
        ]
        for job in jobs:
            job.result()
    found = measured(folders, ablated)
    (options.out / "train-demo.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    plot = options.plot or options.out / "train-demo.svg"
    plot.write_text(report.plot(groups(folders, ablated), report.PANELS | report.EXPLORATION_PANELS), encoding="utf-8")
    show(found)
    print(f"{options.out / 'train-demo.json'}  {plot}")
    return 0 if all(one["reached"] for one in found["targets"]) else 1


def _trained(folder: Path, seed: int, options: argparse.Namespace, *, ablated: bool) -> None:
    """The demo, then its ablation on the same demonstrations, each as the command line runs it."""
    for flags in ([], ["--without-trajectory-reward"]) if ablated else ([],):
        command = [sys.executable, "-m", "context_agent.cli", "train", "demo", "--out", str(folder), "--resume"]
        command += ["--seed", str(seed), "--threads", "1", "--json", *flags, *options.demo.split()]
        print(" ".join(command[1:]), file=sys.stderr, flush=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def measured(folders: Sequence[Path], ablated: Sequence[Path]) -> dict[str, Any]:
    """Every figure of the finished demos in these folders, of which some have their ablation."""
    asked = {manner: _asked(folders, SITTINGS, manner) for manner in MANNERS}
    head = asked["t1"]
    gains = {manner: pooled(one["after"], one["before"]) for manner, one in asked.items()}
    halves = {manner: pooled(one["half-pruning"], one["half-unpruned"]) for manner, one in asked.items()}
    reports = [json.loads((one / "report.json").read_text(encoding="utf-8")) for one in folders]
    over = sum(score.violations for one in asked.values() for runs in one.values() for run in runs for score in run)
    minutes = [sum(phase["seconds"] for phase in one["seconds"].values()) / 60 for one in reports]
    targets = (
        report.gain_target(gains["t1"], TARGETS.gain or 0.0, TARGETS.sure),
        report.accuracy_target(accuracy(head["after"]), TARGETS),
        report.DemoTarget("budget violations", str(over), "0", over == 0),
        report.half_window_target(halves["t1"], TARGETS.half or 0.0),
        report.time_target(
            max(minutes), TARGETS, complete=all(phase["whole"] for one in reports for phase in one["seconds"].values())
        ),
    )
    return {
        "seeds": len(folders),
        "tasks": len(head["before"][0]),
        "targets": [asdict(one) for one in targets],
        "minutes": minutes,
        "windows": [one["half_window"]["window"] for one in reports],
        "gain": {manner: asdict(one) for manner, one in gains.items()},
        "half_window_gain": {manner: asdict(one) for manner, one in halves.items()},
        "ablation": {"seeds": len(ablated), **ablation(_asked(ablated, ("after", f"after{ABLATION}"), "t1"))},
        "means": {name: means(runs) for name, runs in (_asked(ablated, _ABLATED, "t1") | head).items()},
    }


def ablation(head: Asked) -> dict[str, Any]:
    """The ablation less the full reward, and whether that is the collapse."""
    less = {name: pooled(head[f"after{ABLATION}"], head["after"], name) for name in COMPARED}
    lower = less["searches"].high < 0 and less["seen"].high < 0
    fewer = means(head[f"after{ABLATION}"])["searches"] < means(head["before"])["searches"]
    verdict = ("collapse" if fewer else "weaker") if lower else "none"
    return {"verdict": verdict, "less": {name: asdict(one) for name, one in less.items()}}


def pooled(
    ours: Sequence[Sequence[DemoScore]], theirs: Sequence[Sequence[DemoScore]], measure: str = "recall"
) -> Figure:
    """The paired difference over tasks, each the mean over seeds."""
    by_seed = [paired_differences(one, other, measure) for one, other in zip(ours, theirs, strict=True)]
    return Figure.of([fmean(values) for values in zip(*by_seed, strict=True)])


def accuracy(runs: Sequence[Sequence[DemoScore]]) -> float | None:
    """Of all pruned chunks, the share that is not gold."""
    pruned = sum(score.pruned for run in runs for score in run)
    return 1 - sum(score.pruned_gold for run in runs for score in run) / pruned if pruned else None


def means(runs: Sequence[Sequence[DemoScore]]) -> dict[str, float | None]:
    """Means over tasks and seeds."""
    every = [score for run in runs for score in run]
    found = {name: fmean(float(getattr(one, name)) for one in every) for name in (*COMPARED, "precision", "reward")}
    return {**found, "pruning": fmean(float(one.pruned > 0) for one in every), "prune_accuracy": accuracy(runs)}


def groups(folders: Sequence[Path], ablated: Sequence[Path]) -> list[report.PlottedRuns]:
    """The curves of both variants, with what the held-out questions gave."""
    made = []
    for name, suffix in VARIANTS.items():
        of = ablated if suffix else folders
        head = _asked(of, (f"after{suffix}",), "t1")
        runs = tuple(list(read_metrics(folder / f"rl{suffix}" / "metrics.jsonl")) for folder in of)
        # One level for both: the demonstrations are shared.
        before = means(head["before"]) if not suffix else None
        made.append(report.PlottedRuns(LABELS[name], runs, before, means(head[f"after{suffix}"])))
    return made


def _asked(folders: Sequence[Path], sittings: Sequence[str], manner: str) -> Asked:
    names = ["before", *sittings]
    return {name: [_scores(folder / "evaluations" / f"{name}-{manner}.jsonl") for folder in folders] for name in names}


def _scores(path: Path) -> list[DemoScore]:
    found = load_scores(path)
    if found is None:
        raise SystemExit(f"{path} is missing: the demo in that folder did not come to its end")
    return found


def show(found: Mapping[str, Any]) -> None:
    """The figures beside their targets, then what the ablation did."""
    print(f"{found['seeds']} seeds, {found['tasks']} held-out tasks; half windows of {found['windows']} tokens")
    for one in found["targets"]:
        mark = "reached" if one["reached"] else "MISSED"
        print(f"{one['name']:<54}{one['found']:<28}target {one['wanted']:<40}{mark}")
    print(f"{'asked greedily, the gain':<54}{report.format_difference(Figure(**found['gain']['greedy']))}")
    print()
    names = (*COMPARED, "pruning", "prune_accuracy")
    print(f"{'sampled, held-out tasks':<46}" + "".join(f"{name:>16}" for name in names))
    for name, row in found["means"].items():
        print(f"{name:<46}" + "".join(f"{report.format_figure(row[one]):>16}" for one in names))
    for name, less in found["ablation"]["less"].items():
        print(f"without r_trajectory less with it, {name:<20}{report.format_difference(Figure(**less))}")
    verdict = VERDICTS[found["ablation"]["verdict"]]
    print(f"collapse without r_trajectory, as the report tells it: {verdict} ({found['ablation']['seeds']} seeds)")


VERDICTS = {
    "collapse": "yes: it searches less than the demonstrations taught, and less is encountered",
    "weaker": "partly: it searches and encounters less than with the term, but no less than the demonstrations taught",
    "none": "no, it does not appear here",
}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/train-demo"), help="a folder for each seed goes here")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument(
        "--ablate", type=lambda text: text.split(","), help="seeds that have an ablation  [default: all]"
    )
    parser.add_argument("--jobs", type=int, default=2, help="seeds at a time")
    parser.add_argument("--plot", type=Path, help="where the curves go")
    parser.add_argument("--demo", default="", help='more options of the command, in one text: "--quick --questions 50"')
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
