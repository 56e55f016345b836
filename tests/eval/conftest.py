"""Benchmarks for the tests of runs."""

from __future__ import annotations

import pytest

from context_agent.eval.benchmarks.loading import load_benchmark
from context_agent.eval.evaluation import prepare
from tests.support.evaluation_runs import Benchmarks
from tests.support.forked_workers import fork_workers
from tests.support.sample_benchmarks import native_folder


@pytest.fixture(autouse=True)
def _forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs in this process have workers that start as forks."""
    fork_workers(monkeypatch)


@pytest.fixture(scope="module")
def benchmarks(tmp_path_factory: pytest.TempPathFactory) -> Benchmarks:
    """Two small benchmarks, indexed."""
    folder = tmp_path_factory.mktemp("data")
    folders = [native_folder(folder, 4, name="one"), native_folder(folder, 3, name="two")]
    return [prepare(load_benchmark(str(path), data=folder), cache=folder / "cache") for path in folders]
