"""What an episode refuses when it begins, and what it counts. The order of its turn is in tests/test_promises.py."""

from __future__ import annotations

import pytest

from context_agent import Episode, Limits, MemoryCorpus
from context_agent.errors import BudgetError, ConfigError
from context_agent.harness.episode import EpisodeRequest, StopReason
from context_agent.harness.policy import Instructions
from context_agent.pruning.budget import Budget
from context_agent.pruning.view import EpisodeEnded, PromptShown
from context_agent.retrieval.filters import MAX_DEPTH
from context_agent.testing.actions import rank, search


def test_a_filter_that_no_store_could_run_is_refused_before_the_first_call(corpus: MemoryCorpus) -> None:
    where: dict[str, object] = {"year": 2020}
    for _ in range(MAX_DEPTH):
        where = {"$and": [where]}
    with pytest.raises(ConfigError, match="levels"):
        Episode(EpisodeRequest("comets?", where=where), corpus)


def test_the_header_says_what_was_requested(corpus: MemoryCorpus) -> None:
    where = {"year": 2020}
    request = EpisodeRequest("comets?", where=where, seed=7, question_id="q1", id="e1", parent="e0")
    header = Episode(request, corpus, limits=Limits(seconds=60), policy="scripted").header
    assert (header.question, header.where, header.seed, header.question_id) == ("comets?", where, 7, "q1")
    assert (header.id, header.parent, header.policy, header.corpus) == ("e1", "e0", "scripted", corpus.name)
    assert header.limits == {"turns": header.profile.turns, "seconds": 60, "tokens": None, "calls": 16}
    assert Episode("comets?", corpus).header.id != Episode("comets?", corpus).header.id


async def test_what_is_left_of_the_tokens_is_the_limit_less_what_was_placed(corpus: MemoryCorpus) -> None:
    episode = Episode("comets?", corpus, limits=Limits(tokens=9_000))
    view = episode.open()
    assert {segment.turn for segment in view.segments} == {-1}, "the prompt is no part of the first turn"
    assert episode.spent == view.tokens > 0
    assert episode.tokens_left == 9_000 - view.tokens
    view = await episode.step(search("comets", limit=2))
    assert episode.spent == view.tokens
    assert episode.tokens_left == 9_000 - view.tokens
    await episode.step(rank("d1"))
    assert episode.trajectory.end is not None
    assert episode.trajectory.end.tokens == episode.spent


def test_the_question_and_the_instructions_stay_below_the_soft_threshold_together(corpus: MemoryCorpus) -> None:
    budget = Budget(2_048)
    question = Episode("comets?", corpus, instructions="", budget=budget).open().tokens
    most = budget.soft - question - 1
    view = Episode("comets?", corpus, instructions=Instructions("Find it.", tokens=most), budget=budget).open()
    assert view.tokens == budget.soft - 1
    with pytest.raises(BudgetError, match="1,024 tokens"):
        Episode("comets?", corpus, instructions=Instructions("Find it.", tokens=most + 1), budget=budget)


def test_an_episode_that_is_stopped_before_its_first_action_has_a_record(corpus: MemoryCorpus) -> None:
    episode = Episode("comets?", corpus)
    episode.stop(StopReason.CANCELLED, error="the user left")
    assert [type(event) for event in episode.trajectory.events] == [PromptShown, EpisodeEnded]
    assert len(list(episode.trajectory.replay())) == 2


async def test_an_empty_ranking_is_final_and_one_of_unknown_ids_is_not(corpus: MemoryCorpus) -> None:
    ends = {}
    for name, action in {"empty": rank(), "unknown": rank("no such document")}.items():
        episode = Episode("comets?", corpus)
        await episode.step(search("comets", limit=2))
        await episode.step(action)
        ends[name] = (episode.stop_reason, len(episode.ranking.documents))
    assert ends == {"empty": (StopReason.FINISHED, 0), "unknown": (StopReason.NO_RANKING, 2)}
