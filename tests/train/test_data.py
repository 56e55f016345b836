from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from context_agent import MemoryCorpus
from context_agent.errors import ConfigError, DataError
from context_agent.testing import tiny_runs
from context_agent.train import data as material
from context_agent.train.config import DataConfig
from context_agent.train.data import corpus_digest, open_data
from context_agent.train.lessons import demonstration_rows
from context_agent.train.toy.environment import WorldConfig, environment_texts, make_environment
from context_agent.train.toy.word_prompts import WordRenderer
from context_agent.types import Document


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of three questions; the gold of one is not in the index, which is in memory."""
    from contextlib import nullcontext

    path = tmp_path / "tasks.jsonl"
    rows = [{"id": f"q{n}", "question": "which?", "gold": [gold]} for n, gold in enumerate(["a", "b", "nowhere"])]
    path.write_text("\n".join(map(json.dumps, rows)) + "\nno row\n")
    corpus = MemoryCorpus([Document("a", "Comets."), Document("b", "Operas.")])
    monkeypatch.setattr(material, "open_corpus", lambda _: nullcontext(corpus))
    return str(path)


def collect_ids(data: DataConfig) -> tuple[list[str], list[str]]:
    notes: list[str] = []
    with open_data(data, notes.append) as training_data:
        return [question.id for question in training_data.questions], notes


def test_questions_that_are_trained_and_evaluated_are_counted(tmp_path: Path) -> None:
    """As in an evaluation, case, spaces and punctuation make no other question."""
    (tmp_path / "train.jsonl").write_text('{"id": "q", "question": "which comet?", "gold": ["a"]}\n')
    (tmp_path / "dev.jsonl").write_text(
        '{"id": "1", "question": "Which  Comet", "gold": ["a"]}\n{"id": "2", "question": "which?", "gold": ["a"]}\n'
    )
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "text": "Comets."}\n')
    train, dev, corpus = (str(tmp_path / f"{name}.jsonl") for name in ("train", "dev", "corpus"))
    told = "data.dev and data.questions share 1 question, so"
    assert any(told in note for note in collect_ids(DataConfig((train,), (dev,), documents=(corpus,)))[1])
    assert not any(told in note for note in collect_ids(DataConfig((train,), documents=(corpus,)))[1])


def test_the_digest_of_a_corpus_changes_with_each_id_title_and_text() -> None:
    first, second = Document("a", "Comets."), Document("b", "Operas.", title="Music")
    others = (replace(second, id="c"), replace(second, title="Art"), replace(second, text="Opera."))
    corpora = [[first, second], [first], *([first, other] for other in others)]
    assert len({corpus_digest(MemoryCorpus(documents)) for documents in corpora}) == len(corpora)
    assert corpus_digest(MemoryCorpus(corpora[0])) == corpus_digest(MemoryCorpus(corpora[0]))


def test_documents_in_memory_replace_an_index(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text('{"id": "q", "question": "which comet?", "gold": ["a"]}\n')
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "text": "Comets."}\n{"id": "b", "text": "Operas."}\n')
    data = DataConfig(questions=(str(tmp_path / "tasks.jsonl"),), documents=(str(tmp_path / "corpus.jsonl"),))
    with open_data(data, print) as opened:
        assert [question.id for question in opened.questions] == ["q"]
        assert [hit.chunk.document_id for hit in opened.corpus.search("comets", k=1)] == ["a"]


def test_documents_beside_an_index_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.documents cannot be combined with"):
        DataConfig(documents=("corpus.jsonl",), path="index")


def test_gold_that_is_not_in_the_index_is_refused(questions: str) -> None:
    with pytest.raises(DataError, match=r"1 of 3 gold ids is not in the index: nowhere"):
        collect_ids(DataConfig(questions=(questions,), path="x"))


def test_questions_with_missing_gold_can_be_dropped_and_reported(questions: str) -> None:
    ids, notes = collect_ids(DataConfig(questions=(questions,), path="x", missing_gold="drop"))
    assert ids == ["q0", "q1"]
    assert any("1 of 3 questions are dropped" in note for note in notes)
    assert any("not valid JSON" in note for note in notes)


def test_questions_of_several_files_have_ids_of_their_own(questions: str, tmp_path: Path) -> None:
    """A question without an id has the number of its line. Gold and rewards are found by the id."""
    paths = [tmp_path / name for name in ("first.jsonl", "second.jsonl")]
    for path, gold in zip(paths, "ab", strict=True):
        path.write_text(json.dumps({"question": f"which {gold}?", "gold": [gold]}) + "\n")
    first, second = map(str, paths)
    assert collect_ids(DataConfig(questions=(first,), dev=(second,), path="x"))[0] == ["1"]
    for files in ((first, second), (first, first)):
        with pytest.raises(DataError, match=r"both have a question with the id '1'"):
            collect_ids(DataConfig(questions=files, path="x"))
        with pytest.raises(DataError, match=r"both have a question with the id '1'"):
            collect_ids(DataConfig(questions=(questions,), dev=files, path="x", missing_gold="drop"))


def test_empty_questions_are_skipped_and_empty_files_refused(tmp_path: Path, questions: str) -> None:
    """An episode of an empty question would stop the run when the question is drawn, perhaps after days."""
    path = tmp_path / "blank.jsonl"
    path.write_text('{"id": "x", "question": " ", "gold": ["a"]}\n{"id": "y", "question": "which?", "gold": ["a"]}\n')
    ids, notes = collect_ids(DataConfig(questions=(str(path),), path="x"))
    assert (ids, notes) == (["y"], [f"skipped: {path}: the question with the id 'x' is empty"])
    path.write_text("")
    for files in ({"questions": (str(path),)}, {"questions": (questions,), "dev": (str(path),)}):
        with pytest.raises(DataError, match=r"blank\.jsonl has no questions"):
            collect_ids(DataConfig(path="x", missing_gold="drop", **files))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({}, r"the run file names no questions\. Set data\.questions"),
        ({"questions": ("q.jsonl",)}, r"the run file names no index\. Set data\.path"),
    ],
)
def test_a_missing_setting_is_asked_for(data: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        collect_ids(DataConfig(**data))


def test_lessons_are_spread_over_worlds_in_which_the_same_names_mean_something_else(tmp_path: Path) -> None:
    run = tiny_runs.demonstrations(tmp_path, data={"world": {"worlds": 3}}, sft={"demonstrations": 90})
    assert run.data.world is not None
    world = make_environment(run.data.world)
    environments = (world, *world.others)
    words = WordRenderer(environment_texts(world))
    shown_ids = {row.group_id for row in demonstration_rows(run, words, print)}
    assert len(shown_ids) == 90
    for environment in environments:
        train_ids = {question.id for question in environment.questions["train"][:30]}
        assert len(shown_ids & train_ids) == 30
        assert all("<unk>" not in words.decode(words.encode(chunk.text)) for chunk in environment.corpus.chunks)
    texts = [{chunk.id: chunk.text for chunk in environment.corpus.chunks} for environment in environments]
    shared = texts[0].keys() & texts[1].keys()
    assert shared
    assert sum(texts[0][name] == texts[1][name] for name in shared) < len(shared) / 2


def test_the_expert_plays_in_the_windows_in_turn(tmp_path: Path) -> None:
    windows = {"window": 512, "windows": [96, 512], "reserve": 8}
    run = tiny_runs.demonstrations(tmp_path, sft={"demonstrations": 20}, episodes=windows)
    assert run.data.world is not None
    world = make_environment(run.data.world)
    words = WordRenderer(environment_texts(world))
    windows_of_question: dict[str, set[str]] = {}
    for row in demonstration_rows(run, words, print):
        windows = re.findall(r"/ ([\d ]+) \]", words.decode(row.input_ids))
        windows_of_question.setdefault(row.group_id, set()).update(windows)
    assert sorted(windows_of_question.values(), key=str) == [{"5 1 2"}] * 10 + [{"9 6"}] * 10


def test_a_world_with_others_is_itself_the_same_world() -> None:
    alone, first = (
        make_environment(WorldConfig(**tiny_runs.WORLD)),
        make_environment(WorldConfig(**tiny_runs.WORLD, worlds=2)),
    )
    assert (alone.questions, alone.titles) == (first.questions, first.titles)


def test_a_run_and_its_vocabulary_come_from_one_world() -> None:
    world = WorldConfig(**tiny_runs.WORLD)
    with open_data(DataConfig(world=world), print) as opened:
        environment = make_environment(replace(world))
        assert opened.corpus is environment.corpus
        assert opened.questions is environment.questions["train"]
