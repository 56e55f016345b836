"""SearchAgent: results, rollouts, streaming, limits and failures."""

from __future__ import annotations

import asyncio
import errno
import json
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from context_agent import (
    Action,
    Budget,
    Document,
    Limits,
    MemoryCorpus,
    Progress,
    RankedId,
    ScriptedPolicy,
    SearchAgent,
    SearchResult,
    View,
)
from context_agent.errors import BudgetError, ConfigError, CorpusError, EmbedderError, PolicyError, RerankerError
from context_agent.harness.deadline import Deadline
from context_agent.harness.episode import Listener
from context_agent.harness.policy import Actor, Assessment
from context_agent.harness.profile import Profile
from context_agent.harness.ranking import pool
from context_agent.harness.trajectory import Header
from context_agent.harness.trajectory_file import TrajectoryWriter, read
from context_agent.pruning.view import ActionTaken, Block, EpisodeEnded, ToolResult
from context_agent.retrieval.corpus import Corpus
from context_agent.testing.actions import prune, rank, rank_all, search
from context_agent.types import Hit, RankedChunk, RankedDocument
from tests.support.descriptors import open_files
from tests.support.held_policy import HeldPolicy


def test_a_search_gives_ranked_documents_with_their_passages(corpus: MemoryCorpus) -> None:
    agent = SearchAgent(corpus, ScriptedPolicy([search("comets and operas", limit=3), rank_all]))
    result = agent.search("comets?", k=2, question_id="q7")
    assert len(result.documents) == 2
    first = result.documents[0]
    assert first.title.startswith("Title")
    assert first.chunks[0].text
    assert result.stop_reason == "finished"
    assert result.turns == 1
    assert result.tokens > 0
    data = json.loads(json.dumps(result.to_json()))
    assert list(data) == [
        "id",
        "question",
        "documents",
        "sufficient",
        "confidence",
        "stop_reason",
        "turns",
        "tokens",
        "critical_steps",
        "trajectory",
        "error",
    ]
    assert data["id"] == "q7"
    assert (data["sufficient"], data["confidence"]) == (None, None), "the policy gives no probability"
    assert set(data["documents"][0]) == {"id", "title", "score", "chunks"}
    assert set(data["documents"][0]["chunks"][0]) == {"id", "text", "score"}


def test_a_final_message_is_parsed_in_its_order(corpus: MemoryCorpus) -> None:
    def finish(view: View) -> Action:
        ids = [block.document_id for block in view.blocks][:3][::-1]
        return Action(
            text="\n".join(f"<Document id={item}><Justification>why</Justification></Document>" for item in ids)
        )

    result = SearchAgent(corpus, ScriptedPolicy([search("comets", limit=5), finish])).search("comets?")
    shown_ids = [block.document_id for block in list(result.trajectories[0].views())[-1].blocks]
    assert [document.id for document in result.documents] == shown_ids[:3][::-1]
    assert result.documents[0].justification == "why"


def test_a_policy_that_ends_without_a_ranking_gets_the_best_its_view_defends(corpus: MemoryCorpus) -> None:
    result = SearchAgent(corpus, ScriptedPolicy([search("comets"), Action(text="I am done.")])).search("comets?")
    assert result.stop_reason == "no_ranking"
    assert result.documents


class Assessing(ScriptedPolicy):
    """A policy whose actors give every chunk of their view a probability, and the confidences in turn."""

    def __init__(self, confidences: Sequence[float | None]) -> None:
        super().__init__([search("comets and operas", limit=4), rank_all])
        self._confidences = iter(confidences)

    def open(self, question: str, corpus: Corpus, *, profile: Profile, seed: int = 0) -> Actor:
        actor, confidence = super().open(question, corpus, profile=profile, seed=seed), next(self._confidences)

        class Assessor:
            ids: tuple[str, ...] = ()

            async def act(self, view: View) -> Action:
                self.ids = tuple(block.id for block in view.blocks)
                return await actor.act(view)

            def assess(self) -> Assessment:
                return Assessment(confidence, {chunk_id: 0.9 - 0.1 * n for n, chunk_id in enumerate(self.ids)})

        return Assessor()


