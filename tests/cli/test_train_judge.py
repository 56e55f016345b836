"""`ctx1 train judge-check`: the judge of a run file is compared with gold. A server in another process plays it."""

import json

import pytest

from context_agent.errors import ConfigError
from context_agent.testing.documents import linked_documents
from context_agent.train.experimental.judge.calibration_check import open_judge
from context_agent.train.run_file import read_run
from context_agent.types import Question
from tests.support.judges import serving

GOLDEN = [Question("q", "What?", gold=("d1",))]
RUN = """
out = "{out}"
[model]
name = "m"
{renderer}
[data]
{data}
[rewards]
judge = 0.5
[judge]
model = "scripted"
base_url = "{url}"
questions = "all"
max_calls = 1000
retries = 0
{more}
"""


def run_file(
    folder, url, data='path = "index"\nquestions = ["asked.jsonl"]\ndev = ["asked.jsonl"]', more="", renderer=""
):
    path = folder / "run.toml"
    path.write_text(RUN.format(out=folder / "out", url=url, data=data, more=more, renderer=renderer))
    return path


@pytest.fixture
def index(inside, tmp_path):
    """An index of sixty entries, and questions that each name the marks of two of them."""
    rows = [{"id": document.id, "title": document.title, "text": document.text} for document in linked_documents()]
    (tmp_path / "entries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    template = "Which close with SENTINEL-{:04d} and SENTINEL-{:04d}?"
    question_rows = [
        {"id": f"q{n}", "question": template.format(n, n + 30), "gold": [f"d{n}", f"d{n + 30}"]} for n in range(12)
    ]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in question_rows))
    process = inside("index", "entries.jsonl", "--path", "index")
    assert process.returncode == 0, process.stderr


def test_an_honest_judge_is_vouched_for_and_trained_with(inside, index, tmp_path):
    with serving("honest") as url:
        path = run_file(tmp_path, url, more='calibration = "judge.json"')
        process = inside("train", "judge-check", "--run", path, "--out", "judge.json")
    assert process.returncode == 0, process.stderr
    assert "36 rankings of 12 questions judged by scripted, 12 of them good" in process.stdout
    assert "1.000 [1.000, 1.000] (n = 12)" in process.stdout
    assert "The judge tells good from bad: judge.json" in process.stdout
    run = read_run(path)
    notes = []
    with open_judge(run.judge, run.out, GOLDEN, notes.append) as bench:
        assert bench is not None
    assert notes == []
    # The replies are cached: the same check sends no requests.
    again = inside("train", "judge-check", "--run", path, "--out", "judge.json", "--json")
    assert (again.returncode, json.loads(again.stdout)["figures"]["auc"]["value"]) == (0, 1.0)


def test_a_judge_that_always_says_yes_is_refused(inside, index, tmp_path):
    with serving("yes") as url:
        path = run_file(tmp_path, url, more='calibration = "judge.json"')
        process = inside("train", "judge-check", "--run", path, "--out", "judge.json", "--questions", 11)
    assert process.returncode == 1
    assert "it always says yes" in process.stdout
    assert "Do not train on this judge: judge.json" in process.stdout
    with (
        pytest.raises(ConfigError, match="says not to trust this judge"),
        open_judge(read_run(path).judge, tmp_path, GOLDEN, print),
    ):
        pass
    bare_path = run_file(tmp_path, url)
    with (
        pytest.raises(ConfigError, match="this judge is not calibrated"),
        open_judge(read_run(bare_path).judge, tmp_path, GOLDEN, print),
    ):
        pass
    notes = []
    uncalibrated_path = run_file(tmp_path, url, more="uncalibrated = true")
    with open_judge(read_run(uncalibrated_path).judge, tmp_path, GOLDEN, notes.append) as bench:
        assert bench is not None
    assert notes == ["the judge: it was never compared with gold (judge.uncalibrated)"]


def test_a_file_without_a_judge(inside, tmp_path):
    (tmp_path / "run.toml").write_text('[model]\nname = "m"\n[data]\n')
    process = inside("train", "judge-check", "--run", "run.toml")
    assert (process.returncode, "has no judge. Set judge.model" in process.stderr) == (2, True)


def test_a_judge_that_is_down_is_told(inside, index, tmp_path):
    path = run_file(tmp_path, "http://127.0.0.1:9/v1")
    process = inside("train", "judge-check", "--run", path, "--questions", 2)
    assert process.returncode == 1
    assert "the judge gave no verdict" in process.stderr
    assert "cannot connect" in process.stderr
