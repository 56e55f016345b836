"""The reward of an episode: what is measured of its unedited record, its terms, and the advantages made from rewards.

Context-1, section 3: `r = clamp(0.7 F_beta + 0.3 r_trajectory + r_answer - p_prune - p_turn, floor, r_before)`.
`measure_outcome` is the only function that reads an episode. A term is a function from an `EpisodeOutcome` to a number;
`RewardConfig` has the weights. Terms that the report does not name (diversity, prune accuracy, parallel calls, a judge,
mistakes, decay) have weight 0 by default.

PARL (Kimi K2.5, arXiv 2602.02276) rewards an orchestrator for starting sub-agents, in addition to its answer:
`r = l1 r_parallel + l2 r_finish + r_performance`, with l1 and l2 annealed to 0 over the training. `r_parallel` prevents
serial collapse, `r_finish` prevents sub-agents that are started and finish nothing. Another account has
`R = l(e) r_parallel + (1 - l(e)) 1[success] Q(t)`; that is the form `mixed`. `r_performance`, and `Q`, is the reward of
`compute_reward`, whatever its terms.

Advantages are one number an episode, before its rows are made. A group is the rollouts of one question. An episode's
advantage is its reward less its group's mean; every row of the episode carries it (`train.rows`), so an episode that
was edited often counts no more than one that was not.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from math import isfinite
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from context_agent._support.question_files import Question
from context_agent.errors import ConfigError, DataError
from context_agent.eval import metrics
from context_agent.eval.gold import Gold, gold_of, holds, judgeable
from context_agent.eval.metrics import f_beta
from context_agent.eval.scoring import Replay
from context_agent.harness.episode import StopReason
from context_agent.harness.trajectory import Trajectory
from context_agent.pruning.view import Block, ToolResult


class Ending(StrEnum):
    """How an episode ended, as far as a reward cares."""

    FINISHED = "finished"
    """The policy gave a valid ranking."""
    MALFORMED = "malformed"
    """The policy ended without a valid ranking."""
    CUT = "cut"
    """A limit ended it: turns, tokens, time or window."""


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """The measures of an episode. Precision and recall are of the ranking; `seen` is recall over everything
    encountered.

    All three are 0 if the question has no gold (`golden` is then False). `ranked` has the facts that each document of
    the ranking finds, of `needs` in all. `judged` is a judge's verdict on the ranking,
    from 0 to 1, or None.

    `calls` counts the tool calls of each turn, `prunes` those of each turn that did nothing but prune (0 for any other
    turn). `answered` is whether a chunk that holds the answer was retrieved, None if no answer is known.
    """

    ending: Ending
    precision: float
    recall: float
    seen: float
    answered: bool | None = None
    ranked: tuple[frozenset[int], ...] = ()
    needs: int = 0
    calls: tuple[int, ...] = ()
    prunes: tuple[int, ...] = ()
    queries: tuple[str, ...] = ()
    pruned: int = 0
    pruned_gold: int = 0
    mistakes: int = 0
    golden: bool = True
    judged: float | None = None

    @property
    def turns(self) -> int:
        """Turns in which tools were called."""
        return len(self.calls)


@dataclass(frozen=True, slots=True)
class RewardConfig:
    """Weights and bounds of the terms. The defaults are the report's; a weight of 0 leaves out a term.

    - `output`: weight of F-beta of the ranking.
    - `trajectory`: weight of the recall over everything encountered.
    - `answer`: weight of having retrieved the answer.
    - `beta`: F-beta weighs recall `beta**2` times; a curriculum lowers it.
    - `output_depth`: documents at the head of the ranking that F-beta is of; 0 means all. In a profile whose rankings
      end with all that was shown (`lean`), F-beta of all of them says nothing about their order.
    - `prune_call`: penalty for each prune call beyond a streak.
    - `prune_streak`: turns in a row that may do nothing but prune.
    - `prune_most`: highest penalty for such prunes.
    - `turn_from`: turn at which the penalty for long episodes starts.
    - `turn_to`: turn at which it is highest.
    - `turn_most`: highest penalty for long episodes.
    - `mistake`: penalty for each call that could not run.
    - `mistakes_most`: highest penalty for such calls.
    - `prune_accuracy`: weight of the share of pruned chunks that are not gold.
    - `diversity`: weight of differing queries.
    - `parallel`: weight of several calls a turn.
    - `parallel_calls`: calls a turn that earn all of it.
    - `judge`: weight of a judge's verdict.
    - `floor`: lowest reward of a finished episode.
    - `malformed`: reward of an episode without a valid ranking (a format error cost -0.5 in the published baseline).
    - `cut`: reward of an episode that a limit ended; nothing is published.
    - `gamma`: decay by step (`rows.decay_weights`).
    """

    output: float = 0.7
    trajectory: float = 0.3
    answer: float = 1.0
    beta: float = 4.0
    output_depth: int = 0
    prune_call: float = 0.1
    prune_streak: int = 3
    prune_most: float = 0.5
    turn_from: int = 64
    turn_to: int = 128
    turn_most: float = 0.5
    mistake: float = 0.0
    mistakes_most: float = 0.5
    prune_accuracy: float = 0.0
    diversity: float = 0.0
    parallel: float = 0.0
    parallel_calls: int = 3
    judge: float = 0.0
    floor: float = 0.001
    malformed: float = -0.5
    cut: float = 0.0
    gamma: float = 1.0

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            if not isfinite(getattr(self, name)):
                raise ConfigError(f"reward setting {name} must be a finite number; got {getattr(self, name)}")
        if self.beta <= 0 or not 0 < self.gamma <= 1:
            raise ConfigError(f"beta must be positive and gamma in (0, 1]; got {self.beta} and {self.gamma}")
        if self.output_depth < 0:
            raise ConfigError(f"output_depth must not be negative; got {self.output_depth} (0 means all documents)")
        if self.turn_to <= self.turn_from or self.parallel_calls < 2:
            raise ConfigError(
                f"turn_to must be past turn_from and parallel_calls at least 2; got {self.turn_to}, "
                f"{self.turn_from} and {self.parallel_calls}"
            )


@dataclass(frozen=True, slots=True)
class EpisodeRewardTerms:
    """The sum, what it was before penalties, and every term as it counted: weighted, penalties negative."""

    total: float
    before: float
    terms: Mapping[str, float]


def f_output(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """F-beta of the ranked documents (or facts), or of the first `output_depth` of them."""
    precision, recall = outcome.precision, outcome.recall
    if settings.output_depth and outcome.needs:
        head = outcome.ranked[: settings.output_depth]
        precision, recall = metrics.precision_of(head), metrics.recall_of(head, outcome.needs)
    return f_beta(precision, recall, settings.beta)


def trajectory_recall(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Recall over everything encountered, pruned or not. Without it a policy collapses to one broad search."""
    return outcome.seen


