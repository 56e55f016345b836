"""A trainer on rows. It extends TRL's GRPO trainer, which provides the optimizer, accelerate and checkpoints.

TRL expects one completion per prompt. Here an episode with an edited context has several rows. Three methods are
overridden for this:

- `RowTrainer._prepare_inputs` takes the rows of an update instead of generating completions.
- `RowTrainer.training_step` runs as many forward and backward passes as the rows need before the optimizer steps.
  Log-probabilities come from TRL's fused output layer, for trained positions only.
- `RowTrainer.compute_loss` uses the losses of `rl.losses`. TRL's own loss averages GRPO within each pass, so a row's
  weight would depend on the rows in the same pass. TRL's metrics would need passes of the same shape on all ranks.

The passes measure how far the trainer's log-probabilities are from the sampler's. For rows that the newest weights
sampled, only the two engines can cause a difference. If it is larger than `loss.mismatch`, the run stops.

TRL's private interface may change, so its minor version is pinned. A test compares the gradient with formulas that were
derived by hand.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, Protocol

from context_agent.errors import ConfigError, DataError, DivergenceError, MissingExtraError, PolicyError
from context_agent.policies.tokens.engines.routers import ExpertReplay, check_experts, replayed_experts, routers
from context_agent.policies.tokens.engines.transformers import row_logprobs
from context_agent.policies.tokens.routed_experts import UNRECORDED, Experts, unpack
from context_agent.train.batches import ForwardPass, WeightedRow, forward_passes, inert_row, row_age, trained_tokens
from context_agent.train.config import Loss, LossConfig
from context_agent.train.output_layer import only_positions
from context_agent.train.rl.losses import (
    PassInputs,
    PassMeasurements,
    UpdateMeasurements,
    UpdateSize,
    episode_tokens,
    token_losses,
)
from context_agent.train.rl.rollouts import SEED_STRIDE
from context_agent.train.rows import TrainingRow
from context_agent.train.trainer_mixin import TrainerMixin
from context_agent.train.trainer_settings import trainer_settings
from context_agent.train.training_run import TrainingRun

try:
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer
except ImportError as error:
    raise MissingExtraError(error.name or "trl", "train") from None


class UpdateSource(Protocol):
    """A source of the rows of each update."""

    def rows(self, update: int) -> Sequence[WeightedRow]:
        """Return this rank's rows for an update. The rows of all ranks together form the update.

        The trainer calls this once for each update, in order. A resumed run begins with the update after its
        checkpoint.

        Args:
            update: The number of the update, from 0.

        Returns:
            The rows.
        """


def grpo_arguments(*, output_dir: str, **settings: Any) -> GRPOConfig:
    """Return TRL's configuration for training on rows.

    The balance loss for mixtures of experts, which gpt-oss enables by default, is off.

    Args:
        output_dir: The folder of the trainer.
        settings: Further settings of `GRPOConfig`.

    Returns:
        The configuration.
    """
    return GRPOConfig(
        output_dir=output_dir,
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


def grpo_config(run: TrainingRun) -> GRPOConfig:
    """Return the arguments for TRL's GRPO trainer in a run.

    Args:
        run: The run.

    Returns:
        The arguments for TRL's GRPO trainer.

    Raises:
        ConfigError: If the run needs TRL's vLLM client and vllm is missing.
    """
    config = run.config
    settings = {
        **trainer_settings(run.config, run.kind, run.trackers),
        "max_steps": config.updates,
        "temperature": config.engine.temperature,
    }
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
            raise ConfigError('engine.sync = "nccl" needs vllm next to the trainer. Run `pip install vllm`.') from None
    return grpo_arguments(**settings)


class InitialWeights:
    """The values of the trained weights when training began. They are the reference of the KL divergence.

    If a run trains new adapters, the reference is the base model. If a run continues to train adapters, the reference
    includes these adapters.
    """

    def __init__(self, model: Any) -> None:
        self._trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._values = [parameter.detach().clone() for parameter in self._trained]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Make the model compute with the initial weights within the block."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for index, parameter in enumerate(self._trained):
            parameter.data, self._values[index] = self._values[index], parameter.data


class RowTrainer(TrainerMixin, GRPOTrainer):  # type: ignore[misc]  # TRL has no types
    """A trainer of a causal language model on the rows of an `UpdateSource`. Each update is one optimizer step."""

    def __init__(
        self,
        model: Any,
        source: UpdateSource,
        *,
        args: GRPOConfig,
        tokenizer: Any,
        loss: LossConfig | None = None,
        mismatch: float = math.inf,
        peft_config: Any = None,
        callbacks: Sequence[Any] = (),
    ) -> None:
        """Set up the trainer.

        Args:
            model: The causal language model.
            source: The source of the rows.
            args: The configuration of `grpo_arguments`. The loss uses the same temperature.
            tokenizer: The tokenizer of the model.
            loss: The loss settings.
            mismatch: Largest allowed mean difference from the sampler's log-probabilities for the same weights.
            peft_config: The configuration of new adapters. If it is None, the model is trained as it is.
            callbacks: Callbacks of the Trainer.

        Raises:
            ConfigError: If `args` accumulates gradients or repeats updates. This trainer accumulates the rows itself.
        """
        if args.gradient_accumulation_steps != 1 or args.num_iterations != 1 or args.steps_per_generation != 1:
            raise ConfigError(
                "this trainer accumulates the rows itself. Leave gradient_accumulation_steps, num_iterations and "
                "steps_per_generation at 1."
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
        self.row_loss = loss or LossConfig()
        self.mismatch = mismatch
        self.padding = int(tokenizer.pad_token_id)
        self.initial = InitialWeights(self.model) if self.row_loss.kl else None
        self._measured = PassMeasurements()
        self._divisor = 1
        self._update_tokens = 0
        text = self.accelerator.unwrap_model(self.model).config.get_text_config()
        self.vocabulary = int(text.vocab_size)
        self._longest: int | None = getattr(text, "max_position_embeddings", None)

    @property
    def has_trained(self) -> bool:
        """True if the run has trained a token, in this process or an earlier one."""
        lines: list[dict[str, Any]] = self.state.log_history
        return bool(self._update_tokens) or any(line.get("update_tokens") for line in lines)

    def score(self, ids: Sequence[int]) -> list[float]:
        """Return the log-probability of each id after the first, at temperature 1.

        All ranks call this together, within `inference`.
        """
        with self.accelerator.autocast():
            scores: list[float] = row_logprobs(self.model, ids).tolist()
        return scores

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Set the model to evaluation mode within the block, so that it samples without dropout."""
        training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(training)

    def _prepare_inputs(self, generation_batch: Any) -> list[PassInputs]:
        """Return the forward passes of this update on this rank. Every rank has the same number of passes."""
        items = list(self.source.rows(self.state.global_step))
        self._check(items)
        batches = forward_passes(items, self.row_loss.pass_tokens)
        # All rows of an episode are on one rank.
        by_episode = episode_tokens(items)
        size = self._over_ranks(items, len(by_episode), len(batches))
        self._update_tokens, self._divisor = size.tokens, max(1, size.divisor(self.row_loss.kind))
        self.report({"update_tokens": float(size.tokens)})
        if not size.tokens:
            return []
        filler = inert_row(items[0]) if items else _filler_row(self.padding)
        batches += [[filler]] * (size.passes - len(batches))
        averaged = by_episode if self.row_loss.kind is Loss.GRPO else {}
        return [self._pass_inputs(batch, averaged) for batch in batches]

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Run forward and backward over the update's rows. The gradients of all ranks are combined at the last pass.

        Args:
            model: The model.
            inputs: A placeholder, which is not used.
            num_items_in_batch: Not used.

        Returns:
            The loss, a scalar.

        Raises:
            DivergenceError: If the loss is not finite.
            PolicyError: If the sampler's log-probabilities are not those of the trainer's weights.
        """
        # The source may sample with this model, which needs evaluation mode. The seed depends only on the update.
        model.eval()
        passes = self._prepare_inputs(inputs)
        model.train()
        torch.manual_seed(self.args.seed + self.state.global_step * SEED_STRIDE + self.accelerator.process_index)
        total = torch.zeros((), device=self.accelerator.device)
        self.current_gradient_accumulation_steps = 1
        self._measured, started = PassMeasurements(), time.perf_counter()
        for number, each in enumerate(passes, start=1):
            syncing = nullcontext() if number == len(passes) else self.accelerator.no_sync(model)
            with syncing, self._routed(each) as replay:
                with self.compute_loss_context_manager():
                    loss = self.compute_loss(model, each)
                self.accelerator.backward(loss)
            if replay is not None:
                self._measured.add_replay(replay)
            total += loss.detach()
        self._step += 1
        if not torch.isfinite(total):
            raise DivergenceError(
                f"the loss of update {self.state.global_step} is {float(total)}, because a log-probability, an "
                "advantage or a weight is not finite. The weights were not updated."
            )
        if passes:
            self._report_passes(sum(int(each.real.sum()) for each in passes), time.perf_counter() - started)
        return total

    def compute_loss(
        self, model: Any, inputs: PassInputs, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Return the contribution of a pass to the update's loss, a scalar.

        Gradients are averaged over ranks, so the contribution is multiplied by the number of ranks.
        """
        logps, entropies = self._token_logps(model, inputs)
        self._measured.add(self.row_loss, inputs, logps.detach(), entropies)
        losses = token_losses(self.row_loss, inputs, logps) * inputs.row_weights
        total: torch.Tensor = (losses * inputs.trained).sum() * self.accelerator.num_processes / self._divisor
        return total

    def _token_logps(self, model: Any, inputs: PassInputs) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probabilities and entropies, shape (rows, longest - 1), in 32 bits at the run's temperature.

        Positions that are not trained get no logits, and their values are 0. A filler row still computes one position.
        Every weight then receives a gradient, which is 0. Ranks that wait for each other need this.
        """
        positions = inputs.trained.any(0).nonzero()[:, 0]
        if not len(positions):
            positions = torch.zeros(1, dtype=torch.long, device=inputs.ids.device)
        labels = inputs.ids[:, 1:][:, positions]
        with self.accelerator.autocast(), only_positions(self.accelerator.unwrap_model(model), positions):
            output = model(input_ids=inputs.ids, attention_mask=inputs.real, shift_labels=labels, fused_lm_head=True)

        def spread(values: torch.Tensor) -> torch.Tensor:
            return values.new_zeros(inputs.trained.shape).index_copy(1, positions, values) * inputs.trained

        return spread(output.log_probs), spread(output.entropy).detach()

    def _routed(self, inputs: PassInputs) -> AbstractContextManager[ExpertReplay | None]:
        """Return a context manager that routes the pass's ids to the experts that the sampler chose."""
        if inputs.experts is None:
            return nullcontext()
        return replayed_experts(self.accelerator.unwrap_model(self.model), inputs.experts)

    def _experts(self, batch: ForwardPass, width: int) -> torch.Tensor | None:
        """Return the recorded experts of a pass, padded. If none are replayed, return None."""
        if not self.row_loss.router_replay or not any(item.row.experts for item in batch):
            return None
        found = routers(self.accelerator.unwrap_model(self.model))
        shape = (len(batch), width, len(found), found[0].top_k)
        experts = torch.full(shape, UNRECORDED, dtype=torch.long)
        for row, item in enumerate(batch):
            if item.row.experts:
                recorded: Experts = unpack(item.row.experts)
                check_experts(recorded, found, item.length)
                experts[row, : len(recorded)] = torch.from_numpy(recorded)
        return experts.to(self.accelerator.device)

    def _report_passes(self, ids: int, seconds: float) -> None:
        """Report the passes of all ranks. Raise `PolicyError` if the mismatch exceeds the bound."""
        mine = [*self._measured.values(), float(ids), seconds]
        every = self.accelerator.gather(torch.tensor([mine], dtype=torch.float64, device=self.accelerator.device))
        measured = UpdateMeasurements.of(every[:, :-2].tolist())
        for name, value in measured.metrics(self.row_loss).items():
            self._metrics["train"][name].append(value)
        all_ids, slowest = float(every[:, -2].sum()), float(every[:, -1].max())
        self.report({"trained_per_second": all_ids / slowest, "passes_seconds": slowest})
        if not measured.mismatch <= self.mismatch:
            raise PolicyError(
                f"in update {self.state.global_step}, the log-probabilities of {measured.sums['fresh']:,.0f} tokens "
                f"that the newest weights sampled differ from the trainer's by {measured.mismatch:.3g} on average and "
                f"{measured.largest:.3g} at most. The bound is {self.mismatch:g} (loss.mismatch). The sampler has "
                "other weights than the trainer, or computes differently. Check the adapter that the server has "
                "loaded, its number type, and --logprobs-mode (processed_logprobs if the temperature is not 1)."
            )

    def floating_point_ops(self, inputs: Any) -> int:
        """Return 0. The trainer receives placeholders, so operations are not counted."""
        return 0

    def _check(self, items: Sequence[WeightedRow]) -> None:
        """Raise `DataError` if the model cannot read a row. Otherwise a kernel would fail without a useful message."""
        for item in items:
            if self._longest is not None and item.length > self._longest:
                raise DataError(
                    f"a row of episode {item.row.episode_id} has {item.length} token ids, but the model takes at most "
                    f"{self._longest}. Use a smaller window."
                )
            if max(item.row.input_ids) >= self.vocabulary:
                raise DataError(
                    f"a row of episode {item.row.episode_id} has the id {max(item.row.input_ids)}, but the model's "
                    f"vocabulary ends at {self.vocabulary - 1}, so another tokenizer made the row. Use the model's "
                    "tokenizer."
                )

    def _over_ranks(self, items: Sequence[WeightedRow], episodes: int, passes: int) -> UpdateSize:
        mine = torch.tensor([[trained_tokens(items), episodes, passes]], device=self.accelerator.device)
        every = self.accelerator.gather(mine)
        return UpdateSize(int(every[:, 0].sum()), int(every[:, 1].sum()), int(every[:, 2].max()))

    def _pass_inputs(self, batch: ForwardPass, averaged: Mapping[str, int]) -> PassInputs:
        """Return the inputs of a pass. `averaged` has the tokens of the episodes over which the loss is averaged."""
        width, update = max(item.length for item in batch), self.state.global_step

        def tensor(values: Sequence[Sequence[float]], kind: torch.dtype) -> torch.Tensor:
            return torch.tensor(values, dtype=kind, device=self.accelerator.device)

        def filled(lists: Sequence[Sequence[float]], value: float, kind: torch.dtype) -> torch.Tensor:
            return tensor([[*values, *[value] * (width - len(values))] for values in lists], kind)

        advantages = tensor([[item.advantage] for item in batch], torch.float32)
        if any(item.weights for item in batch):
            weights = [item.weights or (1.0,) * item.length for item in batch]
            advantages = advantages * filled(weights, 0.0, torch.float32)[:, 1:]
        fresh = [[not (item.demonstrated or item.lost) and row_age(item.row, update) == 0] for item in batch]
        inputs = PassInputs(
            ids=filled([item.row.input_ids for item in batch], self.padding, torch.long),
            real=filled([[1] * item.length for item in batch], 0, torch.long),
            trained=filled([item.row.loss_mask for item in batch], 0, torch.bool)[:, 1:],
            sampled=filled([item.row.logprobs for item in batch], 0.0, torch.float32)[:, 1:],
            advantages=advantages,
            row_weights=tensor([[1 / averaged.get(item.row.episode_id, 1)] for item in batch], torch.float32),
            fresh=tensor(fresh, torch.bool),
            has_sampler=not batch[0].demonstrated,
            experts=self._experts(batch, width),
        )
        if self.initial is None:
            return inputs
        with torch.no_grad(), self.initial.in_place(), self._routed(inputs):
            return replace(inputs, reference=self._token_logps(self.model, inputs)[0])


def _placeholders(args: GRPOConfig) -> Dataset:
    """Return a dataset of the right length with empty prompts. The rows come from the source instead."""
    return Dataset.from_dict({"prompt": [""] * (args.generation_batch_size // args.num_generations)})


def _no_reward(**_: Any) -> list[float]:
    raise AssertionError("rewards are computed before rows are made")


def _filler_row(pad: int) -> WeightedRow:
    return WeightedRow(TrainingRow([pad, pad], [0, 0], [0.0, 0.0], "", ""), 0.0)
