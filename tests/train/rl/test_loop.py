"""End-to-end runs by rewards: exact resumption, errors that stop a run, and the files in its folder.

1. A run that is killed at any moment and resumed ends with the same bits as one that was not killed.
2. A failure outside the run (a server, a disk) costs no more than the work that it spoilt.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError, DataError, PolicyError
from context_agent.harness.trajectory_file import read
from context_agent.testing import tiny_runs
from context_agent.train import checkpoints, metrics_log, run_file
from context_agent.train.config import RunConfig
from context_agent.train.metrics_log import MetricsLog
from context_agent.train.toy.environment import make_environment
from tests.support.expert import demonstrate
from tests.support.judges import serving
from tests.support.locks import without_locks

pytest.importorskip("trl")

from context_agent.train.models import load_renderer
from context_agent.train.rl import episode_table
from context_agent.train.rl.rollouts import step_questions
from context_agent.train.run_lock import locked_folder


def train_until_killed(plain: dict[str, Any], moment: str, step: int) -> None:
    """Train until it kills its own process, either while that step is saved or once it is logged."""

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    commit, add = checkpoints.Checkpoints.commit, metrics_log.MetricsLog.add

    def commit_or_die(self: Any, current: int) -> Any:
        if current >= step:
            self._drop = lambda path: die()
            if step % 2:
                (self.partial_path(current) / "trainer" / "model.safetensors").write_bytes(b"cut")
            checkpoints.sync_path = lambda path: die()
        return commit(self, current)

    def log_and_die(self: Any, current: int, line: Any) -> None:
        add(self, current, line)
        if current == step and self.path.name == "metrics.jsonl":
            die()

    if moment == "saving":
        checkpoints.Checkpoints.commit = commit_or_die  # type: ignore[method-assign]
    else:
        metrics_log.MetricsLog.add = log_and_die  # type: ignore[method-assign]
    train(run_file.parse_run(plain), resume=True)


TWELVE_UPDATES: dict[str, Any] = {"rollouts": {"steps": 6}, "evaluation": {"every": 3}}


def twelve_updates(student: Path, out: Path, **changes: Any) -> RunConfig:
    """Return a run of six steps, which is evaluated before them, in their middle, and after them."""
    return tiny_runs.rewards(student, out, **tiny_runs.merged(TWELVE_UPDATES, changes))


@pytest.fixture(scope="module")
def straight(student: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve updates without a break."""
    out = tmp_path_factory.mktemp("straight")
    train(twelve_updates(student, out))
    return out


def train(run: Any, **options: Any) -> Any:
    from context_agent.train import reinforcement

    notes: list[str] = []
    result = reinforcement.train(run, note=notes.append, **options)
    return result, notes


def test_what_is_in_the_folder(straight: Path) -> None:
    lines = tiny_runs.timeless(straight)
    assert [line["step"] for line in lines] == list(range(13))
    assert any(line.get("grad_norm", 0) > 0 for line in lines), "or nothing here would be a test"
    assert {"reward", "recall", "trajectory_recall", "term/output", "rows_stale"} <= set(lines[1])
    assert any("entropy" in line for line in lines)
    evaluated = [line["step"] for line in lines if "dev/greedy/recall" in line]
    assert evaluated == [0, 6, 12]
    assert {"dev/t1/recall", "dev/t1/trajectory_recall", "dev/t1/reward"} <= set(lines[6])
    run_json = json.loads((straight / "run.json").read_text())
    assert run_json["kind"] == "rl"
    assert run_json["rollouts"]["groups"] == 2
    step_paths = sorted((straight / "trajectories" / "step-00005").glob("*.jsonl"))
    dev_paths = sorted((straight / "trajectories" / "dev-00006").glob("*.jsonl"))
    assert len(step_paths) == 8
    assert len(dev_paths) == 6
    for path in (*step_paths, *dev_paths):
        read(path).verify()
    episodes = [json.loads(line) for line in (straight / "episodes.jsonl").read_text().splitlines()]
    assert [line["step"] for line in episodes] == sorted(list(range(6)) * 8)
    assert {line["episode"] for line in episodes} >= {path.stem for path in step_paths}
    assert (straight / "episodes.html").stat().st_size > 5_000


