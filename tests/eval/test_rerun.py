"""Replayed records: the same on the same corpus, and a reported difference if the corpus or the harness changed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from context_agent import Action, Budget, Document, Limits, MemoryCorpus, ScriptedPolicy, SearchAgent, Trajectory
from context_agent.eval.rerun import Cause, Difference, rerun, source_of
from context_agent.pruning.view import ActionTaken, Block, ToolResult, TurnClosed
from context_agent.retrieval.chroma.corpus import ChromaCorpus
from context_agent.retrieval.chroma.indexing import index_documents
from context_agent.testing.actions import call, prune, rank_all, restore, search
from context_agent.testing.documents import linked_documents, people
from context_agent.tokens import CharCounter
from tests.support.held_policy import HeldPolicy

QUESTION = "which river meets the bridges?"


def record_episode(
    corpus: MemoryCorpus | ChromaCorpus, steps: Sequence[Action], window: int = 4096, **options: object
) -> Trajectory:
    """Record an episode of a scripted policy."""
    where = options.pop("where", None)
    with SearchAgent(corpus, ScriptedPolicy([*steps, rank_all]), budget=Budget(window), **options) as agent:  # type: ignore[arg-type]
        return agent.search(QUESTION, where=where).trajectories[0]  # type: ignore[arg-type]


def compare(trajectory: Trajectory, corpus: MemoryCorpus | ChromaCorpus, **options: object) -> Difference | None:
    return asyncio.run(rerun(trajectory, corpus, **options))  # type: ignore[arg-type]


def all_tools(corpus: MemoryCorpus) -> list[Action]:
    """Steps with every tool, including edits and mistakes."""
    first = corpus.search(QUESTION)[0].chunk.id
    return [
        search(QUESTION, "painters and gardens", limit=2),
        prune(first, "never-seen"),
        call("grep_corpus", pattern="SENTINEL-000[0-3]"),
        call("grep_corpus", pattern="("),
        call("read_document", doc_id="d9"),
        call("read_document", doc_id="nowhere"),
        call("no_such_tool", x=1),
        restore(first),
    ]


def test_the_same_corpus_shows_the_same_views(corpus: MemoryCorpus) -> None:
    trajectory = record_episode(corpus, all_tools(corpus))
    assert trajectory.end is not None
    assert trajectory.end.stop_reason == "finished"
    assert compare(trajectory, corpus) is None


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), window=st.sampled_from([512, 1024, 4096]), turns=st.integers(1, 6))
def test_whatever_was_played_and_however_it_ended(corpus: MemoryCorpus, seed: int, window: int, turns: int) -> None:
    words = ("rivers", "painters", "operas", "engines and comets", "Title 7")
    steps = [search(*(words[(seed // 7**n + n) % 5] for n in range(1 + seed % 3))) for n in range(turns)]
    trajectory = record_episode(corpus, steps, window, limits=Limits(turns=1 + seed % 5))
    assert compare(trajectory, corpus) is None


def test_the_policies_that_ship_can_be_played_again(corpus: MemoryCorpus) -> None:
    with SearchAgent(corpus, budget=2048) as agent:
        trajectory = agent.search("What does Title 7 cite?").trajectories[0]
    assert compare(trajectory, corpus) is None


def test_a_filter_is_played_again(tmp_path: Path) -> None:
    index_documents(people(60), tmp_path)
    with ChromaCorpus.open(tmp_path) as corpus:
        trajectory = record_episode(corpus, [search("a guild's ledger")], where={"trade": "weaver"})
        assert trajectory.header.where == {"trade": "weaver"}
        assert compare(trajectory, corpus) is None
        unfiltered = replace(trajectory, header=replace(trajectory.header, where=None))
        difference = compare(unfiltered, corpus)
        assert difference is not None
        assert difference.cause is Cause.NEW


def changed_corpus(*, without: str = "", rewritten: str = "", more: Sequence[Document] = ()) -> MemoryCorpus:
    """The small corpus with a document removed, another rewritten, and others added."""
    documents = [document for document in linked_documents() if document.id != without]
    return MemoryCorpus(
        [
            replace(document, text=document.text + " Amended.") if document.id == rewritten else document
            for document in documents
        ]
        + [*more]
    )


def first_block(trajectory: Trajectory, turn: int) -> Block:
    events = [event for event in trajectory.events if isinstance(event, ToolResult) and event.turn == turn]
    return next(segment for segment in events[0].segments if isinstance(segment, Block))


def test_a_changed_chunk_is_reported_with_its_turn(corpus: MemoryCorpus) -> None:
    trajectory = record_episode(
        corpus, [call("grep_corpus", pattern="SENTINEL-0003"), call("read_document", doc_id="d9")]
    )
    assert first_block(trajectory, 1).document_id == "d9"
    removal = compare(trajectory, changed_corpus(without="d9"))
    assert removal is not None
    assert (removal.cause, removal.turn) == (Cause.GONE, 1)
    assert first_block(trajectory, 1).id in removal.detail
    assert "read_document 'd9'" in removal.detail
    rewrite = compare(trajectory, changed_corpus(rewritten="d9"))
    assert rewrite is not None
    assert (rewrite.cause, rewrite.turn) == (Cause.TEXT, 1)
    earliest = compare(trajectory, changed_corpus(rewritten="d3", without="d9"))
    assert earliest is not None
    assert (earliest.cause, earliest.turn) == (Cause.TEXT, 0)
    assert compare(trajectory, changed_corpus(rewritten="d20", without="d21")) is None


def test_a_new_document_is_reported(corpus: MemoryCorpus) -> None:
    trajectory = record_episode(corpus, [search("rivers", limit=2), search("the harbour master's ledger", limit=2)])
    added = [Document("d99", "The harbour master's ledger, kept by the harbour master.", "Ledger")]
    difference = compare(trajectory, changed_corpus(more=added))
    assert difference is not None
    assert (difference.cause, difference.turn) == (Cause.NEW, 1)
    assert "d99" in difference.detail


def test_another_order_is_reported(corpus: MemoryCorpus) -> None:
    class Backwards(MemoryCorpus):
        def search(self, query: str, **options: object) -> list:  # type: ignore[override,type-arg]
            return super().search(query, **options)[:3][::-1]  # type: ignore[arg-type]

    trajectory = record_episode(corpus, [search("rivers", limit=3)])
    difference = compare(trajectory, Backwards(linked_documents()))
    assert difference is not None
    assert (difference.cause, difference.turn) == (Cause.RANKS, 0)


def test_another_token_count_is_reported(corpus: MemoryCorpus) -> None:
    class Generous(CharCounter):
        name = "o200k_harmony"

    trajectory = record_episode(corpus, [search("rivers", limit=2)])
    difference = compare(trajectory, corpus, counter=Generous())
    assert difference is not None
    assert (difference.cause, difference.turn) == (Cause.COUNTER, -1)
    relabeled = replace(trajectory, header=replace(trajectory.header, counter="someone's-own"))
    unknown_counter = compare(relabeled, corpus)
    assert unknown_counter is not None
    assert unknown_counter.cause is Cause.COUNTER
    assert "someone's-own" in unknown_counter.detail


def test_a_reworded_profile_is_reported(corpus: MemoryCorpus) -> None:
    trajectory = record_episode(corpus, [search("rivers", limit=2)])
    old_profile = replace(trajectory.header.profile, usage="[{used} of {window}]")
    reworded = record_episode(corpus, [search("rivers", limit=2)], profile=None)
    difference = compare(replace(reworded, header=replace(reworded.header, profile=old_profile)), corpus)
    assert difference is not None
    assert (difference.cause, difference.turn) == (Cause.PROFILE, -1)
    assert "usage" in difference.detail
    # The record does not follow its recorded wording, so with that wording the harness differs.
    harness_difference = compare(
        replace(reworded, header=replace(reworded.header, profile=old_profile)), corpus, recorded_profile=True
    )
    assert harness_difference is not None
    assert (harness_difference.cause, harness_difference.turn) == (Cause.HARNESS, 0)


def test_a_record_of_another_corpus_is_not_played(corpus: MemoryCorpus) -> None:
    trajectory = record_episode(corpus, [search("rivers", limit=2)])
    relabeled = replace(trajectory, header=replace(trajectory.header, corpus="chroma:notes@3"))
    difference = compare(relabeled, corpus)
    assert difference is not None
    assert difference.cause is Cause.CORPUS
    assert "chroma:notes@3" in difference.detail
    assert compare(relabeled, corpus, any_corpus=True) is None
    assert [source_of(name) for name in ("chroma:a@b@7", "chroma:a@b@s9", "memory:12ab")] == ["chroma:a@b"] * 2 + [
        "memory"
    ]


def test_a_record_that_is_cut_or_contradicts_itself(corpus: MemoryCorpus) -> None:
    trajectory = record_episode(corpus, [search("rivers", limit=2), search("operas", limit=2)])
    torn = compare(Trajectory(trajectory.header, trajectory.events[:-2]), corpus)
    assert torn is not None
    assert (torn.cause, torn.turn) == (Cause.TORN, 1)
    wrong_totals = tuple(
        replace(event, total=event.total + 1) if isinstance(event, TurnClosed) else event for event in trajectory.events
    )
    unsound = compare(Trajectory(trajectory.header, wrong_totals), corpus)
    assert unsound is not None
    assert unsound.cause is Cause.UNSOUND


def test_an_end_by_the_clock_is_compared_as_far_as_it_goes(corpus: MemoryCorpus) -> None:
    policy = HeldPolicy([search("rivers", limit=2), search("operas", limit=2)], at=2)
    with SearchAgent(corpus, policy, limits=Limits(seconds=0.5)) as agent:
        trajectory = agent.search(QUESTION).trajectories[0]
    assert trajectory.end is not None
    assert trajectory.end.stop_reason == "time"
    assert any(isinstance(event, ActionTaken) for event in trajectory.events)
    assert compare(trajectory, corpus) is None


def test_an_index_on_disk_that_grew_shrank_and_changed(tmp_path: Path) -> None:
    index_documents(people(60), tmp_path)
    steps = [search("the guild of the weavers", limit=3), call("read_document", doc_id="person-17")]
    with ChromaCorpus.open(tmp_path) as corpus:
        trajectory = record_episode(corpus, steps)
        assert compare(trajectory, corpus) is None
    documents = [
        replace(document, text=f"{document.text} Amended.") if document.id == "person-17" else document
        for document in people(60)
    ]
    index_documents(documents, tmp_path)
    with ChromaCorpus.open(tmp_path) as corpus:
        difference = compare(trajectory, corpus)
        assert difference is not None
        assert (difference.cause, difference.turn) == (Cause.TEXT, 1)
    first_id = first_block(trajectory, 0).document_id
    index_documents([document for document in people(60) if document.id != first_id], tmp_path, remove_missing=True)
    with ChromaCorpus.open(tmp_path) as corpus:
        difference = compare(trajectory, corpus)
        assert difference is not None
        assert (difference.cause, difference.turn) == (Cause.GONE, 0)
        assert first_id in difference.detail
    added = Document(
        "guild", "The guild of the weavers. The guild of the weavers and its weavers.", "The guild of the weavers"
    )
    index_documents([*people(60), added], tmp_path)
    with ChromaCorpus.open(tmp_path) as corpus:
        difference = compare(trajectory, corpus)
        assert difference is not None
        assert (difference.cause, difference.turn) == (Cause.NEW, 0)
        assert "guild" in difference.detail


@pytest.mark.parametrize("window", [512, 4096])
def test_a_record_read_from_a_file_is_the_same(corpus: MemoryCorpus, tmp_path: Path, window: int) -> None:
    from context_agent.harness.trajectory_file import read, write

    trajectory = record_episode(corpus, [search("rivers", "operas"), search("gardens")], window)
    write(trajectory, tmp_path / "one.jsonl")
    assert compare(read(tmp_path / "one.jsonl"), corpus) is None
