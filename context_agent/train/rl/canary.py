"""The canary of a run: a fixed row that both the sampler and the trainer score with each version of the weights.

The canary detects a sampler that keeps old weights. No other check detects it. Such a sampler plays episodes that are
as good as before, and its rows have the number of the update that it should use. The canary checks two facts:

- The log-probabilities of sampler and trainer differ by no more than the bound on their mismatch.
- They change together. If the trainer's log-probabilities have changed by more than the noise between the engines, the
  sampler's have changed by the same amount. This detects a sampler that loaded nothing, an older version, another
  adapter or a part of one, even if the change is smaller than the bound.
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

from context_agent.errors import DivergenceError, PolicyError
from context_agent.harness.profile import Profile
from context_agent.policies.tokens.engines import Score, ScoringEngine
from context_agent.policies.tokens.prompt import TokenRenderer

Floats = NDArray[np.float64]
Scorer = Callable[[Sequence[int]], Future[Score]]
"""A function that asks a sampler to score ids. The answer may arrive later."""

CANARY_IDS = 128
"""Number of ids in the row."""
NOISE_FLOOR = 1e-5
"""Smallest noise that is assumed between two engines."""
SIGNIFICANT_CHANGE = 4.0
"""Smallest change of the trainer's scores that is checked, as a multiple of the noise between the engines."""
ARRIVED_TOLERANCE = 1 / 3
"""Largest allowed distance from 1 of the share of a change that the sampler shows."""
SCORES_KEPT = 256
"""Number of versions whose scores are kept. The newest one with a large enough change is compared."""


class ScoringTrainer(Protocol):
    """A trainer that scores ids with its current weights."""

    def score(self, ids: Sequence[int]) -> list[float]:
        """Return the log-probability of each id after the first."""


@dataclass(frozen=True, slots=True)
class CanaryScores:
    """The log-probabilities of the row with one version of the weights.

    Attributes:
        version: The version.
        trainer: The trainer's log-probabilities, shape (ids - 1,).
        sampler: The sampler's log-probabilities, shape (ids - 1,).
    """

    version: str
    trainer: Floats
    sampler: Floats

    @property
    def noise(self) -> float:
        """Root mean square difference between the engines, at least `NOISE_FLOOR`."""
        return max(_size(self.sampler - self.trainer), NOISE_FLOOR)

    def arrived(self, before: CanaryScores) -> float:
        """Return the share of the trainer's change since `before` that the sampler shows. It is about 1 if all is
        well.
        """
        change = self.trainer - before.trainer
        return float((self.sampler - before.trainer) @ change / (change @ change))


def canary_row(renderer: TokenRenderer, profile: Profile, question: str) -> list[int]:
    """Return the canary's row: the last `CANARY_IDS` ids of the first prompt for a question."""
    opening = renderer.opening(profile)
    return [*opening.before, *renderer.encode(question), *opening.after][-CANARY_IDS:]


