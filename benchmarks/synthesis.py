"""Measure what `ctx1 synth` makes without a language model, how fast, and whether a killed run can be resumed.

    python benchmarks/synthesis.py --data FOLDER [--sets 2wiki,hotpotqa,musique] [--drawn 200] [--show 0]
    python benchmarks/synthesis.py --world
    python benchmarks/synthesis.py --resume

A set is a folder with `corpus.jsonl.gz` (`id`, `title`, `text`). For each set the program prints the number of tasks
that pass verification, and their rate after the corpus is read and linked. It draws `--drawn` tasks, and prints the
share for which the gold is needed. This means that BM25 with the question alone misses at least one gold document in
its top 5. `--show N` prints N of these tasks.

`--world` makes a world of 10,000 entities with 20,000 tasks twice, in a process as a user would run it. It prints the
times, and whether both worlds have the same bytes.

`--resume` runs the stages that use a language model against a scripted server, which fails half of the calls. It kills
the runs after 20, 60 and 100 answers, resumes them, and compares the files with those of an undisturbed run.

Each figure is printed with its target. If a target is missed, the program exits with 1. The targets for tasks apply
only to 2wiki.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from context_agent.retrieval.chunker import DEFAULT_CHUNK_TOKENS, chunk_document
from context_agent.retrieval.index.bm25 import Bm25Entry, Bm25Index
from context_agent.synth_data.links.tasks import LinkTasks, LinkTaskSettings
from context_agent.synth_data.task import Task
from context_agent.tokens import HarmonyCounter
from context_agent.types import Chunk, Document

sys.path.insert(0, str(Path(__file__).parent.parent))

CUTOFF = 5
ENTITIES, TASKS = 10_000, 20_000
LEAST_TASKS, LEAST_RATE, LEAST_NEEDED, MOST_SECONDS = 5_000, 200, 0.6, 60
BOUND = "2wiki"
"""The set to which the targets for tasks apply."""
MOMENTS = (20, 60, 100)
"""The numbers of answers after which a run is killed."""


def chunks_of(folder: Path) -> list[Chunk]:
    """Return the chunks of a set's corpus, as it would be indexed."""
    counter = HarmonyCounter()
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as rows:
        documents = [Document(row["id"], row["text"], row["title"]) for row in map(json.loads, rows)]
    return [
        piece
        for document in documents
        for piece in chunk_document(document, size=DEFAULT_CHUNK_TOKENS, counter=counter)
    ]


def gold_needed(chunks: Sequence[Chunk], tasks: Sequence[Task]) -> tuple[float, dict[str, str]]:
    """Return the share of the tasks for which one search misses a gold document, and the counts by type and hops."""
    index = Bm25Index.of(Bm25Entry(chunk.id, chunk.title, chunk.text) for chunk in chunks)
    document = {chunk.id: chunk.document_id for chunk in chunks}
    totals, missed = Counter[str](), Counter[str]()
    for task in tasks:
        top = {document[chunk_id] for chunk_id, _ in index.search(task.question, CUTOFF)}
        totals[f"{task.type}, {task.hops}"] += 1
        missed[f"{task.type}, {task.hops}"] += not set(task.gold) <= top
    return missed.total() / totals.total(), {key: f"{missed[key]}/{count}" for key, count in sorted(totals.items())}


def measure(folder: Path, drawn: int, show: int) -> bool:
    """Print the figures of one set. If they reach their targets, return True."""
    chunks = chunks_of(folder)
    began = time.perf_counter()
    links = LinkTasks(chunks, LinkTaskSettings())
    read = time.perf_counter() - began
    began = time.perf_counter()
    tasks = list(links.tasks())
    seconds = time.perf_counter() - began
    sample = random.Random(0).sample(tasks, min(drawn, len(tasks)))
    share, by_type = gold_needed(chunks, sample)
    rate, bound = len(tasks) / seconds, folder.name == BOUND
    print(
        f"{folder.name}: {len(tasks):,} tasks from {links.counts.links:,} links{_least(bound, f'{LEAST_TASKS:,}')}; "
        f"{rate:,.0f} a second after {read:.1f} s of linking{_least(bound, LEAST_RATE)}; gold needed for {share:.0%} "
        f"of {len(sample)}{_least(bound, f'{LEAST_NEEDED:.0%}')}"
    )
    print(f"  gold needed by type and hops: {by_type}")
    print(f"  dropped: {dict(links.counts.dropped.most_common())}")
    for task in sample[:show]:
        print(f"  [{task.type}, {task.hops}] {task.question} -> {task.answer}")
    return not bound or (len(tasks) >= LEAST_TASKS and rate >= LEAST_RATE and share >= LEAST_NEEDED)


