from __future__ import annotations

import math
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from context_agent.errors import DataError
from context_agent.train.trainer_mixin import TrainerMixin


class NormTrainer:
    """A Trainer whose gradient has a given norm. DeepSpeed reports none before its first update."""

    def __init__(self, *, fp16: bool) -> None:
        self.args = SimpleNamespace(fp16=fp16)
        self.state = SimpleNamespace(global_step=7)
        # DeepSpeed scales the loss itself, so accelerate has no scaler.
        self.accelerator = SimpleNamespace(scaler=None)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        return grad_norm


class MeasuredTrainer(TrainerMixin, NormTrainer):
    pass


@pytest.mark.parametrize("norm", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_stops_training_unless_a_loss_scale_skips_it(norm: float) -> None:
    with pytest.raises(DataError, match="gradient of update 7 is"):
        MeasuredTrainer(fp16=False)._get_grad_norm(None, grad_norm=norm)
    assert MeasuredTrainer(fp16=True)._get_grad_norm(None, grad_norm=norm) is norm


@pytest.mark.parametrize("norm", [None, 0.0, 3.5])
def test_other_gradients_are_used(norm: float | None) -> None:
    assert MeasuredTrainer(fp16=False)._get_grad_norm(None, grad_norm=norm) == norm


class WarningTrainer(NormTrainer):
    """A Trainer that adds adapters when it is made, as TRL does."""

    def __init__(self) -> None:
        warnings.warn(
            "`is_gradient_checkpointing` is deprecated and will be removed in v6.", FutureWarning, stacklevel=1
        )
        super().__init__(fp16=False)


@pytest.mark.filterwarnings("error::FutureWarning")
def test_a_warning_that_a_user_cannot_act_on_is_hidden_while_a_trainer_is_made() -> None:
    class QuietTrainer(TrainerMixin, WarningTrainer):
        pass

    assert QuietTrainer().state.global_step == 7
    with pytest.raises(FutureWarning):
        WarningTrainer()
