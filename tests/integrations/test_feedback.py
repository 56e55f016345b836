"""The log of judgments: append-only, idempotent, for many writers."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from context_agent import MemoryCorpus, ScriptedPolicy, SearchAgent
from context_agent.errors import ConfigError, DataError, TrajectoryError
from context_agent.integrations.feedback import JUDGMENTS_FILE, SERVED_FILE, FeedbackLog, judgment, load_judgments
from context_agent.testing.actions import search


@pytest.fixture
def kept(corpus: MemoryCorpus, tmp_path: Path) -> tuple[FeedbackLog, str]:
    """A log with one trajectory, and the trajectory's id."""
    with SearchAgent(corpus, ScriptedPolicy([search("comets")]), trajectories=tmp_path / "kept") as agent:
        path = agent.search("comets?").trajectory
    assert path is not None
    return FeedbackLog(path.parent), path.stem


def test_a_judgment_is_appended_once(kept: tuple[FeedbackLog, str]) -> None:
    log, trajectory = kept
    first = judgment(trajectory=trajectory, relevant=["d1"], irrelevant=["d2"], rating=4, comment="ü", user="ann")
    assert log.add(first)
    assert not log.add(first)
    assert not log.add(replace(first, time="2020-01-01T00:00:00+00:00"))
    assert load_judgments(log.folder / JUDGMENTS_FILE) == [first]
    second = judgment(trajectory=trajectory, relevant=["d1"], irrelevant=["d2"], rating=3, comment="ü", user="ann")
    assert second.id != first.id
    assert log.add(second)
    assert [item.id for item in load_judgments(log.folder / JUDGMENTS_FILE)] == [first.id, second.id]


def test_an_id_stands_for_one_judgment(kept: tuple[FeedbackLog, str]) -> None:
    log, trajectory = kept
    assert log.add(judgment(trajectory=trajectory, relevant=["d1"], id="j1"))
    assert not log.add(judgment(trajectory=trajectory, relevant=["d1"], id="j1"))
    with pytest.raises(DataError, match="id 'j1' and other content"):
        log.add(judgment(trajectory=trajectory, relevant=["d2"], id="j1"))


