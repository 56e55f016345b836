"""The closed world: its documents, its tasks, and its splits."""

import gzip
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict

import pytest

from context_agent._support.question_files import load_questions
from context_agent.errors import ConfigError
from context_agent.retrieval.index.bm25 import Bm25Entry, Bm25Index
from context_agent.synth_data.quotes import find_quote
from context_agent.synth_data.task import load_tasks
from context_agent.synth_data.world.closed_world import make_world
from context_agent.synth_data.world.files import write_world
from context_agent.synth_data.world.schema import FULL


@pytest.fixture(scope="module")
def made():
    return make_world(entities=600, seed=4)


def texts(made):
    return {document.id: f"{document.title}\n{document.text}" for document in made.documents}


def test_equal_settings_give_equal_bytes_whatever_the_hash_seed(tmp_path):
    program = (
        "import sys; from pathlib import Path; from context_agent.synth_data.world.closed_world import make_world; "
        "from context_agent.synth_data.world.files import write_world; "
        "write_world(make_world(entities=120, seed=7), Path(sys.argv[1]))"
    )
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", program, tmp_path / seed], check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        )
    digests = [
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted((tmp_path / seed).iterdir())}
        for seed in ("1", "2")
    ]
    assert digests[0] == digests[1]
    assert set(digests[0]) == {
        "README.md", "corpus.jsonl.gz", "queries.dev.jsonl", "queries.test.jsonl", "queries.train.jsonl", "world.json"
    }  # fmt: skip


def test_another_seed_gives_another_world():
    first, second = (make_world(entities=60, seed=seed) for seed in (1, 2))
    assert [document.text for document in first.documents] != [document.text for document in second.documents]


def test_every_answer_is_the_only_one_by_reading_the_documents(made):
    """Answers one-hop and two-hop questions from the documents' text alone, with the patterns of the sentences."""
    facts = facts_by_reading(made)
    checks = Counter()
    for task in made.tasks:
        for pattern, hops in QUESTIONS:
            if match := re.fullmatch(pattern, task.question):
                answers = {match["x"]}
                for hop in hops:
                    answers = {value for name in answers for value in facts[name, hop]}
                assert answers == {task.answer}, task
                checks[len(hops)] += 1
    assert checks[1] > 20
    assert checks[2] > 5


QUESTIONS = (
    (r"(?:Where|In which town) was (?P<x>[A-Z]\w+ [A-Z]\w+) born\?", ["birthplace"]),
    (r"(?:Who taught|Who was the teacher of) (?P<x>[A-Z]\w+ [A-Z]\w+)\?", ["teacher"]),
    (r"(?:Who created|Who is the author of) (?P<x>The \w+ \w+)\?", ["maker"]),
    (
        r"Who (?:taught|was the teacher of) the (?:author of|person who created) (?P<x>The \w+ \w+)\?",
        ["maker", "teacher"],
    ),
    (
        r"(?:Where|In which town) was the (?:author of|person who created) (?P<x>The \w+ \w+) born\?",
        ["maker", "birthplace"],
    ),
)


def facts_by_reading(made):
    """The objects by (title, relation), read from the sentences and not from the graph."""
    facts = defaultdict(set)
    for document in made.documents:
        for relation in FULL.relations:
            for sentence in relation.says:
                pattern = re.escape(sentence).replace(r"\{y\}", r"(?P<y>[\w' -]+?)").replace(r"\{x\}", r"[\w' ()-]+?")
                for match in re.finditer(rf"(?:^|(?<=\. )){pattern}(?= |$)", document.text):
                    facts[document.title, relation.name].add(match["y"])
    return facts


def test_gold_is_in_hop_order_and_the_last_document_answers(made):
    texts_by_id = texts(made)
    for task in made.tasks:
        assert len(task.gold) == task.hops == len(set(task.gold))
        answering = [document_id for document_id in task.gold if task.answer in texts_by_id[document_id]]
        if task.type != "comparison":
            assert answering == [task.gold[-1]]
            assert task.answer not in task.question
        assert answering == [support.id for support in task.supporting if support.contains_truth]


