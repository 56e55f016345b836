"""Supervised fine-tuning on demonstrations: TRL's SFTTrainer on rows of token ids; `ctx1 train sft`.

Nothing is tokenised here, and no chat template is used. gpt-oss's template would drop the reasoning of earlier turns
and all but the first of several calls; the rows hold what the harness shows and what a model would reply.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from context_agent.errors import DataError, MissingExtraError
from context_agent.policies.tokens.prompt import TokenRenderer
from context_agent.train.config import Notify, OnUpdate, RunConfig
from context_agent.train.data import demonstration_rows, environment_of
from context_agent.train.environment import ToyEnvironment
from context_agent.train.models import load_model, only_positions
from context_agent.train.rows import ABOUT, RowFolder, open_folder, order_by_length, write_row_folder
from context_agent.train.training_run import TrainerMixin, TrainingResult, TrainingRun

try:
    from datasets import Dataset
    from trl import SFTConfig, SFTTrainer
except ImportError as error:
    raise MissingExtraError(error.name or "trl", "train") from None


def folder_dataset(folder: RowFolder, *, longest: int | None = None, vocabulary: int | None = None) -> Dataset:
    """The rows of a folder, memory-mapped. Raises `DataError` for a folder without rows, or rows too long."""
    if not folder.rows:
        raise DataError(f"there is no row to train on in {folder.path}")
    if longest is not None and folder.longest > longest:
        raise DataError(
            f"the longest row in {folder.path} has {folder.longest} ids; the model takes {longest}: "
            "make trajectories with a smaller window"
        )
    columns = ["input_ids", "loss_mask"]
    dataset = Dataset.from_parquet(str(folder.parquet), columns=columns, cache_dir=str(folder.path / "cache"))
    dataset = dataset.rename_column("loss_mask", "completion_mask")
    if vocabulary is not None and (most := max(map(max, dataset["input_ids"]))) >= vocabulary:
        raise DataError(
            f"the rows in {folder.path} hold id {most}, the model's vocabulary ends at {vocabulary - 1}: "
            "they were made by another tokenizer"
        )
    return dataset


IGNORED = -100
"""The label of a position that teaches nothing."""


class LengthSampler:
    """The order of an epoch, a function of seed and epoch, so that a resumed run continues in the same order."""

    def __init__(self, lengths: Sequence[int], size: int, seed: int) -> None:
        self._lengths, self._size, self._seed, self._epoch = lengths, size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Called before each epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Rows."""
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        """Their places."""
        return iter(order_by_length(self._lengths, self._size, seed=self._seed, epoch=self._epoch))


class RowSftTrainer(TrainerMixin, SFTTrainer):  # type: ignore[misc]  # TRL has no types
    """TRL's trainer on rows, with this project's order, metrics and checkpoints."""

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> LengthSampler:
        dataset = self.train_dataset if train_dataset is None else train_dataset
        size = self.args.per_device_train_batch_size * self.accelerator.num_processes
        return LengthSampler([len(ids) for ids in dataset["input_ids"]], size, self.args.data_seed or self.args.seed)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """TRL's loss, a scalar, for `input_ids` and `labels` of shape (rows, tokens).

        Without a GPU, TRL computes the logits of every position. Here only the positions with a label get logits, in
        demonstrations a twentieth of all; the loss and its gradient stay the same.
        """
        labels = inputs["labels"][:, 1:]
        positions = (labels != IGNORED).any(0).nonzero()[:, 0]
        if labels.is_cuda or return_outputs or not len(positions):
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        with only_positions(self.accelerator.unwrap_model(model), positions):
            inputs = {**inputs, "shift_labels": labels[:, positions]}
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)


def sft_arguments(*, output_dir: str, **settings: Any) -> SFTConfig:
    """TRL's configuration: loss on the sampled ids alone, no truncation, no packing.

    The balance loss of mixtures of experts, on by default for gpt-oss, is off. `settings` go to `SFTConfig`.
    """
    return SFTConfig(
        output_dir=output_dir,
        completion_only_loss=True,
        max_length=None,
        packing=False,
        router_aux_loss_coef=0.0,
        **settings,
    )


def train(
    run: RunConfig, *, resume: bool = False, note: Notify = print, advance: OnUpdate | None = None
) -> TrainingResult:
    """Trains on demonstrations, from the start or from the newest checkpoint.

    Raises `ConfigError` for settings that cannot work and `DataError` for trajectories that nothing can be learned
    from: none, or rows that the model cannot read.
    """
    session = TrainingRun(run, "sft", resume=resume, note=note, advance=advance)
    world = environment_of(run.data)
    loaded = load_model(run, world)
    folder = prepare_rows(run, loaded.renderer, note, world, again=session.newest is None, main=session.main)
    note(f"{folder.rows:,} rows of at most {folder.longest:,} tokens; {folder.trained:,} of {folder.tokens:,} teach")
    text = loaded.model.config.get_text_config()
    dataset = folder_dataset(folder, longest=getattr(text, "max_position_embeddings", None), vocabulary=text.vocab_size)
    args = sft_arguments(
        num_train_epochs=run.sft.epochs,
        per_device_train_batch_size=run.sft.rows_per_pass,
        gradient_accumulation_steps=run.sft.rows // (run.sft.rows_per_pass * session.ranks) or 1,
        **session.trainer_settings(),
    )
    trainer = RowSftTrainer(
        model=loaded.model,
        args=args,
        train_dataset=dataset,
        processing_class=loaded.tokenizer,
        peft_config=loaded.adapter,
    )
    return session.train(trainer)


def prepare_rows(
    run: RunConfig,
    renderer: TokenRenderer,
    note: Notify,
    world: ToyEnvironment | None,
    *,
    again: bool = True,
    main: bool = True,
) -> RowFolder:
    """The rows of the run in OUT/rows: made with `again` or if they do not exist, else read.

    Raises `DataError` if another tokenizer made them, or if there is none.
    """
    from accelerate import PartialState

    rows_folder = Path(run.out) / "rows"
    if main and (again or not (rows_folder / ABOUT).is_file()):
        write_row_folder(demonstration_rows(run, renderer, note, world), rows_folder, tokenizer=renderer.counter_name)
    PartialState().wait_for_everyone()
    folder = open_folder(rows_folder)
    folder.check(renderer.counter_name)
    if not folder.rows:
        raise DataError("no trajectory could be made into rows: see the skipped ones above")
    return folder
