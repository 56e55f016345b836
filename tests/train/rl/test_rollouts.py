from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError, DataError, PolicyError
from context_agent.harness.trajectory_file import read
from context_agent.policies.tokens import TokenPolicy
from context_agent.policies.tokens.engines import FakeEngine, Sample, SampleRequest
from context_agent.policies.tokens.recorded_calls import TokenCall, calls
from context_agent.pruning.view import ActionTaken
from context_agent.train import rewards
from context_agent.train.config import EpisodeConfig, ParlConfig, RolloutConfig
from context_agent.train.curriculum import Curriculum, CurriculumStage
from context_agent.train.outcome import Ending
from context_agent.train.parl import Delegation
from context_agent.train.rewards import RewardConfig
from context_agent.train.rl.rank_metrics import metrics_over_ranks
from context_agent.train.rl.rollouts import Rollouts, draw_questions
from context_agent.train.toy.environment import ToyEnvironment
from context_agent.train.toy.word_prompts import WordRenderer
from context_agent.types import Question
from tests.support.rollout_loops import SMALL, agent, rollout_loop

MANY_QUESTIONS = [Question(f"q{number}", "?") for number in range(20)]


def train_questions(small: ToyEnvironment) -> list[Question]:
    return small.questions["train"]


def test_a_step_is_questions_times_rollouts_and_every_sampled_id_is_in_one_row(
    small: ToyEnvironment, words: WordRenderer
) -> None:
    step = rollout_loop(agent(small, words), train_questions(small), SMALL).collect(0)
    assert len(step.episodes) == 24
    assert len({episode.question.id for episode in step.episodes}) == 6
    trained = {item.row.episode_id for item in step.rows}
    assert step.metrics["episodes_trained"] == len(trained) > 0
    calls = [
        TokenCall.from_extra(event.action.extra)
        for episode in step.episodes
        if episode.id in trained
        for event in episode.trajectory.events
        if isinstance(event, ActionTaken)
    ]
    assert step.metrics["tokens_trained"] == sum(len(call.output) for call in calls if call)
    assert {item.row.group_id for item in step.rows} <= {episode.question.id for episode in step.episodes}


def test_advantages_sum_to_nothing_in_each_group(small: ToyEnvironment, words: WordRenderer) -> None:
    step = rollout_loop(agent(small, words), train_questions(small), SMALL).collect(1)
    by_episode = {item.row.episode_id: (item.row.group_id, item.advantage) for item in step.rows}
    for group in {group for group, _ in by_episode.values()}:
        assert sum(value for group_id, value in by_episode.values() if group_id == group) == pytest.approx(0, abs=1e-9)


def test_a_draw_depends_on_seed_and_step_alone() -> None:
    assert draw_questions(MANY_QUESTIONS, 8, seed=1, step=2) == draw_questions(MANY_QUESTIONS, 8, seed=1, step=2)
    assert draw_questions(MANY_QUESTIONS, 8, seed=1, step=2) != draw_questions(MANY_QUESTIONS, 8, seed=1, step=3)
    assert len({question.id for question in draw_questions(MANY_QUESTIONS, 20, seed=0, step=0)}) == 20


def test_questions_come_again_where_there_are_too_few() -> None:
    assert len(draw_questions(MANY_QUESTIONS[:3], 7, seed=0, step=0)) == 7


def test_a_step_is_the_same_whenever_it_is_played(small: ToyEnvironment, words: WordRenderer) -> None:
    first_loop = rollout_loop(agent(small, words), train_questions(small), SMALL)
    first_loop.collect(0)
    fresh_loop = rollout_loop(agent(small, words), train_questions(small), SMALL)
    assert first_loop.collect(2).rows == fresh_loop.collect(2).rows
    assert first_loop.collect(2).rows != first_loop.collect(3).rows


def test_substeps_share_the_rows_and_a_resumed_run_begins_with_a_step(
    small: ToyEnvironment, words: WordRenderer
) -> None:
    loop = rollout_loop(agent(small, words), train_questions(small), SMALL)
    first, second = loop.rows(4), loop.rows(5)
    whole = loop.collect(2).rows
    assert sorted(map(repr, [*first, *second])) == sorted(map(repr, whole))
    assert {i.row.episode_id for i in first}.isdisjoint(i.row.episode_id for i in second)


