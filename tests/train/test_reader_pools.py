"""What the reader's training draws from pools: grades, hard negatives, evidence, and each set's share."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from dataclasses import asdict
from itertools import islice
from pathlib import Path

import pytest

from context_agent.retrieval.embedders import load_embedder

SCRIPTS = Path(__file__).parents[2] / "scripts"
if not (SCRIPTS / "reader_pools.py").is_file():
    pytest.skip("scripts live in the repository alone", allow_module_level=True)

sys.path.insert(0, str(SCRIPTS))
import reader_pools  # noqa: E402
from reader_pools import Draws, Pool, PoolPassage  # noqa: E402

sys.path.remove(str(SCRIPTS))


def pool(source="pumps", name="q1", gold=("d0",), documents=20, **fields):
    passages = tuple(
        PoolPassage(f"d{row}", f"Part {row}", f"Text number {row}.", 0.0, {"hybrid": row}) for row in range(documents)
    )
    idf = {"which": 1.0, "valve": 5.0, "leaks": 4.0}
    return Pool(source, name, "Which valve leaks?", idf, tuple(gold), passages, **fields)


def groups(pools, count=200):
    return list(islice(Draws(pools, seed=1), count))


def documents(group, grade):
    return {pair.passage.split(".")[0].replace("Part ", "d") for pair in group if pair.grade == grade}


def test_a_group_has_the_gold_and_wrong_passages():
    for group in groups([pool()]):
        assert len(group) == reader_pools.GROUP
        assert documents(group, 2) == {"d0"}


def test_judges_grades_count_more_than_gold_alone():
    graded = pool(gold=("d0", "d1"), grades={"d0": 0, "d2": 2, "d3": 1, "d4": 0})
    drawn = groups([graded])
    assert {name for group in drawn for name in documents(group, 2)} == {"d1", "d2"}
    assert {name for group in drawn for name in documents(group, 1)} == {"d0", "d3"}


def test_leading_passages_that_nobody_judged_are_drawn_less_often():
    counts = Counter(name for group in groups([pool()], 1_000) for name in documents(group, 0))
    judged = Counter(name for group in groups([pool(grades={"d1": 0})], 1_000) for name in documents(group, 0))
    assert counts["d1"] < 0.8 * counts["d5"]
    assert judged["d1"] > 1.2 * judged["d5"]


def test_a_question_without_an_answer_has_wrong_passages_alone():
    assert all({pair.grade for pair in group} == {0} for group in groups([pool(gold=())], 20))


def test_some_groups_have_evidence_of_other_documents_and_some_keywords():
    drawn = groups([pool(gold=("d0", "d1"))])
    premises = [(pair.premise, pair.passage) for group in drawn for pair in group]
    assert 0.4 < sum(" | " in premise for premise, _ in premises) / len(premises) < 0.95
    assert any(premise.startswith("valve leaks") or premise == "which valve leaks" for premise, _ in premises)
    assert not any(f"| {passage.split('.')[0]}:" in premise for premise, passage in premises)


def test_a_set_of_few_questions_is_drawn_more_often_than_its_size_says():
    many = [pool("many", f"q{row}") for row in range(400)]
    shares = Draws([*many, pool("few")], seed=1).shares()
    assert shares["many"] + shares["few"] == pytest.approx(1)
    assert shares["few"] > 1 / 401


def test_labels_of_a_bank_join_the_pools_of_their_set(tmp_path):
    folder = tmp_path / "pumps"
    folder.mkdir()
    (folder / "labels.jsonl.gz").write_bytes(gzip.compress(json.dumps({"id": "q1", "grades": {"d3": 1}}).encode()))
    first, other = reader_pools.judged([pool(), pool("valves")], [tmp_path])
    assert first.grades == {"d3": 1}
    assert other.grades == {}


def test_pools_hold_what_each_search_found_and_the_gold(tmp_path):
    texts = {f"d{row}": f"Valve {row} of the pump opens at {row} bars." for row in range(30)}
    rows = "".join(json.dumps({"id": name, "title": "Valves", "text": text}) + "\n" for name, text in texts.items())
    (tmp_path / "corpus.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    question = {"id": "q1", "question": "What opens valve 3 and valve 4?", "gold": ["d3", "d4"], "split": "train"}
    (tmp_path / "questions.jsonl").write_text(json.dumps(question) + "\n")
    (asked,) = reader_pools.questions_of(tmp_path, "train")
    assert reader_pools.questions_of(tmp_path, "dev") == []
    static = load_embedder("static")
    whole = reader_pools.PoolCollector(tmp_path, static, [static], agent=True).pool(asked)
    assert {"d3", "d4"} <= {passage.document for passage in whole.passages}
    assert {name for passage in whole.passages for name in passage.ranks} == {
        "hybrid", "agent", "bm25", "dense", static.name,
    }  # fmt: skip
    hybrid = reader_pools.PoolCollector(tmp_path, static, [], agent=False).pool(asked)
    assert {name for passage in hybrid.passages for name in passage.ranks} == {"hybrid"}
    assert [passage.ranks["hybrid"] for passage in hybrid.ranking("hybrid")] == list(range(len(texts)))


def test_a_pool_comes_back_from_its_line():
    written = pool(grades={"d1": 1})
    assert Pool.parse(json.dumps(asdict(written))) == written
