"""The losses of reinforcement learning, and measurements that compare the sampler with the trainer.

Every loss is one sum over the trained tokens of an update on all ranks, divided by one number. Its gradient therefore
does not depend on which rows share a forward pass:

    loss = sum_rows w_row sum_t mask_t * l_t / D

    CISPO       l = -stop_grad(min(r, cap)) * A * log p         w = 1               D = tokens
    REINFORCE   l = -A * log p                                  w = 1               D = tokens
    GRPO        l = -min(r * A, clip(r, 1 - low, 1 + high) * A) w = 1 / its tokens  D = episodes
    DR_GRPO     l as GRPO's                                     w = 1               D = episodes * DR_GRPO_TOKENS

The output o_i of the papers is an episode, which has a row more after each edit of its context. GRPO's weight is
therefore 1 divided by the trained tokens of all rows of the episode in the update.

The ratio r of the trainer's probability to the sampler's covers both staleness and the difference between two engines.
A demonstrated row has no sampler, so its ratio is 1 (`rl.demonstrations`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from context_agent.errors import MissingExtraError
from context_agent.policies.tokens.engines.routers import ExpertReplay
from context_agent.train.batches import WeightedRow
from context_agent.train.config import Loss, LossConfig

try:
    import torch
except ImportError as error:
    raise MissingExtraError(error.name or "torch", "train") from None

DR_GRPO_TOKENS = 256
"""The constant by which Dr. GRPO divides the sum of an episode. It is TRL's default."""


@dataclass(frozen=True, slots=True)
class UpdateSize:
    """The size of an update over all ranks.

    Attributes:
        tokens: Number of trained tokens.
        episodes: Number of episodes with trained tokens.
        passes: Largest number of forward passes on a rank.
    """

    tokens: int
    episodes: int
    passes: int

    def divisor(self, loss: Loss) -> int:
        """Return the number by which the update's sum over tokens is divided."""
        return {Loss.GRPO: self.episodes, Loss.DR_GRPO: self.episodes * DR_GRPO_TOKENS}.get(loss, self.tokens)


def episode_tokens(items: Iterable[WeightedRow]) -> dict[str, int]:
    """Return the number of trained tokens of each episode in an update. Episodes without any are left out."""
    tokens = Counter[str]()
    for item in items:
        tokens[item.row.episode_id] += item.row.trained
    return dict(+tokens)


@dataclass(frozen=True, slots=True)
class PassInputs:
    """The inputs of a forward pass.

    Attributes:
        ids: Token ids, padded, shape (rows, longest).
        real: 1 for an id, 0 for padding, shape (rows, longest).
        trained: True where an id is trained, shape (rows, longest - 1). The first id is never a target.
        sampled: The sampler's log-probabilities, shape (rows, longest - 1).
        advantages: The advantages, by id with shape (rows, longest - 1) or by row with shape (rows, 1).
        row_weights: Weights of the rows in the sum, shape (rows, 1).
        fresh: True where the newest weights of this process sampled the row, shape (rows, 1).
        has_sampler: False if the rows are demonstrations.
        experts: Experts to which the sampler routed the ids, shape (rows, longest, layers, top k). None if they are not
            replayed.
        reference: Log-probabilities under the initial weights, shape (rows, longest - 1). None if the loss has no KL
            divergence.
    """

    ids: torch.Tensor
    real: torch.Tensor
    trained: torch.Tensor
    sampled: torch.Tensor
    advantages: torch.Tensor
    row_weights: torch.Tensor
    fresh: torch.Tensor
    has_sampler: bool = True
    experts: torch.Tensor | None = None
    reference: torch.Tensor | None = None


def token_losses(loss: LossConfig, inputs: PassInputs, logps: torch.Tensor) -> torch.Tensor:
    """Return the loss of each token, including the divergence from the reference.

    Args:
        loss: The loss settings.
        inputs: The inputs of the pass.
        logps: The trainer's log-probabilities, shape (rows, longest - 1).

    Returns:
        The losses, shape (rows, longest - 1).
    """
    ratios = _ratios(loss, inputs, logps)
    advantages = inputs.advantages
    if loss.kind in {Loss.CISPO, Loss.REINFORCE}:
        losses = -ratios.clamp(max=loss.cap).detach() * advantages * logps
    else:
        clipped = ratios.clamp(1 - loss.clip[0], 1 + loss.clip[1])
        losses = -torch.min(ratios * advantages, clipped * advantages)
    if loss.mask_above is not None:
        losses = losses * ~masked_rows(inputs, logps, loss.mask_above)
    if inputs.reference is not None:
        losses = losses + loss.kl * divergence(inputs.reference, logps)
    return losses


def _ratios(loss: LossConfig, inputs: PassInputs, logps: torch.Tensor) -> torch.Tensor:
    before = inputs.sampled if loss.kind.uses_ratio and inputs.has_sampler else logps.detach()
    return torch.exp(logps - before)


def divergence(reference: torch.Tensor, logps: torch.Tensor) -> torch.Tensor:
    """Return an estimate of the KL divergence from the reference at each token: Schulman's k3 (joschu.net)."""
    difference = reference - logps
    return torch.exp(difference) - difference - 1