@pytest.mark.parametrize(
    ("confidence", "sufficient"), [(1.0, True), (0.34, True), (0.33, False), (0.0, False), (None, None)]
)
def test_the_evidence_suffices_if_it_probably_does(
    corpus: MemoryCorpus, tmp_path: Path, confidence: float | None, sufficient: bool | None
) -> None:
    result = SearchAgent(corpus, Assessing([confidence]), trajectories=tmp_path).search("comets?")
    assert (result.confidence, result.sufficient) == (confidence, sufficient)
    assert result.to_json()["sufficient"] is sufficient
    assert [chunk.score for document in result.documents for chunk in document.chunks][:2] == [0.9, 0.8]
    assert result.trajectory is not None
    loaded = read(result.trajectory)
    assert loaded == result.trajectories[0]
    assert loaded.end is not None
    assert loaded.end.confidence == confidence


def test_rollouts_with_probabilities_are_pooled_by_their_mean(corpus: MemoryCorpus) -> None:
    result = SearchAgent(corpus, Assessing([0.9, 0.2]), rollouts=2).search("comets?")
    assert result.confidence == pytest.approx(0.55)
    assert [document.score for document in result.documents] == pytest.approx([0.9, 0.8, 0.7, 0.6])
    mixed = SearchAgent(corpus, Assessing([0.9, None]), rollouts=2).search("comets?")
    assert mixed.confidence == 0.9
    assert mixed.documents[0].score == mixed.documents[0].chunks[0].score == pytest.approx(2 / 61)


def test_a_passage_missing_from_a_ranking_has_probability_0_in_it() -> None:
    def ranking(*scores: tuple[str, float]) -> list[RankedDocument]:
        return [RankedDocument(item, item, score, (RankedChunk(f"{item}_0", "", score),)) for item, score in scores]

    pooled = pool([ranking(("a", 0.9), ("b", 0.6)), ranking(("b", 0.4), ("c", 0.2))])
    assert [(document.id, document.score) for document in pooled] == [
        ("b", pytest.approx(0.5)),
        ("a", pytest.approx(0.45)),
        ("c", pytest.approx(0.1)),
    ]


def test_an_empty_ranking_is_an_answer(corpus: MemoryCorpus) -> None:
    result = SearchAgent(corpus, ScriptedPolicy([search("comets"), rank()])).search("comets?")
    assert result.stop_reason == "finished"
    assert result.documents == ()
    assert result.sufficient is False


def test_rollouts_are_fused_by_rank(corpus: MemoryCorpus) -> None:
    calls: list[str] = []

    def finish(view: View) -> Action:
        ids = [block.document_id for block in view.blocks][:3]
        calls.append("")
        order = ids if len(calls) % 2 else [ids[1], ids[0], ids[2]]
        return Action(ranking=tuple(RankedId(item) for item in order))

    agent = SearchAgent(corpus, ScriptedPolicy([search("comets", limit=5), finish]), rollouts=3)
    result = agent.search("comets?")
    ids = [block.document_id for block in list(result.trajectories[0].views())[-1].blocks][:3]
    assert [document.id for document in result.documents] == ids
    assert result.documents[0].score == pytest.approx(1 / 61 + 1 / 62 + 1 / 61)
    assert len(result.trajectories) == 3
    assert result.turns == 3
    assert [trajectory.header.seed for trajectory in result.trajectories] == [0, 1, 2]


def test_search_works_inside_a_running_loop(corpus: MemoryCorpus) -> None:
    agent = SearchAgent(corpus, ScriptedPolicy([search("comets")]))

    async def notebook() -> SearchResult:
        return agent.search("comets?")

    assert asyncio.run(notebook()).documents


