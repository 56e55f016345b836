"""`ctx1 train bridge`: questions with known documents in, weights out, and a search with them."""

import json

import pytest

from context_agent.cli.train_bridge import _text
from context_agent.eval.statistics import Figure
from context_agent.policies.bridge import Scorer
from tests.support.demo_corpus import passages

pytest.importorskip("torch", reason="needs the train extra")

from context_agent.train.bridge.training import TrainedBridge


@pytest.fixture
def questions(tmp_path):
    """Questions about a passage and another that its text names."""
    rows = [
        {
            "id": f"{passage['id']}-{linked['id']}",
            "question": f"What is told of {passage['title']}?",
            "gold": [passage["id"], linked["id"]],
        }
        for passage in passages()
        for linked in passages()
        if linked["title"] in passage["text"] and passage is not linked
    ]
    assert len(rows) > 20
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_few_questions_adapt_the_reader_and_the_weights_are_searched_with(inside, tmp_path, questions):
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(questions.read_text().splitlines()[:3]), encoding="utf-8")
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in passages()), encoding="utf-8")
    process = inside("train", "bridge", corpus, few, "--out", "own.safetensors", "--json")
    assert process.returncode == 0, process.stderr
    report = json.loads(process.stdout)
    assert report["kept"] is True
    assert report["weights"] == "own.safetensors"
    for recall in ("recall_at_5_before", "recall_at_5"):
        assert 0 <= report[recall][str(corpus)]["mean"] <= 1
    assert (tmp_path / "own.safetensors").stat().st_size > 1_000
    assert inside("index", corpus, "--path", "i").returncode == 0
    search = inside(
        "search", "What is told of Brasko?", "--path", "i", "--weights", "own.safetensors", "--save", "t", "--json"
    )
    assert search.returncode == 0, search.stderr
    header = json.loads((tmp_path / json.loads(search.stdout)["trajectory"]).read_text().splitlines()[0])
    assert report["digest"] in json.dumps(header)


def test_the_text_compares_the_weights_and_says_why_the_networks_are_kept(tmp_path):
    figure = Figure(0.5, 0.25, 0.75)
    trained = TrainedBridge(
        Scorer.shipped(), {"notes": figure}, {"notes": figure}, {"notes": figure}, kept=True, before={"notes": figure}
    )
    few, many = (_text(trained, questions, tmp_path / "own.safetensors") for questions in (24, 60))
    for text in (few, many):
        assert f"{figure} with the current weights, {figure} with the new ones" in text
    assert "need 60 questions with gold; got 24" in few
    assert "do not rank better" in many


def test_a_file_without_questions_is_refused(inside, tmp_path, index):
    (tmp_path / "none.jsonl").touch()
    process = inside("train", "bridge", index, "none.jsonl", "--out", "own.safetensors")
    assert process.returncode == 1
    assert "is empty. Write questions with `gold`" in process.stderr


def test_an_invalid_file_of_questions_is_reported_before_documents_are_read(inside, tmp_path):
    (tmp_path / "notes.md").write_text("Comets are made of ice.", encoding="utf-8")
    (tmp_path / "chats.jsonl").write_text('{"messages": []}', encoding="utf-8")
    process = inside("train", "bridge", "notes.md", "chats.jsonl", "--out", "own.safetensors")
    assert process.returncode == 1
    assert process.stderr.startswith("ctx1: chats.jsonl:1: the row has no field question")


def test_questions_of_another_corpus_are_refused(inside, tmp_path, questions, index):
    process = inside("train", "bridge", index, questions, "--out", "own.safetensors")
    assert process.returncode == 1
    assert "none of the gold documents" in process.stderr
    assert not (tmp_path / "own.safetensors").exists()


def test_an_odd_number_of_arguments_is_a_wrong_call(inside):
    process = inside("train", "bridge", "corpus", "--out", "own.safetensors")
    assert process.returncode == 2
    assert "pairs" in process.stderr


def test_a_file_of_no_weights_is_refused(inside, tmp_path, index):
    (tmp_path / "x.safetensors").write_bytes(b"nothing")
    process = inside("search", "x", "--path", index, "--weights", "x.safetensors")
    assert process.returncode == 2
    assert "x.safetensors" in process.stderr
