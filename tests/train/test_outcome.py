from __future__ import annotations

from collections.abc import Sequence

import pytest

from context_agent import Action, MemoryCorpus, ScriptedPolicy, SearchAgent, Trajectory, View
from context_agent.errors import DataError, PolicyError
from context_agent.harness.episode import Limits
from context_agent.harness.profile import lean
from context_agent.testing.actions import call, prune, rank, rank_all, restore, search
from context_agent.train.outcome import Ending, EpisodeOutcome, is_aborted, measure_outcome
from context_agent.train.rewards import REWARD_FLOOR, RewardConfig, compute_reward
from context_agent.types import Question

QUESTION = Question("q", "comets?", "SENTINEL-0005", ("d5", "d1"))


def play(corpus: MemoryCorpus, actions: Sequence[object], limits: Limits | None = None) -> Trajectory:
    agent = SearchAgent(corpus, ScriptedPolicy(actions), limits=limits)  # type: ignore[arg-type]
    return agent.search("comets?", question_id="q").trajectories[0]


def test_an_episode_in_figures(corpus: MemoryCorpus) -> None:
    actions = [
        search("entry 5", "entry 1", limit=3),
        lambda view: prune("d5_0", next(b.id for b in view.blocks if b.document_id not in {"d1", "d5"})),
        lambda view: prune(next(b.id for b in view.blocks if b.document_id != "d1")),
        call("grep_corpus", pattern="("),
        rank("d1", "d5"),
    ]
    outcome = measure_outcome(play(corpus, actions), QUESTION)
    assert outcome.ending is Ending.FINISHED
    assert (outcome.precision, outcome.recall, outcome.seen) == (1.0, 0.5, 1.0)
    assert outcome.answered is True
    assert outcome.calls == (2, 1, 1, 1)
    assert outcome.prunes == (0, 1, 1, 0)
    assert outcome.queries == ("entry 5", "entry 1")
    assert (outcome.pruned, outcome.pruned_gold, outcome.mistakes) == (3, 1, 1)


def test_an_answer_that_nobody_knows_is_neither_found_nor_missed(corpus: MemoryCorpus) -> None:
    trajectory = play(corpus, [search("entry 5", limit=1), rank_all])
    assert measure_outcome(trajectory, Question("q", "?", "", ("d5",))).answered is None
    assert measure_outcome(trajectory, Question("q", "?", "yes", ("d5",))).answered is None
    assert measure_outcome(trajectory, Question("q", "?", "no such words", ("d5",))).answered is False


def test_limits_cut_and_a_ranking_of_nothing_is_malformed(corpus: MemoryCorpus) -> None:
    assert measure_outcome(play(corpus, [search("comets")] * 3, Limits(turns=2)), QUESTION).ending is Ending.TRUNCATED
    assert measure_outcome(play(corpus, [search("comets"), rank("nothing")]), QUESTION).ending is Ending.MALFORMED


def test_documents_that_the_profile_adds_are_not_the_policy_s(corpus: MemoryCorpus) -> None:
    """In the profile `lean` a ranking ends with everything shown; only the documents that it names are rewarded."""

    def outcome(*ranking: str) -> EpisodeOutcome:
        actions = [search("entry 5", "entry 1", limit=6), rank(*ranking)]
        with SearchAgent(corpus, ScriptedPolicy(actions), profile=lean()) as agent:  # type: ignore[arg-type]
            return measure_outcome(agent.search("comets?", question_id="q").trajectories[0], QUESTION)

    both = outcome("d5", "d1")
    assert both.cited == 2 < len(both.ranked)
    assert both.precision < 1.0
    assert compute_reward(both).terms["output"] == RewardConfig().output
    assert compute_reward(outcome("d5")).terms["output"] == pytest.approx(RewardConfig().output * (2 / 3) ** 3)
    assert compute_reward(outcome("d15")).total == REWARD_FLOOR
    assert outcome("d5_0", "d5", "d1").cited == 2


def test_the_answer_is_ranked_only_in_gold_that_the_policy_cites(corpus: MemoryCorpus) -> None:
    searches = search("entry 5", "entry 1", limit=3)
    assert measure_outcome(play(corpus, [searches, rank("d5")]), QUESTION).answer_ranked is True
    assert measure_outcome(play(corpus, [searches, rank("d1")]), QUESTION).answer_ranked is False
    elsewhere = Question("q", "comets?", "SENTINEL-0005", ("d1",))
    outcome = measure_outcome(play(corpus, [searches, rank("d5")]), elsewhere)
    assert (outcome.answered, outcome.answer_ranked) == (True, False)
    assert measure_outcome(play(corpus, [searches, rank("d5")]), Question("q", "?", "", ("d5",))).answer_ranked is None


