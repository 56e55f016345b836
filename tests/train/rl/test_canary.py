"""The canary: what it says of samplers that have the weights, that lack them, and that answer nonsense."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

import numpy as np
import pytest
from numpy.typing import NDArray

from context_agent.errors import DivergenceError, PolicyError
from context_agent.policies.tokens.engines import Score
from context_agent.train.rl.canary import Canary

IDS = list(range(65))
Scores = NDArray[np.float64]
Sampler = Callable[[int, list[Scores]], Scores]
"""Its scores of the row at an update, from the trainer's scores up to that update."""


class Training:
    """A trainer whose scores of the row drift by `step` an update."""

    def __init__(self, step: float) -> None:
        self._draw = np.random.default_rng(0)
        self._step = step
        self.history: list[Scores] = []

    def score(self, ids: Sequence[int]) -> list[float]:
        before = self.history[-1] if self.history else -3 * self._draw.random(len(ids) - 1)
        self.history.append(before + self._step * self._draw.standard_normal(len(ids) - 1))
        return self.history[-1].tolist()


def play(sampler: Sampler, *, step: float = 1e-3, updates: int = 12, bound: float = 0.1) -> int:
    """Updates after which the canary lets the run go on: all, or those before it stops it."""
    training, update = Training(step), 0

    def score(ids: Sequence[int]) -> Future[Score]:
        answer: Future[Score] = Future()
        answer.set_result(Score(tuple(sampler(update, training.history)), str(update)))
        return answer

    canary = Canary(IDS, score, bound=bound, timeout=1.0)
    for update in range(updates):
        canary.pushed(training, str(update))
        assert canary.check()["sampler/canary_difference"] <= bound
    return updates


def noisy(scale: float, sampler: Sampler) -> Sampler:
    """The sampler with the noise of other kernels or another type."""
    draw = np.random.default_rng(1)
    return lambda update, history: sampler(update, history) + scale * draw.standard_normal(len(IDS) - 1)


def newest(update: int, history: list[Scores]) -> Scores:
    return history[-1]


@pytest.mark.parametrize("noise", [0.0, 1e-6, 1e-3, 3e-2])
@pytest.mark.parametrize("step", [0.0, 1e-6, 1e-3, 3e-2, 1.0])
def test_a_sampler_with_the_weights_is_left_alone(noise: float, step: float) -> None:
    assert play(noisy(noise, newest), step=step, updates=60) == 60


@pytest.mark.parametrize(
    ("sampler", "reason"),
    [
        pytest.param(lambda update, history: history[0], "nearest to those of update 0", id="frozen"),
        pytest.param(lambda update, history: history[max(0, update - 1)], "nearest to those of update 0", id="late"),
        pytest.param(
            lambda update, history: (history[-1] + history[max(0, update - 1)]) / 2, "50% of the change", id="half"
        ),
        pytest.param(lambda update, history: 2 * history[0] - history[-1], "of the change", id="other adapter"),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 1e-5])
def test_a_sampler_without_the_change_stops_the_run_at_the_first_update(
    sampler: Sampler, reason: str, noise: float
) -> None:
    with pytest.raises(PolicyError, match=rf"the weights of update 1\. .*{reason}"):
        play(noisy(noise, sampler))


def test_a_sampler_that_stops_loading_later_is_found_as_well() -> None:
    with pytest.raises(PolicyError, match=r"the weights of update 9\. .*nearest to those of update 8"):
        play(lambda update, history: history[min(update, 8)], updates=20)


def test_a_change_below_the_noise_is_found_once_it_has_grown_above_it() -> None:
    """As in bfloat16 with a low learning rate. The bound on the difference is not reached."""
    with pytest.raises(PolicyError, match="of the change that the trainer has seen since update"):
        play(noisy(5e-3, lambda update, history: history[0]), step=2e-3, updates=400, bound=1.0)


@pytest.mark.parametrize("wrong", [0.5, float("nan"), float("-inf")])
def test_a_difference_beyond_the_bound_stops_the_run_at_once(wrong: float) -> None:
    with pytest.raises(PolicyError, match=r"the weights of update 0\. .*more than 0\.1 \(loss\.mismatch\)"):
        play(lambda update, history: history[-1] + wrong)


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        (Score((-1.0,) * 64, "7"), "with the weights '7'"),
        (Score((-1.0,) * 3, "0"), "got 3 ids"),
    ],
)
def test_a_score_of_other_ids_or_weights_is_refused(score: Score, reason: str) -> None:
    answer: Future[Score] = Future()
    answer.set_result(score)
    canary = Canary(IDS, lambda ids: answer, bound=1.0, timeout=1.0)
    canary.pushed(Training(0.1), "0")
    with pytest.raises(PolicyError, match=reason):
        canary.check()


def test_a_sampler_that_does_not_answer_stops_the_run() -> None:
    canary = Canary(IDS, lambda ids: Future(), bound=1.0, timeout=0.01)
    canary.pushed(Training(0.1), "0")
    with pytest.raises(PolicyError, match=r"within 0\.01 seconds\. Check the sampler, or raise engine\.timeout"):
        canary.check()


def test_one_version_is_scored_once_and_only_what_was_pushed_is_checked() -> None:
    asked: list[Sequence[int]] = []
    training = Training(0.1)

    def score(ids: Sequence[int]) -> Future[Score]:
        asked.append(ids)
        answer: Future[Score] = Future()
        answer.set_result(Score(tuple(training.history[-1]), "0"))
        return answer

    canary = Canary(IDS, score, bound=1.0, timeout=1.0)
    assert canary.check() == {}
    canary.pushed(training, "0")
    canary.pushed(training, "0")
    assert canary.check() == {"sampler/canary_difference": 0.0}
    assert canary.check() == {}
    assert len(asked) == len(training.history) == 1


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_weights_that_diverged_are_not_blamed_on_the_sampler(value: float) -> None:
    class Diverged:
        def score(self, ids: Sequence[int]) -> list[float]:
            return [-1.0, value]

    canary = Canary([1, 2, 3], lambda ids: pytest.fail("the sampler is not asked"), bound=0.1, timeout=1.0)
    with pytest.raises(DivergenceError, match=r"weights of update 7, .* not finite.* diverged"):
        canary.pushed(Diverged(), "7")