async def test_a_stream_gives_events_as_they_happen_and_the_result_last(corpus: MemoryCorpus) -> None:
    agent = SearchAgent(corpus, ScriptedPolicy([search("comets"), rank_all], delay=0.01), rollouts=2)
    items = [item async for item in agent.stream("comets?")]
    result = items[-1]
    assert isinstance(result, SearchResult)
    progress = [item for item in items[:-1] if isinstance(item, Progress)]
    for rollout in (0, 1):
        events = tuple(item.event for item in progress if item.rollout == rollout)
        assert events == result.trajectories[rollout].events


async def test_leaving_a_stream_early_stops_the_episode(corpus: MemoryCorpus, tmp_path: Path) -> None:
    policy = ScriptedPolicy([search("comets")] * 50, delay=0.01)
    agent = SearchAgent(corpus, policy, trajectories=tmp_path)
    stream = agent.stream("comets?")
    async for item in stream:
        if isinstance(item, Progress) and isinstance(item.event, ToolResult):
            break
    await stream.aclose()  # type: ignore[attr-defined]
    await asyncio.sleep(0.05)
    end = read(next(iter(tmp_path.iterdir()))).end  # noqa: ASYNC240 - nothing else runs
    assert end is not None
    assert end.stop_reason == "cancelled"


def test_trajectories_are_written_as_they_happen(corpus: MemoryCorpus, tmp_path: Path) -> None:
    agent = SearchAgent(corpus, ScriptedPolicy([search("comets"), rank_all]), trajectories=tmp_path / "deep" / "runs")
    result = agent.search("comets?")
    assert result.trajectory is not None
    assert read(result.trajectory) == result.trajectories[0]


class Broken:
    """A policy that fails on its second action."""

    name = "broken"
    counter = None

    def instructions(self, profile: object) -> str:
        return ""

    def open(self, question: str, corpus: object, *, profile: Profile, seed: int = 0) -> Broken:
        return Broken()

    async def act(self, view: View) -> Action:
        if view.turn == 0 and not hasattr(self, "empty"):
            return search("comets")
        raise PolicyError("the server went away")


def test_a_policy_that_fails_midway_leaves_a_ranking_and_the_reason(corpus: MemoryCorpus) -> None:
    result = SearchAgent(corpus, Broken()).search("comets?")
    assert result.stop_reason == "policy_error"
    assert result.documents
    assert result.error == "the server went away"


class Failing:
    """A corpus that fails after some searches."""

    name = "failing"
    blocking = True

    def __init__(self, inner: MemoryCorpus, good: int, error: type[Exception] = CorpusError) -> None:
        self._inner = inner
        self._good = good
        self._error = error

    def search(self, query: str, **options: object) -> list[Hit]:
        self._good -= 1
        if self._good < 0:
            raise self._error("the index is gone")
        return self._inner.search(query, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [CorpusError, EmbedderError, RerankerError])
def test_a_corpus_that_fails_midway_leaves_a_ranking_and_the_reason(
    corpus: MemoryCorpus, error: type[Exception]
) -> None:
    policy = ScriptedPolicy([search("comets"), search("operas")])
    agent = SearchAgent(Failing(corpus, 1, error), policy)  # type: ignore[arg-type]
    result = agent.search("comets?")
    assert result.stop_reason == "corpus_error"
    assert result.documents
    assert result.error == "the index is gone"


@pytest.mark.parametrize("seconds", [None, 60])
def test_a_timeout_of_the_corpus_is_not_taken_for_the_limit_of_the_search(
    corpus: MemoryCorpus, seconds: float | None
) -> None:
    async def search_once() -> None:
        agent = SearchAgent(Failing(corpus, 1, TimeoutError), ScriptedPolicy([search("comets"), search("operas")]))  # type: ignore[arg-type]
        await agent.asearch("comets?", deadline=None if seconds is None else Deadline(seconds))

    with pytest.raises(TimeoutError, match="the index is gone"):
        asyncio.run(search_once())


