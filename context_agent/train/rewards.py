"""The reward of an episode: what is measured of its unedited record, and the terms of the reward.

Context-1, section 3: `r = clamp(0.7 F_beta + 0.3 r_trajectory + r_answer - p_prune - p_turn, floor, r_before)`.
`measure_outcome` is the only function that reads an episode. A term is a function from an `EpisodeOutcome` to a number;
`RewardConfig` has the weights. Terms that the report does not name (diversity, prune accuracy, parallel calls, a judge,
mistakes, decay) have weight 0 by default.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from math import isfinite

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
    """The policy gave a ranking that stands."""
    MALFORMED = "malformed"
    """The policy ended without a ranking that stands."""
    CUT = "cut"
    """A limit ended it: turns, tokens, time or window."""


@dataclass(frozen=True, slots=True)
class EpisodeOutcome:
    """What an episode came to. Precision and recall are those of the ranking; `seen` is recall over all encountered.

    All three are 0 where the question has no gold (`golden` is then False). `judged` is a judge's verdict on the
    ranking, from 0 to 1, None where there is none.

    `calls` counts the tool calls of each turn, `prunes` those of each turn that did nothing but prune (0 for any other
    turn). `answered` is whether a chunk that holds the answer was retrieved, None where no answer is known.
    """

    ending: Ending
    precision: float
    recall: float
    seen: float
    answered: bool | None = None
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
    """Weights and bounds. The defaults are the report's; a weight of 0 leaves a term out.

    `beta` weighs recall `beta**2` times; a curriculum lowers it (`annealed`). `floor` is what any finished episode gets
    at least, `malformed` and `cut` what the others get instead of all terms (a format error cost -0.5 in the published
    baseline; for a cut episode nothing is published). `gamma` is the decay by step (`rows.decay`).
    """

    output: float = 0.7
    trajectory: float = 0.3
    answer: float = 1.0
    beta: float = 4.0
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
    """F-beta of the ranked documents (or facts)."""
    return f_beta(outcome.precision, outcome.recall, settings.beta)


def trajectory_recall(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Recall over everything encountered, pruned or not. Without it a policy collapses to one broad search."""
    return outcome.seen


def answer_found(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """1 where a retrieved chunk holds the answer. Without it topical documents suffice."""
    return float(bool(outcome.answered))


def accurate_pruning(outcome: EpisodeOutcome, settings: RewardConfig) -> float:
    """Share of the pruned chunks that are not gold; 0 where nothing was pruned, or no gold is known."""
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
    """The judge's verdict; 0 where there is none, which then holds for all episodes of the question."""
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
"""Terms that are taken off; their settings are their scale."""


def compute_reward(outcome: EpisodeOutcome, settings: RewardConfig | None = None) -> EpisodeRewardTerms:
    """The episode's reward. Raises `DataError` where a measure is not finite."""
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
"""How the harness's reasons to stop read here. The others are the world's doing, and earn nothing, good or bad."""


def is_aborted(trajectory: Trajectory) -> bool:
    """Whether a server, the corpus or the caller ended the episode: there is nothing in it to reward."""
    return trajectory.end is None or StopReason(trajectory.end.stop_reason) not in ENDINGS


def measure_outcome(
    trajectory: Trajectory, question: Question, gold: Gold | None = None, *, judged: float | None = None
) -> EpisodeOutcome:
    """The measures of a whole episode. `gold` is the question's in its corpus (`gold_of`), `judged` a judge's verdict.

    Raises `DataError` for a spoiled episode and for a question with neither gold nor a verdict, `TrajectoryError` for a
    record that does not replay.
    """
    gold = gold or gold_of(question)
    if is_aborted(trajectory) or not (gold or judged is not None):
        what = "was ended by something other than its policy" if is_aborted(trajectory) else "has no gold"
        raise DataError(f"episode {trajectory.header.id}, question {question.id}: it {what}, so it has no reward")
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
