"""End-to-end training on demonstrations: rows on disk, a model that learned them, and exact resumption."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from context_agent.errors import ConfigError, DataError, DivergenceError
from context_agent.testing import tiny_runs
from context_agent.testing.actions import rank_all, search
from context_agent.train.config import SftConfig
from context_agent.train.metrics_log import read_metrics
from context_agent.train.row_files import open_folder, read_parquet, write_row_folder

pytest.importorskip("trl")


class Cut(Exception):
    """Stands for a kill."""


@pytest.fixture(autouse=True)
def _unreported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No run, by demonstrations or by rewards, is reported to the makers of TRL."""
    reports: list[dict[str, Any]] = []
    monkeypatch.delenv("CI", raising=False)  # TRL reports nothing there
    monkeypatch.setattr("trl.trainer.base_trainer.send_telemetry", lambda **report: reports.append(report))
    yield
    assert not reports


def train(run: Any, **options: Any) -> tuple[Any, list[str]]:
    from context_agent.train import sft

    notes: list[str] = []
    return sft.train(run, note=notes.append, **options), notes


def test_the_lessons_are_rows_on_disk_and_are_learned(student: Path) -> None:
    out = student.parent
    folder = open_folder(out / "rows")
    assert folder.rows == sum(1 for _ in read_parquet(folder.parquet)) > 300
    assert folder.trained == sum(row.trained for row in read_parquet(folder.parquet))
    losses = [line["loss"] for line in tiny_runs.timeless(out)]
    assert sum(losses[-5:]) < 0.6 * sum(losses[:5])
    assert all(line["trained_per_second"] > 0 for line in read_metrics(out / "metrics.jsonl"))
    assert not (out / "trainer").exists()
    assert {path.name for path in (out / "checkpoints").iterdir()} == {
        f"step-{len(losses) // 20 * 20:08d}",
        f"step-{len(losses):08d}",
    }
    assert (student / "model.safetensors").is_file()


def test_damaged_rows_are_refused_with_the_folder_to_delete(student: Path, tmp_path: Path) -> None:
    from context_agent.train.sft import folder_dataset

    folder = open_folder(shutil.copytree(student.parent / "rows", tmp_path / "rows"))
    content = folder.parquet.read_bytes()
    for damaged in (b"", content[:1_000], content[:1_000] + bytes(1_000) + content[2_000:]):
        folder.parquet.write_bytes(damaged)
        with pytest.raises(DataError, match=rf"rows\.parquet is damaged .* Delete {folder.path}"):
            folder_dataset(folder)
    folder.parquet.write_bytes(content)
    with pytest.raises(DataError, match=f"it has {folder.rows:,} rows instead of {folder.rows + 1:,}"):
        folder_dataset(replace(folder, rows=folder.rows + 1))


def test_rows_that_were_edited_or_whose_cached_copy_is_damaged_are_refused(student: Path, tmp_path: Path) -> None:
    from context_agent.train.sft import folder_dataset

    uncached = shutil.ignore_patterns("cache")
    folder = open_folder(shutil.copytree(student.parent / "rows", tmp_path / "rows", ignore=uncached))
    assert len(folder_dataset(folder)) == folder.rows
    (copy,) = folder.path.glob("cache/**/parquet-train.arrow")
    content = copy.read_bytes()
    middle = len(content) // 2
    copy.write_bytes(content[:middle] + bytes(400) + content[middle + 400 :])
    with pytest.raises(DataError, match=rf"its rows changed after they were written.* Delete {folder.path}"):
        folder_dataset(folder)
    rows = [replace(row, input_ids=row.input_ids[::-1]) for row in read_parquet(folder.parquet)]
    edited = write_row_folder(rows, tmp_path / "edited", tokenizer=folder.tokenizer)
    assert edited.digest != folder.digest
    with pytest.raises(DataError, match="its rows changed after they were written"):
        folder_dataset(replace(edited, digest=folder.digest))
    assert len(folder_dataset(replace(edited, digest=""))) == edited.rows  # as an older version wrote it


