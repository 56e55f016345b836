"""The reward of an episode: terms that turn its measures into one number.

A term is a function from an `EpisodeOutcome` to a number. `RewardConfig` has the weights. There are two presets.

`context-1` is the published formula (Context-1, section 3):

`r = clamp(0.7 F_beta + 0.3 r_trajectory + r_answer - p_prune - p_turn, floor, r before penalties)`.

Here `floor` is `REWARD_FLOOR`. Under this formula a policy learns that showing gold pays as much as ranking it, and
that ranking everything costs little.

`default` pays for the ranking alone. `q` is F-beta of the documents that the policy ranked, to the power `exponent`.
Every other gain is multiplied by `q`:

`r = clamp((output q + q (trajectory r_trajectory + answer r_answer + ...)) (1 - cost spent) - penalties, floor, ...)`.

With beta 1 and exponent 3, a ranking of ten documents of which two are gold earns .04 of the maximum. One of two gold
documents alone earns .3.

`train.outcome` measures an episode. `train.parl` adds the reward for sub-agents. `train.advantages` turns rewards into
advantages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from math import isfinite
from typing import Any

from context_agent.errors import ConfigError, DataError
from context_agent.eval import metrics
from context_agent.eval.metrics import f_beta
from context_agent.train.outcome import Ending, EpisodeOutcome


class RewardPreset(StrEnum):
    """The formula of the reward, and the default weights of a run file."""

    DEFAULT = "default"
    """Every gain counts in proportion to the quality of the ranking."""
    CONTEXT_1 = "context-1"
    """The published formula. Documents that were seen count whether or not they are ranked."""


PRESETS: Mapping[RewardPreset, Mapping[str, float]] = {
    RewardPreset.DEFAULT: {
        "output": 1.2,
        "answer": 0.5,
        "beta": 1.0,
        "exponent": 3.0,
        "cost": 0.2,
        "turn_most": 0.0,
        "truncated": -1.0,
    },
    RewardPreset.CONTEXT_1: {
        "output": 0.7,
        "answer": 1.0,
        "beta": 4.0,
        "exponent": 1.0,
        "cost": 0.0,
        "turn_most": 0.5,
        "truncated": 0.0,
    },
}
"""The values of the settings that differ between the presets."""


REWARD_FLOOR = 0.001
"""Lowest reward of a finished episode, as published."""


FREE_PRUNE_TURNS = 3
"""Number of consecutive turns that may only prune without a penalty, as published."""


MAX_PENALTY = 0.5
"""Highest penalty of an episode for repeated prunes, and also for calls that could not run."""


PARALLEL_CALLS = 3
"""Number of finding calls per turn that earns the whole weight of `parallel`."""


PENALTY_SCALES = ("prune_call", "turn_most", "mistake")
"""The settings that are subtracted from the reward."""


BY_PRESET: Any = None
"""The default of settings whose value the preset decides."""


@dataclass(frozen=True, slots=True)
class RewardConfig:
    """Weights and bounds of the reward's terms. A weight of 0 removes the term.

    Where the presets differ, both values are given.

    Attributes:
        preset: The formula, `default` or `context-1`.
        output: Weight of F-beta of the ranking (default 1.2; context-1 .7).
        trajectory: Weight of the recall over everything encountered.
        answer: Weight of the answer (default .5; context-1 1). By default it must be in a ranked gold chunk. In
            context-1 any retrieved chunk suffices.
        beta: The beta of F-beta, which weighs recall `beta**2` times as much as precision (default 1; context-1 4,
            which a run halves gradually).
        exponent: Power of F-beta (default 3; context-1 1). Above 1, a ranking that is half as good earns less than
            half.
        cost: Share of the gains that an episode loses if it spends its whole budget of turns and tokens (default .2;
            context-1 0). The loss is proportional to what it spends.
        prune_call: Penalty for each prune call after `FREE_PRUNE_TURNS` consecutive turns that only prune. All such
            calls together cost at most `MAX_PENALTY`.
        turn_from: Turn at which the penalty for long episodes starts.
        turn_to: Turn at which this penalty is highest.
        turn_most: Highest penalty for long episodes (default 0; context-1 .5).
        mistake: Penalty for each call that could not run. All such calls together cost at most `MAX_PENALTY`.
        prune_accuracy: Weight of accurate pruning. If the final view contains all shown gold and no other shown chunk,
            the whole weight is earned.
        diversity: Weight of different queries that find evidence.
        parallel: Weight of several calls per turn that find evidence. `PARALLEL_CALLS` such calls per turn earn the
            whole weight.
        judge: Weight of a judge's verdict.
        malformed: Reward of an episode without a valid ranking. A format error cost -0.5 in the published baseline.
        truncated: Reward of an episode that a limit ended (default -1; context-1 0, because nothing is published).
        gamma: Decay of the advantage by step (`rows.decay_weights`).
    """

    preset: RewardPreset = RewardPreset.DEFAULT
    output: float = BY_PRESET
    trajectory: float = 0.3
    answer: float = BY_PRESET
    beta: float = BY_PRESET
    exponent: float = BY_PRESET
    cost: float = BY_PRESET
    prune_call: float = 0.1
    turn_from: int = 64
    turn_to: int = 128
    turn_most: float = BY_PRESET
    mistake: float = 0.0
    prune_accuracy: float = 0.0
    diversity: float = 0.0
    parallel: float = 0.0
    judge: float = 0.0
    malformed: float = -0.5
    truncated: float = BY_PRESET
    gamma: float = 1.0

    def __post_init__(self) -> None:
        if self.preset not in set(RewardPreset):
            raise ConfigError(f"rewards.preset must be one of {', '.join(RewardPreset)}; got {self.preset!r}")
        for name, value in PRESETS[RewardPreset(self.preset)].items():
            if getattr(self, name) is BY_PRESET:
                object.__setattr__(self, name, value)
        for name in (field.name for field in fields(self) if field.name != "preset"):
            if not isfinite(getattr(self, name)):
                raise ConfigError(f"rewards.{name} must be a finite number; got {getattr(self, name)}")
        for name in (*GAINS, *PENALTY_SCALES):
            if getattr(self, name) < 0:
                what = "a weight" if name in GAINS else "subtracted from the reward"
                raise ConfigError(f"rewards.{name} must be at least 0, because it is {what}; got {getattr(self, name)}")
        if self.beta <= 0 or self.exponent <= 0 or not 0 < self.gamma <= 1:
            raise ConfigError(
                "rewards.beta and rewards.exponent must be positive, and rewards.gamma must be in (0, 1]; got beta = "
                f"{self.beta}, exponent = {self.exponent}, gamma = {self.gamma}"
            )
        if not 0 <= self.cost <= 1:
            raise ConfigError(f"rewards.cost must be a share of the gains, from 0 to 1; got {self.cost}")
        if self.turn_to <= self.turn_from:
            raise ConfigError(
                f"rewards.turn_to must be greater than rewards.turn_from; got turn_to = {self.turn_to}, "
                f"turn_from = {self.turn_from}"
            )

    @property
    def published(self) -> bool:
        """True if the gains are those of the published formula."""
        return self.preset == RewardPreset.CONTEXT_1


@dataclass(frozen=True, slots=True)
class EpisodeRewardTerms:
    """A reward and its terms.

    Attributes:
        total: The reward.
        before: The sum of the gains before penalties.
        terms: Each term as it counted: weighted, with penalties negative.
    """

    total: float
    before: float
    terms: Mapping[str, float]


def ranking_quality(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return the F-beta of the documents that the policy ranked, raised to the power `exponent`.

    If the question has facts, recall counts facts instead of documents.
    """
    precision, recall = outcome.precision, outcome.recall
    if outcome.cited is not None and outcome.needs:
        head = outcome.ranked[: outcome.cited]
        precision, recall = metrics.precision_of(head), metrics.recall_of(head, outcome.needs)
    quality: float = f_beta(precision, recall, settings.beta) ** settings.exponent
    return quality


