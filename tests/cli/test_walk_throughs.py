"""The pages that lead through commands: every block runs as printed, in the order of the page, in one folder.

A block with a title is a file, `sh` holds commands, `python` is a program. Blocks of `text` need a server or a
model and are skipped.
"""

import re
import shlex
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
HOW_TO = [f"how-to/{page.name}" for page in sorted((DOCS / "how-to").glob("*.md"))]

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="the documentation is not part of the source distribution")


@pytest.fixture(autouse=True)
def _one_core(monkeypatch):
    """Limits `ctx1 eval` to one process: for few questions, its workers would only spend time on imports."""
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})


def run_page(page, inside, folder):
    """Runs the blocks of a page. Returns the standard output of each command."""
    outputs = {}
    for language, title, text in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        if title:
            (folder / title).parent.mkdir(parents=True, exist_ok=True)
            (folder / title).write_text(text, encoding="utf-8")
        elif language == "python":
            exec(compile(text, page, "exec"), {"__name__": "walk_through"})
        elif language == "sh":
            for line in text.splitlines():
                process = inside(*shlex.split(line)[1:])
                assert process.returncode == 0, (line, process.stderr)
                outputs[line] = process.stdout
    return outputs


def test_the_tutorial(inside, tmp_path):
    outputs = {}
    for page in sorted((DOCS / "tutorial").glob("*.md")):
        outputs |= run_page(f"tutorial/{page.name}", inside, tmp_path)
    assert outputs['ctx1 search "When was the engineer of Brasko Weir born?" --quiet -k 2'].split() == [
        "weir.md",
        "lena.md",
    ]
    assert outputs['ctx1 search "What is the price of oil?"'].startswith("Nothing relevant found")
    assert (tmp_path / "runs/mine/report.html").exists()
    assert (tmp_path / "episodes.html").exists()


def test_ten_tasks_for_a_start(inside, tmp_path):
    outputs = run_page("newcomer-tasks.md", inside, tmp_path)
    assert outputs['ctx1 search "Which method raises the sluice gate?" --quiet -k 1'].split() == ["gate.py"]
    assert "Brasko Weir is a stone weir" in outputs['ctx1 ask "Who built Brasko Weir?"']


def test_each_of_the_ten_tasks_has_commands():
    text = (DOCS / "newcomer-tasks.md").read_text(encoding="utf-8")
    tasks = re.split(r"^## \d+\. ", text, flags=re.MULTILINE)[1:]
    assert len(tasks) == 10
    assert [task.splitlines()[0] for task in tasks if "ctx1 " not in task and "SearchAgent(" not in task] == []


@pytest.mark.parametrize("page", HOW_TO)
def test_a_recipe(page, inside, tmp_path):
    run_page(page, inside, tmp_path)
