"""A record played again: the same on the same corpus, and what is told where corpus or harness have changed."""

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
from context_agent.tokens import CharCounter
from tests.actions import call, prune, rank_all, restore, search
from tests.conftest import made_documents
from tests.retrieval.fakes import people

QUESTION = "which river meets the bridges?"


def recorded(
    corpus: MemoryCorpus | ChromaCorpus, steps: Sequence[Action], window: int = 4096, **how: object
) -> Trajectory:
    """What a scripted policy leaves."""
    where = how.pop("where", None)
    with SearchAgent(corpus, ScriptedPolicy([*steps, rank_all]), budget=Budget(window), **how) as agent:  # type: ignore[arg-type]
        return agent.search(QUESTION, where=where).trajectories[0]  # type: ignore[arg-type]


def compared(trajectory: Trajectory, corpus: MemoryCorpus | ChromaCorpus, **how: object) -> Difference | None:
    return asyncio.run(rerun(trajectory, corpus, **how))  # type: ignore[arg-type]


def everything(corpus: MemoryCorpus) -> list[Action]:
    """Every tool, edits and mistakes among them."""
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
    result = recorded(corpus, everything(corpus))
    assert result.end is not None
    assert result.end.stop_reason == "finished"
    assert compared(result, corpus) is None


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000), window=st.sampled_from([512, 1024, 4096]), turns=st.integers(1, 6))
def test_whatever_was_played_and_however_it_ended(corpus: MemoryCorpus, seed: int, window: int, turns: int) -> None:
    words = ("rivers", "painters", "operas", "engines and comets", "Title 7")
    steps = [search(*(words[(seed // 7**n + n) % 5] for n in range(1 + seed % 3))) for n in range(turns)]
    result = recorded(corpus, steps, window, limits=Limits(turns=1 + seed % 5))
    assert compared(result, corpus) is None


def test_the_policies_that_ship_can_be_played_again(corpus: MemoryCorpus) -> None:
    with SearchAgent(corpus, budget=2048) as agent:
        made = agent.search("What does Title 7 cite?").trajectories[0]
    assert compared(made, corpus) is None


def test_a_filter_is_played_again(tmp_path: Path) -> None:
    index_documents(people(60), tmp_path)
    with ChromaCorpus.open(tmp_path) as corpus:
        item = recorded(corpus, [search("a guild's ledger")], where={"trade": "weaver"})
        assert item.header.where == {"trade": "weaver"}
        assert compared(item, corpus) is None
        unfiltered = replace(item, header=replace(item.header, where=None))
        result = compared(unfiltered, corpus)
        assert result is not None
        assert result.cause is Cause.NEW


def changed(*, without: str = "", rewritten: str = "", more: Sequence[Document] = ()) -> MemoryCorpus:
    """The small corpus after a document was removed, another rewritten, and others added."""
    documents = [document for document in made_documents() if document.id != without]
    return MemoryCorpus(
        [replace(o, text=o.text + " Amended.") if o.id == rewritten else o for o in documents] + [*more]
    )


def shown(made: Trajectory, turn: int) -> Block:
    events = [item for item in made.events if isinstance(item, ToolResult) and item.turn == turn]
    return next(item for item in events[0].segments if isinstance(item, Block))


def test_a_changed_chunk_is_reported_with_its_turn(corpus: MemoryCorpus) -> None:
    result = recorded(corpus, [call("grep_corpus", pattern="SENTINEL-0003"), call("read_document", doc_id="d9")])
    assert shown(result, 1).document_id == "d9"
    gone = compared(result, changed(without="d9"))
    assert gone is not None
    assert (gone.cause, gone.turn) == (Cause.GONE, 1)
    assert shown(result, 1).id in gone.detail
    assert "read_document 'd9'" in gone.detail
    item = compared(result, changed(rewritten="d9"))
    assert item is not None
    assert (item.cause, item.turn) == (Cause.TEXT, 1)
    first = compared(result, changed(rewritten="d3", without="d9"))
    assert first is not None
    assert (first.cause, first.turn) == (Cause.TEXT, 0)
    assert compared(result, changed(rewritten="d20", without="d21")) is None


def test_a_new_document_is_reported(corpus: MemoryCorpus) -> None:
    item = recorded(corpus, [search("rivers", limit=2), search("the harbour master's ledger", limit=2)])
    more = [Document("d99", "The harbour master's ledger, kept by the harbour master.", "Ledger")]
    result = compared(item, changed(more=more))
    assert result is not None
    assert (result.cause, result.turn) == (Cause.NEW, 1)
    assert "d99" in result.detail


def test_another_order_is_reported(corpus: MemoryCorpus) -> None:
    class Backwards(MemoryCorpus):
        def search(self, query: str, **how: object) -> list:  # type: ignore[override,type-arg]
            return super().search(query, **how)[:3][::-1]  # type: ignore[arg-type]

    item = recorded(corpus, [search("rivers", limit=3)])
    result = compared(item, Backwards(made_documents()))
    assert result is not None
    assert (result.cause, result.turn) == (Cause.RANKS, 0)


def test_another_token_count_is_reported(corpus: MemoryCorpus) -> None:
    class Generous(CharCounter):
        name = "o200k_harmony"

    item = recorded(corpus, [search("rivers", limit=2)])
    result = compared(item, corpus, counter=Generous())
    assert result is not None
    assert (result.cause, result.turn) == (Cause.COUNTER, -1)
    foreign = replace(item, header=replace(item.header, counter="someone's-own"))
    unknown = compared(foreign, corpus)
    assert unknown is not None
    assert unknown.cause is Cause.COUNTER
    assert "someone's-own" in unknown.detail


def test_a_reworded_profile_is_reported(corpus: MemoryCorpus) -> None:
    item = recorded(corpus, [search("rivers", limit=2)])
    old = replace(item.header.profile, usage="[{used} of {window}]")
    worded = recorded(corpus, [search("rivers", limit=2)], profile=None)
    result = compared(replace(worded, header=replace(worded.header, profile=old)), corpus)
    assert result is not None
    assert (result.cause, result.turn) == (Cause.PROFILE, -1)
    assert "usage" in result.detail
    # Under the recorded wording, which the record does not follow, the harness is what differs.
    still = compared(replace(worded, header=replace(worded.header, profile=old)), corpus, recorded_profile=True)
    assert still is not None
    assert (still.cause, still.turn) == (Cause.HARNESS, 0)


def test_a_record_of_another_corpus_is_not_played(corpus: MemoryCorpus) -> None:
    item = recorded(corpus, [search("rivers", limit=2)])
    excluded_ids = replace(item, header=replace(item.header, corpus="chroma:notes@3"))
    result = compared(excluded_ids, corpus)
    assert result is not None
    assert result.cause is Cause.CORPUS
    assert "chroma:notes@3" in result.detail
    assert compared(excluded_ids, corpus, any_corpus=True) is None
    assert [source_of(one) for one in ("chroma:a@b@7", "chroma:a@b@s9", "memory:12ab")] == ["chroma:a@b"] * 2 + [
        "memory"
    ]


def test_a_record_that_is_cut_or_contradicts_itself(corpus: MemoryCorpus) -> None:
    result = recorded(corpus, [search("rivers", limit=2), search("operas", limit=2)])
    torn = compared(Trajectory(result.header, result.events[:-2]), corpus)
    assert torn is not None
    assert (torn.cause, torn.turn) == (Cause.TORN, 1)
    lied = tuple(
        replace(event, total=event.total + 1) if isinstance(event, TurnClosed) else event for event in result.events
    )
    unsound = compared(Trajectory(result.header, lied), corpus)
    assert unsound is not None
    assert unsound.cause is Cause.UNSOUND


def test_an_end_by_the_clock_is_compared_as_far_as_it_goes(corpus: MemoryCorpus) -> None:
    policy = ScriptedPolicy([search("rivers", limit=2), search("operas", limit=2)] * 20, delay=0.05)
    with SearchAgent(corpus, policy, limits=Limits(seconds=0.3)) as agent:
        made = agent.search(QUESTION).trajectories[0]
    assert made.end is not None
    assert made.end.stop_reason == "time"
    assert any(isinstance(event, ActionTaken) for event in made.events)
    assert compared(made, corpus) is None


def test_an_index_on_disk_that_grew_shrank_and_changed(tmp_path: Path) -> None:
    index_documents(people(60), tmp_path)
    steps = [search("the guild of the weavers", limit=3), call("read_document", doc_id="person-17")]
    with ChromaCorpus.open(tmp_path) as corpus:
        item = recorded(corpus, steps)
        assert compared(item, corpus) is None
    amended = [replace(one, text=f"{one.text} Amended.") if one.id == "person-17" else one for one in people(60)]
    index_documents(amended, tmp_path)
    with ChromaCorpus.open(tmp_path) as corpus:
        result = compared(item, corpus)
        assert result is not None
        assert (result.cause, result.turn) == (Cause.TEXT, 1)
    first = shown(item, 0).document_id
    index_documents([one for one in people(60) if one.id != first], tmp_path, remove_missing=True)
    with ChromaCorpus.open(tmp_path) as corpus:
        result = compared(item, corpus)
        assert result is not None
        assert (result.cause, result.turn) == (Cause.GONE, 0)
        assert first in result.detail
    more = Document(
        "guild", "The guild of the weavers. The guild of the weavers and its weavers.", "The guild of the weavers"
    )
    index_documents([*people(60), more], tmp_path)
    with ChromaCorpus.open(tmp_path) as corpus:
        result = compared(item, corpus)
        assert result is not None
        assert (result.cause, result.turn) == (Cause.NEW, 0)
        assert "guild" in result.detail


@pytest.mark.parametrize("window", [512, 4096])
def test_a_record_read_from_a_file_is_the_same(corpus: MemoryCorpus, tmp_path: Path, window: int) -> None:
    from context_agent.harness.trajectory_file import read, write

    result = recorded(corpus, [search("rivers", "operas"), search("gardens")], window)
    write(result, tmp_path / "one.jsonl")
    assert compared(read(tmp_path / "one.jsonl"), corpus) is None
