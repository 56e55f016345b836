"""From a file of documents to a benchmark that was run and rows to train on, by the commands of the guide."""

import json

import pytest

from context_agent._support.question_files import load_questions
from context_agent.harness.trajectory_file import read
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.train.rows import demonstrated_rows
from tests.support.film_pages import films

TASKS = 24
FAST = ("--effort", "fast")
RUN = ("--cache", "cache", "--out", "run", *FAST)


@pytest.fixture
def step(inside):
    """Run a command that must succeed and return the object that it prints."""

    def command(*arguments):
        process = inside(*arguments, "--json")
        assert process.returncode == 0, (arguments, process.stderr)
        return json.loads(process.stdout)

    return command


def test_a_corpus_becomes_a_benchmark_and_rows_to_train_on(step, tmp_path):
    rows = [json.dumps({"id": film.id, "title": film.title, "text": film.text}) for film in films(count=24)]
    (tmp_path / "corpus.jsonl").write_text("\n".join(rows), encoding="utf-8")
    step("index", "corpus.jsonl")
    tasks_report = step("synth", "tasks", "--out", "tasks.jsonl", "--count", TASKS)
    assert tasks_report["tasks"] == TASKS
    filter_report = step(
        "synth", "filter", "tasks.jsonl", "--passes", 2, "--drop", "never", *FAST, "--out", "kept.jsonl"
    )
    assert filter_report["kept"] + sum(filter_report["dropped"].values()) == TASKS
    ids = [row.id for row in load_questions(tmp_path / "kept.jsonl")]
    assert step("synth", "review", "kept.jsonl", "--sample", 5, "--out", "review.html")["tasks"] == 5
    verdicts = [
        {"task": task_id, "judge": "ann", "verdict": "reject" if task_id == ids[0] else "accept"} for task_id in ids[:5]
    ]
    (tmp_path / "ann.jsonl").write_text("\n".join(map(json.dumps, verdicts)), encoding="utf-8")
    step("synth", "review", "kept.jsonl", "--judgments", "ann.jsonl", "--out", "judged.jsonl")

    split_report = step(
        *("synth", "split", "judged.jsonl", "--corpus", "corpus.jsonl", "--stage", "kept.jsonl", "--out", "films"),
        *("--shares", "train=.6,test=.4"),
    )
    check_report = step("synth", "check", "films")
    assert check_report["tasks"] == split_report["tasks"]
    assert check_report["documents"] == len(films(count=24))
    assert (
        f"| filter | {filter_report['kept']} | {TASKS - filter_report['kept']} |"
        in (tmp_path / "films" / "README.md").read_text()
    )
    export_report = step("synth", "export", "films", "--out", "parquet")
    assert {path.rpartition("/")[2] for path in export_report["files"]} == {"train.parquet", "test.parquet"}

    play_report = step(
        "synth", "trajectories", "films/queries.train.jsonl", "--out", "out", "--window", 2048, "--pace", 1
    )
    files = sorted((tmp_path / "out" / "kept").glob("*.jsonl"))
    assert len(files) == sum(play_report["kept"].values()) > 0
    rows = [row for path in files for row in demonstrated_rows(read(path), HarmonyRenderer())]
    assert rows
    assert all(any(row.loss_mask) for row in rows)

    figures = step("eval", "--benchmark", "films", "--split", "test", "--systems", "bm25,agent", *RUN)
    assert {cell["system"] for cell in figures["cells"]} == {"bm25", "agent"}
    records = (tmp_path / "run" / "records.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(records) == 2 * split_report["tasks"]["test"]


def test_a_world_becomes_a_benchmark(step, tmp_path):
    world_report = step("synth", "world", "--entities", 60, "--seed", 3, "--out", "world")
    assert step("synth", "check", "world")["documents"] == 60
    figures = step("eval", "--benchmark", "world", "--split", "dev", "--systems", "agent", *RUN)
    (cell,) = figures["cells"]
    assert cell["system"] == "agent"
    records = (tmp_path / "run" / "records.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(records) == world_report["tasks"]["dev"]["all"]
