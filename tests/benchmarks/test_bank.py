"""The bank of questions: faults of its format, sheets for judges, and the labels made from their grades."""

from __future__ import annotations

import gzip
import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[2] / "benchmarks"
if not (PROGRAMS / "bank.py").is_file():
    pytest.skip("benchmarks live in the repository alone", allow_module_level=True)

sys.path.insert(0, str(PROGRAMS))
import bank  # noqa: E402

sys.path.remove(str(PROGRAMS))

ABOUT = {
    "name": "pumps",
    "domain": "manuals",
    "language": "en",
    "source": "written for this test",
    "license": "Apache-2.0",
    "written_by": "a person",
}
TEXTS = {
    "p-1": "The Alba pump holds two liters. Empty it every evening.",
    "p-2": "The Brio pump holds three liters. Its filter is washed once a week.",
    "p-3": "Spare parts are ordered by letter from the works in Graz.",
}
QUESTIONS = [
    {"id": "q1", "question": "How much does the Brio hold?", "answer": "three liters", "gold": ["p-2"]},
    {"id": "q2", "question": "What does the Alba cost?", "answer": "", "gold": [], "type": "nothing"},
]


def question(**fields):
    return {"type": "lookup", "style": "question", "split": "train", "answer": "yes", "gold": ["p-1"], **fields}


def write(folder, questions, texts=TEXTS, about=ABOUT):
    folder = folder / "bank" / "pumps"
    folder.mkdir(parents=True)
    (folder / "about.json").write_text(json.dumps(about))
    rows = "".join(json.dumps({"id": name, "title": "", "text": text}) + "\n" for name, text in texts.items())
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    (folder / "questions.jsonl").write_text("".join(json.dumps(question(**row)) + "\n" for row in questions))
    return bank.BankCorpus(folder)


def test_a_bank_without_faults(tmp_path):
    assert list(bank.faults(write(tmp_path, QUESTIONS))) == []


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"id": "q1", "question": "What else?"}, "question id 'q1' occurs 2 times"),
        ({"question": "how much does  the brio HOLD?"}, "occurs 2 times"),
        ({"type": "riddle"}, "has the type 'riddle'"),
        ({"gold": ["p-9"]}, "gold that the corpus lacks: p-9"),
        ({"type": "nothing"}, "`nothing` and neither"),
        ({"gold": [], "answer": ""}, "`nothing` and neither"),
        ({"split": "dev", "gold": ["p-2"]}, "share gold with others: p-2"),
        ({"question": " "}, "is empty"),
    ],
)
def test_each_fault_of_a_question_is_named(tmp_path, row, fault):
    corpus = write(tmp_path, [*QUESTIONS, {"id": "q3", "question": "Which pump is emptied?", **row}])
    assert any(fault in found for found in bank.faults(corpus))


def test_faults_of_the_corpus_are_named(tmp_path):
    corpus = write(tmp_path, QUESTIONS, {**TEXTS, "p-4": " "}, {**ABOUT, "name": "valves"})
    assert {*bank.faults(corpus)} == {"about.json has the name 'valves'", "document 'p-4' has no text"}


def pools(tmp_path):
    return Namespace(banks=[tmp_path / "bank"], out=tmp_path / "sheets", limit=None, split="train", embedder="", seed=0)


def key(tmp_path):
    return {row["id"]: row for row in map(json.loads, (tmp_path / "sheets" / bank.KEY).read_text().splitlines())}


def test_sheets_hold_the_gold_among_others_unmarked_and_grow_with_the_bank(tmp_path):
    corpus = write(tmp_path, QUESTIONS)
    bank.write_pools(pools(tmp_path))
    first = key(tmp_path)
    assert {name: set(row["documents"]) for name, row in first.items()} == {"q1": set(TEXTS), "q2": set(TEXTS)}
    sheet = (tmp_path / "sheets" / "sheet-001.txt").read_text()
    assert all(sheet.count(text) == 2 for text in TEXTS.values())
    assert "p-2" not in sheet
    with (corpus.folder / "questions.jsonl").open("a") as lines:
        lines.write(json.dumps(question(id="q3", question="Where do spare parts come from?")) + "\n")
    bank.write_pools(pools(tmp_path))
    grown = key(tmp_path)
    assert {name: grown[name] for name in first} == first
    assert (tmp_path / "sheets" / "sheet-002.txt").read_text().startswith(f"### {grown['q3']['number']}\n")


def test_labels_are_the_lowest_grades_and_lines_that_fit_no_question_are_reported(tmp_path, capsys):
    corpus = write(tmp_path, QUESTIONS)
    bank.write_pools(pools(tmp_path))
    rows, sheets = key(tmp_path), tmp_path / "sheets"
    one, two = rows["q1"]["number"], rows["q2"]["number"]
    (sheets / "sheet-001.ada.txt").write_text(f"{one}: 2 1 0\n{two}: 0 0\nnonsense\n")
    (sheets / "sheet-001.ben.txt").write_text(f"{one}: 2, 0, 1\n")
    bank.read_labels(Namespace(banks=[tmp_path / "bank"], sheets=sheets, write=True))
    assert corpus.labels() == {"q1": dict(zip(rows["q1"]["documents"], (2, 0, 0), strict=True))}
    printed = capsys.readouterr()
    assert "1 questions, 6 grades" in printed.out
    assert "the same grade 0.333" in printed.out
    assert len(printed.err.splitlines()) == 2