def test_killed_and_resumed_it_ends_with_the_same_bits(
    straight: Path, student: Path, tmp_path: Path, forked: ForkServerContext
) -> None:
    """Killed between two updates of one step's rollouts, then in the middle of a save."""
    run = twelve_updates(student, tmp_path)
    for moment, step in (("logged", 4), ("saving", 9)):
        process = forked.Process(target=train_until_killed, args=(run.plain(), moment, step))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        rows_file = tmp_path / "checkpoints" / "step-00000003" / "rollouts-0.jsonl"
        assert rows_file.is_file(), "update 4 is the second of its step: its rollouts are in the checkpoint"
    assert (tmp_path / "checkpoints" / ".step-00000009.partial").exists(), "the save that the kill cut short"
    result, notes = train(run, resume=True)
    assert result.first_update == 6
    assert "training resumes from update 6" in notes[0]
    assert tiny_runs.weights(tmp_path) == tiny_runs.weights(straight)
    assert tiny_runs.timeless(tmp_path) == tiny_runs.timeless(straight)
    assert (tmp_path / "episodes.jsonl").read_text() == (straight / "episodes.jsonl").read_text()


def test_a_time_limit_ends_the_run_with_a_checkpoint_and_it_resumes_to_the_same_bits(
    straight: Path, student: Path, tmp_path: Path
) -> None:
    result, notes = train(twelve_updates(student, tmp_path, minutes=1e-9))
    assert result.updates == 1
    assert any("time limit" in note and "--resume" in note for note in notes)
    assert [path.name for path in (tmp_path / "checkpoints").glob("step-*")] == ["step-00000001"]
    result, _ = train(twelve_updates(student, tmp_path), resume=True)
    assert result.first_update == 1
    assert tiny_runs.weights(tmp_path) == tiny_runs.weights(straight)


