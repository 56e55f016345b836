"""`ctx1 view`: a page beside the trajectories, text on the terminal, rows as JSON.

`ctx1 feedback` and `ctx1 synth from-feedback`.
"""

import io
import json
import re
import sys
from pathlib import Path

import pytest
from rich.text import Text

from context_agent.cli.turns import MAX_EMPTY_CALLS, NOTHING, _shortened, window_bar
from context_agent.cli.view import _write
from context_agent.pruning import Budget
from tests.support import episodes
from tests.support.conversations import rendered
from tests.support.ctx1_process import on_terminal
from tests.support.long_conversation import LONG


@pytest.fixture
def runs(corpus, tmp_path):
    """A folder with one trajectory of five turns."""
    episodes.edited(corpus, tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture
def gold(corpus, tmp_path):
    """A question file with the gold document and the answer of the trajectory's question."""
    document_id = corpus.search(episodes.QUESTION)[0].chunk.document_id
    path = tmp_path / "questions.jsonl"
    path.write_text(
        json.dumps({"id": "q", "question": episodes.QUESTION, "gold": [document_id], "answer": "the Lume"}) + "\n"
    )
    return path


def test_the_page_lies_beside_what_it_shows_and_the_place_is_told(inside, runs, tmp_path):
    process = inside("view", "runs")
    assert (process.returncode, process.stdout) == (0, "")
    assert process.stderr.startswith("runs/view.html: 1 trajectory, ")
    (file,) = runs.glob("*.jsonl")
    assert inside("view", file).returncode == 0
    assert file.with_suffix(".html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert inside("view", "runs", file, "--out", "new/page.html").returncode == 0
    assert (tmp_path / "new" / "page.html").exists()
    assert inside("view", "runs", file).stderr.startswith("view.html: 1 trajectory")


def test_a_page_shown_again_takes_the_old_ones_place(inside, corpus, runs):
    inside("view", "runs")
    first = (runs / "view.html").read_bytes()
    inside("view", "runs")
    assert (runs / "view.html").read_bytes() == first
    episodes.edited(corpus, runs)
    inside("view", "runs")
    assert (runs / "view.html").read_bytes() != first
    assert [path.name for path in runs.iterdir() if path.suffix != ".jsonl"] == ["view.html"]


def test_the_page_can_go_to_stdout(inside, runs):
    process = inside("view", "runs", "--out", "-")
    assert process.stdout.startswith("<!DOCTYPE html>")
    assert process.stdout.endswith("</html>\n")


def test_a_page_on_stdout_is_utf_8_whatever_the_encoding_of_stdout(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252", errors="backslashreplace"))
    _write("<p>é 中</p>\n", Path("-"), "1 trajectory", open_browser=False)
    assert written.getvalue().decode() == "<p>é 中</p>\n"


def test_the_turn_log_counts_calls_only_that_it_does_not_list():
    lines = [Text(f"search  the mill  {NOTHING}") for _ in range(MAX_EMPTY_CALLS + 1)]
    shown = [line.plain for line in _shortened([Text("prune"), *lines])]
    assert shown[:-1] == ["prune", *(line.plain for line in lines[:MAX_EMPTY_CALLS])]
    assert shown[-1].strip() == "and 1 more call that brought nothing new"


def test_the_page_is_opened_in_the_browser_where_that_is_asked_for(ctx1, runs, tmp_path):
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    script.chmod(0o755)
    assert ctx1("view", "runs", "--open", BROWSER=f"{script} %s").returncode == 0
    assert (tmp_path / "opened").read_text().strip() == (runs / "view.html").as_uri()


def test_text_shows_calls_edits_the_context_and_the_ranking(inside, runs, gold):
    process = inside("view", "runs", "--text", "--gold", gold)
    assert process.returncode == 0
    assert episodes.QUESTION in process.stdout
    assert "★ gold: 1 of 1 seen, 1 of 1 ranked; answer: the Lume" in process.stdout
    lines = process.stdout.splitlines()
    assert any(line.startswith("turn 1    search  which river") and "3 new: ★ Title" in line for line in lines)
    assert any(line.startswith("turn 2    prune   1 passage  ★ Title") for line in lines)
    assert any(line.startswith("turn 4    restore 1 passage  ★ Title") for line in lines)
    assert sum("context █" in line and "of 4,096 tokens" in line for line in lines) == 4
    assert any(line.startswith(" 1. ★ Title") for line in lines)
    assert lines[-1] == "ids dropped: 1 unseen"
    assert not (runs / "view.html").exists()


def test_no_document_can_steer_the_terminal(inside, tmp_path):
    episodes.hostile(tmp_path / "runs")
    process = inside("view", "runs", "--text")
    assert process.returncode == 0
    assert "<script>" in process.stdout
    assert not {"\x1b", "\x07", "\u202e", "\u2028"} & set(process.stdout)
    output = on_terminal("view", "runs", "--text", cwd=tmp_path)
    assert "\x07" not in output
    assert "\x1b[31mred" not in output


def test_json_prints_a_row_for_each_trajectory_and_writes_a_page_only_where_told(inside, runs, gold):
    process = inside("view", "runs", "--json", "--gold", gold)
    (row,) = [json.loads(line) for line in process.stdout.splitlines()]
    assert (row["question"], row["turns"], row["seen"], row["gold_pruned"]) == (episodes.QUESTION, 4, 1.0, 1)
    assert not (runs / "view.html").exists()
    inside("view", "runs", "--json", "--out", "page.html")
    assert (runs.parent / "page.html").exists()


def test_what_cannot_be_shown_is_told_and_the_rest_is_shown(inside, runs):
    (file,) = runs.glob("*.jsonl")
    text = file.read_text()
    (runs / "newer.jsonl").write_text(re.sub('"schema":[0-9]+', '"schema":99', text, count=1))
    (runs / "notes.md").write_text("notes")
    process = inside("view", "runs")
    assert process.returncode == 1
    assert "newer.jsonl" in process.stderr
    assert "schema 99" in process.stderr
    assert "ignored 1 other file\n" in process.stderr
    assert "1 trajectory" in process.stderr
    assert (runs / "view.html").exists()
    text = inside("view", "runs", "--text")
    assert text.returncode == 1
    assert episodes.QUESTION in text.stdout


def test_a_bad_row_of_the_gold_file_is_told(inside, runs, gold):
    with gold.open("a") as stream:
        stream.write("{}\n")
    process = inside("view", "runs", "--gold", gold)
    assert process.returncode == 1
    assert "questions.jsonl:2: the row has no field question" in process.stderr
    assert (runs / "view.html").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["empty"], 1, "no trajectory in empty (no files)"),
        (["nowhere"], 2, '"nowhere" does not exist. Pass an existing file or folder.'),
        (["runs", "--gold", "nowhere.jsonl"], 2, '"nowhere.jsonl" does not exist. Pass an existing file.'),
        (["runs", "--text", "--out", "x.html"], 2, "--text prints on the terminal, so it cannot be combined with"),
        (["runs", "--json", "--out", "-"], 2, "--out - writes the page to stdout"),
        ([], 2, "PATH"),
    ],
)
def test_what_cannot_work_is_one_line_that_says_why(inside, runs, arguments, code, reason):
    (runs.parent / "empty").mkdir()
    process = inside("view", *arguments)
    assert process.returncode == code
    assert reason in process.stderr
    assert len(process.stderr.strip().splitlines()) == 1


