"""Check that training works on this machine's GPU. scripts/gpu-check installs what this program needs and runs it.

    python scripts/gpu_check.py [--minutes 9] [--material FOLDER] [--wheels FOLDER] [--only PART] [--vllm]
    python scripts/gpu_check.py --self-test        all parts with tiny models on the CPU

The parts run one after another, each in a process of its own. Each adapts its work to the time that it gets:

- `gpt-oss-20b`, `qwen3-4b`: a LoRA step of the trainer and sampling on a model of that shape, with random weights
- `rollouts`: asynchronous rollouts on the GPU, with the log-probabilities of the version that each call names
- `smollm2`: SmolLM2 learns from lessons and from rewards, and answers held-out questions before and after
- with `--vllm`: the parts that vLLM serves

If a part fails, the table has a row with its error, and the other parts still run. Rows are written as they are
measured. Nothing is downloaded, because the model hub is switched off. With a folder of scripts/gpu-material, the
machine needs only torch, transformers and peft. If a row failed or missed its bound, the exit code is 1. If nothing can
run, it is 2.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from gpu.material import MaterialError, environment, install_missing, restore_checkout, unpack  # noqa: E402

if TYPE_CHECKING:
    from gpu.part import Part, Row, Scale

LEAST_SECONDS = 20.0
"""The minimum time for a part. With less time, it is not started."""
ENDING_SECONDS = 10.0
"""The time that a part may take beyond its limit before it is stopped."""


@dataclasses.dataclass(frozen=True, slots=True)
class PartPlan:
    """The module and function of a part, and its share of the time. The last part gets the remaining time."""

    module: str
    function: str
    share: float

    def load(self) -> Part:
        """Import the part, and return it."""
        part: Part = getattr(import_module(self.module), self.function)
        return part


PARTS: Mapping[str, PartPlan] = {
    "gpt-oss-20b": PartPlan("gpu.shapes", "gpt_oss_20b", 0.26),
    "qwen3-4b": PartPlan("gpu.shapes", "qwen3_4b", 0.12),
    "rollouts": PartPlan("gpu.rollouts", "rollouts", 0.16),
    "smollm2": PartPlan("gpu.smollm2", "smollm2", 1.0),
}
SERVED: Mapping[str, PartPlan] = {
    "served-gpt-oss": PartPlan("gpu.served", "served_gpt_oss", 0.15),
    "served-smollm2": PartPlan("gpu.served", "served_smollm2", 0.20),
    "served-learning": PartPlan("gpu.served", "learning", 0.40),
    "served-sampling": PartPlan("gpu.served", "sampling", 1.0),
}
"""Parts that need vLLM."""


def run_part(name: str, scale: Scale, out: Path, seconds: float) -> list[Row]:
    """Run a part in this process, and return its rows.

    The rows are appended to OUT/PART.jsonl as they are measured. If the part fails, the last row is its error.
    """
    from gpu.part import FAILED, SKIPPED, Clock, Row

    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []

    def add(row: Row) -> None:
        rows.append(dataclasses.replace(row, part=name))
        with (out / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(rows[-1])) + "\n")

    try:
        if scale.gpu and name in SERVED and find_spec("vllm") is None:
            add(Row(name, "", "vLLM is not installed: run scripts/gpu-check --vllm", verdict=SKIPPED))
        else:
            for row in {**PARTS, **SERVED}[name].load()(scale, folder, Clock(seconds)):
                add(row)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the other parts still run
        add(Row(name, "error", f"{type(error).__name__}: {error}"[:400], verdict=FAILED))
    return rows


def run_isolated(name: str, out: Path, seconds: float) -> list[Row]:
    """Run a part in a process group of its own, so that its GPU memory is free afterwards. Return its rows."""
    from gpu.part import FAILED, Row

    command = [sys.executable, __file__, "--part", name, "--out", str(out), "--seconds", f"{seconds:.1f}"]
    problem = ""
    with (out / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            if process.wait(seconds + ENDING_SECONDS):
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
    """Return the rows that a part has written."""
    from gpu.part import Row

    if not path.is_file():
        return []
    return [Row(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def check(parts: Mapping[str, PartPlan], scale: Scale, out: Path, minutes: float) -> list[Row]:
    """Run the parts one after another, each within its share of the minutes, and return all rows."""
    from gpu.part import SKIPPED, Row

    whole = 60 * minutes
    deadline = time.monotonic() + whole
    rows: list[Row] = []
    for name, plan in parts.items():
        (out / f"{name}.jsonl").unlink(missing_ok=True)
        shutil.rmtree(out / name, ignore_errors=True)
        start, remaining = time.monotonic(), deadline - time.monotonic() - ENDING_SECONDS
        if remaining < LEAST_SECONDS:
            rows.append(Row(name, "", "no time left", verdict=SKIPPED))
            continue
        seconds = min(remaining, plan.share * whole)
        rows += run_isolated(name, out, seconds) if scale.gpu else run_part(name, scale, out, seconds)
        rows.append(Row(name, "seconds", f"{time.monotonic() - start:.0f}", f"<= {seconds:.0f}"))
        write_table(rows, out)
    return rows


def write_table(rows: Sequence[Row], out: Path) -> str:
    """Write the table in Markdown to OUT/gpu-check.md, and return it."""
    lines = [
        f"{machine()}; {versions()}",
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
    """Return the name and memory of the GPU, or a text that says there is none."""
    import torch

    if not torch.cuda.is_available():
        return f"no GPU, {os.cpu_count()} cores"
    properties = torch.cuda.get_device_properties(0)
    return f"{properties.name}, {properties.total_memory / 1e9:.0f} GB"


def versions() -> str:
    """Return the versions of the packages that the figures depend on."""
    from check_servers import versions as installed

    return installed()


def prepare(options: argparse.Namespace) -> None:
    """Unpack the material into OUT/material, and install missing packages for this process and its children.

    Raises:
        MaterialError: If a file of the material is damaged, or a package cannot be installed.
    """
    material, site = options.out / "material", options.out / "site"
    wheels = options.wheels
    if options.material is not None:
        shutil.rmtree(material, ignore_errors=True)
        unpack(options.material, material)
        restore_checkout(material, ROOT)
        if (archive := material / "questions.tar.gz").is_file():
            with tarfile.open(archive) as tar:
                tar.extractall(material, filter="data")
        wheels = wheels or material / "wheels"
    if wheels is not None:
        shutil.rmtree(site, ignore_errors=True)
        for name in install_missing(wheels, site):
            print(f"installed {name}", flush=True)
        os.environ.update(environment(site, os.environ))
        sys.path.insert(0, str(site))


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 if all rows are good, 1 if one failed or missed its bound, and 2 if nothing can run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-check"))
    parser.add_argument("--minutes", type=float, default=9.0, help="time for all parts together")
    parser.add_argument("--material", type=Path, help="folder of scripts/gpu-material: packages, weights, lessons")
    parser.add_argument("--wheels", type=Path, help="folder of wheels for packages that are missing here")
    parser.add_argument("--only", choices=[*PARTS, *SERVED], action="append", help="a part to run; repeatable")
    parser.add_argument("--vllm", action="store_true", help="run the parts that vLLM serves instead")
    parser.add_argument("--self-test", action="store_true", help="tiny models on the CPU")
    parser.add_argument("--part", choices=[*PARTS, *SERVED], help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=60.0, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["HF_HUB_OFFLINE"] = "1"
    if options.part is None:
        try:
            prepare(options)
        except (MaterialError, OSError) as error:
            print(error, file=sys.stderr)
            return 2
    from gpu.part import FAILED, FULL, MISSED, SMALL

    scale = SMALL if options.self_test else FULL
    if options.part is not None:
        run_part(options.part, scale, options.out, options.seconds)
        return 0
    if scale.gpu and machine().startswith("no GPU"):
        print("There is no GPU here. --self-test runs all parts with tiny models on the CPU.", file=sys.stderr)
        return 2
    every = {**PARTS, **SERVED}
    parts = {name: every[name] for name in options.only} if options.only else SERVED if options.vllm else PARTS
    rows = check(parts, scale, options.out, options.minutes)
    print(write_table(rows, options.out))
    return int(any(row.verdict in (FAILED, MISSED) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
