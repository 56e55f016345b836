"""PARL in training on the closed world: does an orchestrator stop starting sub-agents when nothing pays for them?

    python benchmarks/parl.py [--out runs/parl] [--seeds 0,1] [--arms without,with,priced] [--jobs 2] [--plot FILE]

A question asks for three chains of two documents. The demonstrations show two ways in equal parts, which find about as
much: searching one document after the other, and starting a sub-agent on each chain and ranking what they bring.
Rewards then train the orchestrator alone; its sub-agents are the model that the demonstrations left, and stay that. The
arms differ in the reward and in nothing else: `without` has no weight in `[parl]`, `with` has both, which fall to 0 at
`UNTIL` of the updates. `priced` has none either, but each turn costs; it was added once both others ended alike in
training.

The demonstrations are shared; seeds are those of the training by rewards. Each run is a process of one thread. What was
done is not done again. Figures are of the test split, asked once at temperature 1: a question's value is the mean over
seeds, and questions are resampled (paired bootstrap, 95 %).

The rule, fixed before the runs: an arm has collapsed where the share of episodes that start sub-agents is below half of
what it was after the demonstrations, the interval of that difference below 0. Needs the extras `train` and `plots`.
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

from context_agent._support.question_files import Question
from context_agent.eval.gold import gold_of
from context_agent.eval.statistics import Figure
from context_agent.harness.trajectory import Trajectory
from context_agent.retrieval.corpus import Corpus
from context_agent.train import config
from context_agent.train.checkpoints import read_metrics
from context_agent.train.config import RunConfig
from context_agent.train.demo import report
from context_agent.train.rewards import RewardConfig, compute_reward, delegation_of, measure_outcome

UNTIL = 0.5
"""Of the updates: from here on the performance alone is rewarded, in either arm."""
ARMS: Mapping[str, Mapping[str, Any]] = {
    "without": {},
    "with": {"parl": {"parallel": 0.3, "finish": 0.1, "until": UNTIL, "breadth": 3}},
    "priced": {"rewards": {"turn_from": 1, "turn_to": 7, "turn_most": 0.3}},
}
"""What an arm's run file says else. `priced` has no r_parallel: each turn past the first costs .05, to the end."""
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
"""What the demonstrations and the rewards share. A search shows one document, as a name brings up its own first."""
DEMONSTRATIONS: Mapping[str, Any] = {
    "tiny": {"hidden": 64, "layers": 2, "experts": 2, "positions": 2_048, "deviation": 0.1, "tied": True},
    "sft": {"demonstrations": 12_000, "epochs": 2, "rows": 16, "rows_per_pass": 16},
    "optimiser": {
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
    "curriculum": {"beta": [4, 2]},
    "loss": {"kind": "cispo", "pass_tokens": 4_096},
    "optimiser": {"learning_rate": 5e-4, "betas": [0.9, 0.99], "warmup": 5},
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
"""Of an episode on a held-out question. `reward` is the performance's, without a price, however the arm was trained."""
SHOWN = {
    "spawning": "episodes that start sub-agents",
    "searchers": "sub-agents an episode",
    "recall": "output recall",
    "critical_steps": "critical steps",
    "reward": "reward",
}

Score = Mapping[str, Any]
Asked = Mapping[str, Sequence[Sequence[Score]]]
"""By `before` and arm: the scores of each seed, in the order of the questions."""


def main() -> int:
    """Runs what is missing, then prints the figures."""
    options = _options()
    if options.phase:
        _phase(options)
        return 0
    seeds = options.seeds.split(",")
    runs = dict.fromkeys(options.arms.split(","), seeds)
    _run(options, "demonstrations", "0")
    asked_of = {"before": seeds, **runs}
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(_run, options, name, seed) for name, found in asked_of.items() for seed in found]
        for job in jobs:
            job.result()
    asked = {name: [_scores(options, name, seed) for seed in found] for name, found in asked_of.items()}
    lines = {
        name: [list(read_metrics(options.out / f"{name}-{one}" / "metrics.jsonl")) for one in runs[name]]
        for name in runs
    }
    found = measured(asked) | {"split": options.split, "minutes": _minutes(options.out)}
    found["training"] = {name: tenths(one) for name, one in lines.items()}
    (options.out / f"parl-{options.split}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    plot = options.plot or options.out / "parl.svg"
    plot.write_text(report.plot(_groups(lines, asked), PANELS), encoding="utf-8")
    show(found)
    print(f"{options.out / f'parl-{options.split}.json'}  {plot}")
    return 0


def demonstrations(out: Path) -> RunConfig:
    """The run that teaches both ways, from scratch."""
    chosen = dict(DEMONSTRATIONS)
    model = {**RUN["model"], "tiny": chosen.pop("tiny")}
    return config.parse_run({**RUN, **chosen, "model": model, "out": str(out / "demonstrations")})


def rewarded(out: Path, arm: str, seed: int) -> RunConfig:
    """An arm's run by rewards; its sub-agents have the model that the demonstrations left, and keep it."""
    start = str(out / "demonstrations" / "final")
    return config.parse_run(
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
    """The measures of one whole episode."""
    came, made = measure_outcome(trajectory, question, gold_of(question, corpus)), delegation_of(trajectory)
    return {
        "question": question.id,
        "spawning": float(made.started > 0),
        "searchers": made.started,
        "done": made.finished,
        "recall": came.recall,
        "critical_steps": trajectory.critical_steps,
        "searches": len(came.queries),
        "reward": compute_reward(came, rewards).total,
        "finished": float(came.ending == "finished"),
    }


def measured(asked: Asked) -> dict[str, Any]:
    """Every figure: means with intervals, each arm's verdict, and the arms against each other."""
    arms = [name for name in asked if name != "before"]
    return {
        "seeds": {name: len(runs) for name, runs in asked.items()},
        "questions": len(asked["before"][0]),
        "figures": {name: {one: asdict(pooled(runs, one)) for one in MEASURES} for name, runs in asked.items()},
        "by_seed": {name: [pooled([run], "spawning").mean for run in runs] for name, runs in asked.items()},
        "done": {name: _done(runs) for name, runs in asked.items()},
        "less_half": {name: asdict(Figure.of(_less_half(asked[name], asked["before"]))) for name in arms},
        "collapsed": {name: collapsed(asked[name], asked["before"]) for name in arms},
        "against_without": {
            name: {one: asdict(_against(asked[name], asked["without"], one)) for one in MEASURES}
            for name in arms
            if name != "without" and "without" in arms
        },
    }


def values(runs: Sequence[Sequence[Score]], measure: str) -> list[float]:
    """A value for each question: the mean over seeds."""
    return [fmean(float(one[measure]) for one in seeds) for seeds in zip(*runs, strict=True)]


def pooled(runs: Sequence[Sequence[Score]], measure: str) -> Figure:
    """The mean over questions with its interval."""
    return Figure.of(values(runs, measure))


def collapsed(after: Sequence[Sequence[Score]], before: Sequence[Sequence[Score]]) -> bool:
    """The rule: less than half as many episodes start sub-agents as the demonstrations taught, beyond chance."""
    return Figure.of(_less_half(after, before)).high < 0


def _less_half(after: Sequence[Sequence[Score]], before: Sequence[Sequence[Score]]) -> list[float]:
    return [a - b / 2 for a, b in zip(values(after, "spawning"), values(before, "spawning"), strict=True)]


def _against(ours: Sequence[Sequence[Score]], theirs: Sequence[Sequence[Score]], measure: str) -> Figure:
    return Figure.of([a - b for a, b in zip(values(ours, measure), values(theirs, measure), strict=True)])


def _done(runs: Sequence[Sequence[Score]]) -> float | None:
    """Of all sub-agents started, the share that finished; None where none was."""
    started = sum(one["searchers"] for run in runs for one in run)
    return sum(one["done"] for run in runs for one in run) / started if started else None


def show(found: Mapping[str, Any]) -> None:
    """The figures as tables for a page, then the verdicts."""
    print(f"{found['questions']} questions of the {found['split']} split")
    print(f"| | seeds | {' | '.join(SHOWN.values())} | sub-agents that finish |\n|{'---|' * (len(SHOWN) + 3)}")
    for name, row in found["figures"].items():
        done = found["done"][name]
        cells = [f"{row[one]['mean']:.2f} [{row[one]['low']:.2f}, {row[one]['high']:.2f}]" for one in SHOWN]
        cells.append("none" if done is None else f"{done:.2f}")
        print(f"| {LABELS.get(name, 'after the demonstrations')} | {found['seeds'][name]} | {' | '.join(cells)} |")
    for name, runs in found["by_seed"].items():
        print(f"{name}, spawning by seed: " + ", ".join(f"{one:.2f}" for one in runs))
    for name, less in found["less_half"].items():
        verdict = "collapsed" if found["collapsed"][name] else "no collapse"
        print(f"{LABELS[name]}: spawning less half of the demonstrations' {signed(less)}: {verdict}")
    for name, shares in found["training"].items():
        print(f"{name}, spawning in training by tenths: " + " ".join(f"{one:.2f}" for one in shares))
    for name, row in found["against_without"].items():
        told = "; ".join(f"{told} {signed(row[one])}" for one, told in SHOWN.items())
        print(f"{LABELS[name]}, less without: {told}")
    print("minutes: " + ", ".join(f"{name} {one:.1f}" for name, one in found["minutes"].items()))


def signed(found: Mapping[str, float]) -> str:
    """A difference with its interval."""
    return f"{found['mean']:+.3f} [{found['low']:+.3f}, {found['high']:+.3f}]"


def _run(options: argparse.Namespace, phase: str, seed: str) -> None:
    """One phase in a process of its own."""
    command = [sys.executable, __file__, "--out", str(options.out), "--split", options.split]
    print(f"{phase} {seed}", file=sys.stderr, flush=True)
    subprocess.run([*command, "--phase", phase, "--seeds", seed], check=True, stdout=subprocess.DEVNULL)


def _phase(options: argparse.Namespace) -> None:
    """The demonstrations; or an arm by rewards, unless it is `before`, and then the questions of the split."""
    from context_agent.train import sft
    from context_agent.train.rl import loop

    name, seed, out = options.phase, int(options.seeds), options.out
    run = (
        demonstrations(out)
        if name == "demonstrations"
        else rewarded(out, "without" if name == "before" else name, seed)
    )
    if name != "before" and not (Path(run.out) / "final").is_dir():
        began = time.perf_counter()
        train = sft.train if name == "demonstrations" else loop.train
        train(run, resume=(Path(run.out) / "checkpoints").is_dir())
        (Path(run.out) / "seconds.json").write_text(json.dumps(time.perf_counter() - began))
    if name != "demonstrations" and not (place := _place(options, name, seed)).is_file():
        trained = run.model.name if name == "before" else f"{run.out}/final"
        found = _ask(replace(run, model=replace(run.model, name=trained)), options.split)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")


def _ask(run: RunConfig, split: str) -> list[Score]:
    """The scores of a model on every question of a split, at the temperature it was trained at."""
    from context_agent.train.data import build_agent, environment_of
    from context_agent.train.models import load_model, subagent_engine
    from context_agent.train.rl.loop import open_sampler
    from context_agent.train.rl.rollouts import RolloutRequest, is_complete, play_episodes

    world = environment_of(run.data)
    assert world is not None
    loaded, questions = load_model(run, world), world.questions[split]
    rewards = run.curriculum.rewards(RewardConfig(), 1.0)
    with ExitStack() as stack:
        engine, _ = stack.enter_context(open_sampler(run, loaded))
        searchers = stack.enter_context(subagent_engine(run, loaded.tokenizer))
        agent = build_agent(run, world.corpus, engine, loaded.renderer, temperature=1.0, searchers=searchers)
        stack.enter_context(agent)
        asks = [RolloutRequest(one, run.seed * len(questions) + n, one.id) for n, one in enumerate(questions)]
        ended = asyncio.run(play_episodes(agent, asks, run.rollouts.concurrency))
    done = [one for one in ended if is_complete(one)]
    if len(done) < len(asks):
        raise SystemExit(f"{len(asks) - len(done)} of {len(asks)} episodes came to no end of their own")
    return [score(one, asked, world.corpus, rewards) for one, asked in zip(done, questions, strict=True)]


def _place(options: argparse.Namespace, name: str, seed: int | str) -> Path:
    return Path(options.out) / "asked" / f"{name}-{seed}-{options.split}.jsonl"


def _scores(options: argparse.Namespace, name: str, seed: str) -> list[Score]:
    lines = _place(options, name, seed).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _minutes(out: Path) -> dict[str, float]:
    return {one.parent.name: float(one.read_text()) / 60 for one in sorted(out.glob("*/seconds.json"))}


def tenths(runs: Sequence[Sequence[Mapping[str, Any]]]) -> list[float]:
    """The share of training episodes that start sub-agents in each tenth of the updates, over all seeds."""
    last = max(line["step"] for run in runs for line in run)
    shares = [(line["step"], line["spawning"]) for run in runs for line in run if "spawning" in line]
    return [fmean(one for step, one in shares if (10 * step - 1) // last == n) for n in range(10)]


def _groups(lines: Mapping[str, Sequence[Sequence[Mapping[str, Any]]]], asked: Asked) -> list[report.PlottedRuns]:
    """The curves of every arm, with what the held-out questions gave; the demonstrations' level once, as they are
    shared.
    """
    levels = [_plotted(asked["before"]), *[None] * (len(lines) - 1)]
    return [
        report.PlottedRuns(LABELS[name], tuple(runs), level, _plotted(asked[name]))
        for (name, runs), level in zip(lines.items(), levels, strict=True)
    ]


def _plotted(runs: Sequence[Sequence[Score]]) -> dict[str, Any]:
    return {one: pooled(runs, one).mean for one in MEASURES} | {"searchers_finished": _done(runs)}


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