def test_the_bar_is_filled_as_the_view_is_and_has_its_marks_at_the_thresholds():
    budget = Budget(4096)
    assert window_bar(2048, budget).plain.startswith("context " + "█" * 24 + "┆" + "░" * 11 + "│")
    assert window_bar(0, budget).plain.count("█") == 0
    assert window_bar(4096, budget).plain.count("█") == 46


def test_a_conversation_is_shown_with_what_pruning_removes_from_it(inside, tmp_path):
    path = tmp_path / "talk.json"
    path.write_text(json.dumps({"messages": rendered("openai", LONG)}), encoding="utf-8")
    options = ("--budget", 300, "--effort", "fast", "--cached-price", 1)
    process = inside("view", "talk.json", *options)
    assert (process.returncode, process.stdout) == (0, "")
    assert process.stderr.startswith("talk.html: ")
    assert 'data-id="p1"' in (tmp_path / "talk.html").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in inside("view", "talk.json", *options, "--json").stdout.splitlines()]
    assert [row["outcome"] for row in rows].count("pruned") >= 1
    assert inside("view", "talk.json", "--text").returncode == 2
    path.write_text("{}", encoding="utf-8")
    assert "contains no conversation" in inside("view", "talk.json").stderr


QUESTION = "Which river flows past the birthplace of the engineer who designed Orm Skerry Light?"


