"""Measure the cost of loading each hostile file: CPU time and peak memory. Prints a table.

    python benchmarks/hostile_files.py [--megabytes 1,15] [--only NAME,...] [--worst]

`context_agent.testing.hostile_files` and `hostile_code` make the files, with a hostile part of each size. Each file is
loaded in a process of its own, as `ctx1 index` would load it. `--only code` selects all files of code.

"s per MB" divides the seconds by the size of the file, or by the size of its hostile part before compression if that is
larger. Memory is the increase over the idle process.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from context_agent.testing.hostile_code import hostile_code
from context_agent.testing.hostile_files import HostileFile, hostile_files
from context_agent.testing.loading import LoadingCost, loading_cost

MB = 2**20
MAX_MEGABYTES = 400
MAX_SECONDS_PER_MB = 5.0
MAX_SECONDS = 120.0
CODE = "code"
"""The kind of all files of code."""
WARM_UP = {"txt", "pdf", "parquet", "docx"}


@dataclass(frozen=True)
class Line:
    """The figures of one file."""

    name: str
    kind: str
    size: float
    seconds_per_mb: float
    cost: LoadingCost


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", default="1,15", help="sizes of the hostile part, separated by commas")
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    parser.add_argument("--worst", action="store_true", help="only the worst of each kind")
    arguments = parser.parse_args()
    parts = tuple(filter(None, arguments.only.split(",")))
    failed = 0
    for megabytes in map(float, arguments.megabytes.split(",")):
        lines = []
        print(
            f"\nhostile part {megabytes:g} MB\n{'file':28} {'MB':>8} {'s':>7} {'s per MB':>8} {'memory MB':>9}  result"
        )
        for line in _measured(int(megabytes * MB), parts):
            lines.append(line)
            if not arguments.worst:
                print(_shown(line), flush=True)
        print(f"\nworst of each kind, hostile part {megabytes:g} MB")
        for kind, group in groupby(sorted(lines, key=lambda line: line.kind), lambda line: line.kind):
            of_kind = list(group)
            slowest = max(of_kind, key=lambda line: line.seconds_per_mb)
            largest = max(of_kind, key=lambda line: line.cost.megabytes)
            print(
                f"{kind:12} {len(of_kind):3} files   {slowest.seconds_per_mb:6.2f} s per MB ({slowest.name})"
                f"   {largest.cost.megabytes:5.0f} MB ({largest.name})"
            )
        over = [line for line in lines if _over(line)]
        failed += len(over)
        print(
            f"{len(lines)} files; beyond {MAX_MEGABYTES} MB or {MAX_SECONDS_PER_MB:g} s per MB: {len(over)} (target 0)"
        )
        for line in over:
            print(_shown(line))
    sys.exit(1 if failed else 0)


def _measured(size: int, parts: tuple[str, ...]) -> Iterator[Line]:
    """Yield the figures of each file."""
    _import_readers()
    with tempfile.TemporaryDirectory() as folder:
        for kind, file in _files(size):
            if parts and not any(part == kind or part in file.name for part in parts):
                continue
            path = Path(folder, file.name)
            path.write_bytes(file.data)
            cost = loading_cost(path, max_seconds=MAX_SECONDS)
            path.unlink()
            per_mb = cost.seconds / (max(size, len(file.data)) / MB)
            yield Line(file.name, kind, len(file.data) / MB, per_mb, cost)


def _files(size: int) -> Iterator[tuple[str, HostileFile]]:
    """Yield each hostile file with its kind."""
    for file in hostile_files(size):
        yield file.kind, file
    for item in hostile_code(size):
        yield CODE, HostileFile(*item)


def _import_readers() -> None:
    """Import what the readers import at their first use, so that no file's time includes it."""
    from context_agent.retrieval.loaders import load

    with tempfile.TemporaryDirectory() as folder:
        for file in hostile_files(1_000):
            if file.kind in WARM_UP:
                _load_quietly(file, Path(folder), load)
        for item in hostile_code(1_000):
            _load_quietly(HostileFile(*item), Path(folder), load)


def _load_quietly(file: HostileFile, folder: Path, load: object) -> None:
    assert callable(load)
    (folder / file.name).write_bytes(file.data)
    list(load(folder / file.name))


def _over(line: Line) -> bool:
    return bool(line.cost.failure) or line.cost.megabytes > MAX_MEGABYTES or line.seconds_per_mb > MAX_SECONDS_PER_MB


def _shown(line: Line) -> str:
    cost = line.cost
    result = cost.failure or f"{cost.documents:,} documents" + (f"; {cost.reason[:80]}" if cost.reason else "")
    figures = f"{line.size:8.3f} {cost.seconds:7.2f} {line.seconds_per_mb:8.2f} {cost.megabytes:9.0f}"
    return f"{line.name:28} {figures}  {result}"


if __name__ == "__main__":
    main()
