"""Evaluation and the best model: lessons measure held-out demonstrations, rewards the dev questions."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from importlib import import_module
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from context_agent._support.http_client import Refusal
from context_agent.errors import ConfigError, DataError, MissingExtraError
from context_agent.testing import tiny_runs
from context_agent.train.checkpoints import Checkpoints

pytest.importorskip("trl")


def lines_with(out: Path, metric: str) -> dict[int, float]:
    return {line["step"]: line[metric] for line in tiny_runs.timeless(out) if metric in line}


def best_of(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "best" / "evaluation.json").read_text()))


def test_lessons_measure_what_is_held_out_and_keep_the_best_model(student: Path) -> None:
    out = student.parent
    losses = lines_with(out, "dev/loss")
    last = tiny_runs.timeless(out)[-1]["step"]
    assert [*losses] == [*range(50, last, 50), last]
    best = best_of(out)
    assert best["metric"] == "dev/loss"
    assert best["value"] == losses[best["update"]] == min(losses.values())
    assert (out / "best" / "model.safetensors").is_file()
    assert (out / "best" / "policy.json").read_text() == (out / "final" / "policy.json").read_text()


def test_held_out_demonstrations_are_whole_questions_and_never_train() -> None:
    from datasets import Dataset

    from context_agent.train.sft import split_held_out

    groups = [f"q{number % 40}" for number in range(100)]
    rows = Dataset.from_dict({"input_ids": [[number] for number in range(100)], "group_id": groups})
    trained, held_out = split_held_out(rows, 0.05, seed=1)
    assert held_out is not None
    sides = [{groups[ids[0]] for ids in side["input_ids"]} for side in (trained, held_out)]
    assert (len(sides[0]), len(sides[1])) == (38, 2)
    assert not sides[0] & sides[1]
    assert len(trained) + len(held_out) == 100
    assert split_held_out(rows, 0.05, seed=1)[1]["input_ids"] == held_out["input_ids"]  # type: ignore[index]
    assert split_held_out(rows, 0.0, seed=1)[1] is None
    assert split_held_out(rows, 0.02, seed=1)[1] is None


def test_the_held_out_loss_is_that_of_a_token(student: Path, tmp_path: Path) -> None:
    """Against the loss of each row by transformers alone. The rows are of two lengths."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from context_agent.train.sft import RowSftTrainer, sft_arguments

    ids = [[5, 6, 7, 8, 9, 10, 11], [9, 8, 7, 6]]
    mask = [[0, 0, 0, 1, 1, 0, 1], [0, 0, 1, 1]]
    rows = Dataset.from_dict({"input_ids": ids, "completion_mask": mask})
    model = AutoModelForCausalLM.from_pretrained(student, dtype=torch.float32)
    trainer = RowSftTrainer(
        model=model,
        args=sft_arguments(output_dir=str(tmp_path), use_cpu=True, per_device_eval_batch_size=2, report_to=[]),
        train_dataset=rows,
        eval_dataset=rows,
        processing_class=AutoTokenizer.from_pretrained(student),
    )
    total = 0.0
    for row, marks in zip(ids, mask, strict=True):
        logps = model(input_ids=torch.tensor([row])).logits.log_softmax(-1)[0]
        total -= sum(logps[at - 1, row[at]].item() for at, mark in enumerate(marks) if mark)
    model.train()
    assert trainer.held_out_loss() == pytest.approx(total / 5, rel=1e-5)
    assert model.training


def test_rewards_keep_the_model_with_the_best_evaluation(student: Path, tmp_path: Path) -> None:
    from context_agent.train import reinforcement

    settings = {"every": 1, "questions": 4, "best": "recall", "temperatures": [1.0]}
    run = tiny_runs.rewards(student, tmp_path, rollouts={"steps": 3}, evaluation=settings)
    reinforcement.train(run, note=lambda _: None)
    recalls = lines_with(tmp_path, "dev/t1/recall")
    best = best_of(tmp_path)
    assert [*recalls] == [0, 2, 4, 6]
    assert best["metric"] == "dev/t1/recall"
    assert best["value"] == recalls[best["update"]] == max(recalls.values())
    assert best["update"] == next(step for step, recall in recalls.items() if recall == best["value"])
    assert (tmp_path / "best" / "model.safetensors").is_file()


