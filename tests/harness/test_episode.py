"""What an episode refuses when it begins, and what it counts. The order of its turn is in tests/test_promises.py."""

from __future__ import annotations

import pytest

from context_agent import Episode, Limits, MemoryCorpus
from context_agent.errors import ConfigError
from context_agent.harness.episode import EpisodeRequest
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
    assert episode.spent == view.tokens > 0
    assert episode.tokens_left == 9_000 - view.tokens
    view = await episode.step(search("comets", limit=2))
    assert episode.spent == view.tokens
    assert episode.tokens_left == 9_000 - view.tokens
    await episode.step(rank("d1"))
    assert episode.trajectory.end is not None
    assert episode.trajectory.end.tokens == episode.spent