def test_an_intersection_has_one_member(made):
    """Only one entity of the graph meets both conditions."""
    graph = made.graph
    by_id = {entity.id: entity for entity in graph.entities}
    checks = 0
    for task in made.tasks:
        if task.type != "intersection":
            continue
        entity = by_id[task.gold[-1]]
        names = {
            name
            for name, value in entity.objects.items()
            if made.entity_documents[entity.number].quotes[name] in task.supporting[-1].item_quotes
            and isinstance(value, int)
        }
        assert len(names) == 2
        alike = [
            other.number
            for other in graph.entities
            if other.kind == entity.kind and all(other.objects.get(name) == entity.objects[name] for name in names)
        ]
        assert alike == [entity.number]
        checks += 1
    assert checks > 50


def test_comparisons_name_the_earlier(made):
    by_id = {entity.id: entity for entity in made.graph.entities}
    for task in made.tasks:
        if task.type == "comparison":
            years = {
                by_id[support.id].name: min(
                    int(year) for quote in support.item_quotes for year in re.findall(r"\b\d{4}\b", quote)
                )
                for support in task.supporting
                if any(re.search(r"\b\d{4}\b", quote) for quote in support.item_quotes)
            }
            assert len(years) == 2
            assert task.answer == min(years, key=years.get)
    assert any(task.type == "comparison" for task in made.tasks)


def test_quotes_stand_in_clues_and_documents(made):
    texts_by_id = texts(made)
    for task in made.tasks:
        for support in task.supporting:
            assert all(find_quote(quote, task.clues) for quote in support.clue_quotes)
            assert all(
                find_quote(quote, texts_by_id[support.id]) for quote in (*support.item_quotes, *support.truth_quotes)
            )
            assert support.clue_quotes
            assert support.item_quotes


def test_distractors_hold_no_answer_and_resemble_the_gold(made):
    texts_by_id = texts(made)
    kinds = {entity.id: entity.kind for entity in made.graph.entities}
    assert sum(len(task.distractors) == 5 for task in made.tasks) > 0.97 * len(made.tasks)
    for task in made.tasks:
        assert not set(task.distractors) & set(task.gold)
        for distractor in task.distractors:
            assert not re.search(rf"\b{re.escape(task.answer)}\b", texts_by_id[distractor], re.I)
            assert kinds[distractor] in {kinds[gold] for gold in task.gold}


def test_the_splits_share_no_gold_and_no_id(made):
    gold = defaultdict(set)
    for task in made.tasks:
        gold[task.split].update(task.gold)
        assert f"-{task.split}-" in task.id
    assert all(gold[split] for split in ("train", "dev", "test"))
    assert not gold["train"] & gold["dev"]
    assert not gold["train"] & gold["test"]
    assert not gold["dev"] & gold["test"]
    assert len({task.id for task in made.tasks}) == len(made.tasks) == 1_200


def test_hops_and_types_are_mixed(made):
    type_counts = Counter((task.type, task.hops) for task in made.tasks)
    assert {hops for _, hops in type_counts} == {1, 2, 3, 4}
    assert {kind for kind, _ in type_counts} == {"single", "bridge", "comparison", "intersection"}
    assert all(type_counts[kind, hops] > 40 for kind in ("bridge", "comparison", "intersection") for hops in (2, 3, 4))


def test_one_search_does_not_answer_several_hops(made):
    index = Bm25Index.of(Bm25Entry(document.id, document.title, document.text) for document in made.documents)
    bridges = [task for task in made.tasks if task.type == "bridge" and task.hops > 1]
    solved = [set(task.gold) <= {document_id for document_id, _ in index.search(task.question, 5)} for task in bridges]
    assert sum(solved) < 0.1 * len(solved)