def test_what_is_left_at_the_end_decides_about_pruning(corpus: MemoryCorpus) -> None:
    def counts(*actions: object) -> tuple[int, ...]:
        outcome = measure_outcome(play(corpus, [search("entry 5", "entry 1", limit=3), *actions]), QUESTION)
        return outcome.clutter, outcome.cleared, outcome.gold_shown, outcome.gold_kept

    clutter = counts(rank("d5"))[0]
    assert clutter >= 2
    assert counts(rank("d5")) == (clutter, 0, 2, 2)

    def prune_all(view: View) -> Action:
        return prune(*(block.id for block in view.blocks))

    def restore_all(view: View) -> Action:
        return restore(*(block.id for block in view.pruned))

    assert counts(prune_all, rank("d5")) == (clutter, clutter, 2, 0)
    assert counts(prune_all, restore_all, rank("d5")) == (clutter, 0, 2, 2)
    assert counts(prune_all, restore("d5_0", "d1_0"), rank("d5")) == (clutter, clutter, 2, 2)


def test_calls_and_queries_that_show_new_evidence_are_told_from_others(corpus: MemoryCorpus) -> None:
    actions = [search("entry 5", "zq xv", "entry 1", limit=1), search("entry 5", limit=1), rank("d5")]
    outcome = measure_outcome(play(corpus, actions), QUESTION)
    assert (outcome.calls, outcome.finding_calls) == ((3, 1), (2, 0))
    assert outcome.queries == ("entry 5", "zq xv", "entry 1", "entry 5")
    assert outcome.finding_queries == ("entry 5", "entry 1")


def test_turns_and_tokens_are_a_share_of_their_limits(corpus: MemoryCorpus) -> None:
    def spent(actions: Sequence[object], limits: Limits) -> float:
        return measure_outcome(play(corpus, actions, limits), QUESTION).spent

    short, long = [search("entry 5"), rank("d5")], [search("entry 5"), search("entry 1"), rank("d5")]
    assert 0 < spent(short, Limits(turns=8)) < spent(long, Limits(turns=8)) < 1
    assert spent(short, Limits(turns=8)) > spent(short, Limits(turns=16))
    assert spent(short, Limits(turns=8, tokens=4_000)) > spent(short, Limits(turns=8, tokens=8_000))
    assert spent([search("entry 5")] * 3, Limits(turns=3, tokens=4_000)) > 0.5
    assert spent([search("entry 5")] * 3, Limits(turns=9, tokens=400)) > 0.5


def test_facts_are_found_by_any_of_their_chunks(corpus: MemoryCorpus) -> None:
    trajectory = play(corpus, [search("entry 5", limit=1), rank_all])
    question = Question("q", "?", facts=(("d5_0", "d9_0"), ("d7_0",)))
    assert measure_outcome(trajectory, question).recall == 0.5


def test_an_aborted_episode_has_no_reward(corpus: MemoryCorpus) -> None:
    def fail(view: object) -> object:
        raise PolicyError("the server is gone")

    trajectory = play(corpus, [search("entry 5"), fail])
    assert is_aborted(trajectory)
    with pytest.raises(DataError, match="was aborted"):
        measure_outcome(trajectory, QUESTION)
    with pytest.raises(DataError, match="no gold"):
        measure_outcome(play(corpus, [search("entry 5"), rank_all]), Question("q", "?"))


def test_without_gold_only_the_verdict_counts(corpus: MemoryCorpus) -> None:
    trajectory = play(corpus, [search("entry 5", limit=1), rank_all])
    bare = Question("q", "?", "SENTINEL-0005")
    outcome = measure_outcome(trajectory, bare, judged=0.5)
    assert (outcome.has_gold, outcome.judged, outcome.precision, outcome.recall, outcome.seen) == (
        False,
        0.5,
        0.0,
        0.0,
        0.0,
    )
    assert outcome.answered is True
    with pytest.raises(DataError, match="has no gold"):
        measure_outcome(trajectory, bare)
    assert measure_outcome(trajectory, QUESTION, judged=0.0).has_gold
