"""The pages that lead through commands: every block runs as printed, in the order of the page, in one folder.

A block with a title is a file, `sh` holds commands, `python` is a program. Blocks of `text` need a server or a
model and are skipped.
"""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.real_server import free_port, need_serving, serving

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
TRAINING = ["how-to/train-a-language-model.md", "how-to/serve-what-you-trained.md"]
"""The pages of a model in the folder `base-model`, one after the other in one folder."""
HOW_TO = [page for path in sorted((DOCS / "how-to").glob("*.md")) if (page := f"how-to/{path.name}") not in TRAINING]

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


@pytest.mark.slow
def test_a_language_model_is_trained_and_served(inside, tmp_path):
    """Every command of both pages, the last one against a real `transformers serve`."""
    pytest.importorskip("trl")
    from context_agent.train.tiny_model import tiny_llama

    tiny_llama(tmp_path / "base-model")
    outputs = {}
    for page in TRAINING:
        outputs |= run_page(page, inside, tmp_path)
    assert "lessons: " in outputs["ctx1 train sft --run lessons.toml --dry-run"]
    assert json.loads((tmp_path / "runs/lessons/best/evaluation.json").read_text())["metric"] == "dev/loss"
    rewarded = json.loads((tmp_path / "runs/rewards/run.json").read_text())
    assert rewarded["model"]["adapter"] == "runs/lessons/best"
    steps = [json.loads(line)["step"] for line in (tmp_path / "runs/rewards/metrics.jsonl").read_text().splitlines()]
    assert steps == [0, 1, 2]
    last = json.loads((tmp_path / "runs/rewards/metrics.jsonl").read_text().splitlines()[-1])
    assert {"sampled_per_second", "trained_per_second", "replies_truncated"} <= set(last)
    episodes = (tmp_path / "runs/rewards/episodes.jsonl").read_text().splitlines()
    assert all("reward" in json.loads(line) for line in episodes)
    assert len(episodes) >= 6
    assert (tmp_path / "runs/rewards/episodes.html").exists()
    refilled = json.loads((tmp_path / "runs/refilled/run.json").read_text())
    assert refilled["rollouts"]["refill"] == 1
    assert refilled["rollouts"]["baseline_members"] == "sampled"
    assert (tmp_path / "served/model.safetensors").exists()
    serve, search = served_commands("how-to/serve-what-you-trained.md")
    need_serving()
    port = free_port()
    program, *arguments = shlex.split(serve.replace("8000", str(port)))
    with serving([str(Path(sys.executable).with_name(program)), *arguments, "--device", "cpu"], tmp_path, port):
        asked = inside(*shlex.split(search.replace("8000", str(port)))[1:], "--json")
    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout)["stop_reason"] in {"finished", "no_ranking", "turns"}
    assert "POST /v1/chat/completions" in (tmp_path / "log").read_text()


def served_commands(page):
    """The lines of a page that start `transformers serve`, and that ask its model."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    (serve,) = [line for line in lines if line.startswith("transformers serve")]
    (search,) = [line for line in lines if "--policy chat" in line]
    return serve, search
