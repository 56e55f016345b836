"""Train with PARL's reward, and measure whether an orchestrator stops starting sub-agents if no reward pays for them.

    python benchmarks/parl.py [--out runs/parl] [--seeds 0,1] [--arms without,with,priced] [--jobs 2] [--plot FILE]

The task is in the toy environment. A question asks for three chains of two documents. Half of the demonstrations search
one document after another. The other half start a sub-agent for each chain, and rank what the sub-agents return. Both
find about the same amount. Rewards then train only the orchestrator. Its sub-agents keep the model that was trained on
the demonstrations.

The arms differ only in the reward:

- `without` has no weights in `[parl]`;
- `with` has both weights, which fall to 0 after the share `UNTIL` of the updates;
- `priced` has no weights either, but each turn costs. This arm was added after the other two had ended with similar
  results in training.

All arms share the demonstrations. The seeds are those of the reinforcement learning. Each run is a process of one
thread. If you start the program again, it skips finished work. The figures are from the test split, with one episode
per question at temperature 1. The value of a question is the mean over seeds, and questions are resampled (paired
bootstrap, 95%).

The rule was fixed before the runs. An arm has collapsed if two conditions hold. Less than half as many episodes start
sub-agents as after the demonstrations, and the interval of that difference lies below 0. The program needs the extras
`train` and `plots`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from context_agent.eval.gold import gold_of
from context_agent.eval.statistics import Figure
from context_agent.harness.trajectory import Trajectory
from context_agent.retrieval.corpus import Corpus
from context_agent.train import run_file
from context_agent.train.config import RunConfig
from context_agent.train.demo import plots
from context_agent.train.metrics_log import read_metrics
from context_agent.train.outcome import measure_outcome
from context_agent.train.parl import delegation_of
from context_agent.train.rewards import RewardConfig, RewardPreset, compute_reward
from context_agent.types import Question

UNTIL = 0.5
"""The share of the updates after which only the performance is rewarded, in the arm `with`."""
ARMS: Mapping[str, Mapping[str, Any]] = {
    "without": {},
    "with": {"parl": {"parallel": 0.3, "finish": 0.1, "until": UNTIL, "breadth": 3}},
    "priced": {"rewards": {"preset": "context-1", "turn_from": 1, "turn_to": 7, "turn_most": 0.3}},
}
"""What an arm adds to the run file. In `priced`, each turn after the first costs .05, until the end of the training."""
LABELS = {
    "without": "without r_parallel and r_finish",
    "with": "with both, annealed to 0",
    "priced": "without them, at a price of turns",
}
RUN: Mapping[str, Any] = {
    "threads": 1,
    "model": {"dtype": "float32", "attention": "eager", "gradient_checkpointing": False, "renderer": "words"},
    "data": {"world": {"entities": 400, "tasks": 2_000, "hops": [2, 2], "worlds": 24, "branches": 3}},
    "episodes": {"window": 1_024, "reserve": 8, "per_call": 256, "turns": 12, "swarm": 3, "shown": 1},
}
"""The settings that all phases share. A search shows one document, and a name finds its own document first."""
DEMONSTRATIONS: Mapping[str, Any] = {
    "tiny": {"hidden": 64, "layers": 2, "experts": 2, "positions": 2_048, "deviation": 0.1, "tied": True},
    "sft": {"demonstrations": 12_000, "epochs": 2, "rows": 16, "rows_per_pass": 16},
    "optimizer": {
        "learning_rate": 3e-3,
        "betas": [0.9, 0.98],
        "weight_decay": 0.01,
        "warmup": 50,
        "schedule": "linear",
    },
    "checkpoints": {"every": 400},
}
REWARDS: Mapping[str, Any] = {
    "engine": {"batch": 256, "max_tokens": 32},
    "rollouts": {"steps": 100, "groups": 12, "rollouts": 8, "substeps": 1, "concurrency": 96, "save_every": 25},
    "rewards": {"preset": "context-1"},
    "loss": {"kind": "cispo", "pass_tokens": 4_096},
    "optimizer": {"learning_rate": 5e-4, "betas": [0.9, 0.99], "warmup": 5},
    "evaluation": {"every": 25, "questions": 48, "temperatures": [1.0]},
    "checkpoints": {"every": 25},
}
PANELS = {
    "spawning": "episodes that start sub-agents",
    "searchers": "sub-agents an episode",
    "searchers_finished": "sub-agents that finish",
    "recall": "output recall",
    "critical_steps": "critical steps",
    "searches": "searches of its own",
}
MEASURES = ("spawning", "searchers", "recall", "critical_steps", "searches", "reward", "finished")
"""The measures of an episode on a held-out question. In every arm, `reward` is that of the performance, without a
price.
"""
COLUMNS = {
    "spawning": "episodes that start sub-agents",
    "searchers": "sub-agents an episode",
    "recall": "output recall",
    "critical_steps": "critical steps",
    "reward": "reward",
}

Score = Mapping[str, Any]
ScoresByArm = Mapping[str, Sequence[Sequence[Score]]]
"""The scores of each seed, in the order of the questions, by the name of an arm or by `before`."""


def main() -> int:
    """Run what is missing, then print the figures."""
    options = _options()
    if options.phase:
        _phase(options)
        return 0
    seeds = options.seeds.split(",")
    runs = dict.fromkeys(options.arms.split(","), seeds)
    _run(options, "demonstrations", "0")
    seeds_of = {"before": seeds, **runs}
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(_run, options, name, seed) for name, of_name in seeds_of.items() for seed in of_name]
        for job in jobs:
            job.result()
    scores = {name: [_scores(options, name, seed) for seed in of_name] for name, of_name in seeds_of.items()}
    lines = {
        name: [list(read_metrics(options.out / f"{name}-{seed}" / "metrics.jsonl")) for seed in runs[name]]
        for name in runs
    }
    summary = summarize(scores) | {"split": options.split, "minutes": _minutes(options.out)}
    summary["training"] = {name: spawning_by_tenths(of_name) for name, of_name in lines.items()}
    (options.out / f"parl-{options.split}.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    plot = options.plot or options.out / "parl.svg"
    plot.write_text(plots.plot(_groups(lines, scores), PANELS), encoding="utf-8")
    print_summary(summary)
    print(f"{options.out / f'parl-{options.split}.json'}  {plot}")
    return 0


def demonstration_run(out: Path) -> RunConfig:
    """Return the run that trains a new model on both kinds of demonstrations."""
    chosen = dict(DEMONSTRATIONS)
    model = {**RUN["model"], "tiny": chosen.pop("tiny")}
    return run_file.parse_run({**RUN, **chosen, "model": model, "out": str(out / "demonstrations")})


def reward_run(out: Path, arm: str, seed: int) -> RunConfig:
    """Return the reinforcement learning of an arm. Its sub-agents keep the model that was trained on the
    demonstrations.
    """
    start = str(out / "demonstrations" / "final")
    return run_file.parse_run(
        {
            **RUN,
            **REWARDS,
            "out": str(out / f"{arm}-{seed}"),
            "seed": seed,
            "model": {**RUN["model"], "name": start},
            "episodes": {**RUN["episodes"], "searchers": start},
            **ARMS[arm],
        }
    )


def score(trajectory: Trajectory, question: Question, corpus: Corpus, rewards: RewardConfig) -> Score:
    """Return the measures of one complete episode."""
    outcome, delegation = measure_outcome(trajectory, question, gold_of(question, corpus)), delegation_of(trajectory)
    return {
        "question": question.id,
        "spawning": float(delegation.started > 0),
        "searchers": delegation.started,
        "done": delegation.finished,
        "recall": outcome.recall,
        "critical_steps": trajectory.critical_steps,
        "searches": len(outcome.queries),
        "reward": compute_reward(outcome, rewards).total,
        "finished": float(outcome.ending == "finished"),
    }


def summarize(scores: ScoresByArm) -> dict[str, Any]:
    """Return every figure: means with intervals, the verdict on each arm, and differences between arms."""
    arms = [name for name in scores if name != "before"]
    return {
        "seeds": {name: len(runs) for name, runs in scores.items()},
        "questions": len(scores["before"][0]),
        "figures": {
            name: {measure: asdict(pooled(runs, measure)) for measure in MEASURES} for name, runs in scores.items()
        },
        "by_seed": {name: [pooled([run], "spawning").mean for run in runs] for name, runs in scores.items()},
        "done": {name: _done(runs) for name, runs in scores.items()},
        "less_half": {name: asdict(Figure.of(_less_half(scores[name], scores["before"]))) for name in arms},
        "collapsed": {name: collapsed(scores[name], scores["before"]) for name in arms},
        "against_without": {
            name: {measure: asdict(_against(scores[name], scores["without"], measure)) for measure in MEASURES}
            for name in arms
            if name != "without" and "without" in arms
        },
    }


def values(runs: Sequence[Sequence[Score]], measure: str) -> list[float]:
    """Return a value for each question: the mean over seeds."""
    return [fmean(float(score[measure]) for score in seeds) for seeds in zip(*runs, strict=True)]


def pooled(runs: Sequence[Sequence[Score]], measure: str) -> Figure:
    """Return the mean over questions with its interval."""
    return Figure.of(values(runs, measure))


def collapsed(after: Sequence[Sequence[Score]], before: Sequence[Sequence[Score]]) -> bool:
    """Apply the rule to an arm.

    Return True if significantly less than half as many episodes start sub-agents as after the demonstrations.
    """
    return Figure.of(_less_half(after, before)).high < 0


def _less_half(after: Sequence[Sequence[Score]], before: Sequence[Sequence[Score]]) -> list[float]:
    return [a - b / 2 for a, b in zip(values(after, "spawning"), values(before, "spawning"), strict=True)]


def _against(runs: Sequence[Sequence[Score]], reference: Sequence[Sequence[Score]], measure: str) -> Figure:
    return Figure.of([a - b for a, b in zip(values(runs, measure), values(reference, measure), strict=True)])


def _done(runs: Sequence[Sequence[Score]]) -> float | None:
    """Return the share of started sub-agents that finished. If none was started, return None."""
    started = sum(score["searchers"] for run in runs for score in run)
    return sum(score["done"] for run in runs for score in run) / started if started else None


def print_summary(summary: Mapping[str, Any]) -> None:
    """Print the figures as tables for a page, then the verdicts."""
    print(f"{summary['questions']} questions of the {summary['split']} split")
    print(f"| | seeds | {' | '.join(COLUMNS.values())} | sub-agents that finish |\n|{'---|' * (len(COLUMNS) + 3)}")
    for name, row in summary["figures"].items():
        done = summary["done"][name]
        cells = [
            f"{row[column]['mean']:.2f} [{row[column]['low']:.2f}, {row[column]['high']:.2f}]" for column in COLUMNS
        ]
        cells.append("none" if done is None else f"{done:.2f}")
        print(f"| {LABELS.get(name, 'after the demonstrations')} | {summary['seeds'][name]} | {' | '.join(cells)} |")
    for name, runs in summary["by_seed"].items():
        print(f"{name}, spawning by seed: " + ", ".join(f"{share:.2f}" for share in runs))
    for name, less in summary["less_half"].items():
        verdict = "collapsed" if summary["collapsed"][name] else "no collapse"
        print(f"{LABELS[name]}: spawning less half of the demonstrations' {signed(less)}: {verdict}")
    for name, shares in summary["training"].items():
        print(f"{name}, spawning in training by tenths: " + " ".join(f"{share:.2f}" for share in shares))
    for name, row in summary["against_without"].items():
        differences = "; ".join(f"{label} {signed(row[measure])}" for measure, label in COLUMNS.items())
        print(f"{LABELS[name]}, less without: {differences}")
    print("minutes: " + ", ".join(f"{name} {minutes:.1f}" for name, minutes in summary["minutes"].items()))


def signed(figure: Mapping[str, float]) -> str:
    """Return a difference as text, with its sign and its interval."""
    return f"{figure['mean']:+.3f} [{figure['low']:+.3f}, {figure['high']:+.3f}]"


def _run(options: argparse.Namespace, phase: str, seed: str) -> None:
    """Run one phase in a process of its own."""
    command = [sys.executable, __file__, "--out", str(options.out), "--split", options.split]
    print(f"{phase} {seed}", file=sys.stderr, flush=True)
    subprocess.run([*command, "--phase", phase, "--seeds", seed], check=True, stdout=subprocess.DEVNULL)


def _phase(options: argparse.Namespace) -> None:
    """Train on the demonstrations, or train and evaluate an arm. The phase `before` is only evaluated."""
    from context_agent.train import reinforcement, sft

    name, seed, out = options.phase, int(options.seeds), options.out
    run = (
        demonstration_run(out)
        if name == "demonstrations"
        else reward_run(out, "without" if name == "before" else name, seed)
    )
    if name != "before" and not (Path(run.out) / "final").is_dir():
        began = time.perf_counter()
        train = sft.train if name == "demonstrations" else reinforcement.train
        train(run, resume=(Path(run.out) / "checkpoints").is_dir())
        (Path(run.out) / "seconds.json").write_text(json.dumps(time.perf_counter() - began))
    if name != "demonstrations" and not (path := _scores_path(options, name, seed)).is_file():
        model = run.model.name if name == "before" else f"{run.out}/final"
        scores = _evaluate(replace(run, model=replace(run.model, name=model)), options.split)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(score) + "\n" for score in scores), encoding="utf-8")


def _evaluate(run: RunConfig, split: str) -> list[Score]:
    """Return the scores of a model on every question of a split, at temperature 1."""
    from context_agent.train.agents import build_agent
    from context_agent.train.models import load_model
    from context_agent.train.rl.rollouts import RolloutRequest, is_complete, play_episodes
    from context_agent.train.rl.samplers import open_sampler, subagent_engine
    from context_agent.train.toy.environment import make_environment

    assert run.data.world is not None
    world = make_environment(run.data.world)
    loaded, questions = load_model(run), world.questions[split]
    rewards = run.curriculum.rewards(RewardConfig(preset=RewardPreset.CONTEXT_1), 1.0)
    with ExitStack() as stack:
        engine, _ = stack.enter_context(open_sampler(run, loaded))
        searchers = stack.enter_context(subagent_engine(run, loaded.tokenizer))
        agent = build_agent(run, world.corpus, engine, loaded.renderer, temperature=1.0, searchers=searchers)
        stack.enter_context(agent)
        requests = [
            RolloutRequest(question, run.seed * len(questions) + n, question.id) for n, question in enumerate(questions)
        ]
        episodes = asyncio.run(play_episodes(agent, requests, run.rollouts.concurrency))
    complete = [episode for episode in episodes if is_complete(episode)]
    if len(complete) < len(requests):
        raise SystemExit(f"{len(requests) - len(complete)} of {len(requests)} episodes were aborted")
    return [
        score(episode, question, world.corpus, rewards) for episode, question in zip(complete, questions, strict=True)
    ]


def _scores_path(options: argparse.Namespace, name: str, seed: int | str) -> Path:
    return Path(options.out) / "evaluations" / f"{name}-{seed}-{options.split}.jsonl"


def _scores(options: argparse.Namespace, name: str, seed: str) -> list[Score]:
    lines = _scores_path(options, name, seed).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _minutes(out: Path) -> dict[str, float]:
    return {path.parent.name: float(path.read_text()) / 60 for path in sorted(out.glob("*/seconds.json"))}


def spawning_by_tenths(runs: Sequence[Sequence[Mapping[str, Any]]]) -> list[float]:
    """Return the share of training episodes that start sub-agents in each tenth of the updates, over all seeds."""
    last = max(line["step"] for run in runs for line in run)
    shares = [(line["step"], line["spawning"]) for run in runs for line in run if "spawning" in line]
    return [fmean(share for step, share in shares if (10 * step - 1) // last == n) for n in range(10)]


def _groups(lines: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], scores: ScoresByArm) -> list[plots.PlottedRuns]:
    """Return the curves of every arm, and its held-out figures. The level after the demonstrations appears once."""
    levels = [_plotted(scores["before"]), *[None] * (len(lines) - 1)]
    return [
        plots.PlottedRuns(LABELS[name], tuple(runs), level, _plotted(scores[name]))
        for (name, runs), level in zip(lines.items(), levels, strict=True)
    ]


def _plotted(runs: Sequence[Sequence[Score]]) -> dict[str, Any]:
    return {measure: pooled(runs, measure).mean for measure in MEASURES} | {"searchers_finished": _done(runs)}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/parl"))
    parser.add_argument("--seeds", default="0,1")
    parser.add_argument("--arms", default=",".join(ARMS), help=f"of {', '.join(ARMS)}")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--split", choices=["dev", "test"], default="test", help="dev: to choose settings by")
    parser.add_argument("--plot", type=Path, help="where the curves go")
    parser.add_argument("--phase", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