def test_ranks_share_the_groups(small: ToyEnvironment, words: WordRenderer) -> None:
    whole = rollout_loop(agent(small, words), train_questions(small), SMALL).collect(0).rows
    parts = [
        item
        for rank in range(2)
        for item in rollout_loop(agent(small, words), train_questions(small), SMALL, rank=rank, ranks=2).collect(0).rows
    ]
    assert sorted(map(repr, parts)) == sorted(map(repr, whole))


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_metrics_of_all_ranks_together_are_those_of_one_rank(
    small: ToyEnvironment, words: WordRenderer, ranks: int
) -> None:
    """Four ranks share six groups, so they have unequal numbers of episodes."""
    whole = rollout_loop(agent(small, words), train_questions(small), SMALL).collect(0).metrics
    loops = [
        rollout_loop(agent(small, words), train_questions(small), SMALL, rank=i, ranks=ranks) for i in range(ranks)
    ]
    parts = [loop.collect(0).metrics for loop in loops]
    together = metrics_over_ranks(parts)
    timed = {"rollout_seconds", "sampled_per_second"}
    assert {name: together[name] for name in together if name not in timed} == pytest.approx(
        {name: whole[name] for name in whole if name not in timed}
    )
    assert together["episodes"] == SMALL.groups * SMALL.rollouts > parts[0]["episodes"]
    assert together["reward_deviation"] > 0
    assert together["rollout_seconds"] == max(part["rollout_seconds"] for part in parts)
    assert together["sampled_per_second"] == whole["tokens_sampled"] / together["rollout_seconds"]


def test_the_accuracy_of_prunes_over_ranks_counts_each_prune_once() -> None:
    few: dict[str, float] = {"episodes": 4.0, "pruned": 0.5, "prune_accuracy": 0.0}
    many: dict[str, float] = {"episodes": 2.0, "pruned": 9.0, "prune_accuracy": 1.0}
    none: dict[str, float] = {"episodes": 2.0, "pruned": 0.0}
    together = metrics_over_ranks([none, few, many])
    assert together == pytest.approx({"episodes": 8.0, "pruned": 2.5, "prune_accuracy": 0.9})


def test_what_is_reported_and_saved(small: ToyEnvironment, words: WordRenderer, tmp_path: Path) -> None:
    metrics = rollout_loop(agent(small, words), train_questions(small), SMALL, folder=tmp_path).collect(1).metrics
    assert {"reward", "recall", "trajectory_recall", "turns", "groups_equal", "episodes_aborted", "beta"} <= set(
        metrics
    )
    assert {f"term/{name}" for name in (*rewards.GAINS, *rewards.PENALTIES)} <= set(metrics)
    saved = sorted((tmp_path / "step-00001").glob("*.jsonl"))
    assert len(saved) == 8
    for path in saved:
        read(path).verify()


def test_an_engine_hears_how_many_episodes_it_may_wait_for(small: ToyEnvironment, words: WordRenderer) -> None:
    announced: list[int] = []

    class Listening(FakeEngine):
        def expect(self, episodes: int) -> None:
            announced.append(episodes)

    base = agent(small, words).policy
    assert isinstance(base, TokenPolicy)
    engine = Listening(base.engine._replies)  # type: ignore[attr-defined]
    rollout_loop(agent(small, words, engine), train_questions(small), SMALL).collect(0)
    assert announced[0] == 5
    assert sum(announced) == 0


def test_an_engine_that_fails_now_and_then_spoils_only_those_episodes(
    small: ToyEnvironment, words: WordRenderer
) -> None:
    base = agent(small, words).policy
    assert isinstance(base, TokenPolicy)

    class Flaky(FakeEngine):
        async def generate(self, request: SampleRequest) -> Sample:
            await asyncio.sleep(0)
            if request.seed % 5 == 0:
                raise PolicyError("the server hung up")
            return await super().generate(request)

    step = rollout_loop(agent(small, words, Flaky(base.engine._replies)), train_questions(small), SMALL).collect(0)  # type: ignore[attr-defined]
    assert step.metrics["episodes_aborted"] == 24 - len(step.episodes) > 0


