"""Does training work on this machine's GPU? scripts/gpu-check installs what this needs and runs it.

    python scripts/gpu_check.py [--out runs/gpu-check] [--minutes 25] [--only PART]
    python scripts/gpu_check.py --self-test        all parts with tiny models on the CPU

The parts are those of scripts/gpu_parts.py. Each is a process of its own with a time limit. One that fails is a row of
the table with its error, and the others still run. Rows are written as they are measured. Nothing is downloaded; the
model hub is switched off. The exit code is 1 if a row failed or missed its bound, and 2 without a GPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import check_servers
from gpu_parts import FAILED, FULL, MISSED, PARTS, SKIPPED, SMALL, Row, Scale

from context_agent.train.estimate import GB

LEAST_SECONDS = 30.0
"""A part is not started with less time than this."""


def run_part(name: str, scale: Scale, out: Path) -> list[Row]:
    """Runs a part here. Its rows are added to OUT/PART.jsonl as they come; an error is the last one."""
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []

    def add(row: Row) -> None:
        rows.append(dataclasses.replace(row, part=name))
        with (out / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(rows[-1])) + "\n")

    try:
        if scale.gpu and name != "gpt-oss-20b-lora" and find_spec("vllm") is None:
            add(Row(name, "", "vLLM is not installed: run scripts/gpu-check", verdict=SKIPPED))
        else:
            for row in PARTS[name][0](scale, folder):
                add(row)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the other parts still run
        add(Row(name, "error", f"{type(error).__name__}: {error}"[:400], verdict=FAILED))
    return rows


def run_isolated(name: str, out: Path, seconds: float) -> list[Row]:
    """Runs a part in a process group of its own, which ends with it: GPU memory is free again afterwards."""
    command = [sys.executable, __file__, "--part", name, "--out", str(out)]
    problem = ""
    with (out / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            if process.wait(seconds):
                problem = f"ended with code {process.returncode}, see {log.name}"
        except subprocess.TimeoutExpired:
            problem = f"not done after {seconds:.0f} s, see {log.name}"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    rows = read_rows(out / f"{name}.jsonl")
    return [*rows, Row(name, "error", problem, verdict=FAILED)] if problem else rows


def read_rows(path: Path) -> list[Row]:
    """The rows that a part has written."""
    if not path.is_file():
        return []
    return [Row(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def check(names: Sequence[str], scale: Scale, out: Path, minutes: float) -> list[Row]:
    """Runs the parts one after another, each within its limit and what is left of the minutes."""
    deadline = time.monotonic() + 60 * minutes
    rows: list[Row] = []
    for name in names:
        (out / f"{name}.jsonl").unlink(missing_ok=True)
        start, remaining = time.monotonic(), deadline - time.monotonic()
        if remaining < LEAST_SECONDS:
            rows.append(Row(name, "", "no time left", verdict=SKIPPED))
            continue
        rows += run_isolated(name, out, min(remaining, PARTS[name][1])) if scale.gpu else run_part(name, scale, out)
        rows.append(Row(name, "seconds", f"{time.monotonic() - start:.0f}", f"<= {PARTS[name][1]:.0f}"))
        write_table(rows, out)
    return rows


def write_table(rows: Sequence[Row], out: Path) -> str:
    """The table in Markdown, also written to OUT/gpu-check.md."""
    lines = [
        f"{machine()}; {check_servers.versions()}",
        "",
        "| part | figure | value | reference | |",
        "|---|---|---|---|---|",
    ]
    lines += [
        "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in dataclasses.astuple(row)) + " |"
        for row in rows
    ]
    text = "\n".join(lines) + "\n"
    (out / "gpu-check.md").write_text(text, encoding="utf-8")
    return text


def machine() -> str:
    """The GPU with its memory, or that there is none."""
    import torch

    if not torch.cuda.is_available():
        return f"no GPU, {os.cpu_count()} cores"
    properties = torch.cuda.get_device_properties(0)
    return f"{properties.name}, {properties.total_memory / GB:.0f} GB"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if every row is well, 1 if one failed or missed its bound, 2 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-check"))
    parser.add_argument("--minutes", type=float, default=25.0, help="time for all parts together")
    parser.add_argument("--only", choices=PARTS, action="append", help="a part to run; repeatable")
    parser.add_argument("--self-test", action="store_true", help="tiny models on the CPU")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    os.environ["HF_HUB_OFFLINE"] = "1"
    scale = SMALL if options.self_test else FULL
    options.out.mkdir(parents=True, exist_ok=True)
    if options.part:
        run_part(options.part, scale, options.out)
        return 0
    if scale.gpu and machine().startswith("no GPU"):
        print("There is no GPU here. --self-test runs all parts with tiny models on the CPU.", file=sys.stderr)
        return 2
    rows = check(options.only or list(PARTS), scale, options.out, options.minutes)
    print(write_table(rows, options.out))
    return int(any(row.verdict in (FAILED, MISSED) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
