"""A finished set as a folder: checked after writing, the same bytes each time, and described by a data card."""

import gzip
import json
import re

import pytest

from context_agent import Document
from context_agent._support.question_files import load_questions
from context_agent.errors import DataError
from context_agent.eval.benchmarks.loading import load_benchmark
from context_agent.retrieval.loaders import load
from context_agent.synth_data.quality import filter_tasks
from context_agent.synth_data.sets.card import ABOUT, CardDetails, data_card, stage_of, write_card
from context_agent.synth_data.sets.folder import (
    check_folder,
    duplicate_documents,
    load_splits,
    tasks_in_corpus,
    write_corpus,
    write_folder,
)
from context_agent.synth_data.sets.splits import split_tasks
from context_agent.synth_data.task import load_tasks, write_tasks
from tests.support.tasks import chained, tangled, task

SETTINGS = {"set": "set", "shares": {"train": 0.8, "dev": 0.1, "test": 0.1}, "seed": 0, "oversized": "cut"}
DOCUMENTS = [
    Document(f"g{group}-d{number}", f"Text {group} {number}", "T", {"year": 1})
    for group in range(40)
    for number in range(6)
]


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_holds_what_was_split(tmp_path):
    parts = split_tasks([*chained(), task("none")], "set")
    report = write_folder(tmp_path / "set", parts, SETTINGS, documents=DOCUMENTS)
    assert {name: tuple(tasks) for name, tasks in load_splits(tmp_path / "set").items()} == parts.splits
    assert list(load_splits(tmp_path / "set")) == ["train", "dev", "test"]
    assert report["tasks"] == {"train": 160, "dev": 20, "test": 20}
    assert report["dropped"] == {"names no document": 1}
    assert json.loads((tmp_path / "set" / "split.json").read_text()) == report
    (dropped_line,) = (tmp_path / "set" / "dropped.jsonl").read_text().splitlines()
    assert json.loads(dropped_line)["input"]["id"] == "none"
    assert [
        (document.id, document.text, document.metadata) for document in load(str(tmp_path / "set" / "corpus.jsonl.gz"))
    ] == [(document.id, document.text, {"year": 1}) for document in DOCUMENTS]


def test_a_copy_of_a_split_does_not_replace_it(tmp_path):
    write_folder(tmp_path, split_tasks(chained(), "set"), SETTINGS)
    (tmp_path / "queries.dev.old.jsonl").write_bytes((tmp_path / "queries.test.jsonl").read_bytes())
    splits = load_splits(tmp_path)
    assert list(splits) == ["train", "dev", "test", "dev.old"]
    assert {row.split for row in splits["dev"]} == {"dev"}


def test_equal_sets_are_equal_bytes(tmp_path):
    for name in ("one", "two"):
        write_folder(tmp_path / name, split_tasks(tangled(300, 400), "set"), SETTINGS, documents=DOCUMENTS)
    assert bytes_of(tmp_path / "one") == bytes_of(tmp_path / "two")
    header = (tmp_path / "one" / "corpus.jsonl.gz").read_bytes()[:10]
    assert header[3] == 0
    assert header[4:8] == b"\0\0\0\0"


def test_every_split_is_a_file_of_questions(tmp_path):
    write_folder(tmp_path, split_tasks(chained(), "set"), SETTINGS)
    assert len(load_questions(tmp_path / "queries.train.jsonl")) == 160


def test_a_split_of_an_earlier_run_does_not_stay(tmp_path):
    write_folder(tmp_path, split_tasks(chained(), "set"), SETTINGS)
    two_splits = split_tasks(chained(), "set", shares={"train": 0.5, "test": 0.5})
    with pytest.raises(DataError, match=re.escape("queries.dev.jsonl")):
        write_folder(tmp_path, two_splits, SETTINGS)


def test_a_leak_on_disk_is_told(tmp_path):
    parts = split_tasks(chained(), "set")
    write_folder(tmp_path, parts, SETTINGS)
    test_task = parts.splits["test"][0]
    write_tasks(tmp_path / "queries.train.jsonl", [*parts.splits["train"], task("again", *test_task.gold)])
    with pytest.raises(DataError, match="document"):
        check_folder(tmp_path)
    write_tasks(
        tmp_path / "queries.train.jsonl", [*parts.splits["train"], task("again", "new", question=test_task.question)]
    )
    with pytest.raises(DataError, match="question"):
        check_folder(tmp_path)
    with pytest.raises(DataError, match="no queries"):
        check_folder(tmp_path / "nowhere")


def test_copies_are_known_by_title_and_text():
    copies = [
        Document("a", "same", "T"),
        Document("b", "same", "T"),
        Document("c", "same", "U"),
        Document("d", "same", "T"),
    ]
    assert duplicate_documents(copies) == {"b": "a", "d": "a"}


