"""The demo of a language model from end to end, with a tiny Llama in place of SmolLM2."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from context_agent.cli.app import run
from context_agent.errors import ConfigError
from context_agent.train.demo import plan
from context_agent.train.demo.material import DemoMaterial
from context_agent.train.demo.scores import load_scores
from tests.support.missing_packages import need

need("trl", "peft")


@pytest.fixture(scope="module", autouse=True)
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A quick demo that takes seconds."""
    from context_agent.train.tiny_model import tiny_llama

    model = tiny_llama(tmp_path_factory.mktemp("models") / "tiny-llama")
    sft = {"model.name": str(model), "model.lora": {"rank": 4, "modules": ["v_proj"]}, "episodes.turns": 2}
    rl = {
        "rollouts": {"steps": 1, "groups": 16, "rollouts": 2, "demonstrations": 1, "substeps": 1},
        "engine.max_tokens": 8,
    }
    quick = {"material": {"tasks": 16, "entities": 50}, "sft": sft, "rl": {**rl, "evaluation.every": 0}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "QUICK", {"smollm2": quick})
        yield


def demo(out: Path, *arguments: str) -> int:
    options = ["--model", "smollm2", "--quick", "--questions", "2", "--threads", "1", "--out", str(out), "--json"]
    return run(["train", "demo", *options, *arguments])


@pytest.mark.slow
def test_a_language_model_learns_is_measured_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo(tmp_path) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert set(report["evaluations"]) == {"before", "after", "half", "half_unpruned"}
    assert all(set(evaluation) == {"greedy"} for evaluation in report["evaluations"].values())
    assert [target["name"] for target in report["targets"]] == ["prune accuracy", "budget violations", "minutes"]
    assert {"lessons", "demonstrations", "rewards", "asking before", "asking after"} < set(report["seconds"])
    assert 0 < report["one_shot"]["mean"] <= 1
    lesson_counts = [len(list((tmp_path / "lessons" / name / "kept").glob("*.jsonl"))) for name in ("2048", "1024")]
    assert all(0 < count <= 16 for count in lesson_counts)
    assert (tmp_path / "rl" / "final" / "adapter_model.safetensors").is_file()
    assert len(load_scores(tmp_path / "evaluations" / "after-greedy.jsonl") or []) == 2
    page = (tmp_path / "report.html").read_text()
    assert page.count("<details>") == 2
    assert "One search with the question reaches a recall of" in page
    mtimes = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    assert demo(tmp_path) == 2
    assert "Resume it with --resume" in capsys.readouterr().err
    assert demo(tmp_path, "--resume") == 0
    assert {path: path.stat().st_mtime_ns for path in mtimes} == mtimes
    assert demo(tmp_path, "--resume", "--demonstrations", "1") == 2
    assert "other settings" in capsys.readouterr().err


def test_a_folder_without_questions_or_documents_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "data"
    source.mkdir()
    for missing in ("queries.train.jsonl", "queries.dev.jsonl", "corpus.jsonl.gz"):
        assert demo(tmp_path / "out", "--data", str(source)) == 2
        error = capsys.readouterr().err
        assert f"has no {missing}" in error
        assert "--data" in error
        (source / missing).write_text('{"id": "q", "question": "who?", "gold": ["d"]}\n')


def test_a_model_that_is_not_installed_is_named_before_anything_is_made(tmp_path: Path) -> None:
    material = DemoMaterial(tmp_path, str(tmp_path / "no-model"), (2_048,), 1)
    with pytest.raises(ConfigError, match="no-model"):
        material.make(print, lambda *_: None)
    assert not list(tmp_path.iterdir())


def test_without_a_test_split_the_dev_questions_are_held_out(tmp_path: Path) -> None:
    (tmp_path / "queries.dev.jsonl").write_text(
        '{"id": "a", "question": "who?", "gold": ["d"]}\n{"question": "no gold"}\n'
    )
    material = DemoMaterial(tmp_path / "out", "model", (2_048,), 1, source=tmp_path)
    assert [question.id for question in material.held_out()] == ["a"]
    (tmp_path / "queries.test.jsonl").write_text('{"id": "b", "question": "who?", "gold": ["d"]}\n')
    assert [question.id for question in material.held_out()] == ["b"]


def test_lessons_from_changed_documents_or_questions_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.mkdir()
    for name in ("corpus.jsonl", "queries.train.jsonl", "queries.dev.jsonl", "queries.test.jsonl"):
        (source / name).write_text('{"id": "a"}\n')
    material = DemoMaterial(tmp_path / "out", "model", (2_048,), 1, source=source)
    material.out.mkdir()
    assert not material.is_made()
    about = material.out / "material.json"
    about.write_text(json.dumps(material._settings()))
    assert material.is_made()
    for path in sorted(source.iterdir()):
        before = path.read_text()
        path.write_text('{"id": "b"}\n')
        with pytest.raises(ConfigError, match="have changed"):
            material.is_made()
        path.write_text(before)
    assert material.is_made()
    with pytest.raises(ConfigError, match="other settings"):
        replace(material, tasks=2).is_made()
    about.write_text("{")
    with pytest.raises(ConfigError, match="is damaged"):
        material.is_made()


def test_lessons_that_were_interrupted_are_not_continued_with_other_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "data"
    assert run(["synth", "world", "--out", str(source), "--entities", "50", "--tasks", "60", "--json"]) == 0

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("context_agent.train.demo.material.make_demonstrations", interrupt)
        assert demo(tmp_path / "out", "--data", str(source)) == 130
    assert "To continue, add --resume." in capsys.readouterr().err
    assert demo(tmp_path / "out", "--data", str(source)) == 2
    assert "Resume it with --resume" in capsys.readouterr().err
    questions = source / "queries.train.jsonl"
    questions.write_text("".join(questions.read_text().splitlines(keepends=True)[1:]))
    assert demo(tmp_path / "out", "--data", str(source), "--resume") == 2
    assert "have changed" in capsys.readouterr().err


def test_lessons_of_an_older_version_stored_no_digest(tmp_path: Path) -> None:
    material = DemoMaterial(tmp_path, "model", (2_048,), 1)
    settings = {name: value for name, value in material._settings().items() if name != "digest"}
    (tmp_path / "material.json").write_text(json.dumps(settings))
    assert material.is_made()
