"""Files of tasks: they are read back as written, and bad rows are reported."""

import json
from dataclasses import asdict

import pytest

from context_agent._support.question_files import load_questions
from context_agent.errors import DataError
from context_agent.synth_data.json_files import write_json
from context_agent.synth_data.task import load_tasks, write_tasks
from tests.support.tasks import FULL, task


def test_what_is_written_is_read_back(tmp_path):
    path = tmp_path / "folder" / "tasks.jsonl"
    assert write_tasks(path, [FULL, task("b")]) == 2
    assert load_tasks(path) == [FULL, task("b")]
    assert [question.question for question in load_questions(path)] == [FULL.question, task("b").question]


def test_a_row_has_every_field_and_its_own_labels():
    row = FULL.to_json()
    assert row == asdict(FULL)
    row["labels"]["new"] = 1
    assert "new" not in FULL.labels


def test_equal_tasks_give_equal_bytes(tmp_path):
    write_tasks(tmp_path / "a", [FULL])
    write_tasks(tmp_path / "b", load_tasks(tmp_path / "a"))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path):
    path = tmp_path / "tasks.jsonl"
    write_tasks(path, [FULL])

    def fail_midway():
        yield task("b")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_tasks(path, fail_midway())
    assert load_tasks(path) == [FULL]
    assert [file.name for file in tmp_path.iterdir()] == ["tasks.jsonl"]


def test_a_lone_surrogate_survives(tmp_path):
    write_json(tmp_path / "report.json", {"question": "What is \ud800?"})
    assert json.loads((tmp_path / "report.json").read_text()) == {"question": "What is \ud800?"}
    path = tmp_path / "tasks.jsonl"
    surrogate = task("a", "d1", question="What is \ud800?")
    write_tasks(path, [surrogate])
    assert load_tasks(path) == [surrogate]


BAD = {
    '{"id": "x", "question": "q", "level": 1e999}': "not a task",
    "[1]": "must be an object with fields; got a list",
    '{"id": "x"': "not valid JSON",
    '{"id": "x"}': "no field question",
    '{"id": "a", "question": "again"}': "line 1 already has the id",
    '{"id": "x", "question": "q", "supporting": ["d1"]}': "not a task",
    '{"id": "x", "question": "q", "supporting": [{"chunks": []}]}': "not a task",
    '{"id": "x", "question": "q", "labels": 3}': "not a task",
    '{"id": "x", "question": "q", "distractors": "d1"}': "field distractors must be a list",
    '{"id": "x", "question": "q", "supporting": [{"id": "d1", "item_quotes": "a quote"}]}': "field item_quotes must",
    '{"id": "x", "question": "q", "gold": "d1"}': "field gold",
}


@pytest.mark.parametrize("line", BAD)
def test_a_bad_row_is_told_with_its_line(tmp_path, line):
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(FULL.to_json()) + "\n" + line + '\n{"id": "last", "question": "q"}\n')
    with pytest.raises(DataError, match=BAD[line]) as caught:
        load_tasks(path)
    assert f"{path}:2:" in str(caught.value)
    problems: list[str] = []
    assert [item.id for item in load_tasks(path, problems=problems)] == ["a", "last"]
    assert len(problems) == 1
    assert BAD[line] in problems[0]