@pytest.mark.parametrize(("ranks", "of_pass"), [(1, 4), (2, 4), (2, 1), (4, 2), (8, 1)])
def test_an_update_has_the_same_rows_on_any_number_of_ranks(ranks: int, of_pass: int) -> None:
    from accelerate.data_loader import BatchSamplerShard
    from torch.utils.data import BatchSampler

    from context_agent.train.sft import LengthSampler

    lengths = [random.Random(place).randrange(2, 90) for place in range(64)]

    def updates(ranks: int, of_pass: int) -> list[set[int]]:
        order = LengthSampler(lengths, of_pass=4, of_update=8, seed=0)
        shards: list[list[list[int]]] = [
            list(BatchSamplerShard(BatchSampler(order, of_pass, drop_last=False), ranks, rank)) for rank in range(ranks)
        ]
        rows = [row for passes in zip(*shards, strict=True) for of_rank in passes for row in of_rank]
        return [set(rows[at : at + 8]) for at in range(0, len(rows), 8)]

    assert updates(ranks, of_pass) == updates(1, 4)
    assert set().union(*updates(ranks, of_pass)) == set(range(64))


@pytest.mark.slow
def test_ended_in_the_second_epoch_and_resumed_it_ends_with_the_same_bits(
    student: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from context_agent.train.metrics_log import MetricsLog

    add = MetricsLog.add

    def add_and_cut(self: MetricsLog, step: int, metrics: Any) -> None:
        add(self, step, metrics)
        if step == 43:
            raise Cut

    monkeypatch.setattr(MetricsLog, "add", add_and_cut)
    with pytest.raises(Cut):
        train(tiny_runs.demonstrations(tmp_path))
    monkeypatch.undo()
    result, notes = train(tiny_runs.demonstrations(tmp_path), resume=True)
    assert result.first_update == 40
    assert "training resumes from update 40" in notes[0]
    assert tiny_runs.weights(tmp_path) == tiny_runs.weights(student.parent)
    assert tiny_runs.timeless(tmp_path) == tiny_runs.timeless(student.parent)


def test_an_interrupt_says_what_is_saved_and_how_to_continue(tmp_path: Path) -> None:
    run = tiny_runs.demonstrations(
        tmp_path, sft={"demonstrations": 60, "epochs": 1, "held_out": 0}, checkpoints={"every": 2}
    )
    for step, told in (
        (1, "No update is saved yet. To start again, run the same command."),
        (3, "The state of update 2 is saved. To continue, add --resume."),
    ):

        def interrupt(done: int, total: int, step: int = step) -> None:
            if done == step:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt, match=told):
            train(run, advance=interrupt)
    result, _ = train(run, resume=True)
    assert result.first_update == 2


def test_sigterm_stops_a_run_after_the_update_and_it_resumes_with_the_same_files_of_a_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from context_agent.train import training_run

    monkeypatch.setattr(training_run, "hub_commit", lambda _: "a")
    run = tiny_runs.demonstrations(tmp_path, sft={"demonstrations": 60, "epochs": 1, "held_out": 0})

    def terminate(done: int, total: int) -> None:
        if done in {1, total}:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt, match=r"The state of update 2 is saved. To continue, add --resume."):
        train(run, advance=terminate)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    monkeypatch.setattr(training_run, "hub_commit", lambda _: "b")
    with pytest.raises(ConfigError, match=r"files of model.name on the .* hub have changed .*model.revision = \"a\""):
        train(run, resume=True)
    monkeypatch.setattr(training_run, "hub_commit", lambda _: "a")
    result, notes = train(run, resume=True, advance=terminate)
    assert (result.first_update, Path(result.model).name) == (2, "final"), "after the last update nothing is left to do"
    assert any(note.startswith("SIGTERM arrived") for note in notes)


def test_sigterm_saves_a_checkpoint_if_nobody_reads_the_notes():
    from context_agent.train.training_run import StopBySigterm

    def note(text: str) -> None:
        raise BrokenPipeError(text)

    control = SimpleNamespace()
    stop = StopBySigterm(SimpleNamespace(accelerator=SimpleNamespace(num_processes=1)), note)
    with stop.listening():
        signal.raise_signal(signal.SIGTERM)
    stop.on_step_end(None, SimpleNamespace(global_step=1, max_steps=2), control)
    assert (control.should_save, control.should_training_stop) == (True, True)


