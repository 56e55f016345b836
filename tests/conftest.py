"""Corpora and actions that many tests share."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Generator, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from context_agent import MemoryCorpus
from context_agent._support.processes import available_cores
from context_agent.retrieval.embedders import default
from context_agent.testing.documents import linked_documents
from tests.support.fork_servers import hold_folder, rows_folder
from tests.support.forked_test_processes import forked_test_python
from tests.support.garbage import collect_rarely
from tests.support.missing_packages import has_dev, skip_if_lacking
from tests.support.remembered_certificates import remembered_certificates
from tests.support.remembered_rows import remembered_rows

if TYPE_CHECKING:
    from tests.support.browser import Browser

HAS_DEV = has_dev()
MEMORY, LEAST_MEMORY = "/dev/shm", 4 << 30
"""A folder of files in memory, and the bytes that must be free there."""
REAL_BOUND = default.SMALL_CORPUS_CHARACTERS

# Haystack counts its runs on a server unless it is told not to; tests stay on this machine, their processes too.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "false"

# On a busy machine, an example may take longer than the 200 ms that hypothesis allows.
settings.register_profile("without-deadline", settings.default, deadline=None)
settings.load_profile("without-deadline")


def pytest_configure() -> None:
    """Prepare the process.

    Commands under test must get SIGINT, also when a shell started the tests in the background and ignores it. Processes
    that test processes start inherit the folder of the fork servers.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    hold_folder()
    _keep_files_in_memory()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Let `--numprocesses auto` start three processes for two cores, because many tests wait for other processes."""
    cores = available_cores()
    return cores + cores // 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: list[Any]) -> None:
    """Start the test processes as forks, unless they are told which Python to run."""
    for spec in specs:
        if spec.popen and not spec.python:
            spec.python = forked_test_python()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files with slow tests first, so that no test process works alone at the end.

    Whole files move, because their tests share fixtures.
    """
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect the tests without collections of garbage. Later ones are rare, and leave out what exists by then."""
    gc.disable()
    try:
        if session.config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            _compile_own_share()
        return (yield)
    finally:
        collect_rarely()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a module that needs a package of `dev` which is not installed."""
    report = yield
    if not HAS_DEV:
        skip_if_lacking(report, collector.path)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Skip a test that needs a package of `dev` which is not installed."""
    report = yield
    if not HAS_DEV:
        skip_if_lacking(report, item.path)
    return report


def _keep_files_in_memory() -> None:
    """Let pytest make its temporary folders in memory, if it may write and run programs there and there is room.

    On a disk, a test that makes an index waits for a hundred syncs. PYTEST_DEBUG_TEMPROOT names another folder.
    """
    with suppress(OSError):
        memory = os.statvfs(MEMORY)
        has_room = memory.f_bavail * memory.f_frsize >= LEAST_MEMORY
        if has_room and not memory.f_flag & os.ST_NOEXEC and os.access(MEMORY, os.W_OK | os.X_OK):
            os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", MEMORY)


def _compile_own_share() -> None:
    """Import all tests, if this is one of several test processes. Each process begins at another test.

    In a fresh checkout, a test module is compiled by the first process that imports it. Processes that import the
    modules in the same order would all compile them.
    """
    count, worker = (os.environ.get(f"PYTEST_XDIST_WORKER{suffix}", "") for suffix in ("_COUNT", ""))
    if not count:
        return
    root = Path(__file__).parents[1]
    paths = sorted((root / "tests").rglob("test_*.py"))
    modules = [".".join(path.relative_to(root).with_suffix("").parts) for path in paths]
    start = len(modules) * int(worker.removeprefix("gw")) // int(count)
    for name in modules[start:] + modules[:start]:
        # The collection tells why a module cannot be imported.
        with suppress(Exception, pytest.skip.Exception):
            import_module(name)


@pytest.fixture(autouse=True)
def _restored_loggers() -> Iterator[None]:
    """Restore the loggers that a server of this process redirects. Its stream is closed after the test."""
    loggers = [logging.getLogger(name) for name in ("context_agent.server", "uvicorn")]
    before = [(list(logger.handlers), logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.fixture(scope="session", autouse=True)
def _static_by_default() -> Iterator[None]:
    """Let indexes in this process have static vectors, which are made a hundred times as fast.

    Other processes have the real default.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(default, "SMALL_CORPUS_CHARACTERS", 0)
        yield


@pytest.fixture(scope="session", autouse=True)
def _remembered_rows() -> Iterator[None]:
    """Let models in the test processes and in forks read each text once. Other processes read all of them."""
    with remembered_rows(rows_folder()):
        yield


@pytest.fixture(scope="session", autouse=True)
def _remembered_certificates() -> Iterator[None]:
    """Let clients in this process read the certificates that they trust once. Other processes read their own."""
    with remembered_certificates():
        yield


@pytest.fixture
def real_default_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a new index get the embedder that a user's index gets."""
    monkeypatch.setattr(default, "SMALL_CORPUS_CHARACTERS", REAL_BOUND)


@pytest.fixture(scope="session")
def corpus() -> MemoryCorpus:
    """Sixty small documents in memory."""
    return MemoryCorpus(linked_documents())


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium of this test process's own; fails where there is none."""
    from tests.support.browser import started

    with started(tmp_path_factory.mktemp("browser")) as chromium:
        yield chromium


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real questions that CTX1_DATA names."""
    folder = Path(os.environ.get("CTX1_DATA", "../shared/data"))
    if not (folder / "musique" / "corpus.jsonl.gz").exists():
        pytest.skip(f"no multi-hop data at {folder}: set CTX1_DATA to its folder")
    return folder
