"""Measure whether attempts with different efforts differ, and whether the difficulty estimate predicts their results.

    python benchmarks/task_quality.py CORPUS QUESTIONS.jsonl [--limit N]

The bridge policy attempts each question four times, from a single search up to its full effort. The program prints the
mean recall of each attempt, and how many questions are solved by how many attempts. It also prints the correlation of
the estimate with mean recall. The estimate does not use the attempts. If harder questions have lower recall, the
correlation is below 0.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter

import numpy as np

from context_agent import BridgePolicy, MemoryCorpus
from context_agent.retrieval.loaders import load
from context_agent.synth_data.attempts import AttemptResults, PassAtN, build_attempts
from context_agent.synth_data.difficulty import estimate_difficulty
from context_agent.synth_data.task import Task, load_tasks

PASSES = 4


async def run_attempts(trial: PassAtN, tasks: list[Task]) -> list[AttemptResults]:
    """Return the results of the attempts at each task."""
    return [await trial.run(task) for task in tasks]


def main() -> None:
    """Read the tasks, attempt them and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("corpus")
    parser.add_argument("questions")
    parser.add_argument("--limit", type=int, help="questions from the start of the file; all by default")
    options = parser.parse_args()
    corpus = MemoryCorpus(load(options.corpus), embedder="static")
    tasks = load_tasks(options.questions)[: options.limit]
    trial = PassAtN(build_attempts(corpus, BridgePolicy(), PASSES, "effort"), "effort")
    passes = asyncio.run(run_attempts(trial, tasks))
    recalls = np.array([results.recalls for results in passes])
    solved = Counter(results.solved(trial.threshold) for results in passes)
    print(f"{len(tasks)} questions of {options.questions}")
    for attempt, mean in zip(trial.attempts, recalls.mean(axis=0), strict=True):
        print(f"  {attempt.label}: recall@{trial.k} {mean:.3f}")
    print(f"  solved by 0 to {PASSES} attempts: {', '.join(str(solved[count]) for count in range(PASSES + 1))}")
    scores = [estimate_difficulty(task, corpus).score for task in tasks]
    print(f"  correlation of the estimate with mean recall: {np.corrcoef(scores, recalls.mean(axis=1))[0, 1]:.2f}")
    trial.close()


if __name__ == "__main__":
    main()