@pytest.mark.parametrize(
    ("full", "saved"), [("final", "The state of update 1 is saved.*add --resume"), ("", "No update is saved yet")]
)
def test_a_model_that_cannot_be_written_says_what_is_saved(
    full: str, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from context_agent.train import sft

    save = sft.RowSftTrainer.save_model

    def save_unless_full(self: Any, output_dir: str, **options: Any) -> None:
        if full in output_dir:
            raise OSError(28, "No space left on device")
        save(self, output_dir, **options)

    monkeypatch.setattr(sft.RowSftTrainer, "save_model", save_unless_full)
    run = tiny_runs.demonstrations(tmp_path, sft={"demonstrations": 8, "epochs": 1, "held_out": 0})
    with pytest.raises(DataError, match=rf"final \(.*No space left.*\. {saved}"):
        train(run)


def test_a_warmup_that_is_longer_than_the_run_is_reported(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"sft": {"demonstrations": 30, "epochs": 1, "held_out": 0}}
    for warmup, told in ((2, False), (1_000, True)):
        optimizer = {"warmup": warmup, "schedule": "linear"}
        _, notes = train(tiny_runs.demonstrations(tmp_path / str(warmup), **changes, optimizer=optimizer))
        assert any("optimizer.warmup = 1000 is longer than the run of" in note for note in notes) is told


def test_settings_of_memory_may_change_when_a_run_resumes(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"sft": {"demonstrations": 60, "epochs": 1, "held_out": 0}, "checkpoints": {"every": 2}}
    train(tiny_runs.demonstrations(tmp_path, **changes))
    leaner = {"threads": 2, "model": {"gradient_checkpointing": True}, "engine": {"batch": 1}}
    result, _ = train(tiny_runs.demonstrations(tmp_path, **changes, **leaner, loss={"pass_tokens": 0}), resume=True)
    assert result.first_update == result.updates


def test_too_little_memory_is_an_error_that_names_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from context_agent.train import sft

    def load_model(_: object) -> None:
        torch.empty(2**60)

    monkeypatch.setattr(sft, "load_model", load_model)
    with pytest.raises(ConfigError, match=r"not enough memory \(.*model.lora.rank"):
        train(tiny_runs.demonstrations(tmp_path))


def test_memory_that_runs_out_during_training_leaves_a_state_to_resume_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from context_agent.train import sft

    compute = sft.RowSftTrainer.compute_loss

    def large(self: Any, *args: Any, **options: Any) -> Any:
        if self.state.global_step == 2:
            torch.empty(2**60)
        return compute(self, *args, **options)

    monkeypatch.setattr(sft.RowSftTrainer, "compute_loss", large)
    run = tiny_runs.demonstrations(tmp_path, sft={"demonstrations": 60, "epochs": 1, "held_out": 0})
    with pytest.raises(ConfigError, match=r"not enough memory .*The state of update 2 is saved.*add --resume"):
        train(run)


def test_adapters_alone_are_trained_where_they_are_asked_for(student: Path, tmp_path: Path) -> None:
    """Those on attention and the stacked experts are all that is saved, and training by rewards can start from them."""
    safetensors = pytest.importorskip("safetensors")
    lora = {"rank": 4, "parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}
    sft_settings = {"demonstrations": 60, "epochs": 1}
    changes = {"model": {"tiny": None, "name": str(student), "lora": lora}, "sft": sft_settings}
    train(tiny_runs.demonstrations(tmp_path, **changes))
    with safetensors.safe_open(tmp_path / "final" / "adapter_model.safetensors", "pt") as file:
        names = list(file.keys())
    assert any("q_proj" in name for name in names)
    assert any("experts" in name for name in names)
    from context_agent.train import reinforcement

    run = tiny_runs.rewards(
        student,
        tmp_path / "rl",
        model={"adapter": str(tmp_path / "final")},
        rollouts={"steps": 1, "substeps": 1},
        evaluation={"every": 0},
    )
    result = reinforcement.train(run, note=lambda _: None)
    assert (Path(result.model) / "adapter_model.safetensors").is_file()


def test_the_loss_and_its_gradient_are_those_of_all_positions(student: Path, tmp_path: Path) -> None:
    """Logits are computed only where a label stands. The rows are of two lengths, so one is padded."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import SFTTrainer

    from context_agent.train.sft import RowSftTrainer, sft_arguments

    rows = {
        "input_ids": [[5, 6, 7, 8, 9, 10, 11], [9, 8, 7, 6]],
        "completion_mask": [[0, 0, 0, 1, 1, 0, 1], [0, 0, 1, 1]],
    }
    model = AutoModelForCausalLM.from_pretrained(student, dtype=torch.float32)
    trainer = RowSftTrainer(
        model=model,
        args=sft_arguments(output_dir=str(tmp_path), use_cpu=True, per_device_train_batch_size=2, report_to=[]),
        train_dataset=Dataset.from_dict(rows),
        processing_class=AutoTokenizer.from_pretrained(student),
    )
    (batch,) = trainer.get_train_dataloader()
    results = []
    for compute in (RowSftTrainer.compute_loss, SFTTrainer.compute_loss):
        model.train().zero_grad()
        loss = compute(trainer, model, dict(batch), num_items_in_batch=torch.tensor(5))
        loss.backward()
        results.append((loss.item(), torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])))
    (narrow_loss, narrow), (full_loss, full) = results
    assert narrow_loss == pytest.approx(full_loss, rel=1e-5)
    assert torch.allclose(narrow, full, atol=1e-5)
    assert full.abs().max() > 0


def test_a_thread_that_samples_meanwhile_gets_all_positions(student: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    import torch
    from transformers import AutoModelForCausalLM

    from context_agent.train.output_layer import only_positions

    model = AutoModelForCausalLM.from_pretrained(student, dtype=torch.float32)
    ids = torch.tensor([[5, 6, 7, 8]])
    with only_positions(model, torch.tensor([2])), ThreadPoolExecutor(1) as executor:
        assert model(input_ids=ids).logits.shape[1] == 1
        assert executor.submit(model, input_ids=ids).result().logits.shape[1] == 4
    assert model(input_ids=ids).logits.shape[1] == 4


def test_processes_that_cannot_divide_an_update_are_refused() -> None:
    from context_agent.train.sft import rows_per_pass

    for rows, most, ranks, expected in [(16, 2, 4, 2), (16, 16, 2, 8), (48, 16, 2, 12), (16, 2, 16, 1)]:
        assert rows_per_pass(SftConfig(rows=rows, rows_per_pass=most), ranks) == expected
    for ranks in (3, 32):
        with pytest.raises(ConfigError, match="must be a multiple of the number of processes"):
            rows_per_pass(SftConfig(rows=16, rows_per_pass=2), ranks)


def test_missing_or_empty_trajectories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the run file names no trajectories\. Set data\.trajectories"):
        train(harmony_run(tmp_path, None))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="contains no trajectory"):
        train(harmony_run(tmp_path, str(tmp_path / "empty")))


def test_trajectories_of_any_policy_are_learned_from_and_broken_ones_are_left_out(tmp_path: Path) -> None:
    """The chat-like path: harmony, and a tiny model with a vocabulary of its own."""
    from context_agent import MemoryCorpus, ScriptedPolicy, SearchAgent
    from context_agent.testing.actions import rank_all, search
    from context_agent.types import Document

    corpus = MemoryCorpus([Document("a", "Comets are made of ice.", "Comets")])
    trajectories = tmp_path / "made" / "kept"
    with SearchAgent(
        corpus, ScriptedPolicy([search("comets"), rank_all]), budget=8_192, trajectories=trajectories
    ) as agent:
        agent.search("what are comets made of?")
    (trajectories / "broken.jsonl").write_text("{")
    result, notes = train(harmony_run(tmp_path, str(tmp_path / "made")))
    assert result.updates == 1
    assert any("broken.jsonl" in note for note in notes)
    assert "1 trajectories could not be made into rows" in notes
    long = harmony_run(tmp_path / "other", str(tmp_path / "made"), positions=512)
    with pytest.raises(
        DataError, match=r"the model accepts at most 512\. Make the trajectories again with a smaller window"
    ):
        train(long)


def test_rows_longer_than_the_window_are_reported_with_the_flags_that_help(tmp_path: Path) -> None:
    """The policy never sees so many, because its window ends before."""
    from context_agent import MemoryCorpus, ScriptedPolicy, SearchAgent
    from context_agent.train.run_file import parse_run
    from context_agent.types import Document

    corpus = MemoryCorpus([Document("a", "Comets are made of ice. " * 40, "Comets")])
    steps = [search("comets"), rank_all]
    with SearchAgent(corpus, ScriptedPolicy(steps), budget=2_048, trajectories=tmp_path / "made") as agent:
        agent.search("what are comets made of?")
    plain = harmony_run(tmp_path, str(tmp_path / "made")).plain()
    plain["episodes"]["window"] = 512
    _, notes = train(parse_run(plain))
    assert any("1 of 1 rows are longer than episodes.window = 512" in note for note in notes)
    assert any("--tokenizer" in note and "--window 512" in note for note in notes)


def test_a_learning_rate_of_rewards_is_reported_for_lessons_with_adapters(student: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "model": {"tiny": None, "name": str(student), "lora": {"rank": 4}},
        "sft": {"demonstrations": 20, "epochs": 1},
        "optimizer": {"learning_rate": 1e-5},
    }
    _, notes = train(tiny_runs.demonstrations(tmp_path / "low", **changes))
    assert any("optimizer.learning_rate = 1e-05 is low for lessons with adapters" in note for note in notes)
    changes["sft"]["learning_rate"] = 2e-4
    _, notes = train(tiny_runs.demonstrations(tmp_path / "own", **changes))
    assert not any("is low for" in note for note in notes)
    assert {line["learning_rate"] for line in tiny_runs.timeless(tmp_path / "own")} == {2e-4}


def harmony_run(out: Path, trajectories: str | None, *, positions: int = 8_192) -> Any:
    from context_agent.train.run_file import parse_run

    tiny = {"hidden": 32, "layers": 1, "positions": positions}
    return parse_run(
        {
            "out": str(out / "run"),
            "model": {"tiny": tiny, "dtype": "float32", "attention": "eager", "gradient_checkpointing": False},
            "data": {} if trajectories is None else {"trajectories": trajectories},
            "sft": {"epochs": 1},
        }
    )


@pytest.mark.parametrize(("table", "rate"), [("optimizer", 0.03), ("sft", 0.02)])
def test_a_divergence_names_the_learning_rate_and_saves_no_broken_weights(
    table: str, rate: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run cannot change the learning rate."""
    import torch

    from context_agent.train import sft

    compute = sft.RowSftTrainer.compute_loss

    def spoiled(self: Any, model: Any, *args: Any, **options: Any) -> Any:
        if self.state.global_step == 4:
            with torch.no_grad():
                next(iter(model.parameters())).fill_(float("nan"))
        return compute(self, model, *args, **options)

    lessons: dict[str, Any] = {"demonstrations": 90, "epochs": 1, "held_out": 0}
    changes = {"sft": lessons, "checkpoints": {"every": 2}, "optimizer": {"learning_rate": 0.03}}
    changes[table]["learning_rate"] = rate
    monkeypatch.setattr(sft.RowSftTrainer, "compute_loss", spoiled)
    with pytest.raises(DivergenceError) as stopped:
        sft.train(tiny_runs.demonstrations(tmp_path, **changes), note=lambda _: None)
    assert "The state of update 4 is saved. A resumed run repeats the update" in str(stopped.value)
    assert f"learning rate of {rate:g}." in str(stopped.value)
    assert f"lower {table}.learning_rate and name another folder with --out" in str(stopped.value)
    assert "Fix the cause" not in str(stopped.value)


def test_broken_weights_are_no_checkpoint(tmp_path: Path) -> None:
    import torch

    from context_agent.train.training_run import TrainingRun

    session = TrainingRun(tiny_runs.demonstrations(tmp_path), "sft", resume=False, note=lambda _: None)
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        model.weight[0, 0] = float("nan")
    trainer = SimpleNamespace(
        state=SimpleNamespace(global_step=3), model=model, _save_checkpoint=lambda *_: pytest.fail("it was saved")
    )
    assert "No update is saved yet." in str(session._with_advice(trainer, DivergenceError("no")))


def test_a_loss_that_is_no_number_stops_the_lessons_with_their_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from context_agent.train import sft

    compute = sft.RowSftTrainer.compute_loss

    def spoiled(self: Any, *args: Any, **options: Any) -> Any:
        loss = compute(self, *args, **options)
        return loss * float("nan") if self.state.global_step == 2 else loss

    run = tiny_runs.demonstrations(tmp_path, sft={"demonstrations": 60, "epochs": 1, "held_out": 0})
    monkeypatch.setattr(sft.RowSftTrainer, "compute_loss", spoiled)
    with pytest.raises(DataError, match=r"the gradient of update 2 is nan.*The state of update 2 is saved"):
        sft.train(run, note=lambda _: None)
    monkeypatch.undo()
    result = sft.train(run, resume=True, note=lambda _: None)
    assert result.first_update == 2
    assert all(line["loss"] is not None for line in tiny_runs.timeless(tmp_path) if "loss" in line)
