"""Supervised fine-tuning on demonstrations, `ctx1 train sft`: TRL's SFTTrainer on rows of token ids.

This module does not tokenize and does not use a chat template. gpt-oss's template would drop the reasoning of earlier
turns, and all but the first of several calls. The rows contain what the harness shows and what a model would reply.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from context_agent.errors import ConfigError, DataError, MissingExtraError
from context_agent.policies.tokens.prompt import TokenRenderer
from context_agent.train.batches import order_by_length
from context_agent.train.config import ADAPTER_LESSONS_RATE, Notify, OnUpdate, RunConfig, SftConfig
from context_agent.train.lessons import check_trajectories, demonstration_rows
from context_agent.train.memory_errors import explained_memory_errors
from context_agent.train.models import WEIGHTS_REMEDY, initial_weights_digest, load_model
from context_agent.train.output_layer import only_positions
from context_agent.train.row_files import ABOUT, ROWS_FOLDER, RowDigest, RowFolder, open_folder, write_row_folder
from context_agent.train.run_lock import locked_folder
from context_agent.train.trainer_mixin import TrainerMixin
from context_agent.train.trainer_settings import trainer_settings
from context_agent.train.training_run import TrainingResult, TrainingRun

try:
    import torch
    from datasets import Dataset
    from datasets.exceptions import DatasetGenerationError
    from transformers import TrainerCallback
    from trl import SFTConfig, SFTTrainer
except ImportError as error:
    raise MissingExtraError(error.name or "trl", "train") from None


def folder_dataset(folder: RowFolder, *, longest: int | None = None, vocabulary: int | None = None) -> Dataset:
    """Return the rows of a folder as a memory-mapped dataset.

    Args:
        folder: The folder of rows.
        longest: Longest row that the model takes, in ids. None means no limit.
        vocabulary: Size of the model's vocabulary. None to skip the check of ids.

    Returns:
        A dataset with the columns `input_ids`, `completion_mask` and `group_id`.

    Raises:
        DataError: If there are no rows, the file of rows is damaged, a row is too long, or an id is outside the
            vocabulary.
    """
    if not folder.rows:
        raise DataError(f"{folder.path} has no rows to train on. Make rows from other trajectories.")
    if longest is not None and folder.longest > longest:
        raise DataError(
            f"the longest row in {folder.path} has {folder.longest} tokens, but the model accepts at most {longest}. "
            "Make the trajectories again with a smaller window."
        )
    columns = ["input_ids", "loss_mask", "group_id"]
    most, digest = 0, RowDigest()
    try:
        # The dataset is a copy of the file in the cache. What is trained is checked, so the copy is read.
        dataset = Dataset.from_parquet(str(folder.parquet), columns=columns, cache_dir=str(folder.path / "cache"))
        for row in dataset:
            digest.add_columns(*(row[name] for name in columns))
            most = max(most, *row["input_ids"])
        problem = "" if len(dataset) == folder.rows else f"it has {len(dataset):,} rows instead of {folder.rows:,}"
        if not problem and digest.hex() != (folder.digest or digest.hex()):
            problem = "its rows changed after they were written"
    except (OSError, ValueError, TypeError, OverflowError, DatasetGenerationError) as error:
        problem = str(error.__cause__ or error).rstrip(".")
    if problem:
        raise DataError(
            f"{folder.parquet} is damaged ({problem}). Delete {folder.path}, so that the same command makes the rows "
            "again."
        )
    dataset = dataset.rename_column("loss_mask", "completion_mask")
    if vocabulary is not None and most >= vocabulary:
        raise DataError(
            f"the rows in {folder.path} have the id {most}, but the model's vocabulary ends at {vocabulary - 1}, "
            "so another tokenizer made them. Make the rows again with the model's tokenizer."
        )
    return dataset


def split_held_out(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset | None]:
    """Divide rows by question into rows that train and rows that measure the loss.

    Args:
        dataset: The rows, with their `group_id`.
        share: Share of the questions to hold out. Their number is rounded down.
        seed: Seed of the choice.

    Returns:
        The training rows, and the held-out rows. The latter are None if no question is held out.
    """
    groups = sorted(set(dataset["group_id"]))
    held_out = set(random.Random(seed).sample(groups, int(share * len(groups))))
    places: tuple[list[int], list[int]] = [], []
    for place, group in enumerate(dataset["group_id"]):
        places[group in held_out].append(place)
    rows = dataset.remove_columns("group_id")
    return rows.select(places[0]), rows.select(places[1]) if places[1] else None


HELD_OUT_LOSS = "dev/loss"
"""The name of the metric of held-out demonstrations."""
IGNORED = -100
"""The label of a position that is not trained."""


class LengthSampler:
    """A sampler of rows in an order that depends only on the seed, the epoch and the sizes of a pass and an update.

    A resumed run keeps the order, also with another number of processes. Each update begins with its longest rows, so
    that the passes of all processes at one time have rows of similar length.
    """

    def __init__(self, lengths: Sequence[int], *, of_pass: int, of_update: int, seed: int) -> None:
        self._lengths, self._seed, self._epoch = lengths, seed, 0
        self._of_pass, self._of_update = of_pass, of_update

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch. The trainer calls this before each epoch."""
        self._epoch = epoch

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        """Yield the indices of the rows."""
        order = order_by_length(self._lengths, self._of_pass, seed=self._seed, epoch=self._epoch)
        for start in range(0, len(order), self._of_update):
            yield from sorted(order[start : start + self._of_update], key=lambda index: -self._lengths[index])


