"""Attempts at a task, for pass@N: the number of attempts, out of N, that find the gold.

A task that is always or never solved teaches a policy nothing. An attempt is a search by the same policy with other
settings. The setting that varies between the N attempts must make a difference:

- `seed`: seeds 0 to N-1, for a policy that samples (a language model with a temperature).
- `effort`: from one search up to the policy's own number of searches. This is for the embedded policy, which is
  deterministic. A task is always solved if one search solves it. It is never solved if the largest number of searches
  does not solve it.
- `window`: windows halved N-1 times, for any policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from context_agent.agent import SearchAgent, SearchResult
from context_agent.budget import WINDOW
from context_agent.errors import ConfigError, PolicyError
from context_agent.eval.gold import Gold, gold_of
from context_agent.harness.episode import DEFAULT_K, Limits
from context_agent.harness.policy import Policy
from context_agent.harness.profile import Profile
from context_agent.policies.bridge import BridgePolicy
from context_agent.retrieval.corpus import Corpus
from context_agent.synth_data.task import Task

Vary = Literal["seed", "effort", "window"]


Extreme = Literal["always", "never"]


SMALLEST_WINDOW = 2048
"""The smallest window after halving, in tokens."""


ATTEMPTS_LABEL = "passes"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The label of an attempt, and the agent that searches with its settings."""

    label: str
    agent: SearchAgent


@dataclass(frozen=True, slots=True)
class AttemptResults:
    """The recall and the number of turns of each attempt at a task, in the order of the attempts."""

    recalls: tuple[float, ...]
    turns: tuple[int, ...]

    def solved(self, threshold: float) -> int:
        """Return the number of attempts that reached this recall."""
        return sum(recall >= threshold for recall in self.recalls)