def test_a_better_model_replaces_the_best_and_a_full_disk_costs_only_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    from context_agent.train.training_run import TrainingRun

    notes: list[str] = []
    session = TrainingRun(tiny_runs.demonstrations(tmp_path), "sft", resume=False, note=notes.append)
    trainer: Any = SimpleNamespace(
        state=SimpleNamespace(global_step=0),
        accelerator=SimpleNamespace(num_processes=1, wait_for_everyone=lambda: None),
    )

    def save(folder: str) -> None:
        Path(folder).mkdir()
        (Path(folder) / "step").write_text(str(trainer.state.global_step))

    trainer.save_model = save
    for step, value in ((1, 2.0), (2, 3.0), (3, 1.0), (4, 1.0), (5, None), (6, float("nan"))):
        trainer.state.global_step = step
        session.models.keep_if_best(trainer, "dev/loss", value, higher=False)
    assert best_of(tmp_path) == {"update": 3, "metric": "dev/loss", "value": 1.0}
    assert (tmp_path / "best" / "step").read_text() == "3"

    def full(folder: str) -> None:
        save(folder)
        raise OSError("No space left on device")

    trainer.save_model = full
    session.models.keep_if_best(trainer, "dev/loss", 0.5, higher=False)
    assert "No space left on device" in notes[-1]
    assert best_of(tmp_path)["update"] == 3
    assert (tmp_path / "best" / "step").read_text() == "3"
    assert [path.name for path in tmp_path.iterdir() if "best" in path.name] == ["best"], "its space is free again"


