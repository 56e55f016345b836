"""A check of the log-probabilities that asynchronous runs record.

Each recorded call names a version of the weights. Its log-probabilities must come from that version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from context_agent._support.journal import read_log
from context_agent.harness.trajectory import Trajectory
from context_agent.harness.trajectory_file import decode, decode_header
from context_agent.policies.tokens.recorded_calls import WholeCall, calls, expand
from context_agent.train.config import RunConfig

BATCH_IDS = 1_024
"""Maximum number of ids that are scored in one forward pass, with padding, unless one call has more."""


@dataclass(frozen=True, slots=True)
class CheckedCalls:
    """The differences between recorded log-probabilities and those of the named versions.

    Attributes:
        calls: The number of recorded calls.
        versions: The number of different versions that the calls name.
        worst: The largest difference between two log-probabilities, in nats.
        beyond: The number of calls that differ from their version by more than the bound.
        nearer: The number of calls that another version explains better by more than the bound.
    """

    calls: int
    versions: int
    worst: float
    beyond: int
    nearer: int

    def __str__(self) -> str:
        return (
            f"{self.calls:,} calls of {self.versions} versions: {self.beyond} are not those of their version, "
            f"{self.nearer} are nearer to another; off by {self.worst:.1e} at most"
        )


def train_and_check(run: RunConfig, bound: float) -> CheckedCalls:
    """Train asynchronously, keep the weights of each version, and score every recorded call with them.

    The scores come from a plain forward pass of a model that no trainer has touched. The model runs on the trainer's
    device.

    Args:
        run: A run with the table `[async_rollouts]`.
        bound: The largest permitted difference between a log-probability and its version's, in nats.

    Returns:
        The differences over all recorded calls.
    """
    import torch

    from context_agent.train import reinforcement
    from context_agent.train.experimental.async_rollouts.weight_sync import CopySync
    from context_agent.train.models import autocast_dtype, load_model

    kept: dict[str, dict[str, Any]] = {}
    push = CopySync.push

    def push_and_keep(self: Any, trainer: Any, step: int) -> Any:
        model = trainer.accelerator.unwrap_model(trainer.model)
        kept[str(step)] = {name: value.detach().clone() for name, value in model.state_dict().items()}
        return push(self, trainer, step)

    with mock.patch.object(CopySync, "push", push_and_keep):
        reinforcement.train(run, note=lambda _: None)
    loaded = load_model(run)
    model = loaded.model
    if loaded.adapter is not None:
        from peft import get_peft_model

        model = get_peft_model(model, loaded.adapter)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = model.to(device)
    recorded = list(recorded_calls(Path(run.out) / "buffer-0.jsonl"))
    kind = autocast_dtype(run.model)
    batches = list(_batches(recorded))
    distances: dict[str, dict[int, float]] = {}
    for version, weights in kept.items():
        model.load_state_dict(weights)
        model.eval()
        with torch.inference_mode(), torch.autocast(device, kind, enabled=kind is not None):
            for batch in batches:
                ids = [torch.tensor([*call.prompt, *call.call.output]) for _, call in batch]
                # A token sees only those before it, so the padding after a call changes none of its scores.
                rows = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True).to(device)
                logps = torch.log_softmax(model(input_ids=rows).logits[:, :-1].float(), -1)
                logps = logps.gather(2, rows[:, 1:, None])[..., 0].cpu()
                for (number, call), row, scores in zip(batch, ids, logps, strict=True):
                    found = scores[: len(row) - 1][-len(call.call.output) :] - torch.tensor(call.call.logprobs)
                    distances.setdefault(version, {})[number] = float(found.abs().max())
    return _summary(recorded, distances, bound)


def _batches(recorded: Iterable[WholeCall]) -> Iterator[list[tuple[int, WholeCall]]]:
    """Yield the calls with their numbers, by length, in batches whose padded rows have at most `BATCH_IDS` ids."""
    batch: list[tuple[int, WholeCall]] = []
    for number, call in sorted(enumerate(recorded), key=lambda pair: _ids(pair[1])):
        if batch and (len(batch) + 1) * _ids(call) > BATCH_IDS:
            yield batch
            batch = []
        batch.append((number, call))
    if batch:
        yield batch


def _ids(call: WholeCall) -> int:
    return len(call.prompt) + len(call.call.output)


def _summary(recorded: list[WholeCall], distances: Mapping[str, Mapping[int, float]], bound: float) -> CheckedCalls:
    own = [distances[call.call.version][number] for number, call in enumerate(recorded)]
    best = [min(found[number] for found in distances.values()) for number in range(len(recorded))]
    return CheckedCalls(
        len(recorded),
        len({call.call.version for call in recorded}),
        max(own),
        sum(each > bound for each in own),
        sum(mine > other + bound for mine, other in zip(own, best, strict=True)),
    )


def recorded_calls(path: Path) -> Iterator[WholeCall]:
    """Yield the calls of the finished episodes in a log of asynchronous rollouts."""
    for record in read_log(path, checksum=True).records:
        if record["kind"] == "finished":
            trajectory = Trajectory(decode_header(dict(record["header"])), tuple(map(decode, record["events"])))
            yield from expand(calls(trajectory))