@dataclass(frozen=True, slots=True)
class PassAtN:
    """The attempts at each task, and the rule that decides which tasks to drop.

    An attempt solves the task if the recall of its first `k` documents reaches the threshold.

    Attributes:
        attempts: The attempts.
        vary: The setting in which the attempts differ.
        k: The number of documents at the top of the ranking that count.
        threshold: The smallest recall with which an attempt solves the task.
        drop: The tasks to drop: those that are always solved, never solved, or both.
    """

    attempts: tuple[Attempt, ...]
    vary: Vary
    k: int = DEFAULT_K
    threshold: float = 1.0
    drop: frozenset[Extreme] = frozenset({"always", "never"})

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise ConfigError(f"the recall threshold must be above 0 and at most 1; got {self.threshold}")

    async def run(self, task: Task) -> AttemptResults:
        """Run the attempts at a task one after another.

        Raises:
            PolicyError: If a search fails. Other errors of a search pass through.
        """
        gold = gold_of(task.as_question, self.attempts[0].agent.corpus)
        results = []
        for attempt in self.attempts:
            result = await attempt.agent.asearch(task.question, k=self.k, question_id=task.id)
            if result.error is not None:
                raise PolicyError(f"{attempt.label}: {result.error}")
            results.append(result)
        return AttemptResults(
            tuple(_recall(gold, result) for result in results), tuple(result.turns for result in results)
        )

    def extreme(self, passes: AttemptResults) -> Extreme | None:
        """If the task should be dropped, return the reason, `always` or `never`. If not, return None."""
        solved = passes.solved(self.threshold)
        kind: Extreme | None = "never" if not solved else "always" if solved == len(self.attempts) else None
        return kind if kind in self.drop else None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the results depend on, as plain data."""
        first = self.attempts[0].agent
        return {
            "policy": first.policy.name,
            "profile": first.profile.name,
            "window": first.budget.window,
            "rollouts": first.rollouts,
            "vary": self.vary,
            "attempts": [attempt.label for attempt in self.attempts],
            "k": self.k,
            "threshold": self.threshold,
            "drop": sorted(self.drop),
        }

    def label(self, task: Task, passes: AttemptResults) -> Task:
        """Return the task with the results of the attempts in its labels."""
        label = {
            "policy": self.attempts[0].agent.policy.name,
            "vary": self.vary,
            "attempts": [attempt.label for attempt in self.attempts],
            "recalls": [round(recall, 4) for recall in passes.recalls],
            "turns": list(passes.turns),
            "solved": passes.solved(self.threshold),
            "of": len(self.attempts),
            "k": self.k,
            "threshold": self.threshold,
        }
        return replace(task, labels={**task.labels, ATTEMPTS_LABEL: label})

    def describe(self, passes: AttemptResults) -> str:
        """Return the recall of each attempt in words."""
        pairs = zip(self.attempts, passes.recalls, strict=True)
        return ", ".join(f"{attempt.label}: recall {recall:.2f}" for attempt, recall in pairs)

    def close(self) -> None:
        """Close the agents."""
        for attempt in self.attempts:
            attempt.agent.close()


def build_attempts(
    corpus: Corpus,
    policy: Policy,
    count: int,
    vary: Vary,
    *,
    window: int = WINDOW,
    profile: Profile | str | None = None,
    limits: Limits | None = None,
    rollouts: int = 1,
    trajectories: Path | None = None,
) -> tuple[Attempt, ...]:
    """Return `count` attempts that differ in one setting.

    The arguments that are not listed here are those of `SearchAgent`.

    Args:
        corpus: The corpus to search.
        policy: The policy that searches.
        count: The number of attempts.
        vary: The setting in which the attempts differ.
        window: The largest window, in tokens.

    Raises:
        ConfigError: If two attempts would run the same search.
    """
    if count < 1:
        raise ConfigError(f"passes must be at least 1; got {count}")
    settings_of = {"seed": _seeds, "effort": _efforts, "window": _windows}[vary]
    return tuple(
        Attempt(
            label,
            SearchAgent(
                corpus,
                decides,
                profile=profile,
                budget=tokens,
                limits=limits,
                rollouts=rollouts,
                seed=seed * rollouts,
                trajectories=trajectories,
            ),
        )
        for label, decides, seed, tokens in settings_of(policy, count, window)
    )


def default_vary(policy: Policy) -> Vary:
    """Return the setting that makes attempts of this policy differ.

    It is the effort for the embedded policy, and the seed for all others.
    """
    return "effort" if isinstance(policy, BridgePolicy) else "seed"


def _recall(gold: Gold, result: SearchResult) -> float:
    """Return the share of the gold in the result. If the task has no gold, return 0."""
    needs = [gold.found_by(document.id, (chunk.id for chunk in document.chunks)) for document in result.documents]
    return len(frozenset[int]().union(*needs)) / gold.needs if gold.needs else 0.0


AttemptSetting = tuple[str, Policy, int, int]
"""The label, policy, seed and window of an attempt."""


def _seeds(policy: Policy, count: int, window: int) -> list[AttemptSetting]:
    if count > 1 and isinstance(policy, BridgePolicy):
        raise ConfigError(
            "the bridge policy is deterministic and ignores the seed. Vary its effort or the window with --vary."
        )
    return [(f"seed {seed}", policy, seed, window) for seed in range(count)]


def _efforts(policy: Policy, count: int, window: int) -> list[AttemptSetting]:
    if not isinstance(policy, BridgePolicy):
        raise ConfigError(f"{policy.name} has no effort to vary. Vary the seed or the window with --vary.")
    return [
        (f"searches {searches}", _with_fewer_searches(policy, searches), 0, window)
        for searches in _search_counts(policy.effort.searches, count)
    ]


def _with_fewer_searches(policy: BridgePolicy, searches: int) -> BridgePolicy:
    effort = replace(policy.effort, searches=searches)
    return BridgePolicy(policy.scorer, effort=effort, untrained=policy.scorer is None)


def _search_counts(most: int, count: int) -> Sequence[int]:
    """Return `count` different numbers of searches up to `most`, in a geometric progression."""
    rungs = [round(most ** (at / (count - 1))) for at in range(count)] if count > 1 else [most]
    if len(set(rungs)) < count:
        raise ConfigError(
            f"{count} attempts cannot all differ with at most {most} searches. Use fewer attempts, or more searches."
        )
    return rungs


def _windows(policy: Policy, count: int, window: int) -> list[AttemptSetting]:
    sizes = [window >> at for at in range(count)]
    if sizes[-1] < SMALLEST_WINDOW:
        raise ConfigError(
            f"a window of {window:,} tokens that is halved {count - 1} times has {sizes[-1]:,} tokens, below "
            f"{SMALLEST_WINDOW:,}. Use fewer passes or a larger window."
        )
    return [(f"window {size}", policy, 0, size) for size in sizes]