def test_an_engine_that_is_gone_ends_the_step_with_an_error(small: ToyEnvironment, words: WordRenderer) -> None:
    loop = rollout_loop(agent(small, words, FakeEngine([])), train_questions(small), SMALL)
    with pytest.raises(PolicyError, match=r"none of the 24 episodes of step 3 could be completed \(all 0 replies"):
        loop.collect(3)


def test_the_questions_of_a_step_are_played_in_the_windows_in_turn(small: ToyEnvironment, words: WordRenderer) -> None:
    episodes = EpisodeConfig(window=512, windows=(128, 512), per_call=112, reserve=8)
    rollouts = Rollouts(agent(small, words), train_questions(small), SMALL, budget_of=episodes.training_budget)
    step = rollout_loop(agent(small, words), train_questions(small), SMALL, rollouts=rollouts).collect(0)
    windows = {episode.id.split("-")[1]: episode.trajectory.header.budget for episode in step.episodes}
    assert [windows[group].window for group in sorted(windows)] == [128, 512] * (SMALL.groups // 2)
    assert {budget.per_call for budget in windows.values()} == {96, 112}  # 96: the hard cutoff of 128
    assert {budget.reserve for budget in windows.values()} == {8}


def test_a_curriculum_asks_easy_questions_first(small: ToyEnvironment, words: WordRenderer) -> None:
    curriculum = Curriculum((CurriculumStage(0.5, 1),), beta=(4, 2))
    loop = rollout_loop(agent(small, words), train_questions(small), SMALL, curriculum=curriculum)
    assert {episode.question.hops for episode in loop.collect(0).episodes} == {1}
    late_step = loop.collect(3)
    assert max(episode.question.hops for episode in late_step.episodes) > 1
    assert late_step.metrics["beta"] == 2.5


def test_a_decay_reaches_the_ids(small: ToyEnvironment, words: WordRenderer) -> None:
    step = rollout_loop(agent(small, words), train_questions(small), SMALL, rewards=RewardConfig(gamma=0.5)).collect(0)
    two_weights = next(item for item in step.rows if sum(1 for weight in set(item.weights) if weight) == 2)
    assert {weight for weight in two_weights.weights if weight} == {0.5, 1.0}


def test_a_reward_that_is_no_number_names_its_episode(
    small: ToyEnvironment, words: WordRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rewards.GAINS, "diversity", lambda outcome, settings: float("nan"))  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"episode 00000-\d+-\d+ of question .*: the reward must be finite; got nan"):
        rollout_loop(agent(small, words), train_questions(small), SMALL).collect(0)


def test_settings_and_questions_that_cannot_work(small: ToyEnvironment, words: WordRenderer) -> None:
    with pytest.raises(ConfigError, match=r"rollouts\.rollouts must be at least 2"):
        RolloutConfig(rollouts=1)
    with pytest.raises(ConfigError, match="groups must be at least 1"):
        RolloutConfig(groups=0)
    with pytest.raises(ConfigError, match="1 of 1 questions have no gold"):
        rollout_loop(agent(small, words), [Question("q", "who?")], SMALL)
    with pytest.raises(ConfigError, match="shared by 9 ranks"):
        rollout_loop(agent(small, words), train_questions(small), SMALL, ranks=9)


def test_parl_pays_for_sub_agents_and_less_of_it_as_training_goes_on(
    small: ToyEnvironment, words: WordRenderer
) -> None:
    """The tiny policy never starts a sub-agent: both terms are there and 0, and nothing else changes."""
    plain = rollout_loop(agent(small, words), train_questions(small), SMALL).collect(0)
    paid = rollout_loop(
        agent(small, words), train_questions(small), SMALL, parl=ParlConfig(parallel=0.5, finish=0.5)
    ).collect(0)
    assert "term/parl_parallel" not in plain.metrics
    assert paid.metrics["term/parl_parallel"] == paid.metrics["term/parl_finish"] == 0.0
    assert paid.metrics["reward"] == plain.metrics["reward"]


