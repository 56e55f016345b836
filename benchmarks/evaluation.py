"""Measure the time of an evaluation of the embedded policy, and whether its figures depend on concurrency.

    python benchmarks/evaluation.py --data FOLDER [--sets musique,2wiki,hotpotqa] [--cache FOLDER] [--cores 2]
        [--limit QUESTIONS] [--json]

A set is a folder with `corpus.jsonl.gz` and `queries.dev.jsonl`. The program runs `ctx1 eval` with the systems
`hybrid` and `agent` on the dev questions of all sets, with indexed corpora and the processes limited to `--cores`. It
prints wall time, CPU time and the machine's load, because a busy machine increases only the wall time. It then repeats
the run, also with one and with eight questions at a time, and compares records and summaries without wall times.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from context_agent.eval.evaluation import summarize_run
from context_agent.eval.records import read_records

SETS = "musique,2wiki,hotpotqa"
SYSTEMS = "hybrid,agent"


@dataclass(frozen=True)
class Timed:
    """A finished command: its output folder, its wall time and its CPU time in seconds."""

    folder: Path
    wall: float
    cpu: float


def main() -> int:
    """Print a table. If figures differ, return 1."""
    options = _options()
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: options.cores]))
    ctx1 = shutil.which("ctx1", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")
    if ctx1 is None:
        print("ctx1 is not installed in the environment of this Python", file=sys.stderr)
        return 2
    command = [ctx1, "eval", "--benchmarks", options.sets, "--data", str(options.data), "--cache", str(options.cache)]
    command += ["--split", "dev"] + (["--limit", str(options.limit)] if options.limit else [])
    subprocess.run([*command, "--check-only"], check=True, stdout=subprocess.DEVNULL)
    command += ["--systems", SYSTEMS]
    with tempfile.TemporaryDirectory() as scratch:
        runs = {
            name: run(command, Path(scratch) / name, extra)
            for name, extra in (
                ("the command", []),
                ("again", []),
                ("1 at once", ["--concurrency", "1"]),
                ("8 at once", ["--concurrency", "8"]),
            )
        }
        prints = {name: fingerprint(timed.folder) for name, timed in runs.items()}
        questions = len({record.key for record in read_records(runs["the command"].folder) if record.system == "agent"})
    return show(runs, prints, questions, options)


def run(command: list[str], folder: Path, extra: list[str]) -> Timed:
    """Run the command with a new output folder."""
    before, started = _cpu(), time.perf_counter()
    subprocess.run([*command, "--out", str(folder), *extra], check=True, stdout=subprocess.DEVNULL)
    return Timed(folder, time.perf_counter() - started, _cpu() - before)


def fingerprint(folder: Path) -> str:
    """Return all records and the summary as text, without wall times."""
    records = [replace(timed, seconds=0.0).to_json() for timed in read_records(folder)]
    summary = summarize_run(folder).to_json()
    for cell in (*summary["cells"], *summary["pools"]):
        for values in (cell["metrics"], cell["differences"]):
            values.pop("seconds", None)
    return json.dumps([records, summary])


def show(runs: dict[str, Timed], prints: dict[str, str], questions: int, options: argparse.Namespace) -> int:
    """Print the figures. If a run's figures differ from those of the first run, return 1."""
    first = next(iter(prints.values()))
    same = {name: timed == first for name, timed in prints.items()}
    if options.json:
        rows = {name: {"wall_s": timed.wall, "cpu_s": timed.cpu, "same": same[name]} for name, timed in runs.items()}
        print(json.dumps({"questions": questions, "cores": options.cores, "load": os.getloadavg()[1], "runs": rows}))
    else:
        print(f"{questions} questions, {options.cores} cores, load of the last 5 minutes {os.getloadavg()[1]:.1f}")
        for name, timed in runs.items():
            verdict = "identical figures" if same[name] else "OTHER FIGURES"
            print(f"{name:12} {timed.wall:6.1f} s wall {timed.cpu:6.1f} s computing  {verdict}")
    return 0 if all(same.values()) else 1


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder that contains the sets")
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--cache", type=Path, default=Path(".cache/evaluation"), help="keeps indexed corpora")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--limit", type=int, help="maximum number of questions per set")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
