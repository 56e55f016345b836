"""`ctx1 synth export`: a set as parquet or as a `datasets` folder."""

import json
from pathlib import Path

import pytest

from context_agent.cli.app import run
from context_agent.synth_data.task_file import write_tasks
from tests.synth_data.tasks import task, task_in
from tests.synth_data.test_splits import chained

datasets = pytest.importorskip("datasets")


def test_a_folder_is_exported_split_by_split(inside, tmp_path):
    write_tasks(tmp_path / "tasks.jsonl", chained())
    assert inside("synth", "split", "tasks.jsonl", "--out", "set").returncode == 0
    done = inside("synth", "export", "set", "--out", "ds", "--to", "datasets", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tasks"] == {"train": 160, "dev": 20, "test": 20}
    loaded = datasets.load_from_disk(str(tmp_path / "ds"))
    assert {name: part.num_rows for name, part in loaded.items()} == {"train": 160, "dev": 20, "test": 20}


def test_a_file_goes_by_the_split_in_its_rows(inside, tmp_path):
    tasks = [task("a", "d1"), task("b", "d2", split="test")]
    write_tasks(tmp_path / "tasks.jsonl", tasks)
    done = inside("synth", "export", "tasks.jsonl", "--out", "out", "--json")
    assert [path.rpartition("/")[2] for path in json.loads(done.stdout)["files"]] == ["train.parquet", "test.parquet"]
    read = datasets.Dataset.from_parquet(str(tmp_path / "out" / "test.parquet"), cache_dir=str(tmp_path / "cache"))
    assert [task_in(row) for row in read] == tasks[1:]


@pytest.fixture
def sources(monkeypatch, tmp_path):
    """Files that cannot be exported, in the folder that tests then run in."""
    monkeypatch.chdir(tmp_path)
    Path("empty.jsonl").write_text("")
    Path("bad.jsonl").write_text('{"id": "a"}\n')
    Path("none").mkdir()


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("empty.jsonl --out o", 1, "no task in it"),
        ("bad.jsonl --out o", 1, "bad.jsonl:1"),
        ("none --out o", 1, "no queries"),
        ("empty.jsonl", 2, "--out"),
        ("empty.jsonl --out o --public", 2, "--push"),
        ("empty.jsonl --out o --to csv", 2, "--to"),
    ],
)
@pytest.mark.usefixtures("sources")
def test_what_cannot_work_is_refused(capsys, line, code, told):
    assert run(["synth", "export", *line.split()]) == code
    assert told in capsys.readouterr().err
    assert not Path("o").exists()
