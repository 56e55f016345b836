"""The demo's two runs, as the options of the command change them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from context_agent.errors import ConfigError
from context_agent.train.config import EpisodeConfig
from context_agent.train.demo.plan import BEFORE, DEMONSTRATIONS, QUICK, DemoOptions, half_window, make_plan
from context_agent.train.rewards import RewardConfig


def test_both_runs_share_what_makes_them_one_demo() -> None:
    plan = make_plan(DemoOptions(Path("demo"), seed=3, steps=7, demonstrations=11, threads=2))
    assert (plan.sft.out, plan.rl.out) == ("demo/sft", "demo/rl")
    assert plan.rl.model.name == "demo/sft/final"
    assert plan.rl.model.tiny is None
    assert plan.sft.model.tiny is not None
    assert plan.sft.data == plan.rl.data
    assert plan.sft.episodes == plan.rl.episodes
    assert (plan.sft.seed, plan.rl.seed, plan.sft.threads, plan.rl.threads) == (3, 3, 2, 2)
    assert (plan.sft.sft.demonstrations, plan.rl.rollouts.steps) == (11, 7)


def test_the_world_is_the_same_for_every_seed() -> None:
    assert make_plan(DemoOptions(Path("a"), seed=1)).sft.data == make_plan(DemoOptions(Path("b"), seed=2)).sft.data


def test_the_ablation_differs_in_one_reward_and_is_judged_alike() -> None:
    full, ablation = make_plan(DemoOptions(Path("demo"))), make_plan(DemoOptions(Path("demo"), trajectory_reward=False))
    assert full.sft == ablation.sft, "the demonstrations are shared"
    assert ablation.rl.rewards.trajectory == 0
    assert full.rl.rewards.trajectory == RewardConfig().trajectory > 0
    other = replace(full.rl, out=ablation.rl.out, rewards=ablation.rl.rewards)
    assert other == ablation.rl
    assert full.judged == ablation.judged
    assert full.judged.trajectory > 0
    assert full.judged == full.rl.curriculum.rewards(full.rl.rewards, 1.0)


def test_the_ablation_has_names_of_its_own() -> None:
    full, ablation = make_plan(DemoOptions(Path("demo"))), make_plan(DemoOptions(Path("demo"), trajectory_reward=False))
    assert full.path("report.json") == Path("demo/report.json")
    assert ablation.path("report.json") == Path("demo/report-without-trajectory-reward.json")
    phases = [DEMONSTRATIONS, BEFORE, "rewards", f"rewards{ablation.suffix}"]
    assert [full.has(phase) for phase in phases] == [True, True, True, False]
    assert [ablation.has(phase) for phase in phases] == [True, True, False, True]


def test_quick_is_smaller_and_explicit_numbers_go_before_it() -> None:
    usual, quick = make_plan(DemoOptions(Path("demo"))), make_plan(DemoOptions(Path("demo"), quick=True))
    assert quick.sft.sft.demonstrations < usual.sft.sft.demonstrations
    assert quick.rl.rollouts.steps < usual.rl.rollouts.steps
    assert quick.rl.data.world is not None
    assert quick.rl.data.world.entities == QUICK["tiny"]["sft"]["data.world.entities"]
    assert make_plan(DemoOptions(Path("demo"), quick=True, steps=2, demonstrations=5)).rl.rollouts.steps == 2


def test_the_harness_leaves_room_for_half_a_window() -> None:
    plan = make_plan(DemoOptions(Path("demo")))
    assert 8 * plan.rl.episodes.reserve < plan.rl.episodes.window // 4


def test_a_language_model_learns_from_the_oracle_s_lessons_in_two_windows(tmp_path: Path) -> None:
    plan = make_plan(DemoOptions(tmp_path, model="smollm2", demonstrations=7))
    assert plan.material is not None
    assert (plan.material.tasks, plan.material.windows) == (7, (2_048, 1_024))
    assert plan.sft.model.name == plan.rl.model.name == "smollm2"
    assert plan.sft.model.adapter is None
    assert plan.rl.model.adapter == str(tmp_path / "sft" / "final")
    assert plan.rl.data == plan.sft.data
    assert plan.sft.data.trajectories == tuple(str(tmp_path / "lessons" / name) for name in ("2048", "1024"))
    assert plan.trained_model(tmp_path / "rl" / "final").adapter == str(tmp_path / "rl" / "final")
    assert plan.temperatures == (plan.targets.temperature,) == (0.0,)
    half = plan.half([])
    assert (half.window, half.budget.per_call) == (1_024, 768), "the window of the shorter lessons"


def test_a_quick_language_model_has_less_of_everything(tmp_path: Path) -> None:
    usual, quick = (make_plan(DemoOptions(tmp_path, model="smollm2", quick=value)) for value in (False, True))
    assert usual.material is not None
    assert quick.material is not None
    assert quick.material.tasks < usual.material.tasks
    assert quick.rl.updates < usual.rl.updates
    assert (quick.questions or 0) < (usual.questions or 0)
    assert quick.targets.minutes < usual.targets.minutes


def test_a_folder_of_questions_without_a_test_split_asks_nothing_while_it_trains(tmp_path: Path) -> None:
    assert make_plan(DemoOptions(tmp_path, model="smollm2", data=tmp_path)).rl.data.dev == ()
    (tmp_path / "queries.test.jsonl").touch()
    plan = make_plan(DemoOptions(tmp_path, model="smollm2", data=tmp_path))
    assert plan.rl.data.dev == (str(tmp_path / "queries.dev.jsonl"),)


def test_the_tiny_model_has_no_folder_of_questions(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Pass --model smollm2"):
        make_plan(DemoOptions(tmp_path, data=tmp_path))


def test_invalid_values_are_refused() -> None:
    with pytest.raises(ConfigError, match="threads"):
        make_plan(DemoOptions(Path("demo"), threads=-1))
    with pytest.raises(ConfigError, match="demonstrations"):
        make_plan(DemoOptions(Path("demo"), demonstrations=0))


def test_half_the_window_is_half_of_what_the_median_episode_places() -> None:
    half = half_window([240] * 3, EpisodeConfig(window=512, reserve=8))
    assert half.window == 120
    assert half.per_call == 64, "a call may show what it could before"
    assert half.budget.hard == 90
    assert half_window([240], EpisodeConfig(window=512, windows=(256, 512), reserve=8)).windows == ()


@settings(deadline=None)
@given(placed=st.integers(1, 4_000), reserve=st.integers(1, 64))
def test_half_a_window_always_makes_a_budget(placed: int, reserve: int) -> None:
    episodes = EpisodeConfig(window=512, reserve=reserve)
    budget = half_window([placed], episodes).budget
    assert 8 * reserve <= budget.window <= 512
    assert budget.window == max(8 * reserve, min(512, placed // 2))