@pytest.mark.parametrize("as_stream", [False, True])
async def test_a_rollout_that_fails_unexpectedly_ends_the_others(
    corpus: MemoryCorpus, tmp_path: Path, *, as_stream: bool
) -> None:
    policy = ScriptedPolicy([search("comets")] * 50, delay=0.01)
    agent = SearchAgent(Failing(corpus, 4, ValueError), policy, rollouts=3, trajectories=tmp_path)  # type: ignore[arg-type]

    async def search_once() -> None:
        if not as_stream:
            await agent.asearch("comets?")
        async for _ in agent.stream("comets?"):
            pass

    with pytest.raises(ValueError, match="the index is gone"):
        await search_once()
    assert len(asyncio.all_tasks()) == 1
    ends = [read(file).end for file in tmp_path.iterdir()]  # noqa: ASYNC240 (nothing else runs)
    assert [end and end.stop_reason for end in ends] == ["cancelled"] * 3


def test_an_observer_that_fails_leaves_no_file_open(corpus: MemoryCorpus, tmp_path: Path) -> None:
    seen: list[Header] = []

    def observe(header: Header) -> Listener:
        seen.append(header)
        if len(seen) == 2:
            raise LookupError("no tracer")
        return lambda event, view: None

    policy = ScriptedPolicy([search("comets"), rank_all])
    agent = SearchAgent(corpus, policy, rollouts=3, trajectories=tmp_path, observers=[observe])
    with pytest.raises(LookupError, match="no tracer") as caught:
        agent.search("comets?")
    assert [file.stem for file in tmp_path.iterdir()] == [seen[0].id], "the second episode never began"
    end = read(tmp_path / f"{seen[0].id}.jsonl").end
    assert end is not None
    assert end.stop_reason == "cancelled"
    assert open_files(tmp_path) == []
    del caught


