"""The reward of an episode: the terms that make one number of its measures.

A term is a function from an `EpisodeOutcome` to a number; `RewardConfig` has the weights. There are two presets.

`context-1` is the published formula (Context-1, section 3):
`r = clamp(0.7 F_beta + 0.3 r_trajectory + r_answer - p_prune - p_turn, floor, r before penalties)`. A policy that is
optimised against it finds that showing gold pays as much as ranking it, and that ranking everything costs little.

`default` pays for the ranking alone. `q` is F-beta of the documents that the policy ranked, to the power `exponent`,
and every other gain counts in proportion to it:
`r = clamp((output q + q (trajectory r_trajectory + answer r_answer + ...)) (1 - cost spent) - penalties, floor, ...)`.
With beta 1 and exponent 3, ten documents of which two are gold earn .04 of the whole, and one of two gold documents .3.

`train.outcome` measures an episode, `train.parl` adds the reward for sub-agents, and `train.advantages` makes
advantages of rewards.
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
    """The formula of the reward, and the weights that a run file leaves out."""

    DEFAULT = "default"
    """Every gain counts in proportion to the ranking."""
    CONTEXT_1 = "context-1"
    """The published formula: what was seen counts whether or not it is ranked."""


PRESETS: Mapping[RewardPreset, Mapping[str, float]] = {
    RewardPreset.DEFAULT: {
        "output": 1.2,
        "answer": 0.5,
        "beta": 1.0,
        "exponent": 3.0,
        "cost": 0.2,
        "turn_most": 0.0,
        "cut": -1.0,
    },
    RewardPreset.CONTEXT_1: {
        "output": 0.7,
        "answer": 1.0,
        "beta": 4.0,
        "exponent": 1.0,
        "cost": 0.0,
        "turn_most": 0.5,
        "cut": 0.0,
    },
}
"""The values of the settings that differ between the presets."""


BY_PRESET: Any = None
"""The default of a setting whose value the preset decides."""


@dataclass(frozen=True, slots=True)
class RewardConfig:
    """Weights and bounds of the terms. A weight of 0 leaves out a term.

    - `preset`: the formula, `default` or `context-1`. It also decides the values of the settings marked with both.
    - `output`: weight of F-beta of the ranking (default 1.2; context-1 .7).
    - `trajectory`: weight of the recall over everything encountered.
    - `answer`: weight of the answer: ranked in a gold chunk (default .5), or retrieved (context-1 1).
    - `beta`: F-beta weighs recall `beta**2` times (default 1; context-1 4, which a run halves step by step).
    - `exponent`: power of F-beta (default 3; context-1 1). Above 1, half a ranking earns less than half.
    - `cost`: share of the gains that an episode loses if it spends its whole budget of turns and tokens, in proportion
      to what it spends (default .2; context-1 0).
    - `prune_call`: penalty for each prune call beyond a streak.
    - `prune_streak`: turns in a row that may do nothing but prune.
    - `prune_most`: highest penalty for such prunes.
    - `turn_from`: turn at which the penalty for long episodes starts.
    - `turn_to`: turn at which it is highest.
    - `turn_most`: highest penalty for long episodes (default 0; context-1 .5).
    - `mistake`: penalty for each call that could not run.
    - `mistakes_most`: highest penalty for such calls.
    - `prune_accuracy`: weight of a final view with all gold and nothing else of what was shown.
    - `diversity`: weight of differing queries that find something.
    - `parallel`: weight of several calls a turn that find something.
    - `parallel_calls`: such calls a turn that earn all of it.
    - `judge`: weight of a judge's verdict.
    - `floor`: lowest reward of a finished episode.
    - `malformed`: reward of an episode without a valid ranking (a format error cost -0.5 in the published baseline).
    - `cut`: reward of an episode that a limit ended (default -1; context-1 0, where nothing is published).
    - `gamma`: decay by step (`rows.decay_weights`).
    """

    preset: RewardPreset = RewardPreset.DEFAULT
    output: float = BY_PRESET
    trajectory: float = 0.3
    answer: float = BY_PRESET
    beta: float = BY_PRESET
    exponent: float = BY_PRESET
    cost: float = BY_PRESET
    prune_call: float = 0.1
    prune_streak: int = 3
    prune_most: float = 0.5
    turn_from: int = 64
    turn_to: int = 128
    turn_most: float = BY_PRESET
    mistake: float = 0.0
    mistakes_most: float = 0.5
    prune_accuracy: float = 0.0
    diversity: float = 0.0
    parallel: float = 0.0
    parallel_calls: int = 3
    judge: float = 0.0
    floor: float = 0.001
    malformed: float = -0.5
    cut: float = BY_PRESET
    gamma: float = 1.0

    def __post_init__(self) -> None:
        if self.preset not in set(RewardPreset):
            raise ConfigError(f"rewards.preset must be one of {', '.join(RewardPreset)}; got {self.preset!r}")
        for name, value in PRESETS[RewardPreset(self.preset)].items():
            if getattr(self, name) is BY_PRESET:
                object.__setattr__(self, name, value)
        for name in (field.name for field in fields(self) if field.name != "preset"):
            if not isfinite(getattr(self, name)):
                raise ConfigError(f"reward setting {name} must be a finite number; got {getattr(self, name)}")
        if self.beta <= 0 or self.exponent <= 0 or not 0 < self.gamma <= 1:
            raise ConfigError(
                f"beta and exponent must be positive and gamma in (0, 1]; got {self.beta}, {self.exponent} and "
                f"{self.gamma}"
            )
        if not 0 <= self.cost <= 1:
            raise ConfigError(f"reward setting cost is a share of the gains, from 0 to 1; got {self.cost}")
        if self.turn_to <= self.turn_from or self.parallel_calls < 2:
            raise ConfigError(
                f"turn_to must be past turn_from and parallel_calls at least 2; got {self.turn_to}, "
                f"{self.turn_from} and {self.parallel_calls}"
            )

    @property
    def published(self) -> bool:
        """True if the gains are those of the published formula."""
        return self.preset == RewardPreset.CONTEXT_1


@dataclass(frozen=True, slots=True)
class EpisodeRewardTerms:
    """The sum, what it was before penalties, and every term as it counted: weighted, penalties negative."""

    total: float
    before: float
    terms: Mapping[str, float]


def ranking_quality(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return F-beta, to the power `exponent`, of the documents that the policy ranked, or of their facts."""
    precision, recall = outcome.precision, outcome.recall
    if outcome.cited is not None and outcome.needs:
        head = outcome.ranked[: outcome.cited]
        precision, recall = metrics.precision_of(head), metrics.recall_of(head, outcome.needs)
    quality: float = f_beta(precision, recall, settings.beta) ** settings.exponent
    return quality


