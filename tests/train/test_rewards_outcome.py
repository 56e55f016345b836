from __future__ import annotations

from collections.abc import Sequence

import pytest

from context_agent import MemoryCorpus, ScriptedPolicy, SearchAgent, Trajectory
from context_agent._support.question_files import Question
from context_agent.errors import DataError, PolicyError
from context_agent.harness.episode import Limits
from context_agent.train.rewards import Ending, RewardConfig, compute_reward, is_aborted, measure_outcome
from tests.actions import call, prune, rank, rank_all, search

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
    assert measure_outcome(play(corpus, [search("comets")] * 3, Limits(turns=2)), QUESTION).ending is Ending.CUT
    assert measure_outcome(play(corpus, [search("comets"), rank("nothing")]), QUESTION).ending is Ending.MALFORMED


def test_the_output_may_be_the_head_of_the_ranking(corpus: MemoryCorpus) -> None:
    def output(*ranking: str, depth: int) -> float:
        outcome = measure_outcome(play(corpus, [search("entry 5", "entry 1", limit=6), rank(*ranking)]), QUESTION)
        return compute_reward(outcome, RewardConfig(output_depth=depth)).terms["output"]

    # 17 P R / (16 P + R), with a weight of 0.7.
    assert output("d5", "d1", "d15", "d25", depth=2) == pytest.approx(0.7)
    assert output("d5", "d15", "d1", "d25", depth=2) == pytest.approx(0.35)
    assert output("d15", "d25", "d5", "d1", depth=2) == 0
    assert output("d5", "d1", depth=5) == pytest.approx(0.7)
    assert output("d5", "d1", "d15", "d25", depth=0) == output("d15", "d25", "d5", "d1", depth=0)


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
    assert (outcome.golden, outcome.judged, outcome.precision, outcome.recall, outcome.seen) == (
        False,
        0.5,
        0.0,
        0.0,
        0.0,
    )
    assert outcome.answered is True
    with pytest.raises(DataError, match="has no gold"):
        measure_outcome(trajectory, bare)
    assert measure_outcome(trajectory, QUESTION, judged=0.0).golden