def trajectory_recall(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return the recall over everything that the episode encountered, whether pruned or not.

    Without this term, the published policy collapsed to one broad search.
    """
    return outcome.seen


def answer_found(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return 1 if the answer was found, otherwise 0. Without this term, documents on the right topic would suffice.

    The answer must be in a gold chunk that the policy ranked. In the published formula, any retrieved chunk suffices.
    """
    return float(bool(outcome.answered if settings.published else outcome.answer_ranked))


def accurate_pruning(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return the share of the clutter that was cleared, times the share of the gold that was kept, in the final view.

    If no clutter or no gold was shown, return 0.
    """
    if not outcome.clutter or not outcome.gold_shown:
        return 0.0
    return outcome.cleared / outcome.clutter * outcome.gold_kept / outcome.gold_shown


def diverse_queries(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return the mean novelty of all queries but the first. A query that found nothing new has novelty 0.

    Novelty is 1 minus the largest Jaccard similarity to the words of an earlier query that found evidence.
    """
    words = [frozenset(query.lower().split()) for query in outcome.finding_queries]
    if len(words) < 2:
        return 0.0
    novelty = [1 - max(_jaccard(words[later], words[n]) for n in range(later)) for later in range(1, len(words))]
    return sum(novelty) / (len(outcome.queries) - 1)


def parallel_calls(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return the mean number of finding calls per turn, scaled.

    With 1 call the value is 0, and with `PARALLEL_CALLS` calls it is 1.
    """
    if not outcome.calls:
        return 0.0
    mean = sum(outcome.finding_calls) / len(outcome.calls)
    return min(1.0, max(0.0, (mean - 1) / (PARALLEL_CALLS - 1)))


def judged_ranking(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return the judge's verdict. If there is none, return 0."""
    return outcome.judged or 0.0


def repeated_prunes(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return the penalty for prune calls beyond a streak of turns that only prune.

    Without this penalty, a policy prunes one chunk at a time.
    """
    streak = beyond = 0
    for calls in outcome.prunes:
        streak = streak + 1 if calls else 0
        if streak > FREE_PRUNE_TURNS:
            beyond += calls
    return min(MAX_PENALTY, settings.prune_call * beyond)


def many_turns(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return a penalty that rises linearly from 0 at turn `turn_from` to `turn_most` at turn `turn_to`."""
    share = (outcome.turns - settings.turn_from) / (settings.turn_to - settings.turn_from)
    return settings.turn_most * min(1.0, max(0.0, share))


def mistaken_calls(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return the penalty for calls that could not run (Kimi-Researcher's format penalty)."""
    return min(MAX_PENALTY, settings.mistake * outcome.mistakes)


Term = Callable[[EpisodeOutcome, RewardConfig], float]
"""A function that computes one term of the reward."""


GAINS: Mapping[str, Term] = {
    "output": ranking_quality,
    "trajectory": trajectory_recall,
    "answer": answer_found,
    "prune_accuracy": accurate_pruning,
    "diversity": diverse_queries,
    "parallel": parallel_calls,
    "judge": judged_ranking,
}
"""The gains. Each is in [0, 1] and is weighted by the setting of its name."""


RANKING_GAINS = frozenset({"output", "judge"})
"""The gains that measure the ranking itself. In the default preset, all others are multiplied by the `output` term."""


PENALTIES: Mapping[str, Term] = {
    "repeated_prunes": repeated_prunes,
    "many_turns": many_turns,
    "mistakes": mistaken_calls,
}
"""The penalties. Their settings contain their scale."""


def compute_reward(outcome: EpisodeOutcome, settings: RewardConfig | None = None) -> EpisodeRewardTerms:
    """Return the reward of an episode.

    Args:
        outcome: The measures of the episode.
        settings: The weights. Defaults to those of the default preset.

    Returns:
        The reward with its terms.

    Raises:
        DataError: If a measure is not finite.
    """
    settings = settings or RewardConfig()
    quality = 1.0 if settings.published else ranking_quality(outcome, settings)
    gains = {
        name: getattr(settings, name) * term(outcome, settings) * (1.0 if name in RANKING_GAINS else quality)
        for name, term in GAINS.items()
    }
    before = sum(gains.values())
    if not isfinite(before):
        raise DataError(
            f"the reward must be finite; got {before} for recall {outcome.recall} and precision {outcome.precision}"
        )
    penalties = {"cost": -settings.cost * outcome.spent * before}
    penalties |= {name: -term(outcome, settings) for name, term in PENALTIES.items()}
    terms = gains | penalties
    match outcome.ending:
        case Ending.MALFORMED:
            return EpisodeRewardTerms(settings.malformed, before, terms)
        case Ending.TRUNCATED:
            return EpisodeRewardTerms(settings.truncated, before, terms)
    return EpisodeRewardTerms(max(REWARD_FLOOR, min(before + sum(penalties.values()), before)), before, terms)


def annealed(start: float, end: float, progress: float) -> float:
    """Return a value that moves linearly from `start` to `end` during training.

    Args:
        start: The value at the start of training.
        end: The value at the end of training.
        progress: The share of training that is done. It is clamped to [0, 1].

    Returns:
        The value at that point of training.
    """
    return start + (end - start) * min(1.0, max(0.0, progress))


def _jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    union = len(first | second)
    return len(first & second) / union if union else 1.0
