"""How weights reach the copy of the model that samples, and which weights it shares."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from context_agent.policies.tokens.engines.transformers import TransformersEngine

pytest.importorskip("trl", reason="needs the train extra")

from context_agent.train.experimental.async_rollouts.weight_sync import CombinedSync, CopySync, PausingSync
from context_agent.train.rl.weight_sync import SentWeights

torch = pytest.importorskip("torch")


def trainer(model: Any) -> Any:
    return SimpleNamespace(accelerator=SimpleNamespace(unwrap_model=lambda wrapped: wrapped), model=model)


def test_what_is_trained_is_copied_at_a_push_and_the_rest_is_shared() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    model.config = SimpleNamespace(pad_token_id=0)
    model[0].requires_grad_(requires_grad=False)
    engine = TransformersEngine(model, name="small", version="0")
    sync = CopySync(engine)
    sync.attach(trainer(model))
    assert engine.model is not model
    assert engine.model[0].weight is model[0].weight
    with torch.no_grad():
        model[1].weight.add_(1.0)
    assert not torch.equal(engine.model[1].weight, model[1].weight), "an update is not seen before it is pushed"
    with engine.lock:
        sync.push(trainer(model), 5)
    assert engine.version == "0", "the batch at hand is not waited for, and goes on with the weights that it began with"
    assert engine._current_version() == engine.version == "5"
    assert torch.equal(engine.model[1].weight, model[1].weight)
    assert not engine.model.training


def test_an_update_is_handed_over_once_and_to_all() -> None:
    events: list[tuple[str, int]] = []

    class RecordingSync:
        def __init__(self, name: str) -> None:
            self.name = name

        def attach(self, trainer: Any) -> None:
            events.append((f"{self.name} begins", 0))

        def before_update(self) -> None:
            events.append((f"{self.name} before", 0))

        def after_update(self) -> None:
            events.append((f"{self.name} after", 0))

        def push(self, trainer: Any, step: int) -> SentWeights:
            events.append((self.name, step))
            return SentWeights(step, 7)

    class Parking:
        def between_turns(self, *, drain: bool) -> Any:
            from contextlib import nullcontext

            events.append(("parked", int(drain)))
            return nullcontext()

    pausing = PausingSync(RecordingSync("server"), Parking(), drain=True)  # type: ignore[arg-type]
    combined = CombinedSync([RecordingSync("own"), pausing])
    combined.attach(None)
    combined.before_update()
    combined.after_update()
    assert combined.push(None, 1) == SentWeights(2, 7)
    assert combined.push(None, 1) == SentWeights(1, 7), "the pausing one has sent the update"
    assert events == [
        ("own begins", 0),
        ("server begins", 0),
        ("own before", 0),
        ("server before", 0),
        ("own after", 0),
        ("server after", 0),
        ("own", 1),
        ("parked", 1),
        ("server", 1),
        ("own", 1),
    ]
    assert pausing.seconds > 0
