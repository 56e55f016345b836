"""Episodes of random actions, good and bad, for tests of what holds in every episode."""

from __future__ import annotations

import random

from context_agent import Action, Budget, Episode, MemoryCorpus, Profile, ToolCall, View
from context_agent.harness.profile import SUMMARIZE
from context_agent.testing.actions import rank_all
from context_agent.testing.documents import TOPICS

QUERIES = [f"{topic} and {other}" for topic in TOPICS for other in TOPICS if topic != other]


def random_action(view: View, draw: random.Random) -> Action:
    """Return a turn of one to five calls, good and bad, edits among them."""
    known_ids = [block.id for block in (*view.blocks, *view.pruned)] or ["none"]
    chunk_ids = draw.sample(known_ids, min(len(known_ids), draw.randint(1, 6)))
    choices = [
        ToolCall("search_corpus", {"query": draw.choice(QUERIES), "limit": draw.randint(1, 10)}),
        ToolCall("search_corpus", {"query": draw.choice(QUERIES)}),
        ToolCall(
            "grep_corpus", {"pattern": draw.choice(["SENTINEL-00[0-3]", "comets", "nowhere", "(", "Title 1[0-9]"])}
        ),
        ToolCall("read_document", {"doc_id": draw.choice(["d1", "d44", "d59_0", "missing"])}),
        ToolCall("prune_chunks", {"chunk_ids": chunk_ids}),
        ToolCall("prune_chunks", {"chunk_ids": [*chunk_ids, "unknown"]}),
        ToolCall("prune_chunks", {"all_but": chunk_ids}),
        ToolCall("restore_chunks", {"chunk_ids": chunk_ids}),
        ToolCall("search_corpus", '{"query": broken'),
        ToolCall("fly_to_moon", {"speed": 3}),
        ToolCall(
            "multi_tool_use",
            {"tool_calls": [{"tool_name": "functions.search_corpus", "parameters": {"query": draw.choice(QUERIES)}}]},
        ),
    ]
    if SUMMARIZE in view.tools:
        choices += random_summaries(view, draw)
    text = "thinking " * draw.choice([0, 0, 5, 200])
    return Action(calls=tuple(draw.choice(choices) for _ in range(draw.randint(1, 5))), text=text)


def random_summaries(view: View, draw: random.Random) -> list[ToolCall]:
    """Summaries good and bad: of blocks and of summaries, with one that is empty, too long or false among them."""
    known_ids = [block.id for block in view.editable] or ["none"]
    chunk_ids = draw.sample(known_ids, min(len(known_ids), draw.randint(1, 8)))
    text = " ".join(draw.choice(TOPICS) for _ in range(draw.randint(1, 30)))
    arguments = [
        {"chunk_ids": chunk_ids, "summary": text},
        {"chunk_ids": chunk_ids, "summary": f"{text} [[{chunk_ids[0]}]]"},
        {"all_but": chunk_ids[:2], "summary": text},
        {"chunk_ids": [*chunk_ids, "unknown"], "summary": text},
        {"chunk_ids": chunk_ids, "summary": draw.choice(["", "word " * 3000, "as [[never_0]] says"])},
    ]
    edits = [ToolCall("summarize_context", item) for item in arguments]
    plain = [("restore_chunks", "chunk_ids"), ("prune_chunks", "all_but"), ("prune_chunks", "chunk_ids")]
    return [*edits, *edits, *(ToolCall(name, {key: chunk_ids}) for name, key in plain)]


async def random_episode(
    corpus: MemoryCorpus, seed: int, *, window: int = 4096, profile: Profile | None = None, turns: int = 12
) -> tuple[Episode, list[View]]:
    """Return an episode of random actions, and the views in it."""
    draw = random.Random(seed)
    episode = Episode("comets and bridges?", corpus, budget=Budget(window), profile=profile, instructions="Be brief.\n")
    views = [episode.open()]
    for _ in range(turns):
        if episode.done:
            break
        views.append(await episode.step(random_action(views[-1], draw)))
    if not episode.done:
        views.append(await episode.step(rank_all(views[-1])))
    return episode, views
