"""The canary of a run: a fixed row that the sampler scores with each version of the weights, and the trainer too.

Nothing else notices a sampler that keeps old weights: its episodes are as good as before, and its rows are named by the
update whose weights it should have. Two facts are checked:

- The log-probabilities of sampler and trainer differ by no more than the bound on their mismatch.
- They move together. If the trainer's log-probabilities have changed by more than the sampler's noise, the sampler's
  have changed by the same amount. A sampler that loads nothing, an older version, another adapter or a part of one has
  not got the change, also where all of it is smaller than the bound.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from context_agent.errors import PolicyError
from context_agent.harness.profile import Profile
from context_agent.policies.tokens.engines import Score, ScoringEngine
from context_agent.policies.tokens.prompt import TokenRenderer

Floats = NDArray[np.float64]
Scorer = Callable[[Sequence[int]], Future[Score]]
"""Asks a sampler for the scores of ids; it need not answer at once."""

CANARY_IDS = 128
"""Ids of the row."""
NOISE_FLOOR = 1e-5
"""Two engines never agree better than this."""
SIGNIFICANT_CHANGE = 4.0
"""A change of the trainer's scores counts if it is this many times the noise between the engines."""
ARRIVED_TOLERANCE = 1 / 3
"""How far the share of a change that the sampler has may be from 1."""
SCORES_KEPT = 256
"""Versions whose scores are kept: the newest whose change is large enough is compared with."""


class ScoringTrainer(Protocol):
    """A trainer that scores ids with its present weights."""

    def score(self, ids: Sequence[int]) -> list[float]:
        """Return the log-probability of each id after the first."""


@dataclass(frozen=True, slots=True)
class CanaryScores:
    """The log-probabilities of the row with the weights of one version, shape (ids - 1,)."""

    version: str
    trainer: Floats
    sampler: Floats

    @property
    def noise(self) -> float:
        """Root mean square of the difference between the engines."""
        return max(_size(self.sampler - self.trainer), NOISE_FLOOR)

    def arrived(self, before: CanaryScores) -> float:
        """Return the share of the trainer's change since `before` that the sampler has: about 1 if all is well."""
        change = self.trainer - before.trainer
        return float((self.sampler - before.trainer) @ change / (change @ change))


def canary_row(renderer: TokenRenderer, profile: Profile, question: str) -> list[int]:
    """Return the last ids of a first prompt, which a trained policy reads and an untrained one can."""
    opening = renderer.opening(profile)
    return [*opening.before, *renderer.encode(question), *opening.after][-CANARY_IDS:]


class Canary:
    """Compares the scores of a sampler with those of its trainer, version by version."""

    def __init__(self, ids: Sequence[int], score: Scorer, *, bound: float, timeout: float) -> None:
        """`bound` is on the mean difference of log-probabilities, `timeout` in seconds."""
        self._ids, self._score = ids, score
        self._bound, self._timeout = bound, timeout
        self._expected: dict[str, Floats] = {}
        self._pending: Future[Score] | None = None
        self._scores: deque[CanaryScores] = deque(maxlen=SCORES_KEPT)

    def pushed(self, trainer: ScoringTrainer, version: str) -> None:
        """Ask for the scores of the version that was just sent. Call it on all ranks, then `check` before training."""
        if version in self._expected:
            return
        self._expected[version] = np.array(trainer.score(self._ids))
        if self._pending is None:
            self._pending = self._score(self._ids)

    def check(self) -> dict[str, float]:
        """Return the metrics of the newest scores; none if no weights were sent since.

        Raises `PolicyError` if the sampler does not answer, or has other weights than those that were sent.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return {}
        try:
            score = pending.result(self._timeout)
        except TimeoutError:
            raise PolicyError(
                f"the sampler did not score {len(self._ids)} ids within {self._timeout:g} seconds (engine.timeout)"
            ) from None
        expected = self._expected.get(score.version)
        if expected is None or len(score.logprobs) != len(expected):
            raise PolicyError(
                f"the sampler scored {len(score.logprobs)} ids with the weights {score.version!r}; expected "
                f"{len(self._ids) - 1} with one of the versions {', '.join(self._expected)}"
            )
        self._expected = {version: self._expected[version] for version in list(self._expected)[-2:]}
        scores = CanaryScores(score.version, expected, np.array(score.logprobs))
        difference = float(np.abs(scores.sampler - scores.trainer).mean())
        problem = self._problem(scores, difference)
        if problem:
            raise PolicyError(f"{problem}{self._resemblance(scores)}")
        self._scores.append(scores)
        return {"sampler/canary_difference": difference}

    def _problem(self, scores: CanaryScores, difference: float) -> str:
        """Return what is wrong with the scores; empty if nothing is."""
        about = f"the sampler does not have the weights of update {scores.version}: of a fixed row"
        if not difference <= self._bound:
            return (
                f"{about} its log-probabilities differ by {difference:.3g} on average from the trainer's, more than "
                f"{self._bound:g} (loss.mismatch)"
            )
        for before in reversed(self._scores):
            if _size(scores.trainer - before.trainer) >= SIGNIFICANT_CHANGE * before.noise:
                share = scores.arrived(before)
                if abs(share - 1) > ARRIVED_TOLERANCE:
                    return (
                        f"{about} it has {share:.0%} of the change that the trainer has seen since update "
                        f"{before.version}"
                    )
                return ""
        return ""

    def _resemblance(self, scores: CanaryScores) -> str:
        """Return the earlier version that explains the sampler's scores better than its own, in words."""
        distances = {before.version: _size(scores.sampler - before.trainer) for before in self._scores}
        nearest = min(distances, key=distances.__getitem__, default=None)
        if nearest is None or distances[nearest] >= _size(scores.sampler - scores.trainer):
            return ". Part of an adapter, another one, or another type or attention than the trainer's look like this"
        return f". Its scores are nearest to those of update {nearest}: it did not load what it was sent"


def _size(values: Floats) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(np.square(values))))


def scorer_of(engine: ScoringEngine) -> Scorer:
    """Return what asks an engine that is idle, and waits for its answer."""

    def score(ids: Sequence[int]) -> Future[Score]:
        answer: Future[Score] = Future()
        try:
            answer.set_result(asyncio.run(engine.score(ids)))
        except PolicyError as error:
            answer.set_exception(error)
        return answer

    return score
