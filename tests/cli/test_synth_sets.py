"""`ctx1 synth split`, `card`, `check` and `export`: a file of tasks becomes a set."""

import json
import random
from pathlib import Path

import pytest

from context_agent.cli.app import run
from context_agent.synth_data.task import load_tasks, write_tasks
from tests.support.tasks import chained, task, task_in


@pytest.fixture
def set_tasks(tmp_path):
    write_tasks(tmp_path / "tasks.jsonl", chained())
    return tmp_path / "tasks.jsonl"


@pytest.fixture
def set_corpus(tmp_path):
    rows = [
        {"id": f"g{group}-d{number}", "title": "T", "text": f"Text {group} {number}"}
        for group in range(40)
        for number in range(6)
    ]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return tmp_path / "corpus.jsonl"


def test_a_set_with_its_corpus_and_card(inside, tmp_path, set_tasks, set_corpus):
    write_tasks(tmp_path / "more.jsonl", [task("gone", "nowhere")])
    split_run = inside(
        *(
            "synth",
            "split",
            set_tasks,
            "more.jsonl",
            "--corpus",
            set_corpus,
            "--out",
            "notes",
            "--license",
            "CC0-1.0",
        ),
        *("--about", "Made for a test.", "--json"),
    )
    assert split_run.returncode == 0, split_run.stderr
    report = json.loads(split_run.stdout)
    assert report["tasks"] == {"train": 160, "dev": 20, "test": 20}
    assert report["dropped"] == {"gold not in the corpus": 1}
    names = {path.name for path in (tmp_path / "notes").iterdir()}
    splits = {f"queries.{split}.jsonl" for split in ("train", "dev", "test")}
    assert names == splits | {"corpus.jsonl.gz", "dropped.jsonl", "split.json", "README.md"}
    card = (tmp_path / "notes" / "README.md").read_text(encoding="utf-8")
    assert "CC0-1.0" in card
    assert "Made for a test." in card
    assert all(
        test_task.id.startswith("notes/test/") for test_task in load_tasks(tmp_path / "notes" / "queries.test.jsonl")
    )
    check_run = inside("synth", "check", "notes", "--json")
    assert json.loads(check_run.stdout) == {"tasks": report["tasks"], "documents": 240}


def test_the_same_seed_gives_the_same_files(inside, tmp_path, set_tasks):
    for folder in ("one", "two"):
        assert inside("synth", "split", set_tasks, "--out", folder, "--name", "set", "--seed", 3).returncode == 0
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_a_card_written_anew_still_says_what_it_said(inside, tmp_path, set_tasks):
    card = tmp_path / "set" / "README.md"
    inside("synth", "split", set_tasks, "--out", "set", "--license", "CC0-1.0", "--about", "Made for a test.")
    before = card.read_bytes()
    assert inside("synth", "card", "set").returncode == 0
    assert card.read_bytes() == before
    card_run = inside("synth", "card", "set", "--license", "MIT")
    assert card_run.returncode == 0
    assert "MIT" in card.read_text(encoding="utf-8")
    assert "Made for a test." in card.read_text(encoding="utf-8")
    assert "CC0-1.0" not in card.read_text(encoding="utf-8")
    (tmp_path / "set" / "split.json").write_text('{"set": "x"}')
    card_run = inside("synth", "card", "set")
    assert card_run.returncode == 1
    assert "split.json is not a report of" in card_run.stderr


def test_a_card_says_what_is_not_stated(inside, tmp_path, set_tasks):
    inside("synth", "split", set_tasks, "--out", "set")
    assert "## License\n\nnot stated" in (tmp_path / "set" / "README.md").read_text(encoding="utf-8")


def test_a_leak_fails_the_check(inside, tmp_path, set_tasks):
    inside("synth", "split", set_tasks, "--out", "set")
    test = load_tasks(tmp_path / "set" / "queries.test.jsonl")
    train = load_tasks(tmp_path / "set" / "queries.train.jsonl")
    write_tasks(tmp_path / "set" / "queries.train.jsonl", [*train, task("leak", *test[0].gold)])
    check_run = inside("synth", "check", "set")
    assert check_run.returncode == 1
    assert "leak" in check_run.stderr


@pytest.mark.parametrize(
    ("flags", "code", "told"),
    [
        (("--shares", "train=.8,test=.1"), 2, "shares must sum to 1"),
        (("--shares", ".8,.1,.1"), 2, "--shares must have the form train=.8"),
        (("--shares", "train=.8,test=x"), 2, "--shares must have the form train=.8"),
        (("--shares", "train=.5,dev=.5,train=.5"), 2, "--shares must name each split once"),
        (("--shares", "train=.5,Train=.5"), 2, "--shares must name each split once"),
        (("--shares", "../train=1"), 2, "--shares must have the form train=.8"),
        (("--name", "a/b"), 2, "no spaces, slashes or control characters"),
        (("--name", "a\x1b[2J"), 2, "no spaces, slashes or control characters"),
        (("--name", "a\udcff"), 2, "no spaces, slashes or control characters"),
        (("--name", "a" * 101), 2, "from 1 to 100 characters"),
        (("--stage", "tasks.jsonl"), 1, "not the output of a stage"),
        (("--corpus", "nowhere.jsonl"), 1, "nowhere.jsonl"),
    ],
)
def test_a_split_that_cannot_work_is_refused(capsys, set_tasks, flags, code, told):
    flags = [str(set_tasks) if flag == "tasks.jsonl" else flag for flag in flags]
    assert run(["synth", "split", str(set_tasks), "--out", str(set_tasks.with_name("set")), *flags]) == code
    assert told in capsys.readouterr().err
    assert not set_tasks.with_name("set").exists()


