"""The format of the labeled tool results: fields, evidence that can be found, unique ids, no paths of a machine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "data" / "tool-results"
if not FOLDER.is_dir():
    pytest.skip("benchmarks live in the repository alone", allow_module_level=True)

FILES = sorted(FOLDER.glob("*/*.jsonl"))
RESULT_FIELDS = {"id", "kind", "tool", "arguments", "source", "result", "tasks"}
TASK_FIELDS = {"task", "step", "evidence"}
MAX_TASKS = 3
RESULT_CHARACTERS = range(300, 60_001)
MACHINE_PATH = re.compile(r"/root/|/work/")


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def faults(path: Path) -> list[str]:
    """Return a sentence for each fault in a file of labeled results."""
    found = []
    for row in rows(path):
        name = row.get("id")
        if set(row) != RESULT_FIELDS or any(set(task) != TASK_FIELDS for task in row["tasks"]):
            found.append(f"{name} has other fields")
            continue
        if row["kind"] != path.stem:
            found.append(f"{name} has the kind {row['kind']!r}, not the name of its file")
        if not row["source"].startswith(("real: ", "fiction")):
            found.append(f"{name} has a source that is neither 'real: …' nor 'fiction'")
        if len(row["result"]) not in RESULT_CHARACTERS:
            found.append(f"{name} has {len(row['result'])} characters")
        if not 1 <= len(row["tasks"]) <= MAX_TASKS:
            found.append(f"{name} has {len(row['tasks'])} tasks")
        if MACHINE_PATH.search(json.dumps(row, ensure_ascii=False)):
            found.append(f"{name} has a path of the machine that wrote it")
        for task in row["tasks"]:
            if not task["task"].strip():
                found.append(f"{name} has an empty task")
            found += [
                f"{name} has evidence that does not occur exactly once: {evidence[:60]!r}"
                for evidence in task["evidence"]
                if not evidence.strip() or row["result"].count(evidence) != 1
            ]
            found += [
                f"{name} has evidence that lies within other evidence: {evidence[:60]!r}"
                for position, evidence in enumerate(task["evidence"])
                if any(evidence in other for other in task["evidence"][:position] + task["evidence"][position + 1 :])
            ]
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_file_has_no_fault(path):
    assert faults(path) == []


def test_no_id_occurs_twice_within_a_part():
    for part in ("train", "test"):
        ids = [row["id"] for path in sorted((FOLDER / part).glob("*.jsonl")) for row in rows(path)]
        assert len(ids) == len(set(ids)) > 0


def test_no_result_is_in_both_parts():
    train, test = (
        {row["result"] for path in (FOLDER / part).glob("*.jsonl") for row in rows(path)} for part in ("train", "test")
    )
    assert train.isdisjoint(test)


@pytest.mark.parametrize("part", ["train", "test"])
def test_the_readme_has_the_counts_of_a_part(part):
    files = sorted((FOLDER / part).glob("*.jsonl"))
    results = [row for path in files for row in rows(path)]
    tasks = [task for row in results for task in row["tasks"]]
    without_evidence = sum(not task["evidence"] for task in tasks)
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"| `{part}` | {len(results)} | {len(tasks):,} | {without_evidence} | {len(files)} |" in readme
    real = sum(row["source"].startswith("real: ") for row in results)
    assert re.search(rf"in `{part}`, {real}\b(?: results)? are real", readme, re.IGNORECASE)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"kind": "git"}, "the kind 'git'"),
        ({"source": "somewhere"}, "a source"),
        ({"result": "short"}, "5 characters"),
        ({"result": "line one\nline two\n" * 40}, "exactly once"),
        ({"result": "in /root/x: line one" + "." * 400}, "a path of the machine"),
        ({"tasks": []}, "0 tasks"),
        ({"tasks": [{"task": "Which?", "step": "", "evidence": ["line one", "one"]}]}, "within other evidence"),
        ({"extra": 1}, "other fields"),
    ],
)
def test_each_fault_is_named(tmp_path, change, fault):
    task = {"task": "Which line is the first?", "step": "", "evidence": ["line one"]}
    row = {"id": "grep-1", "kind": "grep", "tool": "bash", "arguments": {}, "source": "fiction", "tasks": [task]}
    path = tmp_path / "grep.jsonl"
    path.write_text(json.dumps(row | {"result": "line one" + "." * 400} | change) + "\n", encoding="utf-8")
    assert any(fault in found for found in faults(path))