def test_only_evaluations_by_the_same_metric_on_the_same_questions_are_compared(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from context_agent.train.training_run import TrainingRun

    session = TrainingRun(tiny_runs.demonstrations(tmp_path), "sft", resume=False, note=lambda _: None)
    trainer: Any = SimpleNamespace(
        state=SimpleNamespace(global_step=0),
        accelerator=SimpleNamespace(num_processes=1, wait_for_everyone=lambda: None),
        save_model=lambda folder: Path(folder).mkdir(),
    )
    kept = []
    for metric, questions, value in (
        ("dev/greedy/reward", "a", 1.5),
        ("dev/greedy/recall", "a", 0.5),
        ("dev/greedy/recall", "a", 0.4),
        ("dev/greedy/recall", "b", 0.3),
        ("dev/greedy/recall", "b", 0.2),
    ):
        trainer.state.global_step += 1
        session.models.keep_if_best(trainer, metric, value, higher=True, questions=questions)
        kept.append(best_of(tmp_path)["update"])
    assert kept == [1, 2, 2, 4, 4]


def test_an_evaluation_with_aborted_episodes_keeps_no_model(
    student: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The episodes that are left may be those of the easy questions."""
    from context_agent.train import reinforcement
    from context_agent.train.rl.evaluation import DevEvaluator

    evaluate = DevEvaluator._evaluate_agent

    def abort_at_update_2(self: Any, agent: Any, update: int, name: str) -> dict[str, float]:
        metrics = evaluate(self, agent, update, name)
        return metrics | ({"recall": 9.0, "aborted": 3.0} if update == 2 else {})

    monkeypatch.setattr(DevEvaluator, "_evaluate_agent", abort_at_update_2)
    settings = {"every": 1, "questions": 4, "best": "recall", "temperatures": [1.0]}
    run = tiny_runs.rewards(student, tmp_path, rollouts={"steps": 2}, evaluation=settings)
    reinforcement.train(run, note=lambda _: None)
    assert lines_with(tmp_path, "dev/t1/recall")[2] == 9.0
    assert best_of(tmp_path)["update"] in {0, 4}


def train_until_killed_while_the_best_is_replaced(plain: dict[str, Any]) -> None:
    from context_agent.train import reinforcement, run_file

    path: Any = Path
    saved: Any = import_module("context_agent.train.saved_models").SavedModels
    rename, consider = path.rename, saved.keep_if_best

    def rename_or_die(self: Path, target: Path) -> Path:
        if self.name == ".best.partial" and target.with_name(".best.old").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return Path(rename(self, target))

    def consider_rising(self: Any, trainer: Any, metric: str, value: float, **options: Any) -> None:
        consider(self, trainer, metric, float(trainer.state.global_step), **options)

    path.rename, saved.keep_if_best = rename_or_die, consider_rising
    reinforcement.train(run_file.parse_run(plain), note=lambda _: None)


def test_a_process_killed_while_it_replaces_the_best_model_loses_none(
    student: Path, tmp_path: Path, forked: ForkServerContext
) -> None:
    from context_agent.train import reinforcement

    tables = {"rollouts": {"steps": 2}, "evaluation": {"every": 2, "questions": 2}, "checkpoints": {"every": 1}}
    run = tiny_runs.rewards(student, tmp_path, **tables)
    process = forked.Process(target=train_until_killed_while_the_best_is_replaced, args=(run.plain(),))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not (tmp_path / "best").exists()
    for name in (".run.json.0a1b2c3d.partial", ".episodes-1.jsonl.4e5f6a7b.partial", ".video.mp4.partial"):
        (tmp_path / name).write_text("{")
    (tmp_path / ".of-the-user.partial").mkdir()
    reinforcement.train(replace(run, evaluation=replace(run.evaluation, every=0)), resume=True, note=lambda _: None)
    assert best_of(tmp_path)["update"] == 0
    assert (tmp_path / "best" / "model.safetensors").is_file()
    assert {path.name for path in tmp_path.glob(".*")} == {".lock", ".video.mp4.partial", ".of-the-user.partial"}


@pytest.mark.parametrize(("name", "has_run"), [("final", True), ("final", False), ("best", False)])
@pytest.mark.parametrize("resume", [False, True])
def test_a_run_without_checkpoints_replaces_no_finished_model(
    tmp_path: Path, name: str, has_run: bool, resume: bool
) -> None:
    """People delete the checkpoints of a finished run to save space."""
    from context_agent.train.training_run import TrainingRun

    for model in {name, "best"}:
        (tmp_path / model).mkdir()
    if has_run:
        (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ConfigError, match=f"{name} exists, but .* --out"):
        TrainingRun(tiny_runs.demonstrations(tmp_path), "sft", resume=resume, note=lambda _: None)
    assert (tmp_path / "best").is_dir()


def test_an_error_of_any_class_gets_the_advice(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from context_agent.train.training_run import TrainingRun

    session = TrainingRun(tiny_runs.demonstrations(tmp_path), "sft", resume=False, note=lambda _: None)
    trainer = SimpleNamespace(state=SimpleNamespace(global_step=0))
    for error in (MissingExtraError("vllm", "train"), Refusal("http://localhost", 404, "no such path")):
        advised = session._with_advice(trainer, error)
        assert (type(advised), vars(advised)) == (type(error), vars(error))
        assert str(advised) == f"{str(error).rstrip('.')}. No update is saved yet. Fix the cause, then start again."


def test_the_advice_does_not_count_on_a_damaged_checkpoint(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from context_agent.train.training_run import TrainingRun

    run = tiny_runs.demonstrations(tmp_path)
    checkpoints = Checkpoints(tmp_path / "checkpoints", kind="sft", settings=run.plain())

    def save(step: int) -> None:
        state = checkpoints.open(step) / "trainer" / "trainer_state.json"
        state.parent.mkdir()
        state.write_text(f'{{"global_step":{step}}}')
        checkpoints.commit(step)

    save(3)
    save(6)
    (tmp_path / "checkpoints" / "step-00000006" / "trainer" / "trainer_state.json").write_text('{"global_step":9}')
    notes: list[str] = []
    session = TrainingRun(run, "sft", resume=True, note=notes.append)
    assert session.first_update == 3
    assert "step-00000006 is damaged" in notes[0]
    model = SimpleNamespace(zero_grad=lambda: None)
    trainer = SimpleNamespace(state=SimpleNamespace(global_step=6), model=model, _save_checkpoint=lambda *_: save(6))
    advised = session._with_advice(trainer, DataError("no"))
    assert "The state of update 6 is saved." in str(advised)
    newest = checkpoints.newest()
    assert newest is not None
    assert newest.step == 6