class RowSftTrainer(TrainerMixin, SFTTrainer):  # type: ignore[misc]  # TRL has no types
    """TRL's supervised trainer on rows, with this project's row order, metrics and checkpoints."""

    rows_per_pass: int | None = None
    """Number of rows of similar length, for any number of processes. None means the rows of a pass."""
    _read_tokens = 0
    _began = 0.0

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> LengthSampler:
        dataset = self.train_dataset if train_dataset is None else train_dataset
        of_pass = self.args.per_device_train_batch_size
        return LengthSampler(
            [len(ids) for ids in dataset["input_ids"]],
            of_pass=self.rows_per_pass or of_pass,
            of_update=of_pass * self.accelerator.num_processes * self.args.gradient_accumulation_steps,
            seed=self.args.data_seed or self.args.seed,
        )

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Any:
        """Run forward and backward over a pass, and count its tokens."""
        if not self._read_tokens:
            self._began = time.perf_counter()
        self._read_tokens += int(inputs["attention_mask"].sum())
        return super().training_step(model, inputs, num_items_in_batch)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """Return the norm of the gradient, and report the speed of the passes that computed it."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        mine = torch.tensor([[float(self._read_tokens), time.perf_counter() - self._began]])
        every = self.accelerator.gather(mine.to(self.accelerator.device))
        self.report({"trained_per_second": float(every[:, 0].sum() / every[:, 1].max())})
        self._read_tokens = 0
        return norm

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return TRL's loss, a scalar, for `input_ids` and `labels` of shape (rows, tokens).

        Without a GPU, TRL computes logits at every position. This method computes them only at positions with a label,
        which are about a twentieth in demonstrations. The loss and its gradient stay the same.
        """
        labels = inputs["labels"][:, 1:]
        positions = (labels != IGNORED).any(0).nonzero()[:, 0]
        if labels.is_cuda or return_outputs or not len(positions):
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        with only_positions(self.accelerator.unwrap_model(model), positions):
            inputs = {**inputs, "shift_labels": labels[:, positions]}
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def held_out_loss(self) -> float:
        """Return the mean loss per trained token over the held-out rows of all ranks.

        All ranks get equally many rows, so accelerate repeats the first rows after the last. They do not count again.
        """
        training = self.model.training
        self.model.eval()
        sums = torch.zeros(1, 2, device=self.accelerator.device)
        ranks, rank, size = self.accelerator.num_processes, self.accelerator.process_index, self.args.eval_batch_size
        for number, batch in enumerate(self.get_eval_dataloader()):
            inputs = self._prepare_inputs(batch)
            first = (number * ranks + rank) * size
            inputs["labels"][max(0, len(self.eval_dataset) - first) :] = IGNORED
            count = (inputs["labels"][:, 1:] != IGNORED).sum()
            with torch.no_grad(), self.compute_loss_context_manager():
                loss = self.compute_loss(self.model, inputs)
            # The loss of a batch without a label is not a number.
            sums += torch.stack([torch.where(count > 0, loss.float() * count, 0), count])
        self._metrics["eval"].clear()
        self.model.train(training)
        total, tokens = self.accelerator.gather(sums).sum(0).tolist()
        return float(total / tokens)


_Callback: Any = TrainerCallback


class HeldOutEvaluation(_Callback):  # type: ignore[misc]  # the base has no types
    """A callback that measures the loss on held-out rows, and keeps the best model.

    It measures at regular updates and after the last one.
    """

    def __init__(self, session: TrainingRun, every: int) -> None:
        self._session, self._every = session, every
        self.trainer: Any = None
        """Set it before training."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Measure the loss before the update's metrics are logged."""
        if state.global_step % self._every and state.global_step != state.max_steps:
            return
        loss = self.trainer.held_out_loss()
        self.trainer.report({HELD_OUT_LOSS: loss})
        self._session.models.keep_if_best(self.trainer, HELD_OUT_LOSS, loss, higher=False)


