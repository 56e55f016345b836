"""A test of runs that sample while they train. It kills them at random moments, resumes them, and judges the result.

    python -m context_agent.testing.killed_runs --student FOLDER --out FOLDER [--kills 25] [--steps 40]
        [--quota 1.0 ...] [--seed 0]

The run writes a ledger in addition to the product's own files. The ledger records which episodes were finished and on
disk, and which calls were parked. It also records which episodes each step took, and which each update trained. If a
process wrote about updates after the checkpoint from which the next process resumes, those entries do not count.

`judge` compares the ledger with the promise: no episode is lost, and none is trained twice. Each life, and the process
in which it samples, is a fork of a process that has already imported everything. The program prints a line of JSON for
each quota.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from context_agent.testing import tiny_runs, trainer_forks

SUBSTEPS = 2
SMALL = {"groups": 3, "rollouts": 4, "substeps": SUBSTEPS, "concurrency": 8, "save_every": 0}
LIFE = 40
"""The largest number of ledger entries after which a process is killed."""
PATIENCE = 600.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """The facts that a ledger shows about the episodes of a run.

    Attributes:
        finished: The number of episodes that were finished and on disk.
        parked: The number of episodes that were interrupted and saved between two calls.
        trained: The number of episodes that updates trained.
        lost: The ids of finished episodes that no step took, or that a step took with another trace.
        twice: The ids of episodes that several updates trained, or that several steps took.
        again: The ids of episodes that were finished a second time.
        unlike: The ids of parked episodes that no step took, or whose calls differ from the parked calls.
        missing: The number of requested episodes that no step took, plus the number of trained episodes that no step
            took.
    """

    finished: int
    parked: int
    trained: int
    lost: tuple[str, ...]
    twice: tuple[str, ...]
    again: tuple[str, ...]
    unlike: tuple[str, ...]
    missing: int

    @property
    def sound(self) -> bool:
        """True if the run kept the promise."""
        return not (self.lost or self.twice or self.again or self.unlike or self.missing)


def judge(ledger: Iterable[Mapping[str, Any]], *, episodes: int, substeps: int = SUBSTEPS) -> Verdict:
    """Return the verdict on a whole run.

    Args:
        ledger: The entries in the order in which they were written.
        episodes: The number of episodes that the run requested.
        substeps: The number of updates per step.
    """
    finished: dict[str, int] = {}
    again: list[str] = []
    parked: dict[str, dict[int, int]] = {}
    taken: dict[int, dict[str, Any]] = {}
    trained: dict[int, list[str]] = {}
    for entry in ledger:
        match entry["what"]:
            case "begun":
                taken = {step: ids for step, ids in taken.items() if step * substeps < entry["update"]}
                trained = {update: ids for update, ids in trained.items() if update < entry["update"]}
            case "finished":
                again += [entry["id"]] if entry["id"] in finished else []
                finished[entry["id"]] = entry["trace"]
            case "parked":
                calls = enumerate(entry["calls"], start=entry["first"])
                parked.setdefault(entry["id"], {}).update(calls)
            case "taken":
                taken[entry["step"]] = entry["episodes"]
            case "trained":
                trained[entry["update"]] = entry["ids"]
    course = {name: record for step in taken.values() for name, record in step.items()}
    trained_ids = [name for ids in trained.values() for name in ids]
    taken_ids = [name for step in taken.values() for name in step]
    return Verdict(
        finished=len(finished),
        parked=len(parked),
        trained=len(trained_ids),
        lost=tuple(name for name, trace in finished.items() if course.get(name, {}).get("trace") != trace),
        twice=tuple(sorted({name for names in (trained_ids, taken_ids) for name in names if names.count(name) > 1})),
        again=tuple(again),
        unlike=tuple(name for name, calls in parked.items() if not _goes_on(course.get(name), calls)),
        missing=episodes - len(set(taken_ids)) + len(set(trained_ids) - set(taken_ids)),
    )


def _goes_on(record: Mapping[str, Any] | None, calls: Mapping[int, int]) -> bool:
    return record is not None and all(record["calls"][index : index + 1] == [call] for index, call in calls.items())


def read(path: Path) -> list[dict[str, Any]]:
    """Return the entries of a ledger file. Lines that a kill truncated are left out."""
    entries = []
    for line in path.read_bytes().splitlines():
        try:
            entries.append(json.loads(line))
        except ValueError:
            continue
    return entries


class Ledger:
    """A file of JSON lines that is written without a buffer.

    If a kill truncates an entry, the next entry still starts on a new line.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def add(self, what: str, **fields: Any) -> None:
        """Write one entry."""
        os.write(self._file, b"\n" + json.dumps({"what": what, **fields}).encode() + b"\n")