@pytest.fixture
def found(inside, index):
    """The result of a search whose trajectory is saved in `kept`."""
    process = inside("search", QUESTION, "--path", index, "--json", "--save", "kept")
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def trajectory_name(search):
    return search["trajectory"].rpartition("/")[2].removesuffix(".jsonl")


def test_judgments_become_tasks(inside, index, found, tmp_path):
    ids = [document["id"] for document in found["documents"]]
    command = ("feedback", trajectory_name(found), "--trajectories", "kept", "--relevant", ids[0], "--relevant", ids[1],
               "--irrelevant", ids[2], "--rating", 4, "--user", "ann", "--json")  # fmt: skip
    first, again = inside(*command), inside(*command)
    assert (first.returncode, json.loads(first.stdout)["created"]) == (0, True)
    assert (again.returncode, json.loads(again.stdout)["created"]) == (0, False)
    assert len((tmp_path / "kept" / "feedback.jsonl").read_text().splitlines()) == 1
    with (tmp_path / "kept" / "feedback.jsonl").open("a") as log:
        log.write("no json\n")
    process = inside("synth", "from-feedback", "kept/feedback.jsonl", "--trajectories", "kept", "--path", index,
                     "--out", "out/tasks.jsonl", "--json")  # fmt: skip
    report = json.loads(process.stdout)
    assert (process.returncode, report["tasks"], report["judgments"], report["unreadable"]) == (1, 1, 1, 1)
    assert "feedback.jsonl:2: the line is not valid JSON" in process.stderr
    task = json.loads((tmp_path / "out" / "tasks.jsonl").read_text())
    assert (task["question"], task["gold"], task["distractors"]) == (QUESTION, ids[:2], ids[2:3])
    text_run = inside("synth", "from-feedback", "kept/feedback.jsonl", "--trajectories", "kept", "--path", index,
                      "--out", "tasks.jsonl")  # fmt: skip
    assert "1 task from 1 judgment in tasks.jsonl. Dropped: none." in text_run.stdout


def test_judgments_in_bulk(inside, found, tmp_path):
    name = trajectory_name(found)
    rows = [{"trajectory": name, "rating": 3}, {"trajectory": "absent", "rating": 3}, {"rating": "x"}]
    stdin = "".join(json.dumps(row) + "\n" for row in rows) * 2
    process = inside("feedback", "--file", "-", "--trajectories", "kept", "--json", stdin=stdin)
    assert process.returncode == 1
    assert json.loads(process.stdout) == {"written": 1, "known": 0, "refused": 5}
    assert "no trajectory 'absent'" in process.stderr


def test_what_cannot_be_judged(inside, found):
    absent = inside("feedback", "absent", "--trajectories", "kept", "--rating", 3)
    assert absent.returncode == 1
    assert "'absent'" in absent.stderr
    nothing = inside("feedback", trajectory_name(found), "--trajectories", "kept")
    assert (nothing.returncode, "the judgment is empty" in nothing.stderr) == (2, True)
    neither = inside("feedback", "--trajectories", "kept", "--rating", 3)
    assert (neither.returncode, "one TRAJECTORY" in neither.stderr) == (2, True)


def test_a_file_that_is_no_trajectory_is_told_with_one_remedy(inside, tmp_path):
    for name in ("one.jsonl", "two.jsonl"):
        (tmp_path / name).write_text("hello\n")
    process = inside("view", "one.jsonl")
    assert process.returncode == 1
    assert process.stderr.startswith("ctx1: one.jsonl: the first line is not a trajectory header (")
    assert process.stderr.count("--save") == 1
    (tmp_path / "empty.jsonl").touch()
    assert "(the file is empty)" in inside("view", "empty.jsonl").stderr
    (tmp_path / "row.jsonl").write_text('{"id": 1}\n')
    assert "(it has no field 'kind')" in inside("view", "row.jsonl").stderr
    process = inside("view", "one.jsonl", "two.jsonl")
    assert process.stderr.count("the first line is not a trajectory header") == 2
    assert process.stderr.count("--save") == 1
