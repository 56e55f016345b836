"""PARL's reward: what an orchestrator earns for starting sub-agents, beside what its answer earns. Pure; no torch.

Kimi K2.5 (arXiv 2602.02276): `r = l1 r_parallel + l2 r_finish + r_performance`, with l1 and l2 annealed to 0 over the
training. `r_parallel` is against serial collapse, `r_finish` against sub-agents that are started and finish nothing.
Another account has `R = l(e) r_parallel + (1 - l(e)) 1[success] Q(t)`; that is the form `mixed`. `r_performance`, and
`Q`, is the reward of `rewards.reward`, whatever terms that is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from context_agent.harness.episode import StopReason
from context_agent.harness.trajectory import Trajectory
from context_agent.pruning.view import SubAgentRecord, ToolResult
from context_agent.train.config import ParlConfig, ParlForm
from context_agent.train.rewards import Ending, EpisodeOutcome, EpisodeRewardTerms


@dataclass(frozen=True, slots=True)
class Delegation:
    """How an episode delegated: sub-agents that were started, and those of them that finished their task."""

    started: int = 0
    finished: int = 0


def delegation_of(trajectory: Trajectory) -> Delegation:
    """The sub-agents of an episode; one that could not begin counts as started, its task being the policy's doing.

    One has finished that gave a ranking of its own with a document in it.
    """
    every = [delegated for event in trajectory.events if isinstance(event, ToolResult) for delegated in event.delegated]
    return Delegation(len(every), sum(map(_finished, every)))


def _finished(delegated: SubAgentRecord) -> bool:
    return delegated.error is None and delegated.stop_reason == StopReason.FINISHED and delegated.documents > 0


def delegation_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Means over episodes: the share that starts sub-agents, how many, the share of those that finish, critical steps.

    `searchers_finished` is absent where none was started.
    """
    delegations = [delegation_of(trajectory) for trajectory in trajectories]
    started = sum(item.started for item in delegations)
    metrics = {
        "spawning": fmean(float(item.started > 0) for item in delegations),
        "searchers": started / len(delegations),
        "critical_steps": fmean(trajectory.critical_steps for trajectory in trajectories),
    }
    return metrics | ({"searchers_finished": sum(item.finished for item in delegations) / started} if started else {})


def parallel_term(delegation: Delegation, settings: ParlConfig) -> float:
    """r_parallel: sub-agents started over the breadth, at most 1."""
    return min(1.0, delegation.started / settings.breadth)


def finish_term(delegation: Delegation, settings: ParlConfig) -> float:
    """r_finish: the share of the sub-agents started that finished their task; 0 where none was started."""
    return delegation.finished / delegation.started if delegation.started else 0.0


def with_parl(
    performance: EpisodeRewardTerms, outcome: EpisodeOutcome, delegation: Delegation, settings: ParlConfig
) -> EpisodeRewardTerms:
    """The performance's reward with PARL's terms, `settings` being those at this point of training (`Parl.at`).

    An episode that did not finish keeps its performance and earns nothing for delegating: else starting sub-agents and
    never answering would pay. `terms` gains what each of the two terms added; with `mixed` also what the weight took
    from the performance, so that the terms show the whole reward.
    """
    l1, l2 = settings.parallel, settings.finish
    if outcome.ending is not Ending.FINISHED:
        l1 = l2 = 0.0
    gains = {
        "parl_parallel": l1 * parallel_term(delegation, settings),
        "parl_finish": l2 * finish_term(delegation, settings),
    }
    total = performance.total
    if settings.form is ParlForm.MIXED:
        performance_term = total if outcome.recall >= settings.success or outcome.ending is not Ending.FINISHED else 0.0
        gains["parl_mixed"] = (1 - l1) * performance_term - total
    return EpisodeRewardTerms(total + sum(gains.values()), performance.before, {**performance.terms, **gains})
