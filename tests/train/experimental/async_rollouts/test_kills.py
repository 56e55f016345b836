"""The judge of killed runs sees each way in which the promise could be broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from context_agent.testing.killed_runs import Ledger, Verdict, judge, read


def finished(episode: str, trace: int = 1) -> dict[str, Any]:
    return {"what": "finished", "id": episode, "trace": trace}


def taken(step: int, *episodes: str, trace: int = 1) -> dict[str, Any]:
    return {
        "what": "taken",
        "step": step,
        "episodes": {episode: {"trace": trace, "calls": [7, 8]} for episode in episodes},
    }


def trained(update: int, *episodes: str) -> dict[str, Any]:
    return {"what": "trained", "update": update, "ids": list(episodes)}


BEGUN = {"what": "begun", "update": 0}
STEP = [BEGUN, finished("a"), finished("b"), taken(0, "a", "b"), trained(0, "a"), trained(1, "b")]


def verdict(*ledger: dict[str, Any], episodes: int = 2) -> Verdict:
    return judge(ledger, episodes=episodes, substeps=2)


def test_a_course_without_a_kill_is_sound() -> None:
    assert verdict(*STEP).sound


def test_what_a_kill_took_back_does_not_count_as_trained() -> None:
    again = [taken(0, "a", "b"), trained(0, "a"), trained(1, "b")]
    assert verdict(*STEP, BEGUN, *again).sound
    half = [{"what": "begun", "update": 1}, trained(1, "b")]
    assert verdict(*STEP, *half).sound


def test_each_break_is_seen() -> None:
    assert verdict(*STEP, taken(1, "a"), trained(2, "a")).twice == ("a",)
    assert verdict(*STEP, finished("a")).again == ("a",)
    assert verdict(*STEP, finished("c")).lost == ("c",)
    assert verdict(*STEP[:1], finished("a", 5), *STEP[2:]).lost == ("a",), "another was trained under its name"
    assert verdict(*STEP, episodes=3).missing == 1
    assert verdict(*STEP, BEGUN).missing == 2
    parked = {"what": "parked", "id": "a", "first": 1, "calls": [8]}
    assert verdict(*STEP, parked).sound
    assert verdict(*STEP, parked | {"first": 0}).unlike == ("a",)


def test_an_entry_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    Ledger(tmp_path / "ledger").add("begun", update=0)
    with (tmp_path / "ledger").open("a") as file:
        file.write('\n{"what": "fini')
    Ledger(tmp_path / "ledger").add("begun", update=3)
    assert [entry["update"] for entry in read(tmp_path / "ledger")] == [0, 3]
