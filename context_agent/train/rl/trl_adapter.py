"""Fits the training loop (`train.rl.loop`) to TRL's GRPO trainer, which keeps loss, optimiser, accelerate and
checkpoints.

TRL drives training itself and expects one completion for a prompt. Here the loop drives training, and an episode whose
context was edited has several rows. Three things are done to fit the two together:

- `LoopDriver` runs the loop, a generator, inside TRL's training: TRL resumes it when it needs the rows of an update and
  again when the update is done.
- `RowTrainer._prepare_inputs` takes the rows of an update in place of generating completions.
- `RowTrainer.training_step` runs as many forward and backward passes as the rows need before the optimiser steps.
  Without a GPU, TRL's passes compute the logits of every position; here only trained positions get logits.

The first id of a row stands for the prompt and the rest for the completion. `tool_mask` is the row's loss mask, and the
sampler's log-probabilities are the old ones, so that one ratio covers staleness and the difference between engines:

    loss = -(1/N) sum_t mask_t * stop_grad(min(p_theta / p_sampler, cap)) * A * log p_theta        (CISPO)

where N is the number of trained tokens of the update over all ranks. A demonstrated row has no sampler: TRL gets no old
log-probabilities for it and takes the policy's own, so that the ratio is 1 (`rl.demonstrations`).

TRL's private interface changes, so its minor version is pinned; a test compares the gradient with this formula written
by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from context_agent.errors import ConfigError, ContextAgentError, DataError, MissingExtraError
from context_agent.train.config import Loss, RunConfig
from context_agent.train.models import only_positions
from context_agent.train.rl.rollouts import SEED_STRIDE
from context_agent.train.rl.weight_sync import WeightSync
from context_agent.train.rows import ForwardPass, TrainingRow, WeightedRow, forward_passes, inert_row, trained_tokens
from context_agent.train.training_run import TrainerMixin, TrainingRun

try:
    import torch
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer
    from trl.trainer.utils import use_adapter
except ImportError as error:
    raise MissingExtraError(error.name or "trl", "train") from None

ModelInputs = dict[str, Any]


_Callback: Any = TrainerCallback

REFERENCE = "ref"
"""TRL's name for its copy of the adapter that training began with."""

CHECKPOINT: tuple[WeightedRow, ...] = ()
"""What a loop yields when an update is done: TRL logs it, and saves a checkpoint if one is due."""


class UpdateSource(Protocol):
    """Provides the rows of each update."""

    def rows(self, update: int) -> Sequence[WeightedRow]:
        """This rank's rows for an optimiser step, counted from 0; the rows of all ranks together are the update.

        Called once for each update, in order. A resumed run begins with the update after its checkpoint.
        """


class UpdateLoop(Protocol):
    """A training loop as a generator: for each update it yields the rows, and then `CHECKPOINT`."""

    @property
    def weights(self) -> WeightSync:
        """What brings new weights to the sampler."""

    def run(self, trainer: RowTrainer, update: int) -> Iterator[Sequence[WeightedRow]]:
        """Starts the loop at an update."""


class LoopDriver(_Callback):  # type: ignore[misc]  # the base has no types
    """Runs an `UpdateLoop` inside TRL's training, as the trainer's source of rows and as one of its callbacks."""

    def __init__(self, loop: UpdateLoop) -> None:
        self._loop = loop
        self._running: Iterator[Sequence[WeightedRow]] | None = None
        self._error: ContextAgentError | None = None
        self.trainer: Any = None
        """Set it before training."""

    def rows(self, update: int) -> Sequence[WeightedRow]:
        """Runs the loop to the rows of the next update."""
        if self._running is None:
            self._running = self._loop.run(self.trainer, update)
        return next(self._running)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The sampler must not read weights while they change."""
        self._loop.weights.before_update()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The weights have changed."""
        self._loop.weights.after_update()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Runs the loop to its checkpoint. An error waits until TRL has logged the update, which is done and counts."""
        assert self._running is not None
        try:
            next(self._running)
        except ContextAgentError as error:
            self._error = error

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Raises the error of the last update's end."""
        self._raise()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Raises the error of the last update's end."""
        self._raise()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


def grpo_arguments(
    loss: Loss, *, output_dir: str, cap: float = 5.0, clip: tuple[float, float] = (0.2, 0.28), **settings: Any
) -> GRPOConfig:
    """TRL's configuration for a loss. `settings` go to `GRPOConfig` as they are.

    `cap` bounds CISPO's ratio (the raw value, not 1 + epsilon); `clip` are the lower and upper epsilon of the clipped
    surrogates (DAPO's clip-higher by default). TRL's own defaults that would change the loss are put right here: the
    balance loss of mixtures of experts, which is on for gpt-oss, and the correction for the sampler's mismatch, which
    the ratio to the sampler's own log-probabilities covers.
    """
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


