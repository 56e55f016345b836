"""`ctx1 demo`: needs nothing, leaves nothing, and does what it claims."""

import json

from context_agent.cli.demo import documents, questions


def test_the_bundled_questions_point_at_bundled_passages():
    ids = {document.id for document in documents()}
    assert len(ids) == len(documents()) >= 40
    for question in questions():
        assert set(question.gold) <= ids
        assert len(question.gold) >= 3


def test_it_runs_off_a_terminal_and_leaves_nothing(ctx1, tmp_path):
    done = ctx1("demo")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "turn 1" in done.stdout
    assert "one-shot" in done.stdout
    assert all(question.question in done.stdout for question in questions())
    assert list(tmp_path.iterdir()) == []


def test_json_tells_the_comparison(inside):
    done = inside("demo", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["questions"]
    assert [row["id"] for row in found] == [question.id for question in questions()]
    assert sum(row["found_by_agent"] for row in found) > sum(row["found_by_one_shot"] for row in found)


def test_the_index_can_be_kept_and_searched(inside, tmp_path):
    assert inside("demo", "--path", "kept").returncode == 0
    done = inside("search", questions()[0].question, "--path", "kept", "--collection", "demo", "--json")
    assert done.returncode == 0, done.stderr
