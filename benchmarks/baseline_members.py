"""Compare the two values of `rollouts.baseline_members`, with demonstrations in the groups of the demo.

    python benchmarks/train_demo.py --out runs/train-demo --demo "--questions 300"
    python benchmarks/baseline_members.py --demo runs/train-demo [--seeds 0,1,2]

In each group, one of the eight episodes is a demonstration by an expert that finds all gold. With `all`, it counts in
the mean that the group's rewards are compared with. With `sampled`, the mean is that of the sampled episodes. Both
start from the demo's own demonstrations, and the rewards without any demonstration in the groups are the demo's own
run. Figures pool the held-out tasks: the value of a task is the mean over seeds, and tasks are resampled (paired
bootstrap, 95%). If you start the program again after an interruption, it resumes. It needs the extra `train`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from context_agent.agent import SearchAgent
from context_agent.eval.statistics import Figure
from context_agent.harness.trajectory_file import write
from context_agent.policies.tokens import VocabularyCounter
from context_agent.train import reinforcement
from context_agent.train.agents import episode_profile
from context_agent.train.checkpoints import settings_digest
from context_agent.train.config import BaselineMembers, RunConfig
from context_agent.train.demo.course import DemoEvaluation, DemoEvaluator, is_trained
from context_agent.train.demo.plan import DemoOptions, DemoPlan, make_plan
from context_agent.train.demo.scores import DemoScore, load_scores, paired_differences
from context_agent.train.models import load_model
from context_agent.train.rl.rollouts import step_questions
from context_agent.train.toy.environment import ToyEnvironment, make_environment
from context_agent.train.toy.expert import ExpertNoise, NoisyExpert

FLAWLESS = ExpertNoise(stop=0.0, stray=0.0, untidy=0.0)
MEASURES = ("recall", "seen", "searches", "precision")
TEMPERATURES = {"sampled": "t1", "greedy": "greedy"}


def main() -> None:
    """Train what is missing, then print the comparison."""
    options = _options()
    folders = [options.demo / f"seed-{seed}" for seed in options.seeds.split(",")]
    for folder in folders:
        _train(folder, options.questions, options.steps)
    for name, key in TEMPERATURES.items():
        runs = {
            variant: [_scores(folder, evaluation, key) for folder in folders]
            for variant, evaluation in (
                ("lessons", "before"),
                ("no demonstration", "after"),
                *((members.value, f"after-{members.value}") for members in BaselineMembers),
            )
        }
        _print(name, runs)


def _train(folder: Path, questions: int, steps: int | None) -> None:
    seed = json.loads((folder / "rl" / "run.json").read_text(encoding="utf-8"))["seed"]
    plan = make_plan(DemoOptions(folder, seed=seed, threads=1, questions=questions, steps=steps))
    assert plan.rl.data.world is not None
    world = make_environment(plan.rl.data.world)
    trajectories = folder / "expert"
    if not trajectories.is_dir():
        _play_expert(plan.rl, world, trajectories)
    for members in BaselineMembers:
        run = replace(
            plan.rl,
            out=str(folder / f"rl-{members.value}"),
            data=replace(plan.rl.data, trajectories=str(trajectories)),
            rollouts=replace(plan.rl.rollouts, demonstrations=1, baseline_members=members),
        )
        if not is_trained(run):
            resume = (Path(run.out) / "checkpoints").is_dir()
            reinforcement.train(run, resume=resume, note=print, advance=_print_update)
        _evaluate(replace(plan, rl=run), members)


def _play_expert(run: RunConfig, world: ToyEnvironment, folder: Path) -> None:
    """Play each question of the run once, in the window of its first group."""
    renderer = load_model(run).renderer
    questions = world.questions["train"]
    expert = NoisyExpert(questions, world.titles, FLAWLESS, VocabularyCounter(renderer))
    agent = SearchAgent(world.corpus, expert, profile=episode_profile(run), budget=run.episodes.budget)
    drawn = {
        question.id: (group, question)
        for step in reversed(range(run.rollouts.steps))
        for group, question in enumerate(step_questions(step, questions, run.curriculum, run.drawing))
    }

    async def play() -> None:
        for number, (group, question) in enumerate(drawn.values()):
            budget = run.episodes.training_budget(group)
            result = await agent.asearch(question.question, question_id=question.id, budget=budget)
            write(result.trajectories[0], folder / f"{number:05d}.jsonl")

    folder.mkdir()
    asyncio.run(play())


def _evaluate(plan: DemoPlan, members: BaselineMembers) -> None:
    name = f"after-{members.value}"
    trained = settings_digest(plan.rl.plain())
    evaluation = DemoEvaluation(name, Path(plan.rl.out) / "final", trained, plan.rl.episodes)
    DemoEvaluator(plan, print).evaluate(evaluation, _print_update)


def _print_update(done: int, total: int) -> None:
    print(f"{done} of {total}", file=sys.stderr, flush=True)


def _scores(folder: Path, evaluation: str, temperature: str) -> list[DemoScore]:
    path = folder / "evaluations" / f"{evaluation}-{temperature}.jsonl"
    scores = load_scores(path)
    if scores is None:
        raise SystemExit(f"{path} is missing. Run benchmarks/train_demo.py to its end first.")
    return scores


def _print(name: str, runs: Mapping[str, Sequence[Sequence[DemoScore]]]) -> None:
    print(f"\n{name:<18}" + "".join(f"{measure:>12}" for measure in MEASURES))
    for variant, seeds in runs.items():
        means = (fmean(getattr(score, measure) for run in seeds for score in run) for measure in MEASURES)
        print(f"{variant:<18}" + "".join(f"{mean:>12.3f}" for mean in means))
    for first, second in (("sampled", "all"), ("sampled", "no demonstration"), ("all", "no demonstration")):
        pairs = [paired_differences(a, b, "recall") for a, b in zip(runs[first], runs[second], strict=True)]
        pooled = Figure.of([fmean(values) for values in zip(*pairs, strict=True)])
        by_seed = ", ".join(f"{fmean(values):+.3f}" for values in pairs)
        print(f"recall, {first} less {second}: {pooled.mean:+.3f} [{pooled.low:.3f}, {pooled.high:.3f}]; {by_seed}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--demo", type=Path, required=True, help="the folder of benchmarks/train_demo.py")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--questions", type=int, default=300, help="held-out questions, as in the demo")
    parser.add_argument("--steps", type=int, help="steps of reinforcement learning  [default: those of the demo]")
    return parser.parse_args()


if __name__ == "__main__":
    main()
