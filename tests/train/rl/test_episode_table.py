"""The table of episodes: a line for each of them, and a page that a browser opens from disk."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from context_agent.budget import Budget
from context_agent.harness.trajectory import Header, Trajectory
from context_agent.train.advantages import EpisodeAdvantages
from context_agent.train.metrics_log import MetricsLog, read_metrics
from context_agent.train.outcome import Ending, EpisodeOutcome
from context_agent.train.rewards import GAINS, PENALTIES, compute_reward
from context_agent.train.rl import episode_table
from context_agent.train.rl.episode_table import (
    LONGEST_NAME,
    episode_file,
    save_trajectories,
    table_path,
    table_row,
    write_page,
)
from context_agent.train.rl.scoring import ScoredEpisode
from context_agent.types import Question
from tests.support.browser import Browser


def episode(name: str, question: str, recall: float, *, ending: Ending = Ending.FINISHED) -> ScoredEpisode:
    outcome = EpisodeOutcome(ending, recall, recall, 1.0, calls=(1, 2), queries=("a", "b"))
    trajectory = Trajectory(Header(name, "?", {}, Budget()), ())  # type: ignore[arg-type]
    return ScoredEpisode(Question(question, "?"), trajectory, outcome, compute_reward(outcome))


EPISODES = [
    episode("00000-0000-000", "q1", 1.0),
    episode("00000-0000-001", "q1", 0.5),
    episode("00000-0001-000", "<script>alert(1)</script>", 0.0, ending=Ending.TRUNCATED),
]
ADVANTAGES = EpisodeAdvantages({"00000-0000-000": 0.6, "00000-0000-001": -0.6})


def write_table(out: Path, *, rank: int = 0, first: int = 0, step: int = 0) -> Path:
    table = MetricsLog(table_path(out, rank), first=first)
    for item in EPISODES:
        table.add(step, table_row(item, ADVANTAGES))
    table.close(print)
    return table.path


def test_a_line_has_the_reward_its_terms_and_the_advantage(tmp_path: Path) -> None:
    good, half, cut = read_metrics(write_table(tmp_path))
    assert set(good["terms"]) == {*GAINS, "cost", *PENALTIES}
    assert good["reward"] == pytest.approx(sum(good["terms"].values()))
    assert "-0.0" not in json.dumps(good)
    assert (good["advantage"], half["advantage"], cut["advantage"]) == (0.6, -0.6, None)
    assert (cut["ending"], cut["reward"]) == ("truncated", -1.0)
    assert (half["question"], half["recall"], half["turns"], half["searches"]) == ("q1", 0.5, 2, 2)


def test_any_id_of_a_question_gives_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episode_table, "write", lambda _, path: path.write_text("x"))
    names = ("00000-0000-000", "greedy-a/b", "greedy-a_b", "greedy-\0", "greedy-\ud800", "greedy-" + "x" * 300)
    assert not save_trajectories(tmp_path, [episode(name, "q", 1.0) for name in names])
    files = {path.stem for path in tmp_path.iterdir()}
    assert len(files) == len(names)
    assert {"00000-0000-000", "greedy-a_b"} < files


def test_a_resumed_run_repeats_no_line(tmp_path: Path) -> None:
    write_table(tmp_path, step=0)
    write_table(tmp_path, first=1, step=1)
    write_table(tmp_path, first=1, step=1)
    assert [line["step"] for line in read_metrics(table_path(tmp_path))] == [0] * 3 + [1] * 3


@pytest.mark.parametrize(
    ("update", "restored", "kept"),
    [(4, -1, [0, 1]), (5, 2, [0, 1, 2]), (5, -1, [0, 1])],
    ids=["between steps", "rows in the checkpoint", "a step that is sampled again"],
)
def test_a_run_resumed_by_fewer_processes_repeats_no_line(
    tmp_path: Path, update: int, restored: int, kept: list[int]
) -> None:
    for rank in (0, 1):
        for step in range(4):
            write_table(tmp_path, rank=rank, first=step, step=step)
    run: Any = SimpleNamespace(
        config=SimpleNamespace(rollouts=SimpleNamespace(substeps=2)),
        out=tmp_path,
        rank=0,
        ranks=1,
        main=True,
        first_update=update,
        note=print,
    )
    with episode_table.open_table(run, restored):
        pass
    for rank in (0, 1):
        assert [line["step"] for line in read_metrics(table_path(tmp_path, rank))] == sorted(kept * len(EPISODES))


def test_the_page_opens_from_disk_sorts_and_filters(browser: Browser, tmp_path: Path) -> None:
    for rank in (0, 1):
        write_table(tmp_path, rank=rank, step=rank)
    browser.open(write_page(tmp_path))
    assert browser.requests() == browser.complaints() == []
    assert browser.texts("[role=status]") == ["6 of 6 episodes shown; the run has 6"]
    assert "<script>alert(1)</script>" in "".join(browser.texts("td"))

    def column(name: str) -> list[str]:
        at = browser.texts("th").index(name)
        return browser.texts(f"td:nth-child({at + 1})")

    heads = browser.texts("th")
    assert {"step", "reward", "advantage", "output", "repeated prunes"} <= set(heads)
    by_reward = f"th:nth-child({heads.index('reward') + 1}) button"
    browser.click(by_reward)
    assert column("ending") == ["finished"] * 4 + ["truncated"] * 2
    browser.click(by_reward)
    assert column("ending") == ["truncated"] * 2 + ["finished"] * 4
    assert column("advantage") == ["–"] * 2 + ["-0.600"] * 2 + ["0.600"] * 2
    browser.run(
        "const box = document.querySelector('input'); box.value = 'trunc'; box.dispatchEvent(new Event('input'))"
    )
    assert column("ending") == ["truncated"] * 2
    assert browser.violations() == []


def test_the_page_has_the_newest_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("context_agent.train.rl.episode_table.PAGE_EPISODES", 4)
    captured: dict[str, object] = {}

    def page(title: str, body: str, *, data: dict[str, dict[str, object]], scripts: object, styles: object) -> str:
        captured.update(data["episodes"])
        return ""

    monkeypatch.setattr("context_agent.train.rl.episode_table.page", page)
    for step in range(3):
        write_table(tmp_path, first=step, step=step)
    write_page(tmp_path)
    assert captured["all"] == 9
    assert [row[0] for row in json.loads(json.dumps(captured["rows"]))] == [1, 2, 2, 2]


def test_long_ids_that_begin_alike_have_files_of_their_own() -> None:
    names = {episode_file("x" * 2 * LONGEST_NAME + end) for end in ("a", "b")}
    assert len(names) == 2
    assert all(len(name) < LONGEST_NAME + 20 for name in names)
