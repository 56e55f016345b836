"""The walk-through of docs/own-questions.md, command by command, on six notes."""

import json
import re
import shlex
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "own-questions.md"
PEOPLE = {"Lena Ortiz": "Brasko Weir", "Alda Brunner": "Mirrow Bridge", "Boris Castor": "Osterby Mill"}

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not part of the source distribution")


@pytest.fixture(autouse=True)
def _one_core(monkeypatch):
    """Limits `ctx1 eval` to one process: for few questions, its workers would only spend time on imports."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})


def write_notes(folder: Path) -> None:
    folder.mkdir()
    for number, (person, work) in enumerate(PEOPLE.items(), 1):
        kind, file = work.split()[1].lower(), person.split()[0].lower()
        (folder / f"{file}.md").write_text(
            f"---\ntags: [people]\ndate: 2024-05-0{number}\n---\n# {person}\n\n"
            f"{person} (born {number} May 196{number}) is a harbour engineer. "
            f"{person} moved to the coast in 198{number} after a storm.\n"
        )
        (folder / f"{kind}.md").write_text(
            f"---\npeople: [{person}]\n---\n# {work}\n\n"
            f"{work} is a stone {kind} built by [{person}]({file}.md). It was raised in 199{number} after a flood.\n"
        )


def test_the_walk_through_from_notes_to_a_fitted_policy_runs_as_printed(inside, tmp_path):
    write_notes(tmp_path / "notes")
    block = re.search(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    commands = [shlex.split(line)[1:] for line in block[1].splitlines()]
    outputs = {}
    for command in commands:
        process = inside(*command)
        assert process.returncode == 0, (command, process.stderr)
        outputs[command[0]] = process.stdout
    questions = [json.loads(line) for line in (tmp_path / "questions.jsonl").read_text().splitlines()]
    assert len(questions) >= 3
    assert (tmp_path / "runs/mine/report.html").exists()
    assert "The present networks rank these questions best and are kept" in outputs["train"]
    assert "Brasko Weir" in outputs["search"]
