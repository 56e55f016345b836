"""Rows from a stranger: questions, judgments, requests and tasks. A reader ends and names what it refuses."""

from __future__ import annotations

import contextlib
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from context_agent._support.question_files import load_questions
from context_agent.errors import ContextAgentError, TrajectoryError
from context_agent.integrations.feedback import FeedbackLog, load_judgments
from context_agent.retrieval.memory import MemoryCorpus
from context_agent.synth_data import judgments
from context_agent.synth_data.quotes import LONGEST_QUOTE, find_quote
from context_agent.synth_data.review import tasks_on_page
from context_agent.synth_data.task import load_tasks
from context_agent.types import Chunk
from context_agent.web.review import review_page
from tests.support.growth import growth
from tests.support.hostile_texts import TEXTS

VALUES: tuple[Any, ...] = (
    None, True, -1, 10**400, 1e308, float("nan"), "", "x" * 100_000, "\x1b]0;t\x07\u202e", "\ud800", [], [[]], [None],
    {}, {"a": {}}, [1] * 10_000,
)  # fmt: skip
NESTED = "[" * 100_000


def lines(tmp_path: Path, *rows: object) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def test_a_row_without_an_end_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A compressed file of a megabyte holds a line of a gigabyte."""
    file = tmp_path / "q.jsonl.gz"
    with gzip.open(file, "wb", compresslevel=1) as stream:
        stream.write(b'{"question":"')
        for _ in range(1_000):
            stream.write(b"x" * 1_000_000)
    code = (
        "import resource, sys\nfrom context_agent._support.question_files import load_questions\n"
        "resource.setrlimit(resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[0],) * 2)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    load_questions(sys.argv[1])\nexcept Exception as error:\n    print(type(error).__name__)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, file], capture_output=True, text=True, timeout=120, check=True)
    name, megabytes = done.stdout.split()
    assert name == "DataError"
    assert int(megabytes) < 300


def load_reviews(file: Path) -> object:
    return judgments.load_judgments([file], {"a"})


@pytest.mark.parametrize("load", [load_questions, load_judgments, load_reviews, load_tasks])
def test_any_value_in_any_field_of_a_row_is_read_or_named(tmp_path: Path, load: Any) -> None:
    good = {
        "id": "a", "question": "q?", "query": "q?", "answer": "a", "gold": ["d"], "facts": [["c"]], "type": "t",
        "hops": 2, "trajectory": "t", "relevant": ["d"], "irrelevant": ["e"], "rating": 3, "comment": "c", "user": "u",
        "time": "t", "schema": 1, "task": "a", "judge": "j", "verdict": "accept", "clues": "c", "domain": "d",
        "supporting": [{"id": "d", "clue_quotes": ["c"], "item_quotes": ["i"], "truth_quotes": ["t"]}],
        "distractors": ["x"], "origin": "o",
    }  # fmt: skip
    for name in good:
        for value in VALUES:
            with contextlib.suppress(ContextAgentError):
                load(lines(tmp_path, {**good, name: value}))
    for text in (NESTED, NESTED.replace("[", '{"a":'), "1" * 100_000, "\ufeff", "\0", "{}\n" * 1_000):
        file = tmp_path / "rows.jsonl"
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ContextAgentError):
            load(file)


@pytest.mark.parametrize(
    "header",
    [NESTED, "[]", "1", "", "\0", '{"kind":"header","schema":4,"profile":[],"budget":[]}', '{"kind":"header"}'],
)
def test_a_header_of_a_stranger_is_no_trajectory(tmp_path: Path, header: str) -> None:
    (tmp_path / "t1.jsonl").write_text(header, encoding="utf-8")
    with pytest.raises(TrajectoryError, match="there is no trajectory 't1'"):
        FeedbackLog(tmp_path).header("t1")


@pytest.mark.parametrize("name", ["../t1", "/etc/passwd", "", ".", "..", "t1\0", "t" * 1_000, "t1/../t1", "\u202et1"])
def test_a_name_leads_to_no_other_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(TrajectoryError, match="cannot be the id of a trajectory"):
        FeedbackLog(tmp_path).header(name)


@pytest.mark.parametrize("trajectories", VALUES)
def test_a_record_of_a_request_that_is_none_is_passed_over(tmp_path: Path, trajectories: Any) -> None:
    log = FeedbackLog(tmp_path)
    log.record_request("r", ["t1"])
    file = next(path for path in tmp_path.iterdir() if "r" in path.read_text(encoding="utf-8"))
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"request": "s", "trajectories": trajectories}) + "\n")
    assert log.trajectory_of("r") == "t1"
    if not (isinstance(trajectories, list) and trajectories):
        with pytest.raises(TrajectoryError, match="no trajectory is known"):
            log.trajectory_of("s")


@pytest.mark.parametrize("name", ["numbered titles", "hashes of commits", "a word", "marks out of order", "names"])
def test_a_quote_is_looked_for_in_linear_time(name: str) -> None:
    def find(text: str) -> None:
        assert find_quote(f"{text[: LONGEST_QUOTE - 10]} zebra", text) is None

    assert growth(find, TEXTS[name], 20_000) < 9


def corpus(text: str) -> MemoryCorpus:
    return MemoryCorpus([Chunk("d_0", "d", 0, text, 0, len(text), 1, text)])


def test_a_review_page_of_hostile_tasks_runs_nothing(tmp_path: Path) -> None:
    script = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b"
    task = {
        "id": script, "question": script, "answer": script, "clues": script, "type": script, "domain": script,
        "gold": ["d"], "supporting": [{"id": "d", "clue_quotes": [script], "item_quotes": [script]}],
        "distractors": [script],
    }  # fmt: skip
    tasks = load_tasks(lines(tmp_path, task))
    page = review_page(tasks_on_page(tasks, corpus(script)), script)
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "\u202e" not in page
    assert "\x1b" not in page
