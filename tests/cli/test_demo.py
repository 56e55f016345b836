"""`ctx1 demo`: needs nothing, leaves nothing, and does what it claims."""

import json
import re

from context_agent.cli.demo import documents, questions


def test_the_bundled_questions_point_at_bundled_passages():
    ids = {document.id for document in documents()}
    assert len(ids) == len(documents()) >= 40
    for question in questions():
        assert set(question.gold) <= ids
        assert len(question.gold) >= 3


def test_it_runs_off_a_terminal_and_leaves_nothing(ctx1, tmp_path):
    process = ctx1("demo")
    assert process.returncode == 0, process.stderr
    assert "\x1b" not in process.stdout
    assert "turn 1" in process.stdout
    assert "one-shot" in process.stdout
    assert "tokens added" in process.stdout, "a turn that only restores adds tokens"
    assert not re.search(r"-[\d,]+ tokens freed", process.stdout)
    assert all(question.question in process.stdout for question in questions())
    assert list(tmp_path.iterdir()) == []


def test_json_tells_the_comparison(inside):
    process = inside("demo", "--json")
    assert process.returncode == 0, process.stderr
    rows = json.loads(process.stdout)["questions"]
    assert [row["id"] for row in rows] == [question.id for question in questions()]
    assert sum(row["found_by_agent"] for row in rows) > sum(row["found_by_one_shot"] for row in rows)


def test_the_index_can_be_kept_and_searched(inside, tmp_path):
    assert inside("demo", "--path", "kept").returncode == 0
    process = inside("search", questions()[0].question, "--path", "kept", "--collection", "demo", "--json")
    assert process.returncode == 0, process.stderr