def test_what_parl_adds_is_in_the_reward_and_the_metrics(
    small: ToyEnvironment, words: WordRenderer, monkeypatch: Any
) -> None:
    delegation = Delegation(started=2, finished=1)
    monkeypatch.setattr("context_agent.train.rl.scoring.delegation_of", lambda trajectory: delegation)
    rollouts = rollout_loop(
        agent(small, words), train_questions(small), SMALL, parl=ParlConfig(parallel=0.4, finish=0.2)
    )
    for number, share in ((0, 1.0), (2, 0.5)):
        step = rollouts.collect(number)
        finished = [episode for episode in step.episodes if episode.outcome.ending is Ending.FINISHED]
        assert finished
        for episode in finished:
            assert episode.reward.terms["parl_parallel"] == pytest.approx(share * 0.4 * 2 / 4)
            assert episode.reward.terms["parl_finish"] == pytest.approx(share * 0.2 * 1 / 2)
        assert step.metrics["term/parl_parallel"] == pytest.approx(share * 0.2 * len(finished) / len(step.episodes))


def test_questions_whose_episodes_all_earn_the_same_are_replaced(small: ToyEnvironment, words: WordRenderer) -> None:
    """Dynamic sampling. Here an episode fails by its seed, and every third group of two succeeds as a whole."""
    questions = train_questions(small)
    plain = replace(SMALL, rollouts=2)
    without = rollout_loop(agent(small, words), questions, plain).collect(0)
    step = rollout_loop(agent(small, words), questions, replace(plain, refill=3)).collect(0)
    equal = int(without.metrics["groups_equal"])
    assert equal > 0
    assert step.metrics["groups_refilled"] >= equal
    assert step.metrics["groups_equal"] == step.metrics["groups_refilled"], "all but the last ones were replaced"
    assert "groups_refilled" not in without.metrics
    trained = {item.row.group_id for item in step.rows}
    assert {item.row.group_id for item in without.rows} <= trained
    assert len(trained) == plain.groups
    ids = [episode.id for episode in step.episodes]
    assert len(set(ids)) == len(ids)
    assert len({episode.question.id for episode in step.episodes}) == plain.groups + step.metrics["groups_refilled"]
    again = rollout_loop(agent(small, words), questions, replace(plain, refill=3)).collect(0)
    assert again.rows == step.rows


def test_ranks_refill_with_different_questions_until_none_are_left(small: ToyEnvironment, words: WordRenderer) -> None:
    questions = train_questions(small)[:11]
    parts = [Rollouts(agent(small, words), questions, SMALL, rank=rank, ranks=2) for rank in range(2)]
    groups = [[request.question.id for request in part.refill(0, 0, 9)] for part in parts]
    drawn = {request.question.id for part in parts for request in part.draw(0)}
    assert [len(set(group)) for group in groups] == [3, 2]
    assert set(groups[0]).isdisjoint(groups[1])
    assert drawn.isdisjoint({*groups[0], *groups[1]})
    assert drawn | {*groups[0], *groups[1]} == {question.id for question in questions}
    assert {request.question.id for request in parts[0].refill(0, 1, 1)} == {groups[0][SMALL.rollouts]}
    assert parts[0].refill(0, 3, 9) == []


def test_replies_that_the_limit_of_tokens_has_cut_are_counted(small: ToyEnvironment, words: WordRenderer) -> None:
    def endless(request: SampleRequest) -> Sequence[int]:
        assert request.seed is not None
        reply = words.encode("search search search")
        return reply if request.seed % 2 else (*words.encode("rank nobody"), *words.stop)

    loop = rollout_loop(agent(small, words, FakeEngine(endless)), train_questions(small), SMALL)
    step = loop.collect(0)
    cut = [call for episode in step.episodes for call in calls(episode.trajectory) if call.output[-1] not in words.stop]
    assert step.metrics["replies_truncated"] == len(cut) > 0