def test_a_full_disk_leaves_no_file_open(corpus: MemoryCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_line(self: TrajectoryWriter, data: dict[str, Any]) -> None:
        if data["kind"] in {"result", "end"}:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._file.write(json.dumps(data) + "\n")

    monkeypatch.setattr(TrajectoryWriter, "_line", write_line)
    agent = SearchAgent(corpus, ScriptedPolicy([search("comets"), rank_all]), trajectories=tmp_path)
    with pytest.raises(OSError, match="No space left") as caught:
        agent.search("comets?")
    assert open_files(tmp_path) == []
    del caught


def test_a_corpus_that_fails_at_once_raises(corpus: MemoryCorpus) -> None:
    agent = SearchAgent(Failing(corpus, 0), ScriptedPolicy([search("comets")]))  # type: ignore[arg-type]
    with pytest.raises(CorpusError, match="the index is gone"):
        agent.search("comets?")


class Waiting(Failing):
    """A corpus whose searches wait for an event."""

    def __init__(self, inner: MemoryCorpus) -> None:
        super().__init__(inner, 100)
        self.begun, self.go_on = threading.Event(), threading.Event()

    def search(self, query: str, **options: object) -> list[Hit]:
        self.begun.set()
        self.go_on.wait(60)
        return super().search(query, **options)


@pytest.mark.parametrize("queries", [1, 2], ids=["the next turn finds the threads ended", "a call was in the queue"])
def test_an_agent_that_is_closed_during_a_search_says_so(corpus: MemoryCorpus, queries: int) -> None:
    waiting = Waiting(corpus)
    first = Action(calls=tuple(call for number in range(queries) for call in search(f"comets {number}").calls))
    agent = SearchAgent(waiting, ScriptedPolicy([first, search("operas")]), workers=1)  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(agent.search, "comets?")
        assert waiting.begun.wait(60)
        agent.close()
        waiting.go_on.set()
        with pytest.raises(ConfigError, match="closed during a search"):
            running.result(60)


def test_an_interrupt_ends_a_search_inside_a_running_loop(corpus: MemoryCorpus) -> None:
    """As in a notebook. The search runs in a thread of its own, which no signal reaches."""
    ended = threading.Event()

    class Slow(Broken):
        async def act(self, view: View) -> Action:
            try:
                await asyncio.sleep(20)
            finally:
                ended.set()
            return rank_all(view)

        def open(self, question: str, corpus: object, *, profile: Profile, seed: int = 0) -> Broken:
            return self

    async def cell() -> None:
        threading.Timer(0.5, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
        SearchAgent(corpus, Slow()).search("comets?")

    loop = asyncio.new_event_loop()
    with closing(loop), pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(cell())
    assert ended.wait(5)


def test_an_event_loop_of_another_library_is_refused(corpus: MemoryCorpus, tmp_path: Path) -> None:
    """trio would send None into the coroutine, too."""
    agent = SearchAgent(corpus, ScriptedPolicy([rank_all]), trajectories=tmp_path)
    for waiting in (agent.asearch("comets?"), anext(agent.stream("comets?"))):
        with pytest.raises(ConfigError, match="need the event loop of asyncio"):
            waiting.send(None)  # type: ignore[attr-defined]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("question", ["", "  \n\t "])
def test_an_empty_question_is_refused(corpus: MemoryCorpus, question: str) -> None:
    with pytest.raises(ConfigError, match="empty"):
        SearchAgent(corpus, ScriptedPolicy([])).search(question)


def test_a_question_past_the_soft_threshold_is_refused_with_its_size(corpus: MemoryCorpus) -> None:
    with pytest.raises(BudgetError, match="more than the soft threshold"):
        SearchAgent(corpus, ScriptedPolicy([])).search("why " * 25_000)


async def test_a_deadline_ends_a_search_with_what_it_has(corpus: MemoryCorpus) -> None:
    policy = HeldPolicy([search("comets", limit=3), search("gardens")], at=2, episodes=2)
    agent, deadline = SearchAgent(corpus, policy, rollouts=2, limits=Limits(seconds=600)), Deadline()
    searching = asyncio.create_task(agent.asearch("comets?", deadline=deadline))
    assert await asyncio.to_thread(policy.waits.wait, 60)
    deadline.expire()
    result = await searching
    assert (result.stop_reason, len(result.documents) >= 3) == ("time", True)
    for trajectory in result.trajectories:
        trajectory.verify()
    late = await SearchAgent(corpus, HeldPolicy(at=0)).asearch("comets?", deadline=Deadline(0))
    assert (late.stop_reason, late.documents, late.searched, late.sufficient) == ("time", (), False, None)
    assert result.searched
    with pytest.raises(ConfigError, match="`seconds` must be a number"):
        Deadline(float("nan"))


async def test_a_deadline_can_be_brought_forward_for_all_that_it_holds_for(corpus: MemoryCorpus) -> None:
    policy = HeldPolicy([search("comets", limit=3), search("gardens")], at=2)
    agent, deadline = SearchAgent(corpus, policy), Deadline()
    assert deadline.left == float("inf")
    running = [asyncio.create_task(agent.asearch("comets?", deadline=deadline)) for _ in range(3)]
    assert await asyncio.to_thread(policy.waits.wait, 60)
    deadline.expire()
    results = await asyncio.wait_for(asyncio.gather(*running), 20)
    assert [result.stop_reason for result in results] == ["time"] * 3
    assert all(result.documents for result in results)
    assert deadline.left == 0
    unaffected = await SearchAgent(corpus, ScriptedPolicy([search("comets")])).asearch("comets?", deadline=Deadline(30))
    assert unaffected.stop_reason == "finished"


async def test_a_question_may_have_a_budget_of_its_own(corpus: MemoryCorpus) -> None:
    agent = SearchAgent(corpus, ScriptedPolicy([search("comets")]), budget=8_192)
    own = await agent.asearch("comets?", budget=Budget(1_024))
    usual = await agent.asearch("comets?")
    blocking = agent.search("comets?", budget=2_048)
    windows = [result.trajectories[0].header.budget.window for result in (own, usual, blocking)]
    assert windows == [1_024, 8_192, 2_048]


def test_an_agent_on_another_corpus_is_like_it(corpus: MemoryCorpus, tmp_path: Path) -> None:
    corpus_names: list[str] = []

    def observer(header: Header) -> Listener:
        corpus_names.append(header.corpus)
        return lambda event, view: None

    other_corpus = MemoryCorpus([Document("x", "A comet.")])
    agent = SearchAgent(corpus, ScriptedPolicy([]), budget=8_192, trajectories=tmp_path, observers=[observer])
    result = agent.on(other_corpus).search("comet?")
    assert corpus_names == [other_corpus.name]
    assert result.trajectory is not None
    assert result.trajectories[0].header.budget.window == 8_192


def test_budgets_and_limits_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="the window must be at least"):
        Budget(100)
    with pytest.raises(ConfigError, match="soft <= hard"):
        Budget(4096, soft=4000, hard=3000)
    with pytest.raises(ConfigError, match="turns must be positive"):
        Limits(turns=0)
    assert (Budget().soft, Budget().hard, Budget().per_call) == (16_384, 24_576, 4_096)
    small = Budget(8_192, per_call=2_000, reserve=32).resized(2_048)
    assert (small.soft, small.hard, small.per_call, small.reserve) == (1_024, 1_536, 1_536, 32)
    assert Budget(8_192, per_call=2_000).resized(4_096).per_call == 2_000


def test_the_record_tells_what_the_policy_did(corpus: MemoryCorpus) -> None:
    def drop(view: View) -> Action:
        return prune(*(block.id for block in view.blocks[1:]))

    result = SearchAgent(corpus, ScriptedPolicy([search("comets", limit=4), drop, rank_all])).search("comets?")
    events = result.trajectories[0].events
    assert [
        event.action.calls[0].name for event in events if isinstance(event, ActionTaken) and event.action.calls
    ] == [
        "search_corpus",
        "prune_chunks",
    ]
    assert isinstance(events[-1], EpisodeEnded)
    assert len(result.documents) == 1
    assert len(result.trajectories[0].encountered) == 4
    first = next(event for event in events if isinstance(event, ToolResult))
    assert first.arguments["query"] == "comets"
    assert all(isinstance(segment, Block) for segment in first.segments[:4])


@pytest.mark.parametrize("k", [0, -1, 1.5, True, "3", None])
def test_a_number_of_documents_that_cannot_be_is_refused(corpus: MemoryCorpus, k: Any) -> None:
    agent = SearchAgent(corpus)
    for ask in (agent.search, corpus.search):
        with pytest.raises(ConfigError, match=r"`k` must be a whole number of at least 1; got"):
            ask("comets", k=k)


@pytest.mark.parametrize("question", [None, 5, b"comets", ["comets"]])
async def test_a_question_that_is_not_text_is_refused(corpus: MemoryCorpus, question: Any) -> None:
    agent = SearchAgent(corpus)
    with pytest.raises(ConfigError, match=rf"the question must be a string; got .* \({type(question).__name__}\)"):
        agent.search(question)
    with pytest.raises(ConfigError, match="the question must be a string"):
        _ = [event async for event in agent.stream(question)]
    with pytest.raises(ConfigError, match="the query must be a string"):
        corpus.search(question)


def test_a_search_returns_as_many_documents_as_the_caller_asks_for_and_as_were_seen() -> None:
    corpus = MemoryCorpus(
        Document(f"d{n}", f"The comet number {n} was seen over the harbor in winter.") for n in range(40)
    )
    with SearchAgent(corpus, effort="fast") as agent:
        counts = [len(agent.search("Which comet was seen over the harbor?", k=k).documents) for k in (3, 10, 30)]
        first, more = (agent.search("Which comet was seen over the harbor?", k=k).documents for k in (10, 30))
    assert counts[:2] == [3, 10]
    assert counts[2] > 20
    assert [document.id for document in more[:10]] == [document.id for document in first]


def test_a_title_that_is_none_is_empty() -> None:
    corpus = MemoryCorpus([Document("a", "The comet was seen.", None)])  # type: ignore[arg-type]
    assert SearchAgent(corpus).search("comet").documents[0].title == ""