@pytest.mark.parametrize("name", ["absent", "feedback", "../kept/x", "", ".hidden", "a/b", "x" * 300])
def test_an_unknown_trajectory_is_refused(kept: tuple[FeedbackLog, str], name: str) -> None:
    log, trajectory = kept
    log.add(judgment(trajectory=trajectory, relevant=["d1"]))
    with pytest.raises(TrajectoryError):
        log.add(judgment(trajectory=name, relevant=["d1"]))
    assert len(load_judgments(log.folder / JUDGMENTS_FILE)) == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({}, "judgment is empty"),
        ({"relevant": ["a", "b"], "irrelevant": ["b"]}, "'b' is both in relevant"),
        ({"rating": 6}, "from 1 to 5; got 6"),
        ({"rating": 4.0}, "`rating` must be a whole number; got 4.0"),
        ({"rating": True}, "`rating` must be a whole number; got True"),
        ({"relevant": "d7"}, "`relevant` must be a list of ids; got 'd7'"),
        ({"irrelevant": "d7"}, "`irrelevant` must be a list of ids; got 'd7'"),
        ({"relevant": ["d7", 8]}, "`relevant` must be a list of ids, which are texts; got 8"),
        ({"comment": 3}, "`comment` must be text; got 3"),
        ({"rating": 3, "user": None}, "`user` must be text; got None"),
        ({"rating": 3, "id": 5}, "`id` must be text; got 5"),
    ],
)
def test_what_is_no_judgment(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        judgment(trajectory="t", **wrong)  # type: ignore[arg-type]


def test_a_judgment_from_any_numbers_and_any_iterable_of_ids() -> None:
    stated = judgment(trajectory="t", relevant=iter(["a"]), rating=np.int64(4), time="")  # type: ignore[arg-type]
    assert stated == judgment(trajectory="t", relevant=["a"], rating=4, time="")


def test_a_request_leads_to_its_trajectory(kept: tuple[FeedbackLog, str]) -> None:
    log, trajectory = kept
    for number in range(3):
        log.record_request(f"r{number}", [f"t{number}"])
    log.record_request("r1", [trajectory, "more"])
    assert log.trajectory_of("r0") == "t0"
    assert log.trajectory_of("r1") == trajectory == log.resolve("r1") == log.resolve(trajectory)
    for unknown in ("r", "t0", 'r1"'):
        with pytest.raises(TrajectoryError, match=r"for request .* name of its file without \.jsonl"):
            log.trajectory_of(unknown)


def test_a_line_that_a_crash_cut_hurts_no_other(kept: tuple[FeedbackLog, str]) -> None:
    log, trajectory = kept
    first = judgment(trajectory=trajectory, relevant=["d1"])
    log.add(first)
    with (log.folder / JUDGMENTS_FILE).open("ab") as stream:
        stream.write(b'{"schema":1,"id":"cut","traj')
    second = judgment(trajectory=trajectory, relevant=["d2"])
    assert log.add(second)
    assert not log.add(first)
    problems: list[str] = []
    assert load_judgments(log.folder / JUDGMENTS_FILE, problems=problems) == [first, second]
    assert len(problems) == 1
    assert f"{JUDGMENTS_FILE}:2: the line is not valid JSON" in problems[0]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("[]", "it names no trajectory"),
        ("{}", "it names no trajectory"),
        ('{"trajectory": 3}', "`trajectory` must be text; got 3"),
        ('{"trajectory": "t"}', "the judgment is empty"),
        ('{"trajectory": "t", "relevant": "a"}', "`relevant` must be a list of ids; got 'a'"),
        ('{"trajectory": "t", "relevant": {"a": 1}}', "`relevant` must be a list of ids"),
        ('{"trajectory": "t", "relevant": ["a"], "irrelevant": ["a"]}', "'a' is both in relevant"),
        ('{"trajectory": "t", "rating": 9}', "a rating must be a whole number from 1 to 5; got 9"),
        ('{"trajectory": "t", "rating": true}', "`rating` must be a whole number; got True"),
        ('{"trajectory": "t", "rating": 4.0}', "`rating` must be a whole number; got 4.0"),
    ],
)
def test_rows_that_are_no_judgments(tmp_path: Path, row: str, said: str) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(f'{row}\n{{"trajectory": "t", "relevant": ["a"]}}\n')
    problems: list[str] = []
    (entry,) = load_judgments(log, problems=problems)
    assert entry.relevant == ("a",)
    assert f"log.jsonl:1: the line is not a judgment ({said}" in problems[0]
    log.write_text('{"schema": 2, "trajectory": "t"}\n')
    with pytest.raises(DataError, match="schema 2"):
        load_judgments(log)


def write(folder: str, trajectory: str, writer: int) -> int:
    """Write 20 judgments of this writer, and one that all writers share. Return how many were added."""
    log = FeedbackLog(folder)
    added = [log.add(judgment(trajectory=trajectory, relevant=["d1"], user=f"{writer}-{n}")) for n in range(20)]
    log.record_request(f"r{writer}", [trajectory])
    return sum(added) + log.add(judgment(trajectory=trajectory, relevant=["shared"]))


def test_many_writers_lose_nothing(kept: tuple[FeedbackLog, str]) -> None:
    log, trajectory = kept
    with ProcessPoolExecutor(3) as processes, ThreadPoolExecutor(3) as threads:
        jobs = [pool.submit(write, str(log.folder), trajectory, n) for n in range(3) for pool in (processes,)]
        jobs += [threads.submit(write, str(log.folder), trajectory, n) for n in range(3, 6)]
        assert sum(job.result() for job in jobs) == 6 * 20 + 1
    judgments = load_judgments(log.folder / JUDGMENTS_FILE)
    assert len(judgments) == len({item.id for item in judgments}) == 6 * 20 + 1
    rows = [json.loads(line) for line in (log.folder / SERVED_FILE).read_text().splitlines()]
    assert {row["request"] for row in rows} == {f"r{n}" for n in range(6)}
