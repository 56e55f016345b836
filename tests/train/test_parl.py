"""PARL's reward: its two forms, what anneals, and whose tokens become rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from context_agent import Action, SearchAgent, ToolCall
from context_agent.budget import Budget
from context_agent.errors import ConfigError
from context_agent.harness.trajectory import Header, Trajectory
from context_agent.policies.tokens import TokenPolicy
from context_agent.policies.tokens.engines import FakeEngine, SampleRequest
from context_agent.policies.tokens.harmony import HarmonyRenderer
from context_agent.policies.tokens.recorded_calls import calls
from context_agent.pruning.view import ActionTaken, SubAgentRecord, ToolResult
from context_agent.swarm import Swarm
from context_agent.testing.actions import search
from context_agent.testing.token_episodes import QUESTION, small_corpus
from context_agent.train import run_file
from context_agent.train.agents import build_agent
from context_agent.train.config import ParlConfig, ParlForm
from context_agent.train.outcome import Ending, EpisodeOutcome
from context_agent.train.parl import (
    Delegation,
    delegation_metrics,
    delegation_of,
    finish_term,
    parallel_term,
    with_parl,
)
from context_agent.train.rewards import EpisodeRewardTerms, compute_reward
from context_agent.train.rows import sampled_rows

GOOD = EpisodeOutcome(Ending.FINISHED, 1.0, 1.0, 1.0, True, calls=(1,), prunes=(0,))
ALL = Delegation(started=4, finished=4)
WEIGHTS = st.floats(0, 1)


def test_the_paper_s_form_adds_both_terms_to_the_performance() -> None:
    reward = with_parl(
        compute_reward(GOOD), GOOD, Delegation(started=2, finished=1), ParlConfig(parallel=0.4, finish=0.2, breadth=4)
    )
    assert reward.total == pytest.approx(compute_reward(GOOD).total + 0.4 * 2 / 4 + 0.2 * 1 / 2)
    assert reward.terms["parl_parallel"] == pytest.approx(0.2)
    assert reward.terms["parl_finish"] == pytest.approx(0.1)
    assert compute_reward(GOOD).terms.items() <= reward.terms.items()


def test_more_sub_agents_than_the_breadth_earn_no_more() -> None:
    settings = ParlConfig(parallel=1.0, breadth=4)
    assert [parallel_term(Delegation(count), settings) for count in (0, 1, 4, 9)] == [0.0, 0.25, 1.0, 1.0]


def test_sub_agents_that_do_not_finish_earn_nothing_for_finishing() -> None:
    assert [finish_term(delegation) for delegation in (Delegation(), Delegation(4), Delegation(4, 3))] == [
        0.0,
        0.0,
        0.75,
    ]


def test_the_weights_fall_to_nothing_on_a_line() -> None:
    start = ParlConfig(parallel=0.4, finish=0.2, until=0.5)
    assert [start.at(share).parallel for share in (0, 0.25, 0.5, 1)] == pytest.approx([0.4, 0.2, 0, 0])
    assert [start.at(share).finish for share in (0, 0.25, 0.5, 1)] == pytest.approx([0.2, 0.1, 0, 0])
    assert with_parl(compute_reward(GOOD), GOOD, ALL, start.at(1)).total == compute_reward(GOOD).total


def test_the_mixed_form_weighs_delegation_against_success() -> None:
    settings = ParlConfig(form=ParlForm.MIXED, parallel=0.1, success=0.5)
    won = with_parl(compute_reward(GOOD), GOOD, Delegation(2, 2), settings)
    assert won.total == pytest.approx(0.1 * 0.5 + 0.9 * compute_reward(GOOD).total)
    lost = replace(GOOD, recall=0.4)
    assert with_parl(compute_reward(lost), lost, Delegation(2, 2), settings).total == pytest.approx(0.1 * 0.5)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(WEIGHTS, WEIGHTS, st.integers(0, 9), st.integers(0, 9), st.sampled_from(ParlForm))
def test_the_total_changes_by_the_terms_that_parl_adds(
    first: float, second: float, started: int, finished: int, form: ParlForm
) -> None:
    settings = ParlConfig(form=form, parallel=first, finish=second if form is ParlForm.SUM else 0.0)
    before = compute_reward(GOOD)
    reward = with_parl(before, GOOD, Delegation(started, min(started, finished)), settings)
    assert reward.total - before.total == pytest.approx(sum(reward.terms.values()) - sum(before.terms.values()))


@pytest.mark.parametrize("ending", [Ending.MALFORMED, Ending.TRUNCATED])
@pytest.mark.parametrize("form", ParlForm)
def test_an_episode_that_did_not_finish_earns_nothing_for_delegating(ending: Ending, form: ParlForm) -> None:
    outcome = replace(GOOD, ending=ending, recall=0.0)
    reward = with_parl(compute_reward(outcome), outcome, ALL, ParlConfig(form=form, parallel=0.5))
    assert reward.total <= max(0.0, compute_reward(outcome).total)


def test_it_is_off_unless_given_a_weight_or_the_other_form() -> None:
    lost = replace(GOOD, recall=0.2)
    assert not ParlConfig().on
    assert with_parl(compute_reward(lost), lost, ALL, ParlConfig()).total == compute_reward(lost).total
    without = ParlConfig(form=ParlForm.MIXED)
    assert without.on
    assert [with_parl(compute_reward(outcome), outcome, ALL, without).total for outcome in (GOOD, lost)] == [
        compute_reward(GOOD).total,
        0.0,
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"parallel": -0.1},
        {"finish": float("nan")},
        {"until": 0.0},
        {"breadth": 0},
        {"success": 2.0},
        {"form": "other"},
        {"form": ParlForm.MIXED, "parallel": 1.5},
        {"form": ParlForm.MIXED, "parallel": 0.1, "finish": 0.1},
    ],
)
def test_invalid_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        ParlConfig(**wrong)  # type: ignore[arg-type]


def test_a_sub_agent_has_finished_if_it_ended_on_its_own_and_ranked_something() -> None:
    ends = [
        ("finished", 3, None),
        ("finished", 0, None),
        ("turns", 3, None),
        ("policy_error", 3, "gone"),
        ("time", 2, None),
    ]
    records = tuple(
        SubAgentRecord(str(index), "task", ending, ranked, error=why)
        for index, (ending, ranked, why) in enumerate(ends)
    )
    events = (ToolResult(0, 0, "spawn_searchers", {}, (), delegated=records[:2]),
              ToolResult(0, 1, "search_corpus", {}, ()),
              ToolResult(1, 0, "spawn_searchers", {}, (), delegated=records[2:]))  # fmt: skip
    assert delegation_of(Trajectory(Header("id", "q", {}, Budget()), events)) == Delegation(started=5, finished=1)


def test_only_the_orchestrator_s_tokens_become_rows() -> None:
    """One engine plays both; the rows hold only what it sampled for the orchestrator."""
    renderer = HarmonyRenderer()
    swarm = Swarm(breadth=2)
    end = Action(text="<Document id=d1></Document>")
    main_samples: list[int] = []

    def reply(request: SampleRequest) -> tuple[int, ...]:
        text = renderer.decode(request.prompt)
        first = "[Token usage" not in text
        if "spawn_searchers" not in text:
            return renderer.reply(search("comets", limit=2) if first else end)
        main_samples.append(len(engine.samples))
        spawn = ToolCall("spawn_searchers", {"tasks": ["comets", "bridges"]})
        return renderer.reply(Action((spawn,)) if first else end)

    engine = FakeEngine(reply)
    with SearchAgent(small_corpus(), TokenPolicy(engine, renderer), swarm=swarm) as agent:
        result = agent.search(QUESTION)
    main, subs = result.trajectories[0], result.searchers
    assert len(subs) == 2
    assert len(engine.samples) == 2 + 2 * 2
    rows = sampled_rows(main)
    trained = [t for row in rows for t, keep in zip(row.input_ids, row.loss_mask, strict=True) if keep]
    assert trained == [token for index in main_samples for token in engine.samples[index].ids]
    assert sum(len(call.output) for searcher in subs for call in calls(searcher)) > 0
    sub_ids = {searcher.header.id for searcher in subs}
    assert {row.episode_id for row in rows} == {main.header.id}
    assert not sub_ids & {row.episode_id for row in rows}


def test_sub_agents_are_played_by_their_own_engine() -> None:
    run = run_file.parse_run(
        {"model": {"name": "m"}, "data": {"questions": ["q"], "path": "p"}, "episodes": {"swarm": 2}}
    )
    renderer = HarmonyRenderer()
    end = Action(text="<Document id=d1></Document>")
    spawn = Action((ToolCall("spawn_searchers", {"tasks": ["comets", "bridges"]}),))
    main_engine = FakeEngine([renderer.reply(action) for action in (spawn, end)], version="9")
    sub_engine = FakeEngine(
        [renderer.reply(action) for action in (search("comets"), search("bridges"), end, end)], version="0"
    )
    with build_agent(run, small_corpus(), main_engine, renderer, temperature=1.0, searchers=sub_engine) as agent:
        result = agent.search(QUESTION)
    assert {call.version for call in calls(result.trajectories[0])} == {"9"}
    assert {call.version for searcher in result.searchers for call in calls(searcher)} == {"0"}
    assert (len(main_engine.samples), len(sub_engine.samples)) == (2, 4)


def test_what_delegating_comes_to_over_episodes() -> None:
    none, two = (
        Trajectory(Header("a", "q", {}, Budget()), (action_taken(),)),
        Trajectory(
            Header("b", "q", {}, Budget()),
            (
                action_taken(),
                ToolResult(
                    0, 0, "spawn_searchers", {}, (), delegated=(sub_agent_record(3), sub_agent_record(1, "turns"))
                ),
                action_taken(),
            ),
        ),
    )
    assert delegation_metrics([none, two]) == {
        "spawning": 0.5,
        "searchers": 1.0,
        "critical_steps": (1 + 5) / 2,
        "searchers_finished": 0.5,
    }
    assert "searchers_finished" not in delegation_metrics([none])


def action_taken() -> ActionTaken:
    return ActionTaken(0, Action(), "", 0)


def sub_agent_record(steps: int, reason: str = "finished") -> SubAgentRecord:
    return SubAgentRecord("x", "task", reason, 1, steps=steps)


def test_a_reward_keeps_what_it_was_before_penalties() -> None:
    before = EpisodeRewardTerms(0.5, 0.7, {"output": 0.5})
    assert with_parl(before, GOOD, ALL, ParlConfig(parallel=0.1)).before == 0.7
