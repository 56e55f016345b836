"""Run `ctx1 train demo` with three seeds, each with its ablation. Prints the figures with their targets, and draws
curves.

    python benchmarks/train_demo.py [--out runs/train-demo] [--seeds 0,1,2] [--jobs 2] [--plot docs/train-demo.svg]

Both reward runs of a seed, with and without r_trajectory, start from the same demonstrations. Each run is a process of
one thread. If you start the program again after an interruption, it resumes. Figures pool the tasks: the value of a
task is the mean over seeds, and tasks are resampled (paired bootstrap, 95%).

The Context-1 report (section 3) says that without r_trajectory the policy collapses "to one broad search". The program
judges this on the held-out questions after training, compared with the full reward:

- `collapse`: searches per episode and trajectory recall are both lower (their intervals are below 0), and there are
  fewer searches than after the demonstrations;
- `weaker`: both are lower, but there are not fewer searches than after the demonstrations;
- `none`: anything else.

The program needs the extras `train` and `plots`.
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
from context_agent.train.demo import plots, report
from context_agent.train.demo.plan import ABLATION, RECIPES
from context_agent.train.demo.scores import DemoScore, load_scores, paired_differences
from context_agent.train.metrics_log import read_metrics

VARIANTS = {"full": "", "ablation": ABLATION}
LABELS = {"full": "full reward", "ablation": "without r_trajectory"}
EVALUATIONS = ("after", "half-pruning", "half-unpruned")
TEMPERATURES = ("t1", "greedy")
TARGETS = RECIPES["tiny"].targets
COMPARED = ("recall", "seen", "searches", "calls")

_ABLATED = tuple(f"{name}{ABLATION}" for name in EVALUATIONS)

ScoresByEvaluation = Mapping[str, Sequence[Sequence[DemoScore]]]
"""The scores of each seed, by evaluation."""


def main() -> int:
    """Run what is missing, then print the figures. If a target was missed, return 1."""
    options = _options()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    folders = [options.out / f"seed-{seed}" for seed in seeds]
    ablated = [options.out / f"seed-{seed}" for seed in options.ablate or seeds]
    if not set(ablated) <= set(folders):
        raise SystemExit(f"--ablate names seeds that are not among --seeds {options.seeds}")
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [
            pool.submit(_train, folder, seed, options, ablated=folder in ablated)
            for folder, seed in zip(folders, seeds, strict=True)
        ]
        for job in jobs:
            job.result()
    summary = summarize(folders, ablated)
    (options.out / "train-demo.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    plot = options.plot or options.out / "train-demo.svg"
    plot.write_text(plots.plot(groups(folders, ablated), plots.PANELS | plots.EXPLORATION_PANELS), encoding="utf-8")
    print_summary(summary)
    print(f"{options.out / 'train-demo.json'}  {plot}")
    return 0 if all(target["reached"] for target in summary["targets"]) else 1


def _train(folder: Path, seed: int, options: argparse.Namespace, *, ablated: bool) -> None:
    """Run the demo, then its ablation on the same demonstrations, through the command line."""
    for flags in ([], ["--without-trajectory-reward"]) if ablated else ([],):
        command = [sys.executable, "-m", "context_agent.cli", "train", "demo", "--out", str(folder), "--resume"]
        command += ["--seed", str(seed), "--threads", "1", "--json", *flags, *options.demo.split()]
        print(" ".join(command[1:]), file=sys.stderr, flush=True)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def summarize(folders: Sequence[Path], ablated: Sequence[Path]) -> dict[str, Any]:
    """Return every figure of the finished demos in these folders. The folders in `ablated` also have an ablation."""
    scores = {name: _read_scores(folders, EVALUATIONS, name) for name in TEMPERATURES}
    sampled = scores["t1"]
    gains = {name: pooled(by_name["after"], by_name["before"]) for name, by_name in scores.items()}
    halves = {name: pooled(by_name["half-pruning"], by_name["half-unpruned"]) for name, by_name in scores.items()}
    reports = [json.loads((folder / "report.json").read_text(encoding="utf-8")) for folder in folders]
    violations = sum(
        score.violations for by_name in scores.values() for runs in by_name.values() for run in runs for score in run
    )
    minutes = [sum(phase["seconds"] for phase in seed_report["seconds"].values()) / 60 for seed_report in reports]
    targets = (
        report.gain_target(gains["t1"], TARGETS.gain or 0.0, TARGETS.sure),
        report.accuracy_target(accuracy(sampled["after"]), TARGETS),
        report.DemoTarget("budget violations", str(violations), "0", violations == 0),
        report.half_window_target(halves["t1"], TARGETS.half or 0.0),
        report.time_target(
            max(minutes),
            TARGETS,
            complete=all(phase["whole"] for seed_report in reports for phase in seed_report["seconds"].values()),
        ),
    )
    return {
        "seeds": len(folders),
        "tasks": len(sampled["before"][0]),
        "targets": [asdict(target) for target in targets],
        "minutes": minutes,
        "windows": [seed_report["half_window"]["window"] for seed_report in reports],
        "gain": {name: asdict(gain) for name, gain in gains.items()},
        "half_window_gain": {name: asdict(gain) for name, gain in halves.items()},
        "ablation": {"seeds": len(ablated), **ablation(_read_scores(ablated, ("after", f"after{ABLATION}"), "t1"))},
        "means": {name: means(runs) for name, runs in (_read_scores(ablated, _ABLATED, "t1") | sampled).items()},
    }


def ablation(scores: ScoresByEvaluation) -> dict[str, Any]:
    """Return the ablation minus the full reward, and the verdict on the collapse."""
    less = {name: pooled(scores[f"after{ABLATION}"], scores["after"], name) for name in COMPARED}
    lower = less["searches"].high < 0 and less["seen"].high < 0
    fewer = means(scores[f"after{ABLATION}"])["searches"] < means(scores["before"])["searches"]
    verdict = ("collapse" if fewer else "weaker") if lower else "none"
    return {"verdict": verdict, "less": {name: asdict(figure) for name, figure in less.items()}}


def pooled(
    runs: Sequence[Sequence[DemoScore]], reference: Sequence[Sequence[DemoScore]], measure: str = "recall"
) -> Figure:
    """Return the paired difference over tasks. The value of a task is the mean over seeds."""
    by_seed = [paired_differences(run, other, measure) for run, other in zip(runs, reference, strict=True)]
    return Figure.of([fmean(values) for values in zip(*by_seed, strict=True)])


def accuracy(runs: Sequence[Sequence[DemoScore]]) -> float | None:
    """Return the share of the pruned chunks that are not gold. If nothing was pruned, return None."""
    pruned = sum(score.pruned for run in runs for score in run)
    return 1 - sum(score.pruned_gold for run in runs for score in run) / pruned if pruned else None


def means(runs: Sequence[Sequence[DemoScore]]) -> dict[str, float | None]:
    """Return the means over tasks and seeds."""
    scores = [score for run in runs for score in run]
    figures = {
        name: fmean(float(getattr(score, name)) for score in scores) for name in (*COMPARED, "precision", "reward")
    }
    return {**figures, "pruning": fmean(float(score.pruned > 0) for score in scores), "prune_accuracy": accuracy(runs)}


def groups(folders: Sequence[Path], ablated: Sequence[Path]) -> list[plots.PlottedRuns]:
    """Return the curves of both variants with their held-out figures."""
    plotted = []
    for name, suffix in VARIANTS.items():
        variant_folders = ablated if suffix else folders
        scores = _read_scores(variant_folders, (f"after{suffix}",), "t1")
        runs = tuple(list(read_metrics(folder / f"rl{suffix}" / "metrics.jsonl")) for folder in variant_folders)
        # The demonstrations are shared, so their level is drawn once.
        before = means(scores["before"]) if not suffix else None
        plotted.append(plots.PlottedRuns(LABELS[name], runs, before, means(scores[f"after{suffix}"])))
    return plotted


def _read_scores(folders: Sequence[Path], evaluations: Sequence[str], temperature: str) -> ScoresByEvaluation:
    names = ["before", *evaluations]
    return {
        name: [_load(folder / "evaluations" / f"{name}-{temperature}.jsonl") for folder in folders] for name in names
    }


def _load(path: Path) -> list[DemoScore]:
    scores = load_scores(path)
    if scores is None:
        raise SystemExit(f"{path} is missing: the demo in that folder has not finished")
    return scores


def print_summary(summary: Mapping[str, Any]) -> None:
    """Print the figures with their targets, then the ablation."""
    print(f"{summary['seeds']} seeds, {summary['tasks']} held-out tasks; half windows of {summary['windows']} tokens")
    for target in summary["targets"]:
        mark = "reached" if target["reached"] else "MISSED"
        print(f"{target['name']:<54}{target['result']:<28}target {target['target']:<40}{mark}")
    print(f"{'asked greedily, the gain':<54}{report.format_difference(Figure(**summary['gain']['greedy']))}")
    print()
    names = (*COMPARED, "pruning", "prune_accuracy")
    print(f"{'sampled, held-out tasks':<46}" + "".join(f"{name:>16}" for name in names))
    for name, row in summary["means"].items():
        print(f"{name:<46}" + "".join(f"{report.format_figure(row[measure]):>16}" for measure in names))
    for name, less in summary["ablation"]["less"].items():
        print(f"without r_trajectory less with it, {name:<20}{report.format_difference(Figure(**less))}")
    verdict = VERDICTS[summary["ablation"]["verdict"]]
    print(f"collapse without r_trajectory, as the report says: {verdict} ({summary['ablation']['seeds']} seeds)")


VERDICTS = {
    "collapse": "yes: it searches less than after the demonstrations, and encounters less",
    "weaker": "partly: it searches and encounters less than with the term, but no less than after the demonstrations",
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
