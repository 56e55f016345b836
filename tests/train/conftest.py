"""Fixtures that several tests of training share."""

from __future__ import annotations

import gc
from multiprocessing import forkserver, get_context
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from context_agent.testing import tiny_runs
from context_agent.train.toy.environment import ToyEnvironment, WorldConfig, environment_texts, make_environment
from context_agent.train.toy.word_prompts import WordRenderer
from tests.support.fork_servers import MODELS, attach
from tests.support.garbage import collect_rarely
from tests.support.shared_folders import made_once


@pytest.fixture(scope="session", autouse=True)
def _rare_collections() -> None:
    """Leave what exists by now out of the collection of garbage with which each training begins."""
    gc.collect()
    collect_rarely()


@pytest.fixture(scope="session")
def small() -> ToyEnvironment:
    """A world of 120 entities."""
    return make_environment(WorldConfig(entities=120, tasks=300, seed=3))


@pytest.fixture(scope="session")
def words(small: ToyEnvironment) -> WordRenderer:
    """The renderer of that world, with a token for each word."""
    return WordRenderer(environment_texts(small))


@pytest.fixture(scope="session")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny policy trained on a teacher's demonstrations: good enough for rewards to differ."""
    pytest.importorskip("trl")
    from context_agent.train import sft

    def train(out: Path) -> None:
        sft.train(tiny_runs.demonstrations(out), note=lambda _: None)

    return made_once(tmp_path_factory, "student", train) / "final"


@pytest.fixture(scope="session")
def forked() -> ForkServerContext:
    """A context whose processes start with the trainer already imported."""
    pytest.importorskip("trl")
    attach(forkserver._forkserver, MODELS)
    return get_context("forkserver")


@pytest.fixture
def forked_rollouts(forked: ForkServerContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rollout processes of this test are forks that have imported everything. A spawned one imports for six seconds."""
    module = "context_agent.train.experimental.async_rollouts.rollout_process"
    monkeypatch.setattr(f"{module}.get_context", lambda _: forked)
