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

from context_agent.episode import StopReason
from context_agent.swarm import steps
from context_agent.train.config import Form, Parl
from context_agent.train.rewards import Ending, Outcome, Reward
from context_agent.trajectory import Delegated, Returned, Trajectory


@dataclass(frozen=True, slots=True)
class Delegation:
    """How an episode delegated: sub-agents that were started, and those of them that finished their task."""

    started: int = 0
    finished: int = 0


def delegation(trajectory: Trajectory) -> Delegation:
    """The sub-agents of an episode; one that could not begin counts as started, its task being the policy's doing.

    One has finished that gave a ranking of its own with a document in it.
    """
    every = [one for event in trajectory.events if isinstance(event, Returned) for one in event.delegated]
    return Delegation(len(every), sum(map(_finished, every)))


def _finished(one: Delegated) -> bool:
    return one.error is None and one.stop_reason == StopReason.FINISHED and one.documents > 0


def delegating(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Means over episodes: the share that starts sub-agents, how many, the share of those that finish, critical steps.

    `searchers_finished` is absent where none was started.
    """
    made = [delegation(one) for one in trajectories]
    started = sum(one.started for one in made)
    found = {
        "spawning": fmean(float(one.started > 0) for one in made),
        "searchers": started / len(made),
        "critical_steps": fmean(steps(one) for one in trajectories),
    }
    return found | ({"searchers_finished": sum(one.finished for one in made) / started} if started else {})


def parallel(made: Delegation, settings: Parl) -> float:
    """r_parallel: sub-agents started over the breadth, at most 1."""
    return min(1.0, made.started / settings.breadth)


def finish(made: Delegation, settings: Parl) -> float:
    """r_finish: the share of the sub-agents started that finished their task; 0 where none was started."""
    return made.finished / made.started if made.started else 0.0


def with_parl(performance: Reward, outcome: Outcome, made: Delegation, settings: Parl) -> Reward:
    """The performance's reward with PARL's terms, `settings` being those at this point of training (`Parl.at`).

    An episode that did not finish keeps its performance and earns nothing for delegating: else starting sub-agents and
    never answering would pay. `terms` gains what each of the two terms added; with `mixed` also what the weight took
    from the performance, so that the terms show the whole reward.
    """
    l1, l2 = settings.parallel, settings.finish
    if outcome.ending is not Ending.FINISHED:
        l1 = l2 = 0.0
    gains = {"parl_parallel": l1 * parallel(made, settings), "parl_finish": l2 * finish(made, settings)}
    total = performance.total
    if settings.form is Form.MIXED:
        kept = total if outcome.recall >= settings.success or outcome.ending is not Ending.FINISHED else 0.0
        gains["parl_mixed"] = (1 - l1) * kept - total
    return Reward(total + sum(gains.values()), performance.before, {**performance.terms, **gains})
