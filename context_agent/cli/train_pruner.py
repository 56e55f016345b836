"""The command `ctx1 train pruner`, which adapts the pruner to a record of restores."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from context_agent.cli import output
from context_agent.cli.parameters import EXISTING_FILE, OUTPUT_FILE, REQUIRED, CommonOptions


def pruner(
    *records: Annotated[Path, EXISTING_FILE, REQUIRED],
    out: Annotated[Path, OUTPUT_FILE, Parameter(metavar="FILE.safetensors")],
    common: CommonOptions = CommonOptions(),
) -> int:
    """Adapt the pruner to the passages that your agents restored.

      ctx1 proxy --upstream URL --restores restores.jsonl
      ctx1 train pruner restores.jsonl --out pruner.safetensors
      ctx1 proxy --upstream URL --adapted pruner.safetensors

    Each line of a record has a task and the text of a passage, and may have its heading as "label". A line with
    "needed": false says that the task did not need the passage. The command fits the last layer of the reader, and
    compares the result with the shipped reader on held-out tasks. If the shipped reader is as good or better, no file
    is written and the exit code is 1.

    Args:
        records: Files of `ctx1 proxy --restores`, or of your own.
        out: File for the adapted reader, which --adapted reads.
    """
    from context_agent._support.atomic_files import replace_file
    from context_agent.train.pruner import adapt, read_record

    record = read_record(records)
    with output.progress("Reading passages", "passages") as advance:
        result = adapt(record, report=advance)
    if result.left_out:
        output.note(f"the record is too long, so {result.left_out:,} of its {len(record):,} passages are left out")
    if result.reader is not None:
        replace_file(out, result.reader.to_bytes())
    figures = {
        "written": str(out) if result.reader is not None else None,
        "tasks": result.tasks,
        "needed": result.needed,
        "left_out": result.left_out,
        "held_out": result.held_out,
        "auc_shipped": result.shipped,
        "auc_adapted": result.adapted,
        "gain": asdict(result.gain),
    }
    outcome = f"written to {out}" if result.reader is not None else "the training does not help, so nothing was written"
    text = (
        f"{result.needed} needed passages of {result.tasks} tasks\n"
        f"AUC on {result.held_out} held-out tasks: shipped {result.shipped:.3f}, adapted {result.adapted:.3f}, "
        f"gain {result.gain}\n{outcome}"
    )
    output.result(figures, text, as_json=common.json)
    return 0 if result.reader is not None else 1