def watch(ledger: Ledger) -> None:
    """Make this process record its episodes in the ledger."""
    loop: Any = import_module("context_agent.train.rl.loop")
    run: Any = import_module("context_agent.train.training_run").TrainingRun
    rollout_log: Any = import_module("context_agent.train.experimental.async_rollouts.rollout_log").RolloutLog
    scorer: Any = import_module("context_agent.train.rl.scoring").EpisodeScorer
    begin, write, score, fresh = run.__init__, rollout_log.write, scorer.score, loop.fresh_rows

    def begin_and_log(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        ledger.add("begun", update=self.first_update)

    def write_and_log(self: Any, records: Sequence[Any]) -> None:
        write(self, records)
        for record in records:
            if record["kind"] == "finished":
                ledger.add("finished", id=record["header"]["id"], trace=_trace(_logged_trajectory(record)))
            else:
                calls = [_code(call["sample"]["ids"]) for call in record["calls"]]
                ledger.add("parked", id=record["episode"], first=record["first"], calls=calls)

    def score_and_log(self: Any, step: int, played: Any, progress: float) -> Any:
        ledger.add("taken", step=step, episodes={result.header.id: _course(result) for result in played.results})
        return score(self, step, played, progress)

    def fresh_and_log(rows: Any, update: int, staleness: int) -> Any:
        rows = fresh(rows, update, staleness)
        ledger.add("trained", update=update, ids=sorted({item.row.episode_id for item in rows}))
        return rows

    run.__init__, rollout_log.write = begin_and_log, write_and_log
    scorer.score, loop.fresh_rows = score_and_log, fresh_and_log
    # A low bound, so that a test's few episodes are enough to compact the file.
    rollout_log.compact.__defaults__ = (1_000,)


def _logged_trajectory(record: Any) -> Any:
    from context_agent.harness.trajectory import Trajectory
    from context_agent.harness.trajectory_file import decode, decode_header

    return Trajectory(decode_header(dict(record["header"])), tuple(map(decode, record["events"])))


def _course(trajectory: Any) -> dict[str, Any]:
    from context_agent.policies.tokens.recorded_calls import calls

    return {"trace": _trace(trajectory), "calls": [_code(call.output) for call in calls(trajectory)]}


def _trace(trajectory: Any) -> int:
    """Return a checksum of the sampled tokens, their log-probabilities, and the versions that sampled them."""
    from context_agent.policies.tokens.recorded_calls import calls

    return _code([(list(call.output), list(call.logprobs), call.version) for call in calls(trajectory)])


def _code(data: Any) -> int:
    return zlib.crc32(json.dumps(list(data)).encode())


def run_of(student: str, out: Path, *, steps: int, quota: float) -> Any:
    """Return a short run that samples up to two steps ahead.

    Args:
        student: The folder of the policy to train.
        out: The output folder.
        steps: The number of steps.
        quota: The share of its groups that a step waits for.
    """
    return tiny_runs.rewards(
        Path(student),
        out,
        rollouts={**SMALL, "steps": steps},
        async_rollouts={"max_steps_ahead": 2, "quota": quota},
        evaluation={"every": 0},
    )


def start_life(options: argparse.Namespace, out: Path, quota: float, context: Any) -> int:
    """Fork a process that trains, and return its process id."""
    if (pid := os.fork()) != 0:
        return pid
    status = 1
    try:
        from context_agent.train import reinforcement

        process: Any = import_module("context_agent.train.experimental.async_rollouts.rollout_process")
        process.get_context = lambda _: context
        trainer_forks.inherited()
        watch(Ledger(out / "ledger.jsonl"))
        with (out / "notes.txt").open("a") as notes:
            run = run_of(options.student, out / "run", steps=options.steps, quota=quota)
            reinforcement.train(run, resume=True, note=lambda text: print(text, file=notes, flush=True))
        status = 0
    except BaseException:  # noqa: BLE001
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def kill_at_random(pid: int, ledger: Path, rng: random.Random) -> bool:
    """Kill a process after a random number of ledger entries and milliseconds.

    Args:
        pid: The process id.
        ledger: The ledger that the process writes.
        rng: The source of randomness.

    Returns:
        False if the process ended before it was killed.
    """
    offset, deadline = ledger.stat().st_size if ledger.exists() else 0, time.monotonic() + PATIENCE
    entries = rng.randrange(LIFE)
    while _count_entries(ledger, offset) < entries and time.monotonic() < deadline:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return False
        time.sleep(0.002)
    time.sleep(rng.uniform(0, 0.05))
    if os.waitpid(pid, os.WNOHANG)[0]:
        return False
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return True


def _count_entries(ledger: Path, after: int) -> int:
    if not ledger.exists():
        return 0
    with ledger.open("rb") as file:
        file.seek(after)
        return sum(bool(line.strip()) for line in file)


def main() -> int:
    """Run and judge each quota. If a run broke the promise, return 1. If not, return 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--student", required=True)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--quota", type=float, nargs="+", default=[1.0])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    import context_agent.train.reinforcement  # noqa: F401 - once, for all lives

    context = trainer_forks.prepared()
    return int(not all(sound_under_kills(options, options.out / str(quota), quota, context) for quota in options.quota))


def sound_under_kills(options: argparse.Namespace, out: Path, quota: float, context: Any) -> bool:
    """Kill a run several times, and resume it after each kill. Print the verdict as JSON.

    Return True if the run kept its promise.
    """
    out.mkdir(parents=True, exist_ok=True)
    rng, kills, ledger = random.Random(options.seed), 0, out / "ledger.jsonl"
    while kills < options.kills:
        if not kill_at_random(start_life(options, out, quota, context), ledger, rng):
            break
        kills += 1
    _, status = os.waitpid(start_life(options, out, quota, context), 0)
    verdict = judge(read(ledger), episodes=options.steps * SMALL["groups"] * SMALL["rollouts"])
    notes = (out / "notes.txt").read_text().splitlines()
    course = {
        "kills": kills,
        "ended": os.waitstatus_to_exitcode(status),
        "resumed": sum(note.startswith("resuming") for note in notes),
        "torn": sum("incomplete" in note for note in notes),
        "diverged": sum("starts again" in note for note in notes),
    }
    # The output is flushed, or each later fork would write it again.
    print(json.dumps({"quota": quota, **course, **asdict(verdict), "sound": verdict.sound}), flush=True)  # noqa: T201
    return verdict.sound and not status


if __name__ == "__main__":
    sys.exit(main())
