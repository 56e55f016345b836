"""Describe the episodes of the oracle expert, and the ones that the filters keep. Needs no language model and no GPU.

    python benchmarks/demonstrations.py --data FOLDER [--set 2wiki] [--tasks 200] [--window 4096] [--rollouts 1]
        [--pace 0] [--prune-at 0.5] [--noise 0] [--profile default] [--expert oracle|bridge] [--seed 0] [--json]

FOLDER/SET has `corpus.jsonl.gz` and `queries.train.jsonl`. The tasks are train questions, drawn with the seed. The
program prints means over all episodes and over those that are kept, the number of episodes that each rule dropped, and
the number of episodes per second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from pathlib import Path

from context_agent.budget import Budget
from context_agent.harness.profile import named_profile
from context_agent.policies.bridge import BridgePolicy
from context_agent.retrieval.loaders import load
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.synth_data.demonstrations.experts import instructed_expert, oracle_expert
from context_agent.synth_data.demonstrations.oracle import OracleSettings
from context_agent.synth_data.demonstrations.player import DemonstrationSettings
from context_agent.synth_data.demonstrations.report import DemonstrationReport
from context_agent.synth_data.demonstrations.runs import make_demonstrations
from context_agent.synth_data.task import load_tasks


def main() -> None:
    """Play the tasks and print the report."""
    options = _options()
    folder = options.data / options.set
    corpus = MemoryCorpus(load(folder / "corpus.jsonl.gz"), embedder="static")
    tasks = load_tasks(folder / "queries.train.jsonl")
    drawn = random.Random(options.seed).sample(tasks, min(options.tasks, len(tasks)))
    chosen = named_profile(options.profile)
    oracle = OracleSettings(pace=options.pace or None, prune_at=options.prune_at, noise=options.noise)
    expert = (
        oracle_expert(settings=oracle, profile=chosen)
        if options.expert == "oracle"
        else instructed_expert(BridgePolicy())
    )
    settings = DemonstrationSettings(options.rollouts, chosen, Budget(options.window), seed=options.seed)
    with tempfile.TemporaryDirectory() as out:
        began = time.perf_counter()
        report = asyncio.run(make_demonstrations(drawn, corpus, expert, Path(out), settings))
        rate = report.episodes / (time.perf_counter() - began)
    if options.json:
        print(json.dumps({**report.to_json(), "episodes_per_second": rate}))
    else:
        _show(report, rate)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--set", default="2wiki")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--window", type=int, default=4096)
    parser.add_argument("--rollouts", type=int, default=1)
    parser.add_argument("--pace", type=int, default=0, help="searches of a turn; 0: as many as the explorer makes")
    parser.add_argument("--prune-at", type=float, default=0.5)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("--profile", default="default")
    parser.add_argument("--expert", choices=["oracle", "bridge"], default="oracle")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def _show(report: DemonstrationReport, rate: float) -> None:
    print(f"{report.tasks} tasks, {report.episodes} episodes, {rate:.1f} a second")
    print(f"not played {dict(report.unplayed)}, kept {dict(report.kept)}, dropped {dict(report.dropped)}")
    for name, played, kept in report.figures():
        print(f"{name:<18} {played:>28} {kept:>28}")


if __name__ == "__main__":
    main()
