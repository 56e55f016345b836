"""Where a run starts: rewards continue from the lessons, or are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from context_agent.errors import ConfigError
from context_agent.policies.tokens.packaged import ADAPTERS
from context_agent.policies.tokens.trained import PolicyDescription, trained_model
from context_agent.train.config import RunConfig
from context_agent.train.lineage import check_start, started_from, tokenizer_names
from context_agent.train.run_file import parse_run

LEAST: dict[str, Any] = {
    "model": {"name": "some/model", "renderer": "template", "lora": {}},
    "data": {"questions": ["tasks.jsonl"], "path": ".ctx1"},
}


def run_in(out: Path, **model: Any) -> RunConfig:
    return parse_run({**LEAST, "out": str(out), "model": {**LEAST["model"], **model}})


def finished(out: Path, kind: str = "sft", *, names: tuple[str, ...] = ("final",), adapter: bool = True) -> Path:
    """The folder of a finished run, without weights."""
    out.mkdir(exist_ok=True)
    for name in names:
        (out / name).mkdir(parents=True)
        PolicyDescription(base="some/model", renderer="template").save(out / name)
        (out / name / ("adapter_config.json" if adapter else "config.json")).write_text("{}")
    (out / "run.json").write_text(json.dumps({"kind": kind, **run_in(out).plain()}))
    return out


def test_adapters_of_the_lessons_become_those_of_the_run(tmp_path: Path) -> None:
    lessons = finished(tmp_path / "lessons")
    run = started_from(run_in(tmp_path / "rewards"), lessons)
    assert run.model.adapter == str(lessons / "final")
    assert run.model.name == "some/model"


def test_whole_weights_of_the_lessons_become_the_model(tmp_path: Path) -> None:
    lessons = finished(tmp_path / "lessons", adapter=False)
    run = started_from(run_in(tmp_path / "rewards"), lessons)
    assert (run.model.name, run.model.adapter) == (str(lessons / "final"), None)


def test_a_trained_model_has_the_tokenizer_of_the_model_that_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, base in ((first, "some/model"), (second, str(first))):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        PolicyDescription(base=base, renderer="template").save(folder)
    assert tokenizer_names(str(second)) == [str(second), str(first), "some/model"]
    monkeypatch.chdir(tmp_path)
    assert tokenizer_names("first") == [str(first), "some/model"]
    assert tokenizer_names("words:7") == ["words:7"]


def test_a_run_starts_from_the_adapter_that_ships_by_the_name_of_its_model(tmp_path: Path) -> None:
    run = run_in(tmp_path / "rewards", name="smollm2", renderer="lines")
    assert started_from(run, "smollm2").model.adapter == str(ADAPTERS / "smollm2")
    with pytest.raises(ConfigError, match=r"were trained on 'smollm2', but this run has model\.name = 'some/model'"):
        started_from(run_in(tmp_path / "rewards", renderer="lines"), "smollm2")


def test_a_folder_with_the_name_of_a_packaged_model_is_that_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    finished(tmp_path / "smollm2")
    assert started_from(run_in(tmp_path / "rewards"), "smollm2").model.adapter == str(Path("smollm2") / "final")


def test_the_best_model_of_a_run_is_taken_unless_a_model_is_named(tmp_path: Path) -> None:
    lessons = finished(tmp_path / "lessons", names=("final", "best"))
    run = run_in(tmp_path / "rewards")
    assert started_from(run, lessons).model.adapter == str(lessons / "best")
    assert started_from(run, lessons / "final").model.adapter == str(lessons / "final")


def test_adapters_of_another_base_or_another_spelling_are_refused(tmp_path: Path) -> None:
    lessons = finished(tmp_path / "lessons")
    with pytest.raises(ConfigError, match=r"were trained on 'some/model', but this run has model\.name = 'other'"):
        started_from(run_in(tmp_path / "rewards", name="other"), lessons)
    with pytest.raises(ConfigError, match=r"model\.renderer = 'template', but this run has 'harmony'"):
        started_from(run_in(tmp_path / "rewards", renderer="harmony"), lessons)
    with pytest.raises(ConfigError, match="no model"):
        started_from(run_in(tmp_path / "rewards"), tmp_path)


def test_rewards_without_the_lessons_beside_them_are_refused_with_the_flag_that_helps(tmp_path: Path) -> None:
    lessons = finished(tmp_path / "lessons")
    with pytest.raises(ConfigError, match=rf"Add --from {lessons}, or --from base"):
        check_start(run_in(tmp_path / "rewards"))
    check_start(started_from(run_in(tmp_path / "rewards"), lessons))


def test_other_runs_beside_it_refuse_nothing(tmp_path: Path) -> None:
    finished(tmp_path / "earlier-rewards", "rl")
    finished(tmp_path / "unfinished", names=())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    deleted = finished(tmp_path / "deleted")
    (deleted / "final" / "adapter_config.json").unlink()
    foreign = finished(tmp_path / "foreign")
    (foreign / "run.json").write_text('{"kind": "sft", "model": ["some/model"]}')
    check_start(run_in(tmp_path / "rewards"))
    finished(tmp_path / "lessons")
    check_start(run_in(tmp_path / "rewards", name="other/model"))
    check_start(run_in(tmp_path / "elsewhere" / "rewards"))


def test_a_folder_without_a_description_is_described_by_its_own_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt_oss"}')
    assert trained_model(tmp_path).about.renderer == "harmony"
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(tmp_path)}))
    found = trained_model(adapter)
    assert (found.is_adapter, found.about.base, found.about.renderer) == (True, str(tmp_path), "harmony")
    for text in ('{"windows": 1}', '{"window": -1}', '{"renderer": "python"}'):
        (adapter / "policy.json").write_text(text)
        with pytest.raises(ConfigError, match="does not describe a policy"):
            trained_model(adapter)
    (adapter / "policy.json").write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="cannot read"):
        trained_model(adapter)