def sft_arguments(*, output_dir: str, **settings: Any) -> SFTConfig:
    """Return TRL's configuration: loss on sampled ids only, no truncation, no packing.

    The balance loss for mixtures of experts, which gpt-oss enables by default, is off.

    Args:
        output_dir: The folder of the trainer.
        settings: Further settings of `SFTConfig`.

    Returns:
        The configuration.
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
    """Train on demonstrations, from the start or from the newest checkpoint.

    Args:
        run: The configuration of the run.
        resume: If True, continue from the newest checkpoint.
        note: A function that receives messages for the user.
        advance: A function that receives the number of finished updates and the total number.

    Returns:
        The result of the run.

    Raises:
        ConfigError: If the settings are invalid or contradict each other.
        DataError: If there are no trajectories, or the model cannot read the rows.
    """
    with locked_folder(run.out), explained_memory_errors("sft"):
        return _train(TrainingRun(run, "sft", resume=resume, note=note, advance=advance))


def _train(session: TrainingRun) -> TrainingResult:
    run, note = session.config, session.note
    pass_rows = rows_per_pass(run.sft, session.ranks)
    if session.newest is None and run.data.world is None:
        check_trajectories(run.data)
    session.bind_data("initial weights", initial_weights_digest(run.model), WEIGHTS_REMEDY)
    loaded = load_model(run)
    session.bind_hub_commit()
    folder = prepare_rows(run, loaded.renderer, note, again=session.newest is None, main=session.main)
    note(
        f"training uses {folder.rows:,} rows of at most {folder.longest:,} tokens, and learns {folder.trained:,} of "
        f"their {folder.tokens:,} tokens"
    )
    session.bind_data(
        "rows", folder.digest, f"Restore the files of data.trajectories and delete {folder.path} to make the rows again"
    )
    text = loaded.model.config.get_text_config()
    dataset = folder_dataset(folder, longest=getattr(text, "max_position_embeddings", None), vocabulary=text.vocab_size)
    trained, held_out = split_held_out(dataset, run.sft.held_out, run.seed)
    _advise(run, dataset, note)
    args = sft_arguments(
        num_train_epochs=run.sft.epochs,
        per_device_train_batch_size=pass_rows,
        per_device_eval_batch_size=run.sft.rows_per_pass,
        gradient_accumulation_steps=run.sft.rows // (pass_rows * session.ranks),
        **trainer_settings(session.config, session.kind, session.trackers),
    )
    trainer = RowSftTrainer(
        model=loaded.model,
        args=args,
        train_dataset=trained,
        eval_dataset=held_out,
        processing_class=loaded.tokenizer,
        peft_config=loaded.adapter,
    )
    trainer.rows_per_pass = run.sft.rows_per_pass
    if held_out is not None:
        note(f"{len(held_out):,} rows are held out, and their loss is {HELD_OUT_LOSS} in metrics.jsonl")
        evaluation = HeldOutEvaluation(session, run.sft.every)
        evaluation.trainer = trainer
        trainer.add_callback(evaluation)
    return session.train(trainer)


def rows_per_pass(settings: SftConfig, ranks: int) -> int:
    """Return the number of rows of a forward pass on each rank, at most `sft.rows_per_pass`.

    The passes of all ranks together have exactly the rows of an update.

    Raises:
        ConfigError: If the ranks cannot divide the rows of an update evenly.
    """
    rows, rest = divmod(settings.rows, ranks)
    if rest:
        raise ConfigError(f"sft.rows must be a multiple of the number of processes, {ranks}; got {settings.rows}")
    return max(size for size in range(1, settings.rows_per_pass + 1) if rows % size == 0)


LOW_ADAPTER_RATE = 5e-5
"""Peak learning rate below which supervised training hardly changes adapters."""


def _advise(run: RunConfig, dataset: Dataset, note: Notify) -> None:
    """Warn about rows that are longer than the run's episodes, and about a learning rate too low for adapters."""
    lengths = [len(ids) for ids in dataset["input_ids"]]
    window = run.episodes.window
    if too_long := sum(length > window for length in lengths):
        note(
            f"{too_long:,} of {len(lengths):,} rows are longer than episodes.window = {window:,}, and the longest has "
            f"{max(lengths):,} ids. Make the trajectories with --tokenizer {run.model.name or 'MODEL'} --window "
            f"{window}."
        )
    rate = run.learning_rate("sft")
    if (run.model.lora or run.model.adapter) and rate < LOW_ADAPTER_RATE and run.sft.learning_rate is None:
        note(
            f"optimizer.learning_rate = {rate:g} is low for lessons with adapters. Set sft.learning_rate, for example "
            f"to {ADAPTER_LESSONS_RATE:g}."
        )


def prepare_rows(
    run: RunConfig,
    renderer: TokenRenderer,
    note: Notify,
    *,
    again: bool = True,
    main: bool = True,
) -> RowFolder:
    """Return the rows of the run in OUT/rows, and write them if they do not exist.

    Args:
        run: The run.
        renderer: The renderer of the model's tokenizer.
        note: A function that receives messages about skipped trajectories.
        again: If True, write the rows again if they exist.
        main: True on the rank that writes. The others wait for it.

    Returns:
        The folder of rows.

    Raises:
        DataError: If another tokenizer made the rows, or there are none.
    """
    from accelerate import PartialState

    rows_folder = Path(run.out) / ROWS_FOLDER
    if main and (again or not (rows_folder / ABOUT).is_file()):
        write_row_folder(demonstration_rows(run, renderer, note), rows_folder, tokenizer=renderer.counter_name)
    PartialState().wait_for_everyone()
    folder = open_folder(rows_folder)
    folder.check(renderer.counter_name)
    if not folder.rows:
        raise DataError("no trajectory could be made into rows. The notes above give the reasons.")
    return folder
