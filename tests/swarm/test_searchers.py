"""Sub-agents through the agent: what comes back, what goes wrong, what is recorded."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from context_agent import Action, Limits, MemoryCorpus, ScriptedPolicy, SearchAgent, SearchResult, ToolCall
from context_agent.budget import Tier
from context_agent.errors import ConfigError, CorpusError
from context_agent.harness.deadline import Deadline
from context_agent.harness.episode import EpisodeRequest
from context_agent.harness.ranking import fuse
from context_agent.harness.rendering import Renderer
from context_agent.harness.runs import EpisodeFactory
from context_agent.harness.trajectory import Header, Trajectory
from context_agent.harness.trajectory_file import read
from context_agent.pruning.view import Block, PromptShown, Source, SubAgentRecord, Text, ToolResult, View
from context_agent.swarm import Fresh, Swarm, TurnOrder
from context_agent.testing.actions import prune, rank, rank_all, restore, search
from context_agent.testing.documents import linked_documents
from context_agent.tokens import HarmonyCounter
from context_agent.types import Hit
from tests.support.sub_agents import QUESTION, Searching, run, spawn

TASKS = ("comets and rivers", "operas and painters", "engines and gardens")


def spawn_result(result: SearchResult) -> ToolResult:
    """The result of the first call for sub-agents."""
    events = result.trajectories[0].events
    return next(event for event in events if isinstance(event, ToolResult) and event.name == "spawn_searchers")


def result_text(event: ToolResult) -> str:
    return "".join(segment.text for segment in event.segments if isinstance(segment, Text))


def reasons(event: ToolResult) -> list[str]:
    return [item.stop_reason for item in event.delegated]


def test_rankings_are_merged_by_rank_into_blocks_of_the_orchestrator_s_view(corpus: MemoryCorpus) -> None:
    result = run(corpus, spawn(*TASKS), rank_all)
    event = spawn_result(result)
    blocks = [segment for segment in event.segments if isinstance(segment, Block)]
    rankings = [end.documents for searcher in result.searchers if (end := searcher.end) is not None]
    assert [block.document_id for block in blocks] == [document.id for document in fuse(rankings)]
    assert {block.source for block in blocks} == {Source.SPAWN}
    assert [block.hit.rank for block in blocks] == list(range(1, len(blocks) + 1))
    assert len(result.searchers) == len(rankings) == 3
    assert {document.id for document in result.documents} <= {block.document_id for block in blocks}
    assert "1: 3 documents; 2: 3 documents; 3: 3 documents" in result_text(event)


def test_what_comes_back_can_be_pruned_restored_and_ranked_like_any_block(corpus: MemoryCorpus) -> None:
    views: list[View] = []

    def prune_first(view: View) -> Action:
        views.append(view)
        return prune(view.blocks[0].id)

    def restore_first(view: View) -> Action:
        views.append(view)
        return restore(views[0].blocks[0].id)

    result = run(corpus, spawn(*TASKS), prune_first, restore_first, lambda view: rank(view.blocks[0].id))
    assert views[0].blocks[0] not in views[1].blocks
    assert result.documents[0].id == views[0].blocks[0].document_id
    result.trajectories[0].verify()


def test_without_a_swarm_the_tool_does_not_exist(corpus: MemoryCorpus) -> None:
    result = SearchAgent(corpus, ScriptedPolicy([spawn(*TASKS), search("comets"), rank_all])).search(QUESTION)
    assert "spawn_searchers" not in result.trajectories[0].header.profile.tools
    assert spawn_result(result).mistake == "invalid_call"
    assert result.searchers == ()


def test_a_sub_agent_cannot_start_others(corpus: MemoryCorpus) -> None:
    nesting = ScriptedPolicy([spawn("deeper"), search("comets", limit=2), rank_all])
    result = run(corpus, spawn("comets"), rank_all, swarm=Swarm(turns=5, policy=nesting))
    assert len(result.searchers) == 1
    first = next(event for event in result.searchers[0].events if isinstance(event, ToolResult))
    assert (first.mistake, first.delegated) == ("invalid_call", ())
    assert "there is no tool 'spawn_searchers'" in result_text(first)


def test_one_that_fails_hangs_breaks_or_finds_nothing_stops_no_other(corpus: MemoryCorpus) -> None:
    tasks = ("comets", "fail", "hang", "break", "nothing", "unopened", "word " * 2_100)
    swarm = Swarm(breadth=7, budget=4096, turns=4, seconds=4.0, policy=Searching())
    start = time.perf_counter()
    event = spawn_result(run(corpus, spawn(*tasks), rank_all, swarm=swarm))
    assert time.perf_counter() - start < 50, "the one that hangs would take a minute"
    ends = ["finished", "policy_error", "time", "cancelled", "finished", "not_started", "not_started"]
    assert reasons(event) == ends
    errors = [item.error for item in event.delegated]
    assert errors[0] is errors[2] is errors[4] is None
    assert (errors[1], errors[5]) == ("no reply from the\nmodel", "the server is down")
    assert errors[3] == "unexpected ZeroDivisionError: a bug"
    assert "more than the soft threshold" in str(errors[6])
    result = result_text(event)
    assert "1: 3 documents; 2: failed (no reply from the model), 3 documents; 3: out of time, 2 documents" in result
    assert "5: nothing found; 6: failed (the server is down), nothing found" in result
    assert [item.documents for item in event.delegated] == [3, 3, 2, 0, 0, 0, 0]


def test_all_may_fail_and_the_orchestrator_goes_on(corpus: MemoryCorpus) -> None:
    result = run(corpus, spawn("unopened", "nothing"), search("comets", limit=2), rank_all)
    assert (result.stop_reason, result.error) == ("finished", None)
    assert result.documents


def test_a_spawn_of_a_thousand_is_cut_to_the_breadth_and_told(corpus: MemoryCorpus) -> None:
    event = spawn_result(run(corpus, spawn(*(f"comets {number}" for number in range(1000))), rank_all))
    assert len(event.delegated) == 4
    assert event.mistake == "too_many_tasks"
    assert "996 past the limit of 4 in one turn" in result_text(event)
    assert any(isinstance(segment, Block) for segment in event.segments)


def test_the_breadth_is_that_of_a_turn_and_tasks_count_once_an_episode(corpus: MemoryCorpus) -> None:
    two_spawns = Action(calls=(*spawn("comets", "rivers", "operas").calls, *spawn("engines", "gardens").calls))
    result = run(corpus, two_spawns, spawn("Comets ", "gardens"), rank_all)
    first, second, third = (item for item in result.trajectories[0].events if isinstance(item, ToolResult))
    assert [item.task for item in first.delegated] == ["comets", "rivers", "operas"]
    assert ([item.task for item in second.delegated], second.mistake) == (["engines"], "too_many_tasks")
    assert ([item.task for item in third.delegated], third.mistake) == (["gardens"], "repeated_tasks")


@pytest.mark.parametrize("tasks", [["", "  "], []])
def test_empty_tasks_start_nothing_and_are_told(corpus: MemoryCorpus, tasks: list[str]) -> None:
    event = spawn_result(run(corpus, Action(calls=(ToolCall("spawn_searchers", {"tasks": tasks}),)), rank_all))
    assert event.delegated == ()
    assert event.mistake in {"empty_tasks", "invalid_call"}
    assert result_text(event)


def test_past_the_hard_cutoff_no_sub_agent_is_started(corpus: MemoryCorpus) -> None:
    def fill(view: View) -> Action:
        return spawn("comets") if view.tier is Tier.HARD else search(*TASKS, limit=10)

    result = run(corpus, *[fill] * 6, rank_all, budget=2048)
    event = spawn_result(result)
    assert (event.mistake, event.delegated, result.searchers) == ("hard_cutoff", (), ())


@pytest.mark.parametrize(("own", "windows"), [(None, [2_048] * 4), (1_024, [2_048, *[1_024] * 3])])
def test_the_budget_of_a_question_is_that_of_its_sub_agents_too(
    corpus: MemoryCorpus, own: int | None, windows: list[int]
) -> None:
    swarm = Swarm(policy=Searching(), budget=own)
    with SearchAgent(corpus, ScriptedPolicy([spawn(*TASKS), rank_all]), swarm=swarm, budget=8_192) as agent:
        result = agent.search("comets?", budget=2_048)
    assert [item.header.budget.window for item in (*result.trajectories, *result.searchers)] == windows


@pytest.mark.parametrize("limit", [2_500, 4_000, 20_000])
def test_tokens_of_sub_agents_are_shared_out_and_count_against_the_agent_s_limit(
    corpus: MemoryCorpus, limit: int
) -> None:
    result = run(corpus, spawn(*TASKS), *[search("comets")] * 9, limits=Limits(tokens=limit), budget=4096)
    event = spawn_result(result)
    tokens_before = sum(_placed(item) for item in result.trajectories[0].events[:2])
    share = (limit - tokens_before) // 4
    assert len(event.delegated) == 3
    assert [item.header.limits["tokens"] for item in result.searchers] == [share] * 3
    assert all(item.header.budget.hard <= max(share, 384) for item in result.searchers)
    assert sum(segment.tokens for segment in event.segments) <= share
    end = result.trajectories[0].end
    assert end is not None
    assert result.tokens == end.tokens + sum(item.tokens for item in event.delegated)
    assert result.stop_reason == ("tokens" if limit < 20_000 else "finished")


def _placed(event: object) -> int:
    return sum(segment.tokens for segment in event.segments) if isinstance(event, PromptShown) else event.tokens  # type: ignore[attr-defined]


def test_a_swarm_s_own_tokens_are_what_all_its_sub_agents_may_have(corpus: MemoryCorpus) -> None:
    swarm = Swarm(tokens=3_000, policy=Searching())
    result = run(corpus, spawn("comets", "rivers"), spawn("operas", "engines"), rank_all, swarm=swarm)
    first, second = (item for item in result.trajectories[0].events if isinstance(item, ToolResult))
    spent = sum(item.tokens for item in first.delegated)
    assert [item.header.limits["tokens"] for item in result.searchers] == [1500] * 2 + [(3_000 - spent) // 2] * 2
    assert len(second.delegated) == 2


def test_with_too_few_tokens_left_no_sub_agent_is_started(corpus: MemoryCorpus) -> None:
    event = spawn_result(run(corpus, spawn(*TASKS), rank_all, swarm=Swarm(tokens=900, policy=Searching())))
    assert (event.delegated, event.mistake) == ((), "no_tokens")
    assert "too few tokens are left" in result_text(event)


@pytest.mark.parametrize("fresh", Fresh)
def test_what_sub_agents_are_kept_from_showing_again(corpus: MemoryCorpus, fresh: Fresh) -> None:
    swarm = Swarm(fresh=fresh, policy=Searching())
    result = run(corpus, search("comets", limit=3), spawn("comets", " comets!"), rank_all, swarm=swarm)
    own_ids = {block.id for block in _blocks(result.trajectories[0], "search_corpus")}
    first, second = ({block.id for block in _blocks(searcher, "search_corpus")} for searcher in result.searchers)
    assert len(own_ids) == len(first) == len(second) == 3
    assert (own_ids == first == second) == (fresh is Fresh.OWN)
    assert (not own_ids & (first | second)) == (fresh is not Fresh.OWN)
    assert (not first & second) == (fresh is Fresh.OTHERS)
    returned_ids = {block.id for block in _blocks(result.trajectories[0], "spawn_searchers")}
    assert returned_ids == (first | second) - own_ids, "no chunk is shown twice in one view"


def _blocks(trajectory: Trajectory, name: str) -> list[Block]:
    results = [item for item in trajectory.events if isinstance(item, ToolResult) and item.name == name]
    return [segment for item in results for segment in item.segments if isinstance(segment, Block)]


class Waiting(MemoryCorpus):
    """A corpus whose searches run in threads."""

    blocking = True  # type: ignore[assignment]


@pytest.mark.parametrize("fresh", Fresh)
def test_one_worker_or_eight_and_quick_or_slow_give_the_same_trace(fresh: Fresh) -> None:
    documents = linked_documents()

    def traces(workers: int, delay: float) -> list[Trajectory]:
        swarm = Swarm(breadth=3, fresh=fresh, policy=Searching(delay=delay))
        result = run(Waiting(documents), spawn(*TASKS), rank_all, swarm=swarm, workers=workers)
        return [item.without_timestamps() for item in (*result.trajectories, *result.searchers)]

    assert traces(1, 0.0) == traces(8, 0.0) == traces(8, 0.01)


async def test_in_step_each_has_its_turn_after_those_before_it_and_none_waits_for_one_that_ended() -> None:
    step, order = TurnOrder(set()), []

    async def agent(position: int, pauses: tuple[float, ...]) -> None:
        for turn, pause in enumerate(pauses):
            await step.taken(position, turn)
            await asyncio.sleep(pause)
            await step.wait(position)
            order.append((turn, position))
        await step.taken(position)

    pauses = ((0.02, 0.0, 0.01), (0.0,), (0.0, 0.03, 0.0))
    positions = [step.join() for _ in pauses]
    await asyncio.wait_for(asyncio.gather(*map(agent, positions, pauses)), 5)
    assert order == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 2)]


def test_trajectories_nest_on_disk_and_the_main_one_replays_alone(corpus: MemoryCorpus, tmp_path: Path) -> None:
    result = run(corpus, spawn(*TASKS), rank_all, saved=tmp_path)
    assert len(result.paths) == 4
    main, *subs = (read(path) for path in result.paths)
    assert main.header.parent is None
    assert {item.header.parent for item in subs} == {main.header.id}
    assert [item.header.question for item in subs] == list(TASKS)
    assert [item.id for item in spawn_result(result).delegated] == [item.header.id for item in subs]
    assert (main, tuple(subs)) == (result.trajectories[0], result.searchers)
    for path in result.paths[1:]:
        path.unlink()
    main = read(result.paths[0])
    main.verify()
    assert main.critical_steps == result.critical_steps


def test_critical_steps_count_the_longest_sub_agent(corpus: MemoryCorpus) -> None:
    result = run(corpus, search("comets"), spawn("comets and rivers", "nothing"), rank_all)
    assert [item.steps for item in spawn_result(result).delegated] == [2, 1]
    assert result.critical_steps == 3 + 2
    assert result.to_json()["critical_steps"] == 5
    alone = SearchAgent(corpus, ScriptedPolicy([search("comets"), rank_all])).search(QUESTION)
    assert alone.critical_steps == 2


def test_observers_are_told_of_sub_agents_too(corpus: MemoryCorpus) -> None:
    headers: list[Header] = []

    def observe(header: Header):  # type: ignore[no-untyped-def]
        headers.append(header)
        return lambda event, view: None

    run(corpus, spawn(*TASKS), rank_all, observers=[observe])
    assert [item.parent for item in headers] == [None, *[headers[0].id] * 3]


def test_a_sub_agent_whose_observer_fails_is_reported(corpus: MemoryCorpus) -> None:
    def observe(header: Header):  # type: ignore[no-untyped-def]
        if header.question == TASKS[1]:
            raise LookupError("no tracer")
        return lambda event, view: None

    result = run(corpus, spawn(*TASKS), rank_all, observers=[observe])
    assert reasons(spawn_result(result)) == ["finished", "not_started", "finished"]
    assert spawn_result(result).delegated[1].error == "unexpected LookupError: no tracer"


def test_an_episode_keeps_the_id_that_its_request_states(corpus: MemoryCorpus) -> None:
    agent = SearchAgent(corpus, ScriptedPolicy([rank_all]))
    factory = EpisodeFactory(
        corpus,
        agent.policy,
        profile=agent.profile,
        budget=agent.budget,
        limits=agent.limits,
        renderer=Renderer(agent.profile, HarmonyCounter()),
    )
    for starter in (factory, Swarm().over(factory)):
        assert starter.begin(EpisodeRequest(QUESTION, id="e1")).episode.header.id == "e1"


async def test_a_deadline_ends_the_sub_agents_with_the_orchestrator(corpus: MemoryCorpus) -> None:
    agent = SearchAgent(corpus, ScriptedPolicy([spawn("hang", "comets"), rank_all]), swarm=Swarm(policy=Searching()))
    result = await asyncio.wait_for(agent.asearch(QUESTION, deadline=Deadline(1.0)), 30)
    assert result.stop_reason == "time"
    hanging, other = (searcher.end.stop_reason for searcher in result.searchers if searcher.end)
    assert hanging == "cancelled"
    assert other in {"finished", "cancelled"}, "whichever came first on a busy machine"


class FailingCorpus(MemoryCorpus):
    """Cannot search for "broken"."""

    def search(self, query: str, **options: Any) -> list[Hit]:
        if query == "broken":
            raise CorpusError("the index is gone")
        return super().search(query, **options)


def test_a_corpus_that_fails_beside_sub_agents_ends_the_episode_after_they_have_ended() -> None:
    calls = (*search("broken").calls, *spawn("comets", "operas").calls)
    ended_tasks: list[str] = []

    def last(view: View) -> Action:
        ended_tasks.append(view.question)
        return rank_all(view)

    sub_agents = ScriptedPolicy([search("comets", limit=2), last], delay=0.2)
    with pytest.raises(CorpusError, match="the index is gone"):
        run(FailingCorpus(linked_documents()), Action(calls=calls), swarm=Swarm(policy=sub_agents))
    assert len(ended_tasks) == 2


@pytest.mark.parametrize("wrong", [{"breadth": 0}, {"breadth": 65}, {"tokens": 0}, {"turns": -1}, {"seconds": 0}])
def test_limits_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="swarm"):
        Swarm(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"policy": "hybrid"}, {"budget": "4000"}, {"fresh": "mine"}])
def test_settings_of_another_kind_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"`{next(iter(wrong))}` must be"):
        Swarm(**wrong)


def test_a_rule_for_fresh_chunks_may_be_named() -> None:
    assert Swarm(fresh="own").fresh is Fresh.OWN  # type: ignore[arg-type]


def test_the_essence_names_no_sub_agent_by_its_random_id(corpus: MemoryCorpus) -> None:
    result = spawn_result(run(corpus, spawn("comets"), rank_all))
    record = result.delegated[0]
    assert isinstance(record, SubAgentRecord)
    assert record.id
    trajectory = Trajectory(
        replace(run(corpus, rank()).trajectories[0].header, parent="x"), (result,)
    ).without_timestamps()
    assert trajectory.header.parent == ""
    assert trajectory.events[0].delegated[0].id == ""  # type: ignore[union-attr]