def _least(bound: bool, value: object) -> str:
    """Return the target of a figure as text. If it has none, return an empty string."""
    return f" (at least {value})" if bound else ""


def world() -> bool:
    """Print the time of a world. If it is within the bound, and both worlds have the same bytes, return True."""
    with tempfile.TemporaryDirectory() as folder:
        times = []
        for name in ("first", "second"):
            command = ["--entities", str(ENTITIES), "--tasks", str(TASKS), "--out", f"{folder}/{name}"]
            began = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "context_agent.cli", "synth", "world", *command], check=True, capture_output=True
            )
            times.append(time.perf_counter() - began)
        files = sorted(path.name for path in Path(folder, "first").iterdir())
        same = all(
            Path(folder, "first", name).read_bytes() == Path(folder, "second", name).read_bytes() for name in files
        )
    print(
        f"world of {ENTITIES:,} entities with {TASKS:,} tasks: {', '.join(f'{seconds:.1f} s' for seconds in times)} "
        f"(at most {MOST_SECONDS} s); {'the same bytes' if same else 'DIFFERENT bytes'} in {len(files)} files"
    )
    return same and max(times) <= MOST_SECONDS


PROGRAM = """
import pathlib, sys
from context_agent.testing.writer_process import make

make(sys.argv[1], pathlib.Path(sys.argv[2]))
"""


def resume() -> bool:
    """Print whether killed runs end with the files of an undisturbed run, and how many calls were answered twice.

    If all files are the same, and no call was answered twice, return True.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "whole").mkdir()
        whole, _ = _run(Path(folder) / "whole", None)
        good = True
        for moment in MOMENTS:
            run_folder = Path(folder) / str(moment)
            run_folder.mkdir()
            files, twice = _run(run_folder, moment)
            same = files == whole
            good &= same and not twice
            print(
                f"killed after {moment} answers and resumed: {'the same bytes' if same else 'DIFFERENT bytes'} in "
                f"{len(whole)} files; {twice} calls answered twice (at most 0)"
            )
    return good


def _run(folder: Path, moment: int | None) -> tuple[dict[str, bytes], int]:
    """Run the pipeline, killed after `moment` answers and then resumed. If `moment` is None, it is not killed.

    Return its JSONL files, which have the tasks and the dropped rows, and the number of calls that were answered twice.
    """
    from context_agent.testing.writer_process import environment, serving

    out = folder / "tasks.jsonl"
    options = ("--troubled",) if moment is None else ("--troubled", "--hold", str(moment))
    hold, replies = folder / "server.log.hold", folder / "tasks.jsonl.stages" / "replies.jsonl"
    with serving(folder, *options) as server:
        command = [sys.executable, "-c", PROGRAM, server.url, str(out)]
        if moment is not None:
            hold.touch()
            with subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL) as child:
                # The server holds back all further answers; those it gave are on the disk before the kill comes.
                while child.poll() is None and (not replies.exists() or replies.read_bytes().count(b"\n") < moment):
                    time.sleep(0.01)
                child.kill()
            hold.unlink()
        subprocess.run(command, env=environment(), check=True)
        twice = sum(count > 1 for count in server.fates("answered").values())
    return {path.name: path.read_bytes() for path in folder.glob("tasks.jsonl*") if path.suffix == ".jsonl"}, twice


def main() -> int:
    """Run the chosen measurements."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with a folder a set")
    parser.add_argument("--sets", default="2wiki,hotpotqa,musique")
    parser.add_argument("--drawn", type=int, default=200)
    parser.add_argument("--show", type=int, default=0)
    parser.add_argument("--world", action="store_true")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    if options.data is None and not (options.world or options.resume):
        parser.error("give --data FOLDER, --world or --resume, or several of them")
    good = [run() for is_chosen, run in ((options.world, world), (options.resume, resume)) if is_chosen]
    if options.data is not None:
        good += [measure(options.data / name, options.drawn, options.show) for name in options.sets.split(",")]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