class Canary:
    """A check that compares the sampler's scores with the trainer's, version by version."""

    def __init__(self, ids: Sequence[int], score: Scorer, *, bound: float, timeout: float) -> None:
        """Set up the check.

        Args:
            ids: The ids of the row.
            score: A function that asks the sampler for its scores.
            bound: Largest allowed mean difference of log-probabilities.
            timeout: Seconds to wait for the sampler.
        """
        self._ids, self._score = ids, score
        self._bound, self._timeout = bound, timeout
        self._expected: dict[str, Floats] = {}
        self._pending: Future[Score] | None = None
        self._scores: deque[CanaryScores] = deque(maxlen=SCORES_KEPT)

    def pushed(self, trainer: ScoringTrainer, version: str) -> None:
        """Request the sampler's scores for the version that was just sent.

        Call this on all ranks after each weight sync, and call `check` before the next update.

        Args:
            trainer: The trainer, which scores the row with its own weights.
            version: The version that was sent.

        Raises:
            DivergenceError: If the trainer's own scores are not finite. Then the sampler is not the cause.
        """
        if version in self._expected:
            return
        expected = np.array(trainer.score(self._ids))
        if not np.isfinite(expected).all():
            raise DivergenceError(
                f"with the weights of update {version}, the trainer's log-probabilities are not finite, so training "
                "has diverged"
            )
        self._expected[version] = expected
        if self._pending is None:
            self._pending = self._score(self._ids)

    def check(self) -> dict[str, float]:
        """Compare the newest scores of sampler and trainer.

        Returns:
            The metrics of the comparison. Empty if no weights were sent since the last call.

        Raises:
            PolicyError: If the sampler does not answer, or has other weights than those that were sent.
        """
        pending, self._pending = self._pending, None
        if pending is None:
            return {}
        try:
            score = pending.result(self._timeout)
        except TimeoutError:
            raise PolicyError(
                f"the sampler did not score {len(self._ids)} ids within {self._timeout:g} seconds. Check the sampler, "
                "or raise engine.timeout."
            ) from None
        expected = self._expected.get(score.version)
        if expected is None or len(score.logprobs) != len(expected):
            raise PolicyError(
                f"the sampler must score {len(self._ids) - 1} ids with one of the weights "
                f"{', '.join(self._expected)}; got {len(score.logprobs)} ids with the weights {score.version!r}"
            )
        self._expected = {version: self._expected[version] for version in list(self._expected)[-2:]}
        scores = CanaryScores(score.version, expected, np.array(score.logprobs))
        difference = float(np.abs(scores.sampler - scores.trainer).mean())
        problem = self._problem(scores, difference)
        if problem:
            raise PolicyError(f"{problem} {self._resemblance(scores)}")
        self._scores.append(scores)
        return {"sampler/canary_difference": difference}

    def _problem(self, scores: CanaryScores, difference: float) -> str:
        """Return the problem with the scores. If there is none, return an empty string."""
        about = f"the sampler does not have the weights of update {scores.version}. For a fixed row,"
        if not difference <= self._bound:
            return (
                f"{about} its log-probabilities differ from the trainer's by {difference:.3g} on average, more than "
                f"{self._bound:g} (loss.mismatch)."
            )
        for before in reversed(self._scores):
            if _size(scores.trainer - before.trainer) >= SIGNIFICANT_CHANGE * before.noise:
                share = scores.arrived(before)
                if abs(share - 1) > ARRIVED_TOLERANCE:
                    return (
                        f"{about} it has {share:.0%} of the change that the trainer has seen since update "
                        f"{before.version}."
                    )
                return ""
        return ""

    def _resemblance(self, scores: CanaryScores) -> str:
        """Return a hint at the cause. If the sampler's scores are nearer to those of an earlier version, name the
        nearest version.
        """
        distances = {before.version: _size(scores.sampler - before.trainer) for before in self._scores}
        nearest = min(distances, key=distances.__getitem__, default=None)
        if nearest is None or distances[nearest] >= _size(scores.sampler - scores.trainer):
            return (
                "The sampler may have loaded a part of the adapter, or another adapter. Or it may compute with "
                "another number type or attention than the trainer. Check the server's settings."
            )
        return (
            f"Its scores are nearest to those of update {nearest}, so it did not load the newer weights. See the "
            "server's log."
        )


def _size(values: Floats) -> float:
    """Return the root mean square of the values."""
    return float(np.sqrt(np.mean(np.square(values))))


def scorer_of(engine: ScoringEngine) -> Scorer:
    """Return a function that asks an idle engine for scores and waits for the answer."""

    def score(ids: Sequence[int]) -> Future[Score]:
        answer: Future[Score] = Future()
        try:
            answer.set_result(asyncio.run(engine.score(ids)))
        except PolicyError as error:
            answer.set_exception(error)
        return answer

    return score
