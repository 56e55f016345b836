"""Helpers for tests of runs: options, systems, other questions, and comparisons without wall time."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

from context_agent.eval.evaluation import EvalOptions, PreparedBenchmark, summarize_run
from context_agent.eval.records import EvalRecord
from context_agent.eval.systems import find_systems
from context_agent.policies import load_policy

Benchmarks = list[PreparedBenchmark]

BRIDGE = partial(load_policy, "bridge", effort="fast")
OPTIONS = EvalOptions(BRIDGE, windows=(1024, 4096))
SYSTEMS = find_systems(["hybrid", "agent", "agent-random"])


def with_questions(benchmarks: Benchmarks, *texts: str) -> Benchmarks:
    """Return the first benchmark with other questions."""
    benchmark = benchmarks[0].benchmark
    questions = tuple(replace(benchmark.questions[0], id=text, question=f"Vellmar {text}?") for text in texts)
    return [replace(benchmarks[0], benchmark=replace(benchmark, questions=questions))]


def timeless(records: list[EvalRecord]) -> list[EvalRecord]:
    return [replace(record, seconds=0.0) for record in records]


def summary_text(folder: Path) -> str:
    """Return the summary as JSON, without wall time."""
    data = summarize_run(folder).to_json()
    assert data["cells"]
    for cell in (*data["cells"], *data["pools"]):
        for values in (cell["metrics"], cell["differences"]):
            values.pop("seconds", None)
    text = json.dumps(data)
    assert '"recall"' in text
    return text