def masked_rows(inputs: PassInputs, logps: torch.Tensor, most: float) -> torch.Tensor:
    """Return the mask of the rows with a negative advantage that became less likely by more than `most`.

    Its shape is (rows, 1). The fall is the mean over the row's trained tokens (DeepSeek-V3.2, arXiv 2512.02556, section
    3.1).
    """
    fallen = (inputs.sampled - logps.detach()) * inputs.trained
    mean = fallen.sum(1, keepdim=True) / inputs.trained.sum(1, keepdim=True).clamp(min=1)
    negative = (inputs.advantages < 0).any(1, keepdim=True)
    return negative & (mean > most) & inputs.has_sampler


MEASURED = ("tokens", "entropy", "kl", "clipped", "masked", "fresh", "difference", "ratio", "replayed", "flipped")
"""Names of the sums that a rank measures in an update, in this order. All are over tokens except `masked`, over
rows.
"""


class PassMeasurements:
    """Sums over an update's forward passes on this rank, and the largest difference from the sampler."""

    def __init__(self) -> None:
        self.sums = dict.fromkeys(MEASURED, 0.0)
        self.largest = 0.0

    def add(self, loss: LossConfig, inputs: PassInputs, logps: torch.Tensor, entropies: torch.Tensor) -> None:
        """Add the measurements of a pass. `logps` and `entropies` have the shape of `inputs.trained`."""
        trained = inputs.trained
        ratios = _ratios(loss, inputs, logps)
        if loss.kind is Loss.CISPO:
            clipped = ratios > loss.cap  # the cap does not depend on the sign of the advantage
        else:
            too_high, too_low = ratios > 1 + loss.clip[1], ratios < 1 - loss.clip[0]
            clipped = (too_high & (inputs.advantages > 0)) | (too_low & (inputs.advantages < 0))
        differences = (logps - inputs.sampled)[trained & inputs.fresh]
        found: dict[str, torch.Tensor | int] = {
            "tokens": trained.sum(),
            "entropy": entropies[trained].sum(),
            "clipped": clipped[trained].sum(),
            "fresh": len(differences),
            "difference": differences.abs().sum(),
            "ratio": differences.exp().sum(),
        }
        if loss.mask_above is not None:
            found["masked"] = (masked_rows(inputs, logps, loss.mask_above) & trained.any(1, keepdim=True)).sum()
        if inputs.reference is not None:
            found["kl"] = divergence(inputs.reference, logps)[trained].sum()
        for name, value in found.items():
            self.sums[name] += float(value)
        if len(differences):
            # A difference that is not a number is the largest. Two tensors on different devices cannot be stacked.
            self.largest = float(torch.tensor([float(differences.abs().max()), self.largest]).max())

    def add_replay(self, replay: ExpertReplay) -> None:
        """Count the positions whose experts were replayed, and those that the trainer would route to other experts."""
        self.sums["replayed"] += float(replay.recorded.sum())
        self.sums["flipped"] += float(replay.flipped.sum())

    def values(self) -> list[float]:
        """Return the measurements as a list that can be gathered over ranks."""
        return [*self.sums.values(), self.largest]


@dataclass(frozen=True, slots=True)
class UpdateMeasurements:
    """The measurements of an update over all ranks.

    Attributes:
        sums: The sums by the names in `MEASURED`.
        largest: Largest difference between the log-probabilities of trainer and sampler.
    """

    sums: dict[str, float]
    largest: float

    @staticmethod
    def of(every: Sequence[Sequence[float]]) -> UpdateMeasurements:
        """Combine the `PassMeasurements.values` of all ranks."""
        columns = list(zip(*every, strict=True))
        return UpdateMeasurements(dict(zip(MEASURED, map(sum, columns[:-1]), strict=True)), max(columns[-1]))

    @property
    def mismatch(self) -> float:
        """Mean difference between the log-probabilities of trainer and sampler for the same weights. 0 if it is
        unknown.
        """
        return self.sums["difference"] / self.sums["fresh"] if self.sums["fresh"] else 0.0

    def metrics(self, loss: LossConfig) -> dict[str, float]:
        """Return the metrics of the update."""
        tokens = max(1.0, self.sums["tokens"])
        metrics = {"entropy": self.sums["entropy"] / tokens}
        if loss.kind.uses_ratio:
            metrics["clip_ratio"] = self.sums["clipped"] / tokens
        if loss.kl:
            metrics["kl"] = self.sums["kl"] / tokens
        if loss.mask_above is not None:
            metrics["rows_masked"] = self.sums["masked"]
        if self.sums["replayed"]:
            metrics["sampler/experts_flipped"] = self.sums["flipped"] / self.sums["replayed"]
        if self.sums["fresh"]:
            metrics["sampler/logp_difference_mean"] = self.mismatch
            metrics["sampler/logp_difference_max"] = self.largest
            metrics["sampler/ratio_mean"] = self.sums["ratio"] / self.sums["fresh"]
        return metrics
