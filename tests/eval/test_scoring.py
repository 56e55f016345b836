"""Scores of real episodes. They follow scripts, so that each value is known in advance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from context_agent import Action, Budget, MemoryCorpus, ScriptedPolicy, SearchAgent, ToolCall, View
from context_agent.agent import SearchResult
from context_agent.errors import PolicyError
from context_agent.eval.gold import gold_of
from context_agent.eval.metrics import METRICS, MetricKind, find_metric, metric_table
from context_agent.eval.model_prices import Price
from context_agent.eval.scoring import failure_reason, rollout_errors, score
from context_agent.harness.profile import Profile, summary
from context_agent.pruning.view import ActionTaken, EditApplied
from context_agent.swarm import Swarm
from context_agent.testing.actions import call, prune, rank, restore, search, summarize
from context_agent.types import Question, RankedChunk, RankedDocument

GOLD = ("d1", "d2")


def make_question(*gold: str, answer: str = "", facts: tuple[tuple[str, ...], ...] = ()) -> Question:
    return Question("q", "comets?", answer=answer, gold=gold, facts=facts)


def grep(number: int) -> Action:
    """A grep that finds only the document with that number."""
    return call("grep_corpus", pattern=f"SENTINEL-{number:04d}")


def run(corpus: MemoryCorpus, *actions: object, rollouts: int = 1, window: int = 8192) -> SearchResult:
    agent = SearchAgent(corpus, ScriptedPolicy(list(actions)), budget=Budget(window), rollouts=rollouts)  # type: ignore[arg-type]
    return agent.search("comets?")


def chunk_of(corpus: MemoryCorpus, document: str) -> str:
    return corpus.read(document)[0].id


def one_shot(*documents: str, text: str = "", tokens: int = 0) -> SearchResult:
    ranked = tuple(
        RankedDocument(document, "", 1.0, (RankedChunk(f"{document}_0", text, 1.0),)) for document in documents
    )
    return SearchResult("comets?", ranked, "finished", 0, tokens, ())


def test_found_pruned_and_ranked(corpus: MemoryCorpus) -> None:
    waste = chunk_of(corpus, "d3")
    result = run(corpus, grep(1), grep(3), prune(waste), grep(2), grep(4), rank("d4", "d1", "d3"))
    scores, curve = score(make_question(*GOLD), result)
    assert scores["recall"] == 0.5
    assert scores["precision"] == 0.5, "d3 was pruned, so it is no part of the output"
    assert scores["trajectory_recall"] == scores["held_recall"] == 1
    assert scores["prune_accuracy"] == 1
    assert scores["prune_recall"] == 0.5, "d3 went, d4 stayed"
    assert scores["dropped_ids"] == 1
    assert scores["turns"] == scores["calls"] == 5
    assert scores["critical_steps"] == 6
    assert [turn.seen for turn in curve] == [0.5, 0.5, 0.5, 1, 1]
    assert [turn.held for turn in curve] == [0.5, 0.5, 0.5, 1, 1]
    assert [turn.pruned for turn in curve] == [0, 0, 1, 1, 1]


def test_a_pruned_gold_chunk_counts_although_it_is_restored(corpus: MemoryCorpus) -> None:
    gold = chunk_of(corpus, "d1")
    result = run(corpus, grep(1), prune(gold), restore(gold), rank("d1"))
    scores, curve = score(make_question("d1"), result)
    assert scores["prune_accuracy"] == 0
    assert scores["prune_recall"] is None, "nothing shown was to go"
    assert scores["recall"] == scores["held_recall"] == 1
    assert [turn.held for turn in curve] == [1, 0, 1]
    assert [turn.pruned_gold for turn in curve] == [0, 1, 1]


def test_found_then_lost(corpus: MemoryCorpus) -> None:
    result = run(corpus, grep(1), prune(chunk_of(corpus, "d1")), grep(5), rank("d1", "d5"))
    scores, _ = score(make_question("d1"), result)
    assert scores["trajectory_recall"] == 1
    assert scores["held_recall"] == scores["recall"] == 0


def test_tokens_are_those_of_the_record(corpus: MemoryCorpus) -> None:
    result = run(corpus, search("comets", "rivers"), prune("nothing"), search("operas"), rank("d1"))
    scores, curve = score(make_question("d1"), result)
    trajectory = result.trajectories[0]
    views = list(trajectory.views())
    actions = [event for event in trajectory.events if isinstance(event, ActionTaken)]
    assert trajectory.end is not None
    assert scores["tokens"] == result.tokens == trajectory.end.tokens
    assert scores["prompt_tokens"] == sum(view.tokens for view in views[:-1])
    assert scores["sampled_tokens"] == sum(action.tokens for action in actions)
    assert scores["context_end"] == views[-1].tokens
    assert scores["context_peak"] == max(view.tokens for view in views[:-1])
    assert scores["mistakes"] == trajectory.end.mistakes == 1
    assert curve[-1].view == views[-2].tokens
    # Nothing was pruned: each prompt repeats the whole previous prompt and its action.
    cached = sum(view.tokens + action.tokens for view, action in zip(views[:-2], actions[:-1], strict=True))
    assert scores["cached_tokens"] == cached
    assert scores["lost_tokens"] == scores["freed_tokens"] == 0


def test_an_edit_loses_the_cache_behind_it(corpus: MemoryCorpus) -> None:
    first = chunk_of(corpus, "d1")
    result = run(corpus, grep(1), grep(2), prune(first), rank("d2"))
    scores, _ = score(make_question(*GOLD), result)
    views = list(result.trajectories[0].views())
    block = next(item for item in views[2].blocks if item.id == first)
    assert scores["freed_tokens"] == block.tokens
    prefix = sum(segment.tokens for segment in views[2].visible[: views[2].visible.index(block)])
    shared = [views[number].tokens + action.tokens for number, action in enumerate(_actions(result)[:2])]
    assert scores["cached_tokens"] == sum(shared) + prefix
    assert scores["lost_tokens"] == views[2].tokens + _actions(result)[2].tokens - block.tokens - prefix


def test_each_edit_of_an_episode_counts_and_so_does_what_a_summary_places(corpus: MemoryCorpus) -> None:
    first, second, third = (chunk_of(corpus, f"d{number}") for number in (1, 2, 3))
    steps = [grep(1), grep(2), grep(3), prune(first), summarize("Two comets.", second), prune(third), rank("d2")]
    agent = SearchAgent(corpus, ScriptedPolicy(steps), budget=Budget(8192), profile=summary())  # type: ignore[arg-type]
    result = agent.search("comets?")
    trajectory = result.trajectories[0]
    edits = [event for event in trajectory.events if isinstance(event, EditApplied)]
    scores, _ = score(make_question(*GOLD), result)
    assert len(edits) == 3
    assert scores["lost_tokens"] == sum(edit.cost.recomputed for edit in edits)
    assert scores["freed_tokens"] == sum(edit.cost.freed for edit in edits)
    assert trajectory.end is not None
    assert scores["tokens"] == trajectory.end.tokens


def test_a_record_without_events_has_costs_of_0(corpus: MemoryCorpus) -> None:
    result = run(corpus, grep(1), rank("d1"))
    empty = replace(result, trajectories=(replace(result.trajectories[0], events=()),))
    scores, curve = score(make_question("d1"), empty, error="cut")
    assert (scores["context_end"], scores["context_peak"], scores["tokens"], scores["turns"]) == (0, 0, 0, 0)
    assert (scores["trajectory_recall"], scores["held_recall"], curve) == (0, 0, ())


def _actions(result: SearchResult) -> list[ActionTaken]:
    return [event for event in result.trajectories[0].events if isinstance(event, ActionTaken)]


def test_money_needs_a_price(corpus: MemoryCorpus) -> None:
    result = run(corpus, grep(1), grep(2), rank("d1"))
    unpriced, _ = score(make_question("d1"), result)
    scores, _ = score(make_question("d1"), result, price=Price(prompt=2, cached=1, sampled=10))
    prompt, cached, sampled = (scores[f"{name}_tokens"] or 0 for name in ("prompt", "cached", "sampled"))
    assert unpriced["money"] is None
    assert scores["money"] == pytest.approx((2 * (prompt - cached) + cached + 10 * sampled) / 1e6)


def test_rollouts_make_one_value(corpus: MemoryCorpus) -> None:
    class TwoRollouts(ScriptedPolicy):
        """The first rollout finds d1 in two turns, the second finds d2 in three."""

        def open(self, question: str, corpus: object, *, profile: Profile, seed: int = 0) -> object:  # type: ignore[override]
            first = [grep(1), search("zzz", limit=1), rank("d1")]
            second = [grep(2), search("zzz", limit=1), prune("x"), rank("d2")]
            return ScriptedPolicy(second if seed else first).open(question, corpus, profile=profile, seed=seed)  # type: ignore[arg-type]

    result = SearchAgent(corpus, TwoRollouts([]), rollouts=2).search("comets?")
    scores, curve = score(make_question(*GOLD), result)
    assert scores["recall"] == scores["trajectory_recall"] == 1
    assert scores["turns"] == scores["calls"] == 5
    assert scores["calls_per_turn"] == 1
    assert scores["critical_steps"] == 4, "the longer rollout, its ranking included"
    assert scores["tokens"] == result.tokens
    assert len(curve) == 3
    assert curve[0].seen == 1
    assert [turn.tokens for turn in curve] == sorted(turn.tokens for turn in curve)


def test_facts_are_found_by_any_of_their_chunks(corpus: MemoryCorpus) -> None:
    first, second, third = (chunk_of(corpus, f"d{number}") for number in (1, 2, 3))
    question = make_question("d9", facts=((first, second), (third,)))
    result = run(corpus, grep(2), grep(4), grep(3), prune(third), rank("d2", "d4"))
    scores, _ = score(question, result, gold=gold_of(question, corpus))
    assert scores["recall"] == scores["recall@5"] == 0.5
    assert scores["precision"] == 0.5
    assert scores["trajectory_recall"] == 1
    assert scores["prune_accuracy"] == 0


def test_the_answer_is_looked_for_in_the_output_alone(corpus: MemoryCorpus) -> None:
    greps = [grep(7), grep(8)]
    scores, _ = score(make_question("d7", answer="sentinel 0007"), run(corpus, *greps, rank("d7")))
    assert scores["answer_found"] == 1
    scores, _ = score(make_question("d7", answer="sentinel 0007"), run(corpus, *greps, rank("d8")))
    assert scores["answer_found"] == 0


@pytest.mark.parametrize("answer", ["", "yes", "No"])
def test_an_answer_that_cannot_be_looked_for_is_left_out(corpus: MemoryCorpus, answer: str) -> None:
    assert score(make_question("d7", answer=answer), run(corpus, grep(7), rank("d7")))[0]["answer_found"] is None
    assert score(make_question("d7", answer=answer), None, error="down")[0]["answer_found"] is None


def test_one_shot_retrieval_has_no_context(corpus: MemoryCorpus) -> None:
    scores, curve = score(make_question(*GOLD, answer="Halley"), one_shot("d5", "d1", text="by Halley", tokens=70))
    assert scores["recall"] == 0.5
    assert scores["recall@5"] == 0.5
    assert scores["answer_found"] == 1
    assert scores["tokens"] == 70
    unscored = {name for name, value in scores.items() if value is None}
    assert {"trajectory_recall", "held_recall", "prune_accuracy", "prune_recall", "turns", "critical_steps"} <= unscored
    assert curve == ()


def test_costs_that_are_not_known_are_left_out(corpus: MemoryCorpus) -> None:
    assert score(make_question("d1"), one_shot("d1"))[0]["tokens"] is None
    at_once, _ = score(make_question("d1"), run(corpus, rank()))
    assert (at_once["turns"], at_once["calls"], at_once["calls_per_turn"]) == (0, 0, None)


def test_a_failed_question_scores_zero_on_quality_and_is_never_dropped() -> None:
    scores, curve = score(make_question(*GOLD, answer="Halley"), None, error="the server is down")
    quality = {name for name, metric in METRICS.items() if metric.kind is MetricKind.QUALITY}
    assert {name for name, value in scores.items() if value == 0} == quality
    assert all(scores[name] is None for name in scores if name not in quality)
    assert curve == ()


def test_a_failed_one_shot_system_still_has_no_context() -> None:
    scores, _ = score(make_question(*GOLD), None, error="down", keeps_context=False)
    assert scores["recall"] == 0
    assert scores["trajectory_recall"] is None


def test_an_episode_ended_by_an_error_fails_and_its_costs_count(corpus: MemoryCorpus) -> None:
    def fail(view: View) -> Action:
        raise PolicyError("the server is gone")

    result = run(corpus, grep(1), fail)
    scores, curve = score(make_question("d1"), result)
    assert result.documents, "a ranking was made up from the view"
    assert failure_reason(result) == "the server is gone"
    assert scores["recall"] == scores["trajectory_recall"] == 0
    assert scores["turns"] == 1
    assert scores["tokens"] == result.tokens
    assert len(curve) == 1


def test_a_limit_that_struck_is_no_failure(corpus: MemoryCorpus) -> None:
    result = run(corpus, *[grep(number) for number in range(1, 90)])
    assert result.stop_reason == "turns"
    assert failure_reason(result) is None
    assert score(make_question("d1"), result)[0]["trajectory_recall"] == 1


def test_a_time_limit_without_a_turn_is_a_failure_as_with_a_server_that_does_not_answer(corpus: MemoryCorpus) -> None:
    result = replace(run(corpus, grep(1)), stop_reason="time", turns=0, documents=())
    assert failure_reason(result) == "the time limit ended the search before its first turn"
    assert score(make_question("d1"), result)[0]["trajectory_recall"] == 0


def test_one_broken_rollout_of_two_is_no_failure(corpus: MemoryCorpus) -> None:
    class HalfBroken(ScriptedPolicy):
        def open(self, question: str, corpus: object, *, profile: Profile, seed: int = 0) -> object:  # type: ignore[override]
            def fail(view: View) -> Action:
                raise PolicyError("gone")

            return ScriptedPolicy([fail] if seed else [grep(1), rank("d1")]).open(
                question, corpus, profile=profile, seed=seed
            )  # type: ignore[arg-type]

    result = SearchAgent(corpus, HalfBroken([]), rollouts=2).search("comets?")
    assert result.error == "gone"
    assert failure_reason(result) is None
    assert rollout_errors(result) == ("gone",)
    assert score(make_question("d1"), result)[0]["recall"] == 1


def test_a_rollout_whose_record_was_cut_is_named(corpus: MemoryCorpus) -> None:
    result = SearchAgent(corpus, ScriptedPolicy([grep(1), rank("d1")]), rollouts=2).search("comets?")  # type: ignore[list-item]
    whole, other = result.trajectories
    cut = replace(result, trajectories=(whole, replace(other, events=other.events[:-1])))
    assert failure_reason(cut) is None
    assert rollout_errors(cut) == ("ended without an end event",)


def test_a_search_without_episodes_fails_by_its_error() -> None:
    assert failure_reason(None) == "no result"
    assert failure_reason(one_shot("d1")) is None
    assert failure_reason(one_shot("d1"), "down") == "down"
    assert failure_reason(replace(one_shot(), error="the index is gone")) == "the index is gone"


def test_the_gold_of_the_corpus_takes_the_place_of_the_row_s() -> None:
    in_corpus = gold_of(make_question("d1"))
    assert score(make_question("d9"), one_shot("d1"), gold=in_corpus)[0]["recall"] == 1
    assert score(make_question("d9"), one_shot("d1"))[0]["recall"] == 0


def test_where_every_rollout_breaks_it_is_a_failure_and_not_broken_beside(corpus: MemoryCorpus) -> None:
    def fail(view: View) -> Action:
        raise PolicyError("gone")

    result = SearchAgent(corpus, ScriptedPolicy([grep(1), fail]), rollouts=2).search("comets?")
    assert failure_reason(result) == "gone"
    assert rollout_errors(result) == ()


def test_a_question_without_gold_has_costs_and_no_quality(corpus: MemoryCorpus) -> None:
    scores, curve = score(make_question(), run(corpus, grep(1), rank("d1")))
    assert scores["recall"] is None
    assert scores["prune_accuracy"] is None
    assert scores["turns"] == 1
    assert curve == ()
    assert score(make_question(), None, error="down")[0]["recall"] is None


def test_depths_and_betas_are_the_callers(corpus: MemoryCorpus) -> None:
    scores, _ = score(make_question(*GOLD), one_shot("d1", "d5"), depths=[1], betas=[0.5])
    assert scores["recall@1"] == 0.5
    assert scores["all_gold@1"] == 0
    assert scores["f0.5"] == pytest.approx(0.5)
    assert "recall@5" not in scores
    assert "f4" not in scores


def test_every_score_is_defined_and_every_definition_scored(corpus: MemoryCorpus) -> None:
    scores, _ = score(make_question(*GOLD), run(corpus, grep(1), rank("d1")), depths=[3, 20], betas=[3])
    assert {*scores, "seconds"} == {metric.name for metric in metric_table([3, 20], [3])}
    for name in scores:
        assert find_metric(name).name == name


def test_a_cut_trajectory_is_scored_as_far_as_it_goes(corpus: MemoryCorpus) -> None:
    result = run(corpus, grep(1), grep(2), rank("d1"))
    cut = replace(result.trajectories[0], events=result.trajectories[0].events[:5])
    scores, _ = score(make_question(*GOLD), replace(result, trajectories=(cut,)), error="cut")
    assert scores["recall"] == 0
    assert scores["turns"] == 1


def test_a_swarm_s_costs_are_those_of_all_its_agents(corpus: MemoryCorpus) -> None:
    """One sub-agent sees gold and does not return it, so the gold was seen but not held."""
    searcher_policy = ScriptedPolicy([grep(1), rank()])
    spawn = Action(calls=(ToolCall("spawn_searchers", {"tasks": ["one", "two"]}),))
    agent = SearchAgent(corpus, ScriptedPolicy([spawn, rank()]), swarm=Swarm(policy=searcher_policy))
    result = agent.search("comets?")
    scores, curve = score(make_question(*GOLD), result)
    assert scores["critical_steps"] == result.critical_steps == 2 + 2
    assert scores["tokens"] == result.tokens
    assert scores["turns"] == scores["calls"] == 3
    assert (scores["trajectory_recall"], scores["held_recall"]) == (0.5, 0.0)
    assert len(curve) == 1