def test_fewer_tasks_than_splits_and_an_empty_file_are_refused(inside, tmp_path):
    write_tasks(tmp_path / "two.jsonl", [task("a", "d1"), task("b", "d2")])
    split_run = inside("synth", "split", "two.jsonl", "--out", "set")
    assert split_run.returncode == 1
    assert "3 splits need more than 2 tasks" in split_run.stderr
    (tmp_path / "empty.jsonl").write_text("")
    assert "need more than 0 tasks" in inside("synth", "split", "empty.jsonl", "--out", "set").stderr
    assert not (tmp_path / "set").exists()


def test_one_id_in_two_files_is_refused(inside, tmp_path, set_tasks):
    write_tasks(tmp_path / "more.jsonl", chained()[:1])
    split_run = inside("synth", "split", set_tasks, "more.jsonl", "--out", "set")
    assert split_run.returncode == 1
    assert "the id '0-0' is in" in split_run.stderr


@pytest.fixture
def datasets():
    return pytest.importorskip("datasets")


def test_a_folder_is_exported_split_by_split(inside, tmp_path, datasets):
    write_tasks(tmp_path / "tasks.jsonl", chained())
    assert inside("synth", "split", "tasks.jsonl", "--out", "set").returncode == 0
    export_run = inside("synth", "export", "set", "--out", "ds", "--to", "datasets", "--json")
    assert export_run.returncode == 0, export_run.stderr
    assert json.loads(export_run.stdout)["tasks"] == {"train": 160, "dev": 20, "test": 20}
    dataset_dict = datasets.load_from_disk(str(tmp_path / "ds"))
    assert {name: part.num_rows for name, part in dataset_dict.items()} == {"train": 160, "dev": 20, "test": 20}


def test_a_file_goes_by_the_split_in_its_rows(inside, tmp_path, datasets):
    two_tasks = [task("a", "d1"), task("b", "d2", split="test")]
    write_tasks(tmp_path / "tasks.jsonl", two_tasks)
    export_run = inside("synth", "export", "tasks.jsonl", "--out", "out", "--json")
    assert [path.rpartition("/")[2] for path in json.loads(export_run.stdout)["files"]] == [
        "train.parquet",
        "test.parquet",
    ]
    dataset = datasets.Dataset.from_parquet(str(tmp_path / "out" / "test.parquet"), cache_dir=str(tmp_path / "cache"))
    assert [task_in(row) for row in dataset] == two_tasks[1:]


@pytest.fixture
def sources(monkeypatch, tmp_path):
    """Files that cannot be exported, in the working directory of the test."""
    monkeypatch.chdir(tmp_path)
    Path("empty.jsonl").write_text("")
    Path("bad.jsonl").write_text('{"id": "a"}\n')
    Path("none").mkdir()


@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        ("empty.jsonl --out o", 1, "has no tasks"),
        ("bad.jsonl --out o", 1, "bad.jsonl:1"),
        ("none --out o", 1, "no queries"),
        ("empty.jsonl", 2, "--out"),
        ("empty.jsonl --out o --public", 2, "--push"),
        ("empty.jsonl --out o --to csv", 2, "--to"),
        ("empty.jsonl --out o --push a/b/c", 2, "must have the form owner/set"),
    ],
)
@pytest.mark.usefixtures("sources", "datasets")
def test_what_cannot_be_exported_is_refused(capsys, line, code, told):
    assert run(["synth", "export", *line.split()]) == code
    assert told in capsys.readouterr().err
    assert not Path("o").exists()


def test_a_split_that_drops_many_tasks_says_how_to_keep_more(inside, tmp_path):
    """The tasks share documents, so the cut between the splits costs some of them."""
    draw = random.Random(1)
    links = [(number, int(42 * draw.random() ** 2)) for number in range(42) for _ in range(3)]
    pairs = [draw.choice(links) for _ in range(60)]
    linked = [task(f"t{n}", f"d{a}", f"d{b}", question=f"What of {n}?") for n, (a, b) in enumerate(pairs)]
    write_tasks(tmp_path / "linked.jsonl", linked)
    split_run = inside("synth", "split", "linked.jsonl", "--out", "set", "--json")
    assert split_run.returncode == 0, split_run.stderr
    dropped = sum(json.loads(split_run.stdout)["dropped"].values())
    assert dropped > 6
    assert f"{dropped} of 60 tasks ({dropped / 60:.0%}) were dropped" in split_run.stderr
    assert "--shares train=.95,test=.05" in split_run.stderr
    fewer = inside("synth", "split", "linked.jsonl", "--out", "fewer", "--shares", "train=.95,test=.05", "--json")
    assert sum(json.loads(fewer.stdout)["dropped"].values()) < dropped
