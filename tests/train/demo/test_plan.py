"""The demo's two run files as the command changes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from context_agent.errors import ConfigError
from context_agent.train.demo.plan import BEFORE, DEMONSTRATIONS, QUICK, DemoOptions, make_plan
from context_agent.train.rewards import RewardConfig


def test_both_runs_share_what_makes_them_one_demo() -> None:
    made = make_plan(DemoOptions(Path("demo"), seed=3, steps=7, demonstrations=11, threads=2))
    assert (made.sft.out, made.rl.out) == ("demo/sft", "demo/rl")
    assert made.rl.model.name == "demo/sft/final"
    assert made.rl.model.tiny is None
    assert made.sft.model.tiny is not None
    assert made.sft.data == made.rl.data
    assert made.sft.episodes == made.rl.episodes
    assert (made.sft.seed, made.rl.seed, made.sft.threads, made.rl.threads) == (3, 3, 2, 2)
    assert (made.sft.sft.demonstrations, made.rl.rollouts.steps) == (11, 7)


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
    assert full.judged.beta == full.rl.curriculum.beta[1]


def test_the_ablation_has_names_of_its_own() -> None:
    full, ablation = make_plan(DemoOptions(Path("demo"))), make_plan(DemoOptions(Path("demo"), trajectory_reward=False))
    assert full.place("report.json") == Path("demo/report.json")
    assert ablation.place("report.json") == Path("demo/report-without-trajectory-reward.json")
    phases = [DEMONSTRATIONS, BEFORE, "rewards", f"rewards{ablation.suffix}"]
    assert [full.has(one) for one in phases] == [True, True, True, False]
    assert [ablation.has(one) for one in phases] == [True, True, False, True]


def test_quick_is_smaller_and_explicit_numbers_go_before_it() -> None:
    usual, quick = make_plan(DemoOptions(Path("demo"))), make_plan(DemoOptions(Path("demo"), quick=True))
    assert quick.sft.sft.demonstrations < usual.sft.sft.demonstrations
    assert quick.rl.rollouts.steps < usual.rl.rollouts.steps
    assert quick.rl.data.world is not None
    assert quick.rl.data.world.entities == QUICK["sft"]["data.world.entities"]
    assert make_plan(DemoOptions(Path("demo"), quick=True, steps=2, demonstrations=5)).rl.rollouts.steps == 2


def test_the_harness_leaves_room_for_half_a_window() -> None:
    made = make_plan(DemoOptions(Path("demo")))
    assert 8 * made.rl.episodes.reserve < made.rl.episodes.window // 4


def test_what_no_run_takes_is_refused() -> None:
    with pytest.raises(ConfigError, match="threads"):
        make_plan(DemoOptions(Path("demo"), threads=-1))
    with pytest.raises(ConfigError, match="demonstrations"):
        make_plan(DemoOptions(Path("demo"), demonstrations=0))