def test_namesakes_are_told_apart_wherever_they_are_named():
    large_world = make_world(entities=2_000, seed=1)
    ambiguous = [entity for entity in large_world.graph.entities if entity.ambiguous]
    assert ambiguous
    assert len({entity.title for entity in large_world.graph.entities}) == 2_000
    for entity in ambiguous:
        bare = re.compile(rf"(?<!{entity.objects['trade']} ){re.escape(entity.name)}")
        namesakes = [other for other in ambiguous if other.name == entity.name]
        assert len(namesakes) == 2
        for document in large_world.documents:
            if entity.name in document.text and bare.search(document.text):
                assert any(
                    f"the {other.objects['trade']} {entity.name}" in document.text.replace("The", "the")
                    for other in namesakes
                )
        assert not any(task.answer == entity.name for task in large_world.tasks)


def test_the_small_vocabulary_is_closed_and_its_documents_are_one_sentence():
    small_world = make_world(entities=700, seed=2, vocabulary="small")
    words = {word for document in small_world.documents for word in f"{document.title} {document.text}".split()}
    assert all(document.text.count(" .") == 1 for document in small_world.documents)
    words |= {word for task in small_world.tasks for word in (*task.question.split(), *task.answer.split())}
    assert len(words) <= 250
    assert max(len(document.text.split()) for document in small_world.documents) < 30
    assert len(small_world.tasks) == 1_400


def test_a_folder_is_laid_out_as_question_data_is(tmp_path, made):
    description = write_world(made, tmp_path / "w")
    with gzip.open(tmp_path / "w" / "corpus.jsonl.gz", "rt", encoding="utf-8") as rows:
        corpus = [json.loads(row) for row in rows]
    assert [row["id"] for row in corpus] == [document.id for document in made.documents]
    assert set(corpus[0]) == {"id", "title", "text"}
    tasks = load_tasks(tmp_path / "w" / "queries.test.jsonl")
    assert [task.as_question for task in tasks] == load_questions(tmp_path / "w" / "queries.test.jsonl")
    assert tasks == [task for task in made.tasks if task.split == "test"]
    assert description["tasks"]["test"]["all"] == len(tasks) == 120
    assert json.loads((tmp_path / "w" / "world.json").read_text())["license"].startswith("CC0")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"entities": 49}, "50 to"),
        ({"entities": 10**30}, "to 1,000,000"),
        ({"entities": 50, "tasks": 100_000}, "about"),
        ({"entities": 50, "hops": (0, 2)}, "hops"),
        ({"entities": 50, "hops": (3, 2)}, "hops"),
        ({"entities": 50, "tasks": 2}, "at least 3"),
        ({"entities": 50, "tasks": 10**30}, "at most 1,000,000,000"),
        ({"entities": 50, "distractors": -1}, "distractors"),
        ({"entities": 5_000, "vocabulary": "small"}, "Use about"),
        ({"entities": 50, "vocabulary": "tiny"}, "full or small"),
    ],
)
def test_what_cannot_be_made_is_refused_with_the_way_out(tmp_path, settings, said):
    with pytest.raises(ConfigError, match=said):
        write_world(make_world(**settings), tmp_path / "w")
    assert not list(tmp_path.iterdir())


def test_what_a_kill_left_is_no_obstacle(tmp_path, made):
    partial = tmp_path / ".w.partial"
    partial.mkdir()
    (partial / "queries.train.jsonl").write_text("half of a ")
    write_world(made, tmp_path / "w")
    write_world(made, tmp_path / "other")
    files = {path.name: path.read_bytes() for path in (tmp_path / "w").iterdir()}
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "other").iterdir()}
    assert {path.name for path in tmp_path.iterdir()} == {"w", "other"}


def test_the_number_named_in_a_refusal_can_be_made():
    with pytest.raises(ConfigError) as caught:
        _ = make_world(entities=60, tasks=100_000).tasks
    limit = int(re.search(r"about (\d+) tasks", str(caught.value))[1])
    assert len(make_world(entities=60, tasks=limit).tasks) == limit


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    small = make_world(entities=50)
    with pytest.raises(ConfigError, match="not empty"):
        write_world(small, tmp_path)
    write_world(small, tmp_path, force=True)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert (tmp_path / "world.json").exists()
    with pytest.raises(ConfigError, match="is a file"):
        write_world(small, tmp_path / "mine.txt")
