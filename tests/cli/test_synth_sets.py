"""`ctx1 synth split`, `card`, `check` and `export`: a file of tasks becomes a set."""

import json
from pathlib import Path

import pytest

from context_agent.cli.app import run
from context_agent.synth_data.task import load_tasks, write_tasks
from tests.synth_data.sets.test_splits import chained
from tests.synth_data.tasks import task, task_in


@pytest.fixture
def tasks(tmp_path):
    write_tasks(tmp_path / "tasks.jsonl", chained())
    return tmp_path / "tasks.jsonl"


@pytest.fixture
def corpus(tmp_path):
    rows = [
        {"id": f"g{group}-d{at}", "title": "T", "text": f"Text {group} {at}"} for group in range(40) for at in range(6)
    ]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return tmp_path / "corpus.jsonl"


def test_a_set_with_its_corpus_and_card(inside, tmp_path, tasks, corpus):
    write_tasks(tmp_path / "more.jsonl", [task("gone", "nowhere")])
    done = inside(
        *("synth", "split", tasks, "more.jsonl", "--corpus", corpus, "--out", "notes", "--licence", "CC0-1.0"),
        *("--about", "Made for a test.", "--json"),
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["tasks"] == {"train": 160, "dev": 20, "test": 20}
    assert report["dropped"] == {"gold not in the corpus": 1}
    names = {path.name for path in (tmp_path / "notes").iterdir()}
    splits = {f"queries.{split}.jsonl" for split in ("train", "dev", "test")}
    assert names == splits | {"corpus.jsonl.gz", "dropped.jsonl", "split.json", "README.md"}
    card = (tmp_path / "notes" / "README.md").read_text(encoding="utf-8")
    assert "CC0-1.0" in card
    assert "Made for a test." in card
    assert all(one.id.startswith("notes/test/") for one in load_tasks(tmp_path / "notes" / "queries.test.jsonl"))
    checked = inside("synth", "check", "notes", "--json")
    assert json.loads(checked.stdout) == {"tasks": report["tasks"], "documents": 240}


def test_the_same_seed_gives_the_same_files(inside, tmp_path, tasks):
    for folder in ("one", "two"):
        assert inside("synth", "split", tasks, "--out", folder, "--name", "set", "--seed", 3).returncode == 0
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_a_card_written_anew_still_says_what_it_said(inside, tmp_path, tasks):
    card = tmp_path / "set" / "README.md"
    inside("synth", "split", tasks, "--out", "set", "--licence", "CC0-1.0", "--about", "Made for a test.")
    before = card.read_bytes()
    assert inside("synth", "card", "set").returncode == 0
    assert card.read_bytes() == before
    done = inside("synth", "card", "set", "--licence", "MIT")
    assert done.returncode == 0
    assert "MIT" in card.read_text(encoding="utf-8")
    assert "Made for a test." in card.read_text(encoding="utf-8")
    assert "CC0-1.0" not in card.read_text(encoding="utf-8")
    (tmp_path / "set" / "split.json").write_text('{"set": "x"}')
    done = inside("synth", "card", "set")
    assert done.returncode == 1
    assert "split.json: not a report of" in done.stderr


def test_what_nobody_said_is_not_stated(inside, tmp_path, tasks):
    inside("synth", "split", tasks, "--out", "set")
    assert "not stated" in (tmp_path / "set" / "README.md").read_text(encoding="utf-8")


def test_a_leak_fails_the_check(inside, tmp_path, tasks):
    inside("synth", "split", tasks, "--out", "set")
    test = load_tasks(tmp_path / "set" / "queries.test.jsonl")
    train = load_tasks(tmp_path / "set" / "queries.train.jsonl")
    write_tasks(tmp_path / "set" / "queries.train.jsonl", [*train, task("leak", *test[0].gold)])
    done = inside("synth", "check", "set")
    assert done.returncode == 1
    assert "leak" in done.stderr


@pytest.mark.parametrize(
    ("flags", "code", "told"),
    [
        (("--shares", "train=.8,test=.1"), 2, "shares must sum to 1"),
        (("--shares", ".8,.1,.1"), 2, "--shares has the form train=.8"),
        (("--shares", "train=.8,test=x"), 2, "--shares has the form train=.8"),
        (("--shares", "../train=1"), 2, "--shares has the form train=.8"),
        (("--name", "a/b"), 2, "must not have spaces or slashes"),
        (("--stage", "tasks.jsonl"), 1, "not the output of a stage"),
        (("--corpus", "nowhere.jsonl"), 1, "nowhere.jsonl"),
    ],
)
def test_what_cannot_work_is_refused(capsys, tasks, flags, code, told):
    flags = [str(tasks) if flag == "tasks.jsonl" else flag for flag in flags]
    assert run(["synth", "split", str(tasks), "--out", str(tasks.with_name("set")), *flags]) == code
    assert told in capsys.readouterr().err
    assert not tasks.with_name("set").exists()


def test_fewer_tasks_than_splits_and_an_empty_file_are_refused(inside, tmp_path):
    write_tasks(tmp_path / "two.jsonl", [task("a", "d1"), task("b", "d2")])
    done = inside("synth", "split", "two.jsonl", "--out", "set")
    assert done.returncode == 1
    assert "2 tasks are too few for 3 splits" in done.stderr
    (tmp_path / "empty.jsonl").write_text("")
    assert "0 tasks are too few" in inside("synth", "split", "empty.jsonl", "--out", "set").stderr
    assert not (tmp_path / "set").exists()


def test_one_id_in_two_files_is_refused(inside, tmp_path, tasks):
    write_tasks(tmp_path / "more.jsonl", chained()[:1])
    done = inside("synth", "split", tasks, "more.jsonl", "--out", "set")
    assert done.returncode == 1
    assert "'0-0' is also in" in done.stderr


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
        ("empty.jsonl --out o", 1, "has no task"),
        ("bad.jsonl --out o", 1, "bad.jsonl:1"),
        ("none --out o", 1, "no queries"),
        ("empty.jsonl", 2, "--out"),
        ("empty.jsonl --out o --public", 2, "--push"),
        ("empty.jsonl --out o --to csv", 2, "--to"),
    ],
)
@pytest.mark.usefixtures("sources")
def test_what_cannot_be_exported_is_refused(capsys, line, code, told):
    assert run(["synth", "export", *line.split()]) == code
    assert told in capsys.readouterr().err
    assert not Path("o").exists()
