"""What the demo measures of an episode, and what it makes of many."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from context_agent import Action, Budget, MemoryCorpus
from context_agent.errors import DataError
from context_agent.eval.gold import gold_of
from context_agent.eval.scoring import Replay
from context_agent.harness.trajectory import Trajectory
from context_agent.policies.tokens.prompt import TokenCall
from context_agent.pruning.view import ActionTaken
from context_agent.train.demo.report import (
    DemoScore,
    budget_violations,
    load_scores,
    paired_differences,
    paired_gain,
    save_scores,
    score_episode,
    summarize,
)
from context_agent.train.environment import words_profile
from context_agent.train.rewards import RewardConfig
from tests.actions import rank_all, search
from tests.train.demo.records import QUESTION, SCORE, episode, pruned, scores


def test_an_episode_is_scored_by_its_record(corpus: MemoryCorpus) -> None:
    trajectory = pruned(corpus)
    found = score_episode(trajectory, QUESTION, corpus, RewardConfig())
    replay = Replay(trajectory, gold_of(QUESTION, corpus))
    assert (found.question, found.hops, found.ending) == ("q", 2, "finished")
    assert (found.turns, found.searches, found.calls) == (3, 2, 3)
    assert (found.pruned, found.pruned_gold) == (2, 0)
    assert found.placed == replay.spent.placed > replay.spent.peak
    assert found.violations == 0


def test_what_was_placed_is_the_view_without_prunes(corpus: MemoryCorpus) -> None:
    trajectory = pruned(corpus)
    *_, last = trajectory.views()
    hidden = sum(block.tokens for block in last.pruned)
    assert hidden > 0
    ranked = trajectory.events[-2]
    assert isinstance(ranked, ActionTaken)
    assert score_episode(trajectory, QUESTION, corpus, RewardConfig()).placed == last.tokens + hidden


def doctored(trajectory: Trajectory, **changes: int) -> Trajectory:
    """The same record under another budget."""
    header = trajectory.header
    return replace(trajectory, header=replace(header, budget=replace(header.budget, **changes)))


def test_a_view_with_its_output_past_the_window_is_counted(corpus: MemoryCorpus) -> None:
    trajectory = pruned(corpus)
    assert budget_violations(trajectory) == 0
    views = list(trajectory.views())
    acted = [event for event in trajectory.events if isinstance(event, ActionTaken)]
    sizes = [view.tokens + event.tokens for view, event in zip(views, acted, strict=False)]
    largest = max(sizes)
    exact = {"window": largest, "soft": 1, "hard": 2, "per_call": 1, "reserve": 1}
    assert budget_violations(doctored(trajectory, **exact)) == 0
    over = doctored(trajectory, **{**exact, "window": largest - 1})
    assert budget_violations(over) == sum(size > largest - 1 for size in sizes) + (views[-1].tokens > largest - 1) > 0


def test_sampled_ids_count_as_what_was_sampled(corpus: MemoryCorpus) -> None:
    trajectory = pruned(corpus)
    first = next(place for place, event in enumerate(trajectory.events) if isinstance(event, ActionTaken))
    event = trajectory.events[first]
    assert isinstance(event, ActionTaken)
    window = trajectory.header.budget.window
    prompt = next(iter(trajectory.views())).tokens

    def sampled(length: int, sent: int = 1) -> Trajectory:
        call = TokenCall(0, (1,) * sent, (1,) * length, (0.0,) * length)
        acted = replace(event, action=replace(event.action, extra=call.to_extra()))
        return replace(trajectory, events=(*trajectory.events[:first], acted, *trajectory.events[first + 1 :]))

    assert budget_violations(sampled(window - prompt)) == 0
    assert budget_violations(sampled(window - prompt + 1)) == 1
    assert budget_violations(sampled(1, sent=window)) == 1, "a prompt longer than its view counts by its own length"


def test_no_episode_of_the_harness_violates_its_window(corpus: MemoryCorpus) -> None:
    greedy = [search(query, limit=6) for query in ("comets", "rivers", "operas", "engines", "gardens")]
    for window in (80, 160, 512):
        budget = Budget(window, per_call=window // 2, reserve=8)
        assert budget_violations(episode(corpus, *greedy, rank_all, budget=budget, profile=words_profile())) == 0


def test_an_episode_that_sampled_nothing_is_no_violation(corpus: MemoryCorpus) -> None:
    full = Action(tokens=4096, extra={"sampled": None})
    trajectory = episode(corpus, search("comets"), full)
    assert trajectory.end is not None
    assert trajectory.end.stop_reason == "window"
    assert budget_violations(trajectory) == 0


def test_figures_are_means_over_tasks_and_counts_over_episodes() -> None:
    found = summarize([SCORE, replace(SCORE, pruned=0, pruned_gold=0, recall=1.0, violations=2, ending="cut")])
    assert found["recall"]["mean"] == 0.75
    assert found["prune_accuracy"] == 0.75
    assert found["pruning"] == 0.5
    assert found["finished"] == 0.5
    assert found["violations"] == 2
    assert found["episodes"] == 2


def test_without_any_prune_there_is_no_accuracy() -> None:
    assert summarize(scores(1.0, 0.0, pruned=0, pruned_gold=0))["prune_accuracy"] is None


def test_a_gain_is_paired_by_task() -> None:
    before, after = scores(0.0, 0.5, 1.0), scores(0.5, 1.0, 1.0)
    assert paired_differences(after, before) == [0.5, 0.5, 0.0]
    found = paired_gain(after, before)
    assert found.mean == pytest.approx(1 / 3)
    assert 0 <= found.low <= found.mean <= found.high <= 0.5


@pytest.mark.parametrize("theirs", [scores(0.0), scores(0.0, 1.0)[::-1], []])
def test_other_tasks_are_not_compared(theirs: list[DemoScore]) -> None:
    with pytest.raises(DataError, match="the same questions"):
        paired_gain(scores(0.0, 1.0), theirs)


def test_an_evaluation_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "evaluations" / "after-t1.jsonl"
    about = {"questions": 2, "episodes": {"window": 512}}
    assert load_scores(path) is None
    save_scores(path, scores(0.0, 1.0), about)
    assert load_scores(path) == load_scores(path, about) == scores(0.0, 1.0)
    assert load_scores(path, {**about, "questions": 3}) is None, "it is of another evaluation"
    path.write_text("{}\n")
    with pytest.raises(DataError, match="delete it"):
        load_scores(path, about)
