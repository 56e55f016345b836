"""The demo's measures of one episode, and its figures over many."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from context_agent import Action, Budget, MemoryCorpus
from context_agent.errors import DataError
from context_agent.eval.gold import gold_of
from context_agent.eval.replay import Replay
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.recorded_calls import TokenCall
from context_agent.pruning.view import ActionTaken
from context_agent.testing.actions import rank_all, search
from context_agent.train.demo.scores import (
    DemoScore,
    budget_violations,
    load_scores,
    paired_differences,
    paired_gain,
    save_scores,
    score_episode,
    summarize,
)
from context_agent.train.rewards import RewardConfig
from context_agent.train.toy.word_prompts import words_profile
from tests.support.demo_records import QUESTION, SCORE, episode, pruned, scores


def test_an_episode_is_scored_by_its_record(corpus: MemoryCorpus) -> None:
    trajectory = pruned(corpus)
    score = score_episode(trajectory, QUESTION, corpus, RewardConfig())
    replay = Replay(trajectory, gold_of(QUESTION, corpus))
    assert (score.question, score.hops, score.ending) == ("q", 2, "finished")
    assert (score.turns, score.searches, score.calls) == (3, 2, 3)
    assert (score.pruned, score.pruned_gold) == (2, 0)
    assert score.placed == replay.spent.placed > replay.spent.peak
    assert score.violations == 0


def test_what_was_placed_is_the_view_without_prunes(corpus: MemoryCorpus) -> None:
    trajectory = pruned(corpus)
    *_, last = trajectory.views()
    pruned_tokens = sum(block.tokens for block in last.pruned)
    assert pruned_tokens > 0
    ranking_event = trajectory.events[-2]
    assert isinstance(ranking_event, ActionTaken)
    assert score_episode(trajectory, QUESTION, corpus, RewardConfig()).placed == last.tokens + pruned_tokens


def with_budget(trajectory: Trajectory, **changes: int) -> Trajectory:
    """The same record under another budget."""
    header = trajectory.header
    return replace(trajectory, header=replace(header, budget=replace(header.budget, **changes)))


def test_a_view_with_its_output_past_the_window_is_counted(corpus: MemoryCorpus) -> None:
    trajectory = pruned(corpus)
    assert budget_violations(trajectory) == 0
    views = list(trajectory.views())
    actions = [event for event in trajectory.events if isinstance(event, ActionTaken)]
    sizes = [view.tokens + event.tokens for view, event in zip(views, actions, strict=False)]
    largest = max(sizes)
    exact = {"window": largest, "soft": 1, "hard": 2, "per_call": 1, "reserve": 1}
    assert budget_violations(with_budget(trajectory, **exact)) == 0
    narrower = with_budget(trajectory, **{**exact, "window": largest - 1})
    assert (
        budget_violations(narrower) == sum(size > largest - 1 for size in sizes) + (views[-1].tokens > largest - 1) > 0
    )


def test_sampled_ids_count_as_what_was_sampled(corpus: MemoryCorpus) -> None:
    trajectory = pruned(corpus)
    first = next(index for index, event in enumerate(trajectory.events) if isinstance(event, ActionTaken))
    event = trajectory.events[first]
    assert isinstance(event, ActionTaken)
    window = trajectory.header.budget.window
    prompt = next(iter(trajectory.views())).tokens

    def sampled(length: int, sent: int = 1) -> Trajectory:
        call = TokenCall(0, (1,) * sent, (1,) * length, (0.0,) * length)
        action_taken = replace(event, action=replace(event.action, extra=call.to_extra()))
        return replace(trajectory, events=(*trajectory.events[:first], action_taken, *trajectory.events[first + 1 :]))

    assert budget_violations(sampled(window - prompt)) == 0
    assert budget_violations(sampled(window - prompt + 1)) == 1
    assert budget_violations(sampled(1, sent=window)) == 1, "a prompt longer than its view counts by its own length"


def test_no_episode_of_the_harness_violates_its_window(corpus: MemoryCorpus) -> None:
    searches = [search(query, limit=6) for query in ("comets", "rivers", "operas", "engines", "gardens")]
    for window in (80, 160, 512):
        budget = Budget(window, per_call=window // 2, reserve=8)
        assert budget_violations(episode(corpus, *searches, rank_all, budget=budget, profile=words_profile())) == 0


def test_an_episode_that_sampled_nothing_is_no_violation(corpus: MemoryCorpus) -> None:
    full_action = Action(tokens=4096, extra={"sampled": None})
    trajectory = episode(corpus, search("comets"), full_action)
    assert trajectory.end is not None
    assert trajectory.end.stop_reason == "window"
    assert budget_violations(trajectory) == 0


def test_figures_are_means_over_tasks_and_counts_over_episodes() -> None:
    figures = summarize([SCORE, replace(SCORE, pruned=0, pruned_gold=0, recall=1.0, violations=2, ending="cut")])
    assert figures["recall"]["mean"] == 0.75
    assert figures["prune_accuracy"] == 0.75
    assert figures["pruning"] == 0.5
    assert figures["finished"] == 0.5
    assert figures["violations"] == 2
    assert figures["episodes"] == 2


def test_without_any_prune_there_is_no_accuracy() -> None:
    assert summarize(scores(1.0, 0.0, pruned=0, pruned_gold=0))["prune_accuracy"] is None


def test_a_gain_is_paired_by_task() -> None:
    before, after = scores(0.0, 0.5, 1.0), scores(0.5, 1.0, 1.0)
    assert paired_differences(after, before) == [0.5, 0.5, 0.0]
    gain = paired_gain(after, before)
    assert gain.mean == pytest.approx(1 / 3)
    assert 0 <= gain.low <= gain.mean <= gain.high <= 0.5


@pytest.mark.parametrize("reference", [scores(0.0), scores(0.0, 1.0)[::-1], []])
def test_other_tasks_are_not_compared(reference: list[DemoScore]) -> None:
    with pytest.raises(DataError, match="the same questions"):
        paired_gain(scores(0.0, 1.0), reference)


def test_an_evaluation_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "evaluations" / "after-t1.jsonl"
    about = {"questions": 2, "episodes": {"window": 512}}
    assert load_scores(path) is None
    save_scores(path, scores(0.0, 1.0), about)
    assert load_scores(path) == load_scores(path, about) == scores(0.0, 1.0)
    assert load_scores(path, {**about, "questions": 3}) is None, "it is of another evaluation"
    path.write_text("{}\n")
    with pytest.raises(DataError, match="Delete it"):
        load_scores(path, about)