def answer_found(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """1 if a retrieved chunk contains the answer. Without it topical documents suffice."""
    return float(bool(outcome.answered))


def accurate_pruning(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Share of the pruned chunks that are not gold; 0 if nothing was pruned or no gold is known."""
    return 1 - outcome.pruned_gold / outcome.pruned if outcome.pruned and outcome.golden else 0.0


def diverse_queries(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """1 less the mean, over all queries but the first, of the largest Jaccard similarity to an earlier one's words."""
    words = [frozenset(query.lower().split()) for query in outcome.queries]
    if len(words) < 2:
        return 0.0
    nearest = [max(_jaccard(words[later], words[n]) for n in range(later)) for later in range(1, len(words))]
    return 1 - sum(nearest) / len(nearest)


def parallel_calls(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Mean calls a turn on a scale from 1 call (0) to `parallel_calls` (1)."""
    if not outcome.calls:
        return 0.0
    mean = sum(outcome.calls) / len(outcome.calls)
    return min(1.0, max(0.0, (mean - 1) / (settings.parallel_calls - 1)))


def judged_ranking(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """The judge's verdict; 0 if absent, which then holds for all episodes of the question."""
    return outcome.judged or 0.0


def repeated_prunes(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Per prune call beyond a streak of turns that do nothing but prune. Without it a policy prunes chunk by chunk."""
    streak = beyond = 0
    for calls in outcome.prunes:
        streak = streak + 1 if calls else 0
        if streak > settings.prune_streak:
            beyond += calls
    return min(settings.prune_most, settings.prune_call * beyond)


def many_turns(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Linear from 0 at turn `turn_from` to `turn_most` at turn `turn_to`."""
    share = (outcome.turns - settings.turn_from) / (settings.turn_to - settings.turn_from)
    return settings.turn_most * min(1.0, max(0.0, share))


def mistaken_calls(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Per call that could not run (Kimi-Researcher's format penalty)."""
    return min(settings.mistakes_most, settings.mistake * outcome.mistakes)


Term = Callable[[EpisodeOutcome, RewardConfig], float]

GAINS: Mapping[str, Term] = {
    "output": f_output,
    "trajectory": trajectory_recall,
    "answer": answer_found,
    "prune_accuracy": accurate_pruning,
    "diversity": diverse_queries,
    "parallel": parallel_calls,
    "judge": judged_ranking,
}
"""Terms in [0, 1], each weighted by the setting of its name."""

PENALTIES: Mapping[str, Term] = {
    "repeated_prunes": repeated_prunes,
    "many_turns": many_turns,
    "mistakes": mistaken_calls,
}
"""Penalties; their settings are their scale."""


def compute_reward(outcome: EpisodeOutcome, settings: RewardConfig | None = None) -> EpisodeRewardTerms:
    """The episode's reward. Raises `DataError` if a measure is not finite."""
    settings = settings or RewardConfig()
    gains = {name: getattr(settings, name) * term(outcome, settings) for name, term in GAINS.items()}
    penalties = {name: -term(outcome, settings) for name, term in PENALTIES.items()}
    terms = gains | penalties
    before = sum(gains.values())
    if not isfinite(before):
        raise DataError(f"a reward of {before}: recall {outcome.recall}, precision {outcome.precision}")
    match outcome.ending:
        case Ending.MALFORMED:
            return EpisodeRewardTerms(settings.malformed, before, terms)
        case Ending.CUT:
            return EpisodeRewardTerms(settings.cut, before, terms)
    return EpisodeRewardTerms(max(settings.floor, min(before + sum(penalties.values()), before)), before, terms)


def annealed(start: float, end: float, progress: float) -> float:
    """A value on its way from `start` to `end`; `progress` in [0, 1] is the share of training that is done."""
    return start + (end - start) * min(1.0, max(0.0, progress))


def _jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    union = len(first | second)
    return len(first & second) / union if union else 1.0


ENDINGS = {
    StopReason.FINISHED: Ending.FINISHED,
    StopReason.NO_RANKING: Ending.MALFORMED,
    StopReason.TURNS: Ending.CUT,
    StopReason.TIME: Ending.CUT,
    StopReason.TOKENS: Ending.CUT,
    StopReason.WINDOW: Ending.CUT,
}
"""The endings of the harness's stop reasons. Other stop reasons are not the policy's doing, and earn nothing."""


def is_aborted(trajectory: Trajectory) -> bool:
    """Whether a server, the corpus or the caller ended the episode, which is then not rewarded."""
    return trajectory.end is None or StopReason(trajectory.end.stop_reason) not in ENDINGS


def measure_outcome(
    trajectory: Trajectory, question: Question, gold: Gold | None = None, *, judged: float | None = None
) -> EpisodeOutcome:
    """The measures of a whole episode. `gold` is the question's in its corpus (`gold_of`), `judged` a judge's verdict.

    Raises `DataError` for an aborted episode and for a question with neither gold nor a verdict, `TrajectoryError` for
    a record that does not replay.
    """
    gold = gold or gold_of(question)
    if is_aborted(trajectory) or not (gold or judged is not None):
        what = "was aborted" if is_aborted(trajectory) else "has no gold"
        raise DataError(f"episode {trajectory.header.id}, question {question.id}: it {what}, so it cannot be rewarded")
    assert trajectory.end is not None
    replay = Replay(trajectory, gold)
    returned = [event for event in trajectory.events if isinstance(event, ToolResult)]
    relevance = [
        gold.found_by(document.id, (chunk.id for chunk in document.chunks)) for document in trajectory.end.documents
    ]
    return EpisodeOutcome(
        ending=ENDINGS[StopReason(trajectory.end.stop_reason)],
        precision=metrics.precision_of(relevance) if gold else 0.0,
        recall=metrics.recall_of(relevance, gold.needs) if gold else 0.0,
        seen=metrics.recall_of([replay.seen], gold.needs) if gold else 0.0,
        answered=_answered(returned, question.answer),
        ranked=tuple(relevance),
        needs=gold.needs if gold else 0,
        calls=tuple(_calls_by_turn(returned).values()),
        prunes=_pruning_turns(returned),
        queries=tuple(str(item.arguments["query"]) for item in returned if "query" in item.arguments),
        pruned=len(replay.pruned),
        pruned_gold=len(replay.pruned & replay.gold),
        mistakes=replay.spent.mistakes,
        golden=bool(gold),
        judged=judged,
    )


def _answered(returned: Iterable[ToolResult], answer: str) -> bool | None:
    """Whether any chunk that was shown holds the answer."""
    if not judgeable(answer):
        return None
    return holds((block.body for item in returned for block in item.segments if isinstance(block, Block)), answer)


def _calls_by_turn(returned: Iterable[ToolResult]) -> dict[int, int]:
    """How many calls each turn made."""
    return dict(sorted(Counter(item.turn for item in returned).items()))


def _pruning_turns(returned: list[ToolResult]) -> tuple[int, ...]:
    """Calls of each turn that did nothing but prune, 0 for the others."""
    other_turns = {item.turn for item in returned if item.name != "prune_chunks"}
    return tuple(0 if turn in other_turns else count for turn, count in _calls_by_turn(returned).items())


class ParlForm(StrEnum):
    """How the terms are put together."""

    SUM = "sum"
    """`l1 r_parallel + l2 r_finish + r_performance`: the paper's."""
    MIXED = "mixed"
    """`l r_parallel + (1 - l) 1[success] Q`."""


@dataclass(frozen=True, slots=True)
class ParlConfig:
    """Weights of PARL's terms. With `parallel` and `finish` at 0, the default, the reward is the performance alone.

    - `form`: how the terms are combined.
    - `parallel`: l1, or l of the form `mixed`, at the start of training.
    - `finish`: l2 at the start of training.
    - `until`: share of training, in (0, 1], at which both reach 0 on a line; the paper gives no schedule.
    - `breadth`: number of sub-agents that earns all of `r_parallel`.
    - `success`: recall from which the form `mixed` counts an episode as a success.
    """

    form: ParlForm = ParlForm.SUM
    parallel: float = 0.0
    finish: float = 0.0
    until: float = 1.0
    breadth: int = 4
    success: float = 1.0

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self) if field.name != "form"):
            if not isfinite(getattr(self, name)):
                raise ConfigError(f"PARL setting {name} must be a finite number; got {getattr(self, name)}")
        if self.form not in set(ParlForm):
            raise ConfigError(f"form must be one of {', '.join(ParlForm)}; got {self.form!r}")
        if min(self.parallel, self.finish) < 0 or not 0 < self.until <= 1 or self.breadth < 1:
            raise ConfigError(
                "parallel and finish must not be negative, until in (0, 1] and breadth at least 1; got "
                f"{self.parallel}, {self.finish}, {self.until} and {self.breadth}"
            )
        if self.form is ParlForm.MIXED and (self.parallel > 1 or self.finish):
            raise ConfigError("the mixed form weighs with parallel, a share of at most 1, and has no finish term")
        if not 0 <= self.success <= 1:
            raise ConfigError(f"success is a recall in [0, 1]; got {self.success}")

    @property
    def on(self) -> bool:
        """Whether it changes anything; the form `mixed` does without its weight, too: it pays for success alone."""
        return bool(self.parallel or self.finish) or self.form is ParlForm.MIXED

    def at(self, progress: float) -> ParlConfig:
        """The weights after a share `progress`, in [0, 1], of training."""
        share = progress / self.until
        return replace(self, parallel=annealed(self.parallel, 0.0, share), finish=annealed(self.finish, 0.0, share))


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
    ranked = [delegated for delegated in every if delegated.error is None and delegated.documents > 0]
    return Delegation(len(every), sum(delegated.stop_reason == StopReason.FINISHED for delegated in ranked))


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
    """The performance's reward with PARL's terms, `settings` being those at this point of training (`ParlConfig.at`).

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


Floats = NDArray[np.float64]


class Baseline(StrEnum):
    """What is taken off a reward, and what it is divided by."""

    MEAN = "mean"
    """The group's mean: CISPO as published for Context-1, and Dr. GRPO (arXiv 2503.20783)."""
    DEVIATION = "deviation"
    """The group's mean, divided by the group's standard deviation: GRPO (arXiv 2402.03300, equation 4)."""
    LEAVE_ONE_OUT = "leave_one_out"
    """The mean of the group's other episodes: REINFORCE with an unbiased baseline (arXiv 2402.14740)."""


@dataclass(frozen=True, slots=True)
class EpisodeReward:
    """An episode and its reward. `group` is its question; `demonstrated`: an expert played it, not the policy."""

    episode: str
    group: str
    reward: float
    demonstrated: bool = False


EQUAL_REWARDS = 1e-9
"""Rewards of a group that differ by no more are equal."""


@dataclass(frozen=True, slots=True)
class EpisodeAdvantages:
    """The advantage of each episode that is trained on, and the groups and episodes that are not.

    `equal` are the groups whose rewards are all the same: they say nothing of what is better. `dropped` are the
    episodes that negative-sample control dropped.
    """

    by_episode: Mapping[str, float]
    equal: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def group_advantages(
    episodes: Sequence[EpisodeReward],
    *,
    baseline: Baseline = Baseline.MEAN,
    keep_negative: float = 1.0,
    seed: int = 0,
) -> EpisodeAdvantages:
    """The advantages of a step's episodes, whatever order they are in.

    A demonstration counts in its group's mean. It is trained on only if it is better than that, so that no update
    lowers the probability of replies that the policy would not sample (self-imitation learning, arXiv 1806.05635).
    `keep_negative` is the share of episodes with a negative advantage that stay (Kimi-Researcher's control of negative
    samples); which ones, is drawn from the seed. Raises `DataError` for a reward that is not finite or an episode that
    occurs twice, `ConfigError` for a share outside [0, 1].
    """
    if not 0 <= keep_negative <= 1:
        raise ConfigError(f"keep_negative is a share between 0 and 1; got {keep_negative}")
    values_by_episode: dict[str, float] = {}
    equal = []
    for group, members in sorted(_groups(episodes).items()):
        rewards = np.array([member.reward for member in members])
        if np.ptp(rewards) <= EQUAL_REWARDS:
            equal.append(group)
            continue
        values = _centered(rewards, baseline)
        values_by_episode |= {
            member.episode: float(value)
            for member, value in zip(members, values, strict=True)
            if value > 0 or not member.demonstrated
        }
    negative = [episode for episode in sorted(values_by_episode) if values_by_episode[episode] < 0]
    keep_count = round(keep_negative * len(negative))
    dropped = sorted(random.Random(seed).sample(negative, len(negative) - keep_count))
    trained = {episode: value for episode, value in values_by_episode.items() if episode not in set(dropped)}
    return EpisodeAdvantages(trained, tuple(equal), tuple(dropped))


def _groups(episodes: Sequence[EpisodeReward]) -> dict[str, list[EpisodeReward]]:
    groups: dict[str, list[EpisodeReward]] = {}
    seen: set[str] = set()
    for episode in sorted(episodes, key=lambda item: item.episode):
        if not np.isfinite(episode.reward):
            raise DataError(f"the reward of episode {episode.episode} is {episode.reward}, which is not finite")
        if episode.episode in seen:
            raise DataError(f"episode {episode.episode} occurs twice among the rewards of one step")
        seen.add(episode.episode)
        groups.setdefault(episode.group, []).append(episode)
    return groups


def _centered(rewards: Floats, baseline: Baseline) -> Floats:
    """Shape (episodes,) in, the same out; at least two rewards differ."""
    centred: Floats = rewards - rewards.mean()
    scale = 1.0
    if baseline is Baseline.DEVIATION:
        scale = 1 / float(rewards.std())
    elif baseline is Baseline.LEAVE_ONE_OUT:
        scale = len(rewards) / (len(rewards) - 1)
    return centred * scale
