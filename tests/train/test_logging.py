"""Where metrics go: to trackio on this machine if it is installed, and never anywhere else unless a run says so."""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from context_agent.errors import ConfigError
from context_agent.testing import tiny_runs
from context_agent.train.config import LoggingConfig
from context_agent.train.run_file import parse_run

pytest.importorskip("trl")

CONFIGS = Path(__file__).parents[2] / "configs"


class Settings(dict[str, Any]):
    """The settings of a run at the tracker."""

    def update(self, values: Any, *, allow_val_change: bool) -> None:  # type: ignore[override]
        super().update(values)


class Trackio(ModuleType):
    """Stands for trackio: keeps what it is given."""

    __version__ = "0.43.0"

    def __init__(self) -> None:
        super().__init__("trackio")
        self.opened: list[dict[str, Any]] = []
        self.lines: list[dict[str, Any]] = []
        self.config = Settings()
        space = SimpleNamespace(get=lambda: None)
        self.context_vars = SimpleNamespace(current_space_id=space, current_project=space)

    def init(self, **options: Any) -> None:
        sys.stdout.write("* Trackio project initialized\n")
        self.opened.append(options)

    def log(self, line: dict[str, Any]) -> None:
        self.lines.append(line)

    def finish(self) -> None:
        pass


@pytest.fixture
def trackio(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Trackio:
    """trackio as if it were installed."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "trackio.py").write_text("")
    module = Trackio()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setitem(sys.modules, "trackio", module)
    module.__spec__ = ModuleSpec("trackio", None, origin=str(site / "trackio.py"))
    return module


def lessons(out: Path, **logging: Any) -> Any:
    changes: dict[str, Any] = {"logging": logging, "sft": {"demonstrations": 30, "epochs": 1}}
    return tiny_runs.demonstrations(out, **changes)


def test_a_run_logs_to_trackio_where_it_is_installed(trackio: Trackio, tmp_path: Path) -> None:
    from context_agent.train import sft

    sft.train(lessons(tmp_path / "lessons", to=None), note=lambda _: None)
    (opened,) = trackio.opened
    assert (opened["project"], opened["name"]) == ("context-agent", "lessons")
    assert [opened.get(name) for name in ("space_id", "bucket_id")] == [None, None], "nothing leaves this machine"
    assert any("train/loss" in line for line in trackio.lines)


def test_nothing_is_logged_to_a_tracker_that_is_not_installed_or_not_wanted(
    trackio: Trackio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from context_agent.train.trainer_settings import trainer_settings
    from context_agent.train.training_run import TrainingRun

    def trackers(out: Path, **logging: Any) -> tuple[str, ...]:
        session = TrainingRun(lessons(out, **logging), "sft", resume=False, note=lambda _: None)
        settings = trainer_settings(session.config, session.kind, session.trackers)
        assert (settings["trackio_space_id"], settings["trackio_static_space_id"]) == (None, False)
        return tuple(settings["report_to"])

    assert trackers(tmp_path / "a", to=[]) == ()
    monkeypatch.setattr("context_agent.train.trainer_settings.find_spec", lambda name: None)
    assert trackers(tmp_path / "b", to=None) == ()
    monkeypatch.setattr("context_agent.train.trainer_settings.find_spec", lambda name: ModuleSpec(name, None))
    assert trackers(tmp_path / "d", to=None) == (), "a folder named trackio, such as that of its data, is no package"
    with pytest.raises(ConfigError, match=r"logging\.to names wandb, which is not installed. Run `pip install wandb`"):
        trackers(tmp_path / "c", to=["wandb"])


def test_the_project_reaches_the_trackers_that_read_it_from_a_variable(
    trackio: Trackio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from context_agent.train import sft

    names = ("MLFLOW_EXPERIMENT_NAME", "WANDB_PROJECT")
    monkeypatch.setenv(names[0], "mine")
    monkeypatch.delenv(names[1], raising=False)
    seen: list[list[str | None]] = []
    monkeypatch.setattr(trackio, "log", lambda line: seen.append([os.environ.get(name) for name in names]))
    sft.train(lessons(tmp_path / "lessons", to=["trackio"], project="gates"), note=lambda _: None)
    assert seen[0] == ["mine", "gates"]
    assert names[1] not in os.environ, "another run of this process may have another project"


@pytest.mark.parametrize("name", ["mlflow", "tensorboard", "wandb"])
def test_a_run_may_name_each_tracker_of_the_docs(name: str) -> None:
    assert parse_run({"model": {"name": "m"}, "data": {}, "logging": {"to": [name]}}).logging.to == (name,)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_no_configuration_names_a_tracker(path: Path) -> None:
    """They run after `pip install "context-agent[train]"`, which installs none."""
    import tomllib

    assert "logging" not in tomllib.loads(path.read_text())
    assert parse_run({"model": {"name": "m"}, "data": {}}).logging == LoggingConfig(to=None)
