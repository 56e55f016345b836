"""What an episode refuses when it begins, and what it counts. The order of its turn is in tests/test_promises.py."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from context_agent import Action, Episode, Limits, MemoryCorpus, View
from context_agent.budget import Budget
from context_agent.errors import BudgetError, ConfigError
from context_agent.harness.episode import EpisodeRequest, Listener, StopReason
from context_agent.harness.policy import Assessment, Instructions
from context_agent.harness.profile import default, lean
from context_agent.harness.tools import SPAWN
from context_agent.harness.tools.tool import ToolOutput
from context_agent.harness.trajectory import Header
from context_agent.pruning.view import (
    ActionTaken,
    EpisodeEnded,
    Event,
    PromptShown,
    Role,
    Source,
    SubAgentRecord,
    TurnClosed,
    fold,
)
from context_agent.retrieval.filters import MAX_DEPTH
from context_agent.testing.actions import call, rank, search
from context_agent.tokens import HarmonyCounter
from context_agent.types import RankedId
from context_agent.version import __version__


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
    assert (header.version, header.counter) == (__version__, HarmonyCounter().name)
    assert header.limits == {"turns": header.profile.turns, "seconds": 60, "tokens": None, "calls": 16}
    assert Episode("comets?", corpus).header.id != Episode("comets?", corpus).header.id
    assert Episode("comets?", corpus).header.seed == 0
    assert EpisodeRequest("comets?").k == 10, "so many documents a search returns by default"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", header.started), "UTC, to the second"


@pytest.mark.parametrize("name", ["turns", "seconds", "tokens", "calls"])
def test_a_limit_is_one_or_more(name: str) -> None:
    assert getattr(Limits(**{name: 1}), name) == 1
    with pytest.raises(ConfigError, match=f"{name} must be positive; got 0"):
        Limits(**{name: 0})


def test_limits_of_numpy_become_those_of_python_and_only_seconds_may_have_a_fraction() -> None:
    limits = Limits(turns=np.int64(2), seconds=np.float32(1.5), tokens=np.int32(9))  # type: ignore[arg-type]
    assert [type(value) for value in (limits.turns, limits.seconds, limits.tokens)] == [int, float, int]
    with pytest.raises(ConfigError, match="`turns` must be a whole number"):
        Limits(turns=1.5)  # type: ignore[arg-type]


def test_a_budget_in_the_request_replaces_the_others_and_a_number_is_a_window(corpus: MemoryCorpus) -> None:
    other = Budget(4_096)
    for profile in (default(), lean()):
        request = EpisodeRequest("comets?", budget=2_048)
        assert Episode(request, corpus, profile=profile, budget=other).budget == profile.budget(2_048)
    own = Budget(2_048, reserve=64)
    assert Episode(EpisodeRequest("comets?", budget=own), corpus, budget=other, instructions="").budget == own
    assert Episode("comets?", corpus, budget=other, instructions="").budget == other


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


async def test_the_tokens_of_sub_agents_count_toward_the_limit(corpus: MemoryCorpus) -> None:
    class Searchers:
        async def search(
            self, requests: Sequence[Sequence[str]], *, tokens_left: int | None, shown_ids: frozenset[str]
        ) -> list[ToolOutput]:
            records = tuple(SubAgentRecord(task, task, "finished", tokens=700) for task in requests[0])
            return [ToolOutput(Source.SPAWN, message="done", delegated=records)]

    profile = replace(default(), tools=(*default().tools, SPAWN))
    request = EpisodeRequest("comets?", sub_agents=Searchers())
    episode = Episode(request, corpus, profile=profile, limits=Limits(tokens=9_000))
    for turn in (1, 2):
        await episode.step(call(SPAWN, tasks=["comets", "operas"]))
        assert episode.tokens_left == 9_000 - episode.spent - turn * 2 * 700


async def test_an_episode_whose_window_has_no_room_for_another_action_ends(corpus: MemoryCorpus) -> None:
    episode = Episode("comets?", corpus, budget=Budget(2_048), instructions="")
    view = await episode.step(search("comets", limit=2))
    await episode.step(replace(search("operas"), tokens=view.max_output))
    assert episode.stop_reason is StopReason.WINDOW
    assert {document.id for document in episode.ranking.documents} == {block.document_id for block in view.blocks}


async def test_advice_is_given_when_the_view_reaches_the_soft_threshold_in_whatever_turn(corpus: MemoryCorpus) -> None:
    size = (await Episode("comets?", corpus, instructions="").step(search("comets", limit=2))).latest
    used = Episode("comets?", corpus, instructions="").open().tokens + sum(segment.tokens for segment in size[:-1])
    advised = {}
    for soft in (used, used + 1):
        episode = Episode("comets?", corpus, budget=Budget(32_768, soft=soft), instructions="")
        await episode.step(search("comets", limit=2))
        advised[soft - used] = default().soft_advice in episode.view.text()
    assert advised == {0: True, 1: False}


async def test_a_usage_line_may_say_the_share_of_the_window(corpus: MemoryCorpus) -> None:
    view = await Episode("comets?", corpus, profile=lean()).step(search("comets"))
    used = view.tokens - view.segments[-1].tokens
    assert view.segments[-1].text.startswith(f"[{used / view.budget.window:.0%} full]")


async def test_a_usage_line_that_does_not_fit_the_window_is_left_out(corpus: MemoryCorpus) -> None:
    episode = Episode("comets?", corpus, budget=Budget(512, reserve=8), instructions="")
    view = episode.open()
    view = await episode.step(replace(search("comets"), tokens=view.max_output))
    (closed,) = (event for event in episode.trajectory.events if isinstance(event, TurnClosed))
    assert (closed.segment.text, closed.segment.tokens) == ("", 0)
    assert closed.total == view.tokens <= 512


async def test_the_end_counts_the_mistakes_and_the_seconds(corpus: MemoryCorpus) -> None:
    started = time.perf_counter()
    episode = Episode("comets?", corpus, limits=Limits(turns=3))
    await episode.step(search("comets", limit=2))
    await episode.step(call("search_corpus", query=""))
    await episode.step(call("no_such_tool"))
    end = episode.trajectory.end
    assert end is not None
    assert (end.stop_reason, end.turns, end.mistakes) == ("turns", 3, 2)
    taken = [event.seconds for event in episode.trajectory.events if isinstance(event, ActionTaken)]
    assert 0 <= sum(taken) <= end.seconds <= time.perf_counter() - started


async def test_the_view_has_the_action_as_it_was_given(corpus: MemoryCorpus) -> None:
    action = search("comets")
    view = await Episode("comets?", corpus).step(action)
    assert [segment.action for segment in view.segments if getattr(segment, "role", None) is Role.ACTION] == [action]


async def test_an_assessment_gives_the_confidence_and_the_scores_of_the_passages(corpus: MemoryCorpus) -> None:
    assessed: dict[str, float] = {}
    episode = Episode("comets?", corpus, assess=lambda: Assessment(0.75, assessed))
    view = await episode.step(search("comets", limit=1))
    (block,) = view.blocks
    assessed[block.id] = 0.25
    await episode.step(rank(block.document_id))
    assert [chunk.score for chunk in episode.ranking.documents[0].chunks] == [0.25]
    assert episode.trajectory.end is not None
    assert (episode.confidence, episode.trajectory.end.confidence) == (0.75, 0.75)


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
    assert episode.trajectory.end is not None
    assert episode.trajectory.end.error == "the user left"
    assert len(list(episode.trajectory.replay())) == 2


async def test_a_final_text_may_contain_the_ranking(corpus: MemoryCorpus) -> None:
    episode = Episode("comets?", corpus)
    view = await episode.step(search("comets", limit=3))
    last = view.blocks[-1].document_id
    await episode.step(Action(text=f"<Document id={last}><Justification>It is the last.</Justification></Document>"))
    assert [(document.id, document.justification) for document in episode.ranking.documents] == [
        (last, "It is the last.")
    ]
    assert episode.stop_reason is StopReason.FINISHED


async def test_a_policy_that_can_rank_at_any_moment_ranks_when_a_limit_ends_the_episode(corpus: MemoryCorpus) -> None:
    def last_shown(view: View) -> tuple[RankedId, ...]:
        return (RankedId(view.blocks[-1].id),)

    episode = Episode("comets?", corpus, limits=Limits(turns=1), partial=last_shown)
    view = await episode.step(search("comets", limit=3))
    assert episode.stop_reason is StopReason.TURNS
    assert [document.id for document in episode.ranking.documents] == [view.blocks[-1].document_id]


async def test_listeners_get_each_event_with_the_view_after_it(corpus: MemoryCorpus) -> None:
    heard: list[tuple[Event, View]] = []
    headers: list[Header] = []

    def observe(header: Header) -> Listener:
        headers.append(header)
        return lambda event, view: heard.append((event, view))

    def listen(event: Event, view: View) -> None:
        heard.append((event, view))

    episode = Episode(EpisodeRequest("comets?", listeners=[listen]), corpus, observers=[observe])
    await episode.step(search("comets", limit=3))
    await episode.step(rank())
    assert headers == [episode.header]
    assert heard[::2] == heard[1::2], "the observers' listener and the request's"
    assert [event for event, _ in heard[::2]] == list(episode.trajectory.events)
    for (_, before), (event, after) in pairwise(heard[::2]):
        assert after == fold(before, event)


def test_without_instructions_the_first_view_is_the_question(corpus: MemoryCorpus) -> None:
    assert [segment.text for segment in Episode("comets?", corpus, instructions="").open().segments] == [
        "Question: comets?\n"
    ]


async def test_an_empty_ranking_is_final_and_one_of_unknown_ids_is_not(corpus: MemoryCorpus) -> None:
    ends = {}
    for name, action in {"empty": rank(), "unknown": rank("no such document")}.items():
        episode = Episode("comets?", corpus)
        await episode.step(search("comets", limit=2))
        await episode.step(action)
        ends[name] = (episode.stop_reason, len(episode.ranking.documents))
    assert ends == {"empty": (StopReason.FINISHED, 0), "unknown": (StopReason.NO_RANKING, 2)}


async def test_a_profile_that_fills_rankings_leaves_an_empty_one_empty(corpus: MemoryCorpus) -> None:
    episode = Episode("comets?", corpus, profile=lean())
    await episode.step(search("comets", limit=2))
    await episode.step(rank())
    assert (episode.stop_reason, episode.ranking.documents) == (StopReason.FINISHED, ())