def trajectory_recall(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return recall over everything encountered, pruned or not.

    Without it the published policy collapsed to one broad search.
    """
    return outcome.seen


def answer_found(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return 1 if the answer was found. Without it topical documents suffice.

    It must be in a gold chunk that the policy ranked, or, as published, in any retrieved chunk.
    """
    return float(bool(outcome.answered if settings.published else outcome.answer_ranked))


def accurate_pruning(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return the share of the clutter that was cleared, times the share of the gold that was kept, at the end.

    If nothing was shown that should be pruned, or no gold was shown, return 0.
    """
    if not outcome.clutter or not outcome.gold_shown:
        return 0.0
    return outcome.cleared / outcome.clutter * outcome.gold_kept / outcome.gold_shown


def diverse_queries(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return the mean novelty of all queries but the first. A query that found nothing new has none.

    Novelty is 1 less the largest Jaccard similarity to the words of an earlier query that found something.
    """
    words = [frozenset(query.lower().split()) for query in outcome.finding_queries]
    if len(words) < 2:
        return 0.0
    novelty = [1 - max(_jaccard(words[later], words[n]) for n in range(later)) for later in range(1, len(words))]
    return sum(novelty) / (len(outcome.queries) - 1)


def parallel_calls(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return the mean number of finding calls a turn, on a scale from 1 call (0) to `parallel_calls` (1)."""
    if not outcome.calls:
        return 0.0
    mean = sum(outcome.finding_calls) / len(outcome.calls)
    return min(1.0, max(0.0, (mean - 1) / (settings.parallel_calls - 1)))


def judged_ranking(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return the judge's verdict; 0 if absent, which then holds for all episodes of the question."""
    return outcome.judged or 0.0


def repeated_prunes(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return the penalty for prune calls beyond a streak of turns that do nothing but prune.

    Without it a policy prunes chunk by chunk.
    """
    streak = beyond = 0
    for calls in outcome.prunes:
        streak = streak + 1 if calls else 0
        if streak > settings.prune_streak:
            beyond += calls
    return min(settings.prune_most, settings.prune_call * beyond)


def many_turns(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return a penalty on a line from 0 at turn `turn_from` to `turn_most` at turn `turn_to`."""
    share = (outcome.turns - settings.turn_from) / (settings.turn_to - settings.turn_from)
    return settings.turn_most * min(1.0, max(0.0, share))


def mistaken_calls(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Return the penalty for calls that could not run (Kimi-Researcher's format penalty)."""
    return min(settings.mistakes_most, settings.mistake * outcome.mistakes)


Term = Callable[[EpisodeOutcome, RewardConfig], float]


GAINS: Mapping[str, Term] = {
    "output": ranking_quality,
    "trajectory": trajectory_recall,
    "answer": answer_found,
    "prune_accuracy": accurate_pruning,
    "diversity": diverse_queries,
    "parallel": parallel_calls,
    "judge": judged_ranking,
}
"""Terms in [0, 1], each weighted by the setting of its name."""


RANKING_GAINS = frozenset({"output", "judge"})
"""Gains that are about the ranking itself. In the default preset all others count in proportion to `output`'s term."""


PENALTIES: Mapping[str, Term] = {
    "repeated_prunes": repeated_prunes,
    "many_turns": many_turns,
    "mistakes": mistaken_calls,
}
"""Penalties; their settings are their scale."""


def compute_reward(outcome: EpisodeOutcome, settings: RewardConfig | None = None) -> EpisodeRewardTerms:
    """Return the episode's reward.

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
        raise DataError(f"a reward of {before}: recall {outcome.recall}, precision {outcome.precision}")
    penalties = {"cost": -settings.cost * outcome.spent * before}
    penalties |= {name: -term(outcome, settings) for name, term in PENALTIES.items()}
    terms = gains | penalties
    match outcome.ending:
        case Ending.MALFORMED:
            return EpisodeRewardTerms(settings.malformed, before, terms)
        case Ending.CUT:
            return EpisodeRewardTerms(settings.cut, before, terms)
    return EpisodeRewardTerms(max(settings.floor, min(before + sum(penalties.values()), before)), before, terms)


def annealed(start: float, end: float, progress: float) -> float:
    """Return a value on its way from `start` to `end`; `progress` in [0, 1] is the share of training that is done."""
    return start + (end - start) * min(1.0, max(0.0, progress))


def _jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    union = len(first | second)
    return len(first & second) / union if union else 1.0
