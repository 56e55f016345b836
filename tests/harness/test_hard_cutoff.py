"""The hard cutoff at its exact boundary: a view as large as the cutoff is past it, one token less is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from context_agent import Budget, Episode, Limits, MemoryCorpus
from context_agent.budget import Tier
from context_agent.harness.episode import EpisodeRequest
from context_agent.harness.profile import default
from context_agent.harness.tools import SPAWN
from context_agent.harness.tools.tool import ToolOutput
from context_agent.pruning.view import Source, ToolResult
from context_agent.testing.actions import call, search
from context_agent.tokens import HarmonyCounter


class RecordingSubAgents:
    """Notes the size of the view in which sub-agents are to start, and the tokens that they may have."""

    def __init__(self) -> None:
        self.episode: Episode | None = None
        self.view_tokens = -1
        self.tokens_left: int | None = -1

    async def search(
        self, requests: Sequence[Sequence[str]], *, tokens_left: int | None, shown_ids: frozenset[str]
    ) -> list[ToolOutput]:
        assert self.episode is not None
        self.view_tokens, self.tokens_left = self.episode.view.tokens, tokens_left
        return [ToolOutput(Source.SPAWN, message="done")] * len(requests)


async def spawned_after_a_search(corpus: MemoryCorpus, hard: int) -> tuple[RecordingSubAgents, str | None]:
    """Search, then start sub-agents; return what they were given, and the mistake of their call."""
    sub_agents = RecordingSubAgents()
    profile = replace(default(), tools=(*default().tools, SPAWN))
    episode = Episode(
        EpisodeRequest("comets?", sub_agents=sub_agents),
        corpus,
        profile=profile,
        budget=Budget(8192, soft=hard, hard=hard, per_call=256),
        limits=Limits(tokens=100_000),
        instructions="",
    )
    sub_agents.episode = episode
    await episode.step(search("comets", limit=2))
    await episode.step(call(SPAWN, tasks=["operas"]))
    return sub_agents, [event for event in episode.trajectory.events if isinstance(event, ToolResult)][-1].mistake


async def test_a_view_as_large_as_the_hard_cutoff_is_past_it(corpus: MemoryCorpus) -> None:
    free, mistake = await spawned_after_a_search(corpus, hard=6000)
    size = free.view_tokens
    assert mistake is None
    below, mistake = await spawned_after_a_search(corpus, hard=size + 1)
    assert (below.view_tokens, below.tokens_left, mistake) == (size, free.tokens_left, None)
    assert below.tokens_left
    reached, mistake = await spawned_after_a_search(corpus, hard=size)
    assert (reached.view_tokens, reached.tokens_left, mistake) == (size, 0, "hard_cutoff")


async def test_the_refusal_is_cut_to_what_is_left_of_the_window(corpus: MemoryCorpus) -> None:
    counter = HarmonyCounter()
    episode = Episode("comets?", corpus, budget=Budget(2_048), instructions="", counter=counter)
    left = episode.open().max_output
    view = await episode.step(replace(search("comets"), tokens=left))
    (result,) = (event for event in episode.trajectory.events if isinstance(event, ToolResult))
    (refusal,) = result.segments
    whole = default().hard_refusal.format(used=view.budget.window - view.budget.reserve, window=view.budget.window)
    assert whole.startswith(refusal.text)
    assert 0 < refusal.tokens == counter.count(refusal.text)
    assert view.tokens <= view.budget.window


def test_the_tiers_begin_at_their_thresholds() -> None:
    budget = Budget(8192, soft=1000, hard=2000)
    tiers = [budget.tier(tokens) for tokens in (999, 1000, 1999, 2000)]
    assert tiers == [Tier.OPEN, Tier.SOFT, Tier.SOFT, Tier.HARD]
