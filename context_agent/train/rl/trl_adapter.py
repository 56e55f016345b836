"""The losses by name, and the TRL settings that make each of them what its paper says."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from context_agent.errors import ConfigError, DataError, MissingExtraError
from context_agent.train.config import Loss
from context_agent.train.rl.rollouts import SEEDS_A_STEP
from context_agent.train.rows import Pass, Row, Weighted, inert, passes, trained_tokens
from context_agent.train.training_run import Recorded

if TYPE_CHECKING:
    from trl import GRPOConfig


def arguments(
    loss: Loss, *, output_dir: str, cap: float = 5.0, clip: tuple[float, float] = (0.2, 0.28), **settings: Any
) -> GRPOConfig:
    """TRL's configuration for a loss. `settings` go to `GRPOConfig` as they are.

    `cap` bounds CISPO's ratio (the raw value, not 1 + epsilon); `clip` are the lower and upper epsilon of the clipped
    surrogates (DAPO's clip-higher by default). TRL's own defaults that would change the loss are put right here: the
    balance loss of mixtures of experts, which is on for gpt-oss, and the correction for the sampler's mismatch, which
    the ratio to the sampler's own log-probabilities covers.
    """
    from trl import GRPOConfig

    low, high = (0.0, cap) if loss in {Loss.CISPO, Loss.REINFORCE} else clip
    return GRPOConfig(
        output_dir=output_dir,
        loss_type="cispo" if loss is Loss.REINFORCE else loss.value,
        epsilon=low,
        epsilon_high=high,
        router_aux_loss_coef=0.0,
        vllm_importance_sampling_correction=False,
        per_device_train_batch_size=2,
        num_generations=2,
        gradient_accumulation_steps=1,
        steps_per_generation=1,
        num_iterations=1,
        remove_unused_columns=False,
        **settings,
    )


try:
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer
except ImportError as error:
    raise MissingExtraError(error.name or "trl", "train") from None

Inputs = dict[str, Any]


class Source(Protocol):
    """Where the rows come from."""

    def rows(self, step: int) -> Sequence[Weighted]:
        """The rows of this rank for an optimiser step, counted from 0. The rows of all ranks together are the step.

        Called once a step, in order, but for a run that resumes: it begins with the step after its checkpoint.
        """


class RowTrainer(Recorded, GRPOTrainer):  # type: ignore[misc]  # TRL has no types
    """Trains a causal language model on the rows of a `Source`, a step of the optimiser for each of its steps."""

    def __init__(
        self,
        model: Any,
        source: Source,
        *,
        args: GRPOConfig,
        tokenizer: Any,
        loss: Loss = Loss.CISPO,
        most_tokens: int = 0,
        peft_config: Any = None,
        callbacks: Sequence[Any] = (),
    ) -> None:
        """`args` come from `losses.arguments`. `most_tokens` bounds a pass's padded ids (0: a row each)."""
        if args.gradient_accumulation_steps != 1 or args.num_iterations != 1 or args.steps_per_generation != 1:
            raise ConfigError("a step's rows are accumulated here: leave accumulation, iterations and generations at 1")
        super().__init__(
            model=model,
            reward_funcs=_no_reward,
            args=args,
            train_dataset=_placeholders(args),
            processing_class=tokenizer,
            peft_config=peft_config,
            callbacks=list(callbacks),
        )
        self.source = source
        self.row_loss = loss
        self.most_tokens = most_tokens
        self.padding = int(tokenizer.pad_token_id)
        self.vocabulary = int(self.accelerator.unwrap_model(self.model).config.vocab_size)

    def _prepare_inputs(self, generation_batch: Any) -> list[Inputs]:
        """The forward passes of this step on this rank, as many as every other rank has."""
        items = list(self.source.rows(self.state.global_step))
        self._check(items)
        batches = passes(items, self.most_tokens)
        tokens, most = self._over_ranks(trained_tokens(items), len(batches))
        if not tokens:
            return []
        filler = inert(items[0]) if items else _filler(self.padding)
        batches += [[filler]] * (most - len(batches))
        return [self._tensors(batch, tokens) for batch in batches]

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Forward and backward over the step's rows; gradients of all ranks meet at the last pass."""
        # Sampling, if the source does it with this very model, is not training; and chance is a function of the step.
        model.eval()
        batches = self._prepare_inputs(inputs)
        model.train()
        torch.manual_seed(self.args.seed + self.state.global_step * SEEDS_A_STEP + self.accelerator.process_index)
        total = torch.zeros((), device=self.accelerator.device)
        self.current_gradient_accumulation_steps = len(batches) if self.row_loss.averages_rows else 1
        for place, batch in enumerate(batches, start=1):
            with nullcontext() if place == len(batches) else self.accelerator.no_sync(model):
                with self.compute_loss_context_manager():
                    loss = self.compute_loss(model, batch)
                self.accelerator.backward(loss)
            total += loss.detach()
        self._step += 1
        if not torch.isfinite(total):
            raise DataError(
                f"the loss of update {self.state.global_step} is {float(total)}: a log-probability, an advantage or a "
                "weight is no number; nothing was learned from it"
            )
        return total

    def floating_point_ops(self, inputs: Any) -> int:
        """Not counted here: what the trainer is handed are placeholders."""
        return 0

    def _check(self, items: Sequence[Weighted]) -> None:
        """Refuses rows that the model cannot read, before a kernel fails on them without a word."""
        longest = getattr(self.accelerator.unwrap_model(self.model).config, "max_position_embeddings", None)
        for item in items:
            if longest is not None and item.length > longest:
                raise DataError(
                    f"a row of episode {item.row.episode_id} has {item.length} ids; the model takes {longest}: "
                    "roll out with a smaller window"
                )
            if max(item.row.input_ids) >= self.vocabulary:
                raise DataError(
                    f"a row of episode {item.row.episode_id} holds id {max(item.row.input_ids)}, the model's "
                    f"vocabulary ends at {self.vocabulary - 1}: the rows were made by another tokenizer"
                )

    def _over_ranks(self, tokens: int, count: int) -> tuple[int, int]:
        """Trained tokens of all ranks together, and the most passes that any of them has."""
        mine = torch.tensor([[tokens, count]], device=self.accelerator.device)
        every = self.accelerator.gather(mine)
        return int(every[:, 0].sum()), int(every[:, 1].max())

    def _tensors(self, batch: Pass, tokens: int) -> Inputs:
        """The pass as TRL's loss takes it: shapes (rows, longest - 1), the prompt (rows, 1)."""
        width = max(item.length for item in batch)
        device = self.accelerator.device

        def filled(lists: Sequence[Sequence[float]], value: float, kind: torch.dtype) -> torch.Tensor:
            return torch.tensor([[*one, *[value] * (width - len(one))] for one in lists], dtype=kind, device=device)

        ids = filled([item.row.input_ids for item in batch], self.padding, torch.long)
        real = filled([[1] * item.length for item in batch], 0, torch.long)
        mask = filled([item.row.loss_mask for item in batch], 0, torch.long)
        made: Inputs = {
            "prompt_ids": ids[:, :1],
            "prompt_mask": real[:, :1],
            "completion_ids": ids[:, 1:],
            "completion_mask": real[:, 1:],
            "tool_mask": mask[:, 1:],
            "advantages": self._advantages(batch, width),
            "num_items_in_batch": torch.tensor(tokens, device=device),
        }
        if self.row_loss.uses_ratio:
            made["old_per_token_logps"] = filled([item.row.logprobs for item in batch], 0.0, torch.float32)[:, 1:]
        if self.beta:
            made["ref_per_token_logps"] = self._reference(ids, real)
        return made

    def _advantages(self, batch: Pass, width: int) -> torch.Tensor:
        """Shape (rows,), or (rows, width - 1) where some row weighs its ids."""
        device = self.accelerator.device
        if not any(item.weights for item in batch):
            return torch.tensor([item.advantage for item in batch], device=device)
        weights = [[*(item.weights or (1.0,) * item.length), *[0.0] * (width - item.length)] for item in batch]
        made = torch.tensor([[item.advantage] for item in batch]) * torch.tensor(weights)
        return made[:, 1:].to(device)

    def _reference(self, ids: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Log-probabilities by the model that training began with: TRL's copy, or the adapter switched off."""
        model = self.ref_model
        scope = nullcontext() if model is not None else self.accelerator.unwrap_model(self.model).disable_adapter()
        with torch.no_grad(), scope:
            logps: torch.Tensor
            logps, _, _ = self._get_per_token_logps_and_entropies(
                self.model if model is None else model, ids, real, ids.shape[1] - 1
            )
        return logps


def _placeholders(args: GRPOConfig) -> Dataset:
    """Something to iterate over: what is trained on comes from the source."""
    return Dataset.from_dict({"prompt": [""] * (args.generation_batch_size // args.num_generations)})


def _no_reward(**_: Any) -> list[float]:
    raise AssertionError("rewards are given to episodes, before their rows are made")


def _filler(pad: int) -> Weighted:
    return Weighted(Row([pad, pad], [0, 0], [0.0, 0.0], "", ""), 0.0)