def refused_with_other_data(run: RunConfig, demonstration: Path) -> None:
    """Assert that a run is not resumed with other demonstrations, questions, documents or initial weights."""
    from context_agent.train import reinforcement

    content = demonstration.read_bytes()
    demonstration.unlink()
    with pytest.raises(ConfigError, match=r"the demonstrations have changed since .*step-00000003 was written"):
        train(run, resume=True)
    demonstration.write_bytes(content)
    for digest, kind in (
        ("questions_digest", "questions"),
        ("corpus_digest", "searched documents"),
        ("initial_weights_digest", "initial weights"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reinforcement, digest, lambda _: "another")
            with pytest.raises(ConfigError, match=f"the {kind} have changed since"):
                train(run, resume=True)


def test_with_demonstrations_it_resumes_to_the_same_bits(
    student: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted between the two updates of a step: its demonstrated rows are in the checkpoint."""

    class Cut(Exception):
        pass

    settings = {"data": {"trajectories": str(tmp_path)}, "evaluation": {"every": 0}}
    rollouts = {"steps": 2, "rollouts": 3, "demonstrations": 1}
    straight, cut = (
        tiny_runs.rewards(student, tmp_path / name, rollouts=rollouts, **settings) for name in ("straight", "cut")
    )
    assert straight.data.world is not None
    world = make_environment(straight.data.world)
    questions = [
        question
        for step in range(2)
        for question in step_questions(step, world.questions["train"], straight.curriculum, straight.drawing)
    ]
    demonstrate(world, load_renderer(straight)[1], questions, tmp_path)
    train(straight)
    assert any(line.get("demonstrations/trained", 0) > 0 for line in tiny_runs.timeless(straight.out))
    add = MetricsLog.add

    def interrupt(self: MetricsLog, step: int, metrics: Any) -> None:
        add(self, step, metrics)
        if step == 4:
            raise Cut

    monkeypatch.setattr(MetricsLog, "add", interrupt)
    with pytest.raises(Cut):
        train(cut)
    monkeypatch.undo()
    refused_with_other_data(cut, next((tmp_path / "kept").glob("*.jsonl")))
    result, _ = train(cut, resume=True)
    assert result.first_update == 3
    assert tiny_runs.weights(cut.out) == tiny_runs.weights(straight.out)
    assert tiny_runs.timeless(cut.out) == tiny_runs.timeless(straight.out)


@pytest.mark.parametrize("resume", [True, False])
def test_a_run_that_starts_again_before_its_first_checkpoint_doubles_no_step(
    resume: bool, student: Path, tmp_path: Path
) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step":0,"dev/greedy/recall":0.5}\n{"step":1,"loss":2.0}\n')
    train(tiny_runs.rewards(student, tmp_path, rollouts={"steps": 1}), resume=resume)
    assert [line["step"] for line in tiny_runs.timeless(tmp_path)] == [0, 1, 2]


def test_a_full_disk_costs_trajectories_and_not_the_run(
    straight: Path, student: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(episode_table, "write", full)
    train(twelve_updates(student, tmp_path))
    lines = {line["step"]: line for line in tiny_runs.timeless(tmp_path)}
    assert {step for step in lines if "trajectories_failed" in lines[step]} == {1, 11}
    assert lines[6]["dev/greedy/trajectories_failed"] == 3
    assert not (tmp_path / "trajectories").exists()
    assert tiny_runs.weights(tmp_path) == tiny_runs.weights(straight)


def test_a_second_process_in_the_folder_of_a_run_is_refused(
    student: Path, tmp_path: Path, forked: ForkServerContext
) -> None:
    """The lock of a process that is killed is free."""
    run = tiny_runs.rewards(student, tmp_path, rollouts={"steps": 1}, evaluation={"every": 0})
    with locked_folder(tmp_path), pytest.raises(ConfigError, match=f"another process trains in {tmp_path}"):
        train(run)
    process = forked.Process(target=train_until_killed, args=(run.plain(), "logged", 1))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    result, _ = train(run, resume=True)
    assert result.updates == 2


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"])
def test_processes_of_mpi_that_do_not_know_of_each_other_are_refused(tmp_path, monkeypatch, name):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv(name, "1")
    with locked_folder(tmp_path / "alone"):
        pass
    monkeypatch.setenv(name, "2")
    with pytest.raises(ConfigError, match=rf"\({name}=2\).*accelerate launch"), locked_folder(tmp_path / "several"):
        pass
    assert not (tmp_path / "several").exists()
    monkeypatch.setenv("RANK", "1")
    with locked_folder(tmp_path / "several"):
        pass


def test_a_full_disk_of_a_run_is_named(tmp_path):
    """The libraries that write most files of a run do not name them."""
    with pytest.raises(OSError, match="No space left") as told, locked_folder(tmp_path / "run"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert told.value.filename == str(tmp_path / "run")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
@pytest.mark.filterwarnings("ignore:flock not supported")
def test_a_folder_without_locks_is_trained_in_without_protection(tmp_path, monkeypatch, number):
    monkeypatch.setattr(fcntl, "flock", without_locks(number))
    with locked_folder(tmp_path / "run"):
        (tmp_path / "run" / "metrics.jsonl").touch()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.toml").touch()
    with (
        pytest.raises(ConfigError, match=r"run\.toml is a file, but a run needs a folder"),
        locked_folder(tmp_path / "run.toml"),
    ):
        pass


def test_an_existing_run_is_not_continued_without_resume(straight: Path, student: Path) -> None:
    with pytest.raises(ConfigError, match=r"reached update 12. Resume it with --resume"):
        train(twelve_updates(student, straight))


def test_a_checkpoint_of_another_run_is_refused_by_what_differs(straight: Path, student: Path) -> None:
    other = twelve_updates(student, straight, rewards={"trajectory": 0.0})
    with pytest.raises(ConfigError, match=r"rewards\.trajectory was 0\.3 and is 0\.0"):
        train(other, resume=True)


def test_a_model_of_another_vocabulary_is_refused(student: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"trained on another world|tokenizer that the model was trained with"):
        train(tiny_runs.rewards(student, tmp_path, data={"world": {"seed": 5}}))


def test_an_engine_that_dies_in_a_step_stops_the_run_which_then_goes_on(
    straight: Path, student: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine fails from update 8 on. That state is saved, and the resumed run ends as if nothing had happened."""
    from context_agent.policies.tokens.engines.transformers import TransformersEngine

    run = twelve_updates(student, tmp_path)
    generate = TransformersEngine.generate

    async def generate_or_fail(self: Any, prompt: Any, **options: Any) -> Any:
        if self.version == "8":
            raise PolicyError("the server hung up")
        return await generate(self, prompt, **options)

    monkeypatch.setattr(TransformersEngine, "generate", generate_or_fail)
    with pytest.raises(PolicyError, match=r"none of the 8 episodes of step 4 .*hung up.*update 8 is saved.*--resume"):
        train(run)
    monkeypatch.undo()
    result, _ = train(run, resume=True)
    assert result.first_update == 8
    assert tiny_runs.weights(tmp_path) == tiny_runs.weights(straight)
    assert tiny_runs.timeless(tmp_path) == tiny_runs.timeless(straight)


def test_a_disk_that_is_full_costs_a_checkpoint_and_not_the_run(
    straight: Path, student: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The optimizer's file of update 6 is on a device that is always full."""
    from context_agent.train.checkpoints import Checkpoints

    original_open = Checkpoints.open

    def open_on_full_disk(self: Checkpoints, step: int) -> Path:
        folder = original_open(self, step)
        if step == 6:
            (folder / "checkpoint-6").mkdir()
            (folder / "checkpoint-6" / "optimizer.pt").symlink_to("/dev/full")
        return folder

    monkeypatch.setattr(Checkpoints, "open", open_on_full_disk)
    result, notes = train(twelve_updates(student, tmp_path))
    assert result.checkpoints_failed == 1
    warning = next(note for note in notes if "could not be written" in note)
    assert "the checkpoint of step 6" in warning
    assert "The newest complete checkpoint is of step 3. Training continues" in warning
    assert tiny_runs.weights(tmp_path) == tiny_runs.weights(straight)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"step-00000009", "step-00000012"}
    assert [line["step"] for line in tiny_runs.timeless(tmp_path) if "checkpoints_failed" in line] == [7]


def test_a_loss_that_is_no_number_is_not_learned_from(
    student: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from context_agent.train.rl.row_trainer import RowTrainer

    compute = RowTrainer.compute_loss
    monkeypatch.setattr(
        RowTrainer, "compute_loss", lambda self, *args, **kwargs: compute(self, *args, **kwargs) * float("nan")
    )
    with pytest.raises(DataError, match=r"the loss of update \d+ is nan"):
        train(tiny_runs.rewards(student, tmp_path, loss={"kl": 0.0}))


def test_a_gradient_that_is_no_number_is_not_learned_from(
    student: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is finite. The slope of its root at zero is not."""
    from context_agent.train.rl.row_trainer import RowTrainer

    compute = RowTrainer.compute_loss

    def steep(self: Any, *args: Any, **kwargs: Any) -> Any:
        loss = compute(self, *args, **kwargs)
        return loss + (loss * 0).sqrt() if self.state.global_step == 3 else loss

    monkeypatch.setattr(RowTrainer, "compute_loss", steep)
    run = tiny_runs.rewards(student, tmp_path, rollouts={"steps": 3}, evaluation={"every": 0})
    with pytest.raises(DataError, match=r"the gradient of update 3 is nan.*The state of update 3 is saved"):
        train(run)
    monkeypatch.undo()
    assert train(run, resume=True)[0].first_update == 3


def test_a_judge_is_called_and_reported_and_its_replies_are_saved(student: Path, tmp_path: Path) -> None:
    judge_settings = {"model": "scripted", "questions": "all", "max_calls": 1_000, "uncalibrated": True, "retries": 0}
    with serving("yes") as url:
        run = tiny_runs.rewards(
            student, tmp_path, rollouts={"steps": 2}, rewards={"judge": 0.5}, judge=judge_settings | {"base_url": url}
        )
        _, notes = train(run)
    assert "the judge: it was never compared with gold (judge.uncalibrated)" in notes
    first_line = next(line for line in tiny_runs.timeless(tmp_path) if line.get("judge/calls"))
    assert (first_line["judge/absent"], first_line["episodes_unjudged"]) == (0, 0)
    assert first_line["term/judge"] == pytest.approx(0.5 * first_line["judge/score"])
    assert len((tmp_path / "judge" / "replies-0.jsonl").read_text().splitlines()) >= first_line["judge/calls"] > 0


def test_a_judge_that_is_not_calibrated_is_refused(student: Path, tmp_path: Path) -> None:
    judge_settings = {"model": "scripted", "questions": "all", "max_calls": 1}
    with pytest.raises(ConfigError, match="this judge is not calibrated"):
        train(tiny_runs.rewards(student, tmp_path, rewards={"judge": 0.5}, judge=judge_settings))


def test_a_run_without_a_row_to_train_ends_with_an_error(
    student: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from context_agent.train.rl import scoring

    reward = scoring.compute_reward
    monkeypatch.setattr(scoring, "compute_reward", lambda *args: replace(reward(*args), total=0.5))
    run = tiny_runs.rewards(student, tmp_path, rollouts={"steps": 2}, evaluation={"every": 0})
    with pytest.raises(DataError, match=r"none of 4 updates had a row to train, .* earned the same\. .*ctx1 train sft"):
        train(run)
    assert [line["groups_equal"] for line in tiny_runs.timeless(tmp_path) if "groups_equal" in line] == [2, 2]
    with pytest.raises(
        DataError, match=r"none of 4 updates had a row to train, .* raise rollouts\.steps and add --res"
    ):
        train(run, resume=True)
    assert not (tmp_path / "final").exists()


def test_a_divergence_is_measured_from_the_first_weights_of_any_model(student: Path, tmp_path: Path) -> None:
    run = tiny_runs.rewards(student, tmp_path, rollouts={"steps": 2}, evaluation={"every": 0}, loss={"kl": 0.1})
    train(run)
    divergences = [line["kl"] for line in tiny_runs.timeless(tmp_path) if "kl" in line]
    assert divergences[0] == 0
    assert divergences[-1] > 0


def test_a_divergence_needs_no_model_on_the_hub(tmp_path: Path) -> None:
    """An untrained model earns nothing, so the run ends with an error, and that is another one."""
    tiny = {"hidden": 32, "layers": 1, "positions": 1024, "deviation": 0.18}
    tables = {"rollouts": {"steps": 1}, "evaluation": {"every": 0}, "loss": {"kl": 0.1}, "model": {"tiny": tiny}}
    run = run_file.parse_run(tiny_runs.merged(tiny_runs.merged(tiny_runs.TINY, {"out": str(tmp_path)}), tables))
    with pytest.raises(DataError, match="had a row to train"):
        train(run)


def test_an_update_says_how_fast_it_was_and_how_long_the_run_will_take(straight: Path) -> None:
    lines = [json.loads(line) for line in (straight / "metrics.jsonl").read_text().splitlines()][1:]
    assert all(line["left_seconds"] > 0 for line in lines[:-1])
    assert lines[-1]["left_seconds"] == 0
    assert all(line["trained_per_second"] > 0 for line in lines if line["update_tokens"])
    assert all(line["sampled_per_second"] > 0 for line in lines if "tokens_sampled" in line)
    fresh = [line for line in lines if "sampler/logp_difference_mean" in line]
    assert fresh
    assert all(line["step"] % 2 == 1 for line in fresh), "the second update of a step has rows that are one update old"
    assert max(line["sampler/logp_difference_max"] for line in fresh) < 1e-4
    assert max(line["sampler/canary_difference"] for line in lines) < 1e-4


def test_the_page_about_training_names_the_metrics(straight: Path, student: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "training.md").read_text(encoding="utf-8")
    files = [out / "metrics.jsonl" for out in (straight, student.parent)]
    names = {name for file in files for line in file.read_text().splitlines() for name in json.loads(line)}
    unnamed = {
        name for name in names if f"`{name}`" not in page and not name.startswith(("term/", "dev/", "rollouts/"))
    }
    assert unnamed <= {"step", "epoch", "beta"}


def test_a_sampler_that_keeps_its_first_weights_stops_the_run(
    student: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names what it samples by the newest update, as if it had the weights."""
    from context_agent.policies.tokens.engines.staged_weights import StagedWeights

    def take_nothing(self: StagedWeights, model: Any) -> str:
        return self._version.value.decode()

    monkeypatch.setattr(StagedWeights, "take", take_nothing)
    run = tiny_runs.rewards(
        student,
        tmp_path,
        rollouts={"steps": 8, "substeps": 1},
        evaluation={"every": 0},
        async_rollouts={"sampler": "thread"},
    )
    with pytest.raises(PolicyError, match=r"the sampler does not have the weights of update 1\. .*update 0"):
        train(run)
    assert len(tiny_runs.timeless(tmp_path)) <= 2