def test_tasks_whose_documents_are_not_there_are_told():
    present, absent = tasks_in_corpus([task("a", "d1"), task("b", "d1", bridge="d9")], [Document("d1", "text")])
    assert [item.id for item in present] == ["a"]
    assert [(item.id, reason) for item, reason in absent] == [("b", "gold not in the corpus")]


def test_a_text_that_utf8_cannot_hold_is_written_all_the_same(tmp_path):
    write_corpus(tmp_path / "c.jsonl.gz", [Document("d", "half \ud800 pair")])
    assert json.loads(gzip.decompress((tmp_path / "c.jsonl.gz").read_bytes()))["text"] == "half \ud800 pair"


def splits_of(tasks):
    parts = split_tasks(tasks, "set")
    return parts.splits


async def test_the_card_counts_what_is_there(tmp_path, corpus):
    tasks = [
        *(task(f"a{number}", f"d{number}", hops=1, domain="documents") for number in range(30)),
        *(task(f"b{number}", f"d{30 + number}", type="comparison", origin="model", hops=2) for number in range(25)),
        task("gone", "nowhere"),
    ]
    out = tmp_path / "kept.jsonl"
    await filter_tasks(tasks, corpus, out)

    parts = split_tasks(load_tasks(out), "notes")
    report = write_folder(tmp_path / "set", parts, {**SETTINGS, "set": "notes"})
    card = data_card(parts.splits, report, stages=[stage_of(out)])
    assert "# notes\n" in card
    assert ABOUT in card
    counts = {name: sum(item.origin == "model" for item in part) for name, part in parts.splits.items()}
    assert f"| model | {counts['train']} | {counts['dev']} | {counts['test']} |" in card
    assert f"| comparison | {counts['train']} | {counts['dev']} | {counts['test']} |" in card
    assert "| filter | 55 | 1 | gold is not in the index 1 |" in card
    assert "25 from model" in card
    assert "**links**: Questions are filled into templates" in card
    assert "**model**: Questions were written by a language model" in card
    assert "world" not in card
    assert "seed 0" in card
    assert '"min_similarity": 0.7' in card
    assert re.search(r"\| train \| \d\.\d\d, \d\.\d\d, \d\.\d\d \|", card)
    assert "## License\n\nnot stated." in card
    assert "license" not in card.split("---")[1], "the front matter names no license"


def test_the_card_invents_no_license_and_repeats_the_one_it_is_told():
    splits = splits_of(chained())
    card = data_card(splits, {}, license='CC BY-SA 4.0 "adapted"')
    assert 'license: other\nlicense_name: "CC BY-SA 4.0 \\"adapted\\""' in card
    assert '## License\n\nCC BY-SA 4.0 "adapted"\n' in card
    assert "## Splits" not in card
    assert "What earlier stages dropped is not stated." in card


def test_texts_of_the_data_end_no_table():
    splits = {"train": [task("a", "d", type="x | y\n| z <b>", origin="")]}
    card = data_card(splits, {})
    assert "| x \\| y \\| z &lt;b> | 1 |" in card
    assert "Origin not stated: how these questions were made is not known." in card


def test_the_card_of_a_set_with_lone_surrogates_is_written(tmp_path):
    write_folder(tmp_path / "set", split_tasks(chained(), "set"), SETTINGS)
    path = write_card(tmp_path / "set", CardDetails(license="MIT\ud800"))
    assert "MIT?" in path.read_text()


def test_a_file_of_no_stage_is_refused(tmp_path):
    write_tasks(tmp_path / "tasks.jsonl", [task("a")])
    with pytest.raises(DataError, match="not the output of a stage"):
        stage_of(tmp_path / "tasks.jsonl")
    (tmp_path / "tasks.jsonl.journal").write_text("{broken\n")
    with pytest.raises(DataError, match="damaged"):
        stage_of(tmp_path / "tasks.jsonl")


def test_the_hub_library_finds_the_splits_by_the_card(tmp_path):
    datasets = pytest.importorskip("datasets")
    parts = split_tasks(chained(), "set")
    report = write_folder(tmp_path / "set", parts, SETTINGS)
    (tmp_path / "set" / "README.md").write_text(data_card(parts.splits, report), encoding="utf-8")
    dataset = datasets.load_dataset(str(tmp_path / "set"), cache_dir=str(tmp_path / "cache"))
    assert {name: part.num_rows for name, part in dataset.items()} == {"train": 160, "dev": 20, "test": 20}


def test_the_folder_is_a_benchmark(tmp_path):
    write_folder(tmp_path / "notes", split_tasks(chained(), "notes"), SETTINGS, documents=DOCUMENTS)
    benchmark = load_benchmark(str(tmp_path / "notes"), split="test", data=tmp_path)
    assert [item.id for item in benchmark.questions] == [item.id for item in load_splits(tmp_path / "notes")["test"]]