def grpo_config(config: RunConfig, run: TrainingRun) -> GRPOConfig:
    """TRL's configuration. Raises `ConfigError` if its vLLM client is missing."""
    settings = {**run.trainer_settings(), "max_steps": config.updates, "beta": config.loss.kl}
    if config.engine.kind == "vllm" and config.engine.sync == "nccl":
        settings |= {
            "use_vllm": True,
            "vllm_mode": "server",
            "vllm_server_base_url": config.engine.base_url.rstrip("/").removesuffix("/v1"),
            "vllm_server_timeout": config.engine.timeout,
        }
        try:
            import vllm  # noqa: F401 - reported here rather than by TRL
        except ImportError:
            raise ConfigError('engine.sync = "nccl" needs vllm next to the trainer: pip install vllm') from None
    return grpo_arguments(config.loss.kind, cap=config.loss.cap, clip=config.loss.clip, **settings)


class RowTrainer(TrainerMixin, GRPOTrainer):  # type: ignore[misc]  # TRL has no types
    """Trains a causal language model on the rows of an `UpdateSource`, one optimiser step for each update."""

    def __init__(
        self,
        model: Any,
        source: UpdateSource,
        *,
        args: GRPOConfig,
        tokenizer: Any,
        loss: Loss = Loss.CISPO,
        most_tokens: int = 0,
        peft_config: Any = None,
        callbacks: Sequence[Any] = (),
    ) -> None:
        """`args` come from `grpo_arguments`. `most_tokens` limits the padded ids of a forward pass; 0 runs each row
        alone.
        """
        if args.gradient_accumulation_steps != 1 or args.num_iterations != 1 or args.steps_per_generation != 1:
            raise ConfigError(
                "this trainer accumulates the rows itself: leave gradient_accumulation_steps, num_iterations and "
                "steps_per_generation at 1"
            )
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
        self._trained = torch.zeros(1, 1)  # the mask of the pass that is computed, shape (rows, width - 1)
        self.vocabulary = int(self.accelerator.unwrap_model(self.model).config.vocab_size)

    @contextmanager
    def inference(self) -> Iterator[None]:
        """The model in evaluation mode, so that it samples without dropout."""
        training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(training)

    def _prepare_inputs(self, generation_batch: Any) -> list[ModelInputs]:
        """The forward passes of this step on this rank, as many as every other rank has."""
        items = list(self.source.rows(self.state.global_step))
        self._check(items)
        batches = forward_passes(items, self.most_tokens)
        tokens, most = self._over_ranks(trained_tokens(items), len(batches))
        if not tokens:
            return []
        filler = inert_row(items[0]) if items else _filler_row(self.padding)
        batches += [[filler]] * (most - len(batches))
        return [self._tensors(batch, tokens) for batch in batches]

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Forward and backward over the step's rows; gradients of all ranks meet at the last pass."""
        # The source may sample with this model, which is inference. Randomness is a function of the update.
        model.eval()
        batches = self._prepare_inputs(inputs)
        model.train()
        torch.manual_seed(self.args.seed + self.state.global_step * SEED_STRIDE + self.accelerator.process_index)
        total = torch.zeros((), device=self.accelerator.device)
        self.current_gradient_accumulation_steps = len(batches) if self.row_loss.averages_rows else 1
        for number, batch in enumerate(batches, start=1):
            with nullcontext() if number == len(batches) else self.accelerator.no_sync(model):
                self._trained = batch["tool_mask"]
                with self.compute_loss_context_manager():
                    loss = self.compute_loss(model, batch)
                self.accelerator.backward(loss)
            total += loss.detach()
        self._step += 1
        if not torch.isfinite(total):
            raise DataError(
                f"the loss of update {self.state.global_step} is {float(total)}: a log-probability, an advantage or a "
                "weight is not finite; the weights were not updated"
            )
        return total

    def floating_point_ops(self, inputs: Any) -> int:
        """Not counted: the trainer receives placeholders."""
        return 0

    def _check(self, items: Sequence[WeightedRow]) -> None:
        """Refuses rows that the model cannot read, before a kernel fails on them without a message."""
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

    def _tensors(self, batch: ForwardPass, tokens: int) -> ModelInputs:
        """The pass as TRL's loss takes it: shapes (rows, longest - 1), the prompt (rows, 1)."""
        width = max(item.length for item in batch)
        device = self.accelerator.device

        def filled(lists: Sequence[Sequence[float]], value: float, kind: torch.dtype) -> torch.Tensor:
            padded = [[*values, *[value] * (width - len(values))] for values in lists]
            return torch.tensor(padded, dtype=kind, device=device)

        ids = filled([item.row.input_ids for item in batch], self.padding, torch.long)
        real = filled([[1] * item.length for item in batch], 0, torch.long)
        mask = filled([item.row.loss_mask for item in batch], 0, torch.long)
        inputs: ModelInputs = {
            "prompt_ids": ids[:, :1],
            "prompt_mask": real[:, :1],
            "completion_ids": ids[:, 1:],
            "completion_mask": real[:, 1:],
            "tool_mask": mask[:, 1:],
            "advantages": self._advantages(batch, width),
            "num_items_in_batch": torch.tensor(tokens, device=device),
        }
        if self.row_loss.uses_ratio and not batch[0].demonstrated:
            inputs["old_per_token_logps"] = filled([item.row.logprobs for item in batch], 0.0, torch.float32)[:, 1:]
        if self.beta:
            inputs["ref_per_token_logps"] = self._reference(ids, real, mask[:, 1:])
        return inputs

    def _advantages(self, batch: ForwardPass, width: int) -> torch.Tensor:
        """Shape (rows,), or (rows, width - 1) where some row weighs its ids."""
        device = self.accelerator.device
        if not any(item.weights for item in batch):
            return torch.tensor([item.advantage for item in batch], device=device)
        weights = [[*(item.weights or (1.0,) * item.length), *[0.0] * (width - item.length)] for item in batch]
        weighted = torch.tensor([[item.advantage] for item in batch]) * torch.tensor(weights)
        return weighted[:, 1:].to(device)

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int, **options: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
        """TRL's log-probabilities and entropies, shape (rows, logits_to_keep): 0 where no row of the pass trains."""
        positions = self._trained.any(0).nonzero()[:, 0]
        if input_ids.is_cuda or options.get("compute_aux_loss") or not len(positions):
            return super()._get_per_token_logps_and_entropies(  # type: ignore[no-any-return]
                model, input_ids, attention_mask, logits_to_keep, **options
            )
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        labels = input_ids[:, 1:][:, positions]
        with self.accelerator.autocast(), only_positions(self.accelerator.unwrap_model(model), positions):
            output = model(**inputs, shift_labels=labels, fused_lm_head=True)

        def spread(values: torch.Tensor) -> torch.Tensor:
            return values.new_zeros(len(input_ids), logits_to_keep).index_copy(1, positions, values)

        return spread(output.log_probs), spread(output.entropy) if options.get("compute_entropy") else None, None

    def _reference(self, ids: torch.Tensor, real: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the log-probabilities by the model that training began with.

        It is TRL's copy of all weights. For adapters that an earlier run trained it is TRL's copy of them, and for new
        ones the model without them.
        """
        self._trained = mask
        model = self.ref_model
        scope = nullcontext() if model is not None else self._initial_adapter()
        with torch.no_grad(), scope:
            logps: torch.Tensor
            logps, _, _ = self._get_per_token_logps_and_entropies(
                self.model if model is None else model, ids, real, ids.shape[1] - 1
            )
        return logps

    def _initial_adapter(self) -> AbstractContextManager[None]:
        adapted = self.accelerator.unwrap_model(self.model)
        scope: AbstractContextManager[None] = use_adapter(
            adapted, REFERENCE if REFERENCE in adapted.peft_config else None
        )
        return scope

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Save the model without TRL's copy of the initial adapter, which every run makes from `model.adapter`."""
        adapters = getattr(self.accelerator.unwrap_model(self.model), "peft_config", {})
        reference = adapters.pop(REFERENCE, None)
        try:
            super()._save(output_dir, state_dict)
        finally:
            if reference is not None:
                adapters[REFERENCE] = reference


def _placeholders(args: GRPOConfig) -> Dataset:
    """A dataset of the right length; the rows come from the source."""
    return Dataset.from_dict({"prompt": [""] * (args.generation_batch_size // args.num_generations)})


def _no_reward(**_: Any) -> list[float]:
    raise AssertionError("rewards are computed before rows are made")


def _filler_row(pad: int) -> WeightedRow:
    return WeightedRow(TrainingRow([pad, pad], [0, 0], [0.0, 0.0], "", ""), 0.0)
