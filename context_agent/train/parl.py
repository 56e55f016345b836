"""PARL's reward for an orchestrator that starts sub-agents, in addition to the reward of its answer.

The paper (Kimi K2.5, arXiv 2602.02276) has `r = l1 r_parallel + l2 r_finish + r_performance`. Both weights are annealed
to 0 during training. `r_parallel` prevents serial collapse. `r_finish` prevents sub-agents that are started but finish
nothing. Another account has `R = l(e) r_parallel + (1 - l(e)) 1[success] Q(t)`, which is the form `mixed`.
`r_performance` and `Q` are the reward of `rewards.compute_reward`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from context_agent.harness.episode import StopReason
from context_agent.harness.trajectory import Trajectory
from context_agent.pruning.view import ToolResult
from context_agent.train.config import ParlConfig, ParlForm
from context_agent.train.outcome import Ending, EpisodeOutcome
from context_agent.train.rewards import EpisodeRewardTerms


@dataclass(frozen=True, slots=True)
class Delegation:
    """The numbers of sub-agents that an episode started, and of those that finished.

    Attributes:
        started: Number of sub-agents that were started.
        finished: Number of the started sub-agents that finished their task.
    """

    started: int = 0
    finished: int = 0


def delegation_of(trajectory: Trajectory) -> Delegation:
    """Return how many sub-agents an episode started, and how many of them finished.

    A sub-agent that could not begin counts as started, because the policy wrote its task. A sub-agent has finished if
    it ended its episode itself with at least one ranked document.
    """
    every = [delegated for event in trajectory.events if isinstance(event, ToolResult) for delegated in event.delegated]
    ranked = [delegated for delegated in every if delegated.error is None and delegated.documents > 0]
    return Delegation(len(every), sum(delegated.stop_reason == StopReason.FINISHED for delegated in ranked))


def delegation_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Return metrics of delegation, as means over episodes.

    The metrics are `spawning`, the share of episodes that start sub-agents, `searchers`, the sub-agents per episode,
    and `critical_steps`. `searchers_finished` is the share of sub-agents that finish. If no sub-agent was started, it
    is absent.

    Args:
        trajectories: The episodes. There must be at least one.

    Returns:
        The metrics by name.
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
    """Return r_parallel: the number of started sub-agents divided by `breadth`, at most 1."""
    return min(1.0, delegation.started / settings.breadth)


def finish_term(delegation: Delegation) -> float:
    """Return r_finish: the share of the started sub-agents that finished. If none was started, return 0."""
    return delegation.finished / delegation.started if delegation.started else 0.0


def with_parl(
    performance: EpisodeRewardTerms, outcome: EpisodeOutcome, delegation: Delegation, settings: ParlConfig
) -> EpisodeRewardTerms:
    """Return the reward of the performance with PARL's terms added.

    If an episode did not finish, it keeps its performance reward and earns nothing for delegating. Otherwise a policy
    could earn rewards by starting sub-agents without ever answering.

    Args:
        performance: The reward of the performance.
        outcome: The measures of the episode.
        delegation: The sub-agents of the episode.
        settings: PARL's settings at this point of training (`ParlConfig.at`).

    Returns:
        The new total with its terms. They include the amount that each of PARL's terms added, and the amount that the
        form `mixed` subtracted from the performance.
    """
    l1, l2 = settings.parallel, settings.finish
    if outcome.ending is not Ending.FINISHED:
        l1 = l2 = 0.0
    gains = {
        "parl_parallel": l1 * parallel_term(delegation, settings),
        "parl_finish": l2 * finish_term(delegation),
    }
    total = performance.total
    if settings.form is ParlForm.MIXED:
        performance_term = total if outcome.recall >= settings.success or outcome.ending is not Ending.FINISHED else 0.0
        gains["parl_mixed"] = (1 - l1) * performance_term - total
    return EpisodeRewardTerms(total + sum(gains.values()), performance.before, {**performance.terms, **gains})
