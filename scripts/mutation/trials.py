"""Trials of mutants. pytest collects the tests once, and each mutant is tried in a fork of that process."""

from __future__ import annotations

import gc
import importlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

import coverage
import hypothesis
import pytest
from forks import in_fork
from mutants import Mutant
from substitution import CannotExchangeError, ImportedModule, import_at_next_use

BASE_SECONDS = 4.0
TIMES_LONGER = 5.0
"""The time limit of a trial: `BASE_SECONDS`, plus `TIMES_LONGER` times the seconds of its tests without a mutant.

All are seconds of processor time, so a busy machine makes no mutant look endless.
"""
BASE_WAITING = 30.0
"""How many seconds a trial may wait for something else, plus `TIMES_LONGER` times as long as its tests wait."""


class Outcome(Enum):
    """The outcome of a trial."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    UNREACHED = "not reached by a test"


MISSED = (Outcome.SURVIVED, Outcome.UNREACHED)


class TestsFailError(Exception):
    """The error if tests fail without a mutant, or if there are no tests."""


def try_mutants(
    path: Path, mutants: Sequence[Mutant], tests: Sequence[str], done: Callable[[Mutant, Outcome], None]
) -> None:
    """Try each mutant of a module with the tests that reach it, and call `done` with its outcome.

    Ctrl-C ends the trials early.

    Raises:
        TestsFailError: If a test fails without a mutant, or pytest finds no test.
    """
    hypothesis.settings.register_profile(
        "mutation",
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        # A failure needs no smaller example.
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    hypothesis.settings.load_profile("mutation")
    with TemporaryDirectory() as folder:
        trials = _Trials(path.resolve(), mutants, Path(folder) / "tests", done)
        code = pytest.main([*trials.arguments, *tests], plugins=[trials])
    if trials.failed:
        raise TestsFailError(f"These tests fail without a mutant: {' '.join(trials.failed)}")
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.INTERRUPTED}:
        raise TestsFailError(f"pytest found no tests to run in {' '.join(tests)}.")


@dataclass(frozen=True, slots=True)
class _Baseline:
    """The results of the tests without a mutant."""

    seconds: dict[str, float]
    """The processor time of each test."""
    waiting: dict[str, float]
    """How much longer each test took on a clock."""
    failed: list[str]
    reached: dict[int, list[str]]
    """For each line of the module, the tests that run it."""


class _Reports:
    """A plugin of pytest that records the tests that fail."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)


class _Trials(_Reports):
    """A plugin of pytest that loops over the mutants instead of the tests."""

    def __init__(
        self, path: Path, mutants: Sequence[Mutant], folder: Path, done: Callable[[Mutant, Outcome], None]
    ) -> None:
        super().__init__()
        self.arguments = ["-qq", "--no-header", "--no-summary", "-s", "-p", "no:cacheprovider", f"--basetemp={folder}"]
        self._path = path
        self._name = ".".join(path.relative_to(Path.cwd()).with_suffix("").parts).removesuffix(".__init__")
        self._mutants = mutants
        self._done = done
        self._kills: dict[str, int] = defaultdict(int)
        self._imports = _coverage_of(path)
        self._imports.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        importlib.import_module(self._name)
        self._imports.stop()
        if session.testsfailed or not session.items:
            return True
        reached_at_import = self._imports.get_data().contexts_by_lineno(str(self._path)).keys()
        module = ImportedModule(self._path)
        # The forks then share the memory of what has been imported.
        gc.collect()
        gc.freeze()
        baseline = in_fork(lambda: self._baseline(session.items))
        assert isinstance(baseline, _Baseline), "the tests end their own process"
        self.failed = baseline.failed
        for mutant in () if self.failed else self._mutants:
            outcome = self._try_in_place(mutant, module, session.items, baseline)
            if outcome in MISSED and (not mutant.in_body or not reached_at_import.isdisjoint(mutant.statement)):
                outcome = self._try_imported(mutant, session.items, baseline)
            self._done(mutant, outcome)
        return True

    def _baseline(self, items: Sequence[pytest.Item]) -> _Baseline:
        measured = _coverage_of(self._path)
        measured.start()
        seconds: dict[str, float] = {}
        waiting: dict[str, float] = {}
        for item, following in zip(items, [*items[1:], None], strict=True):
            measured.switch_context(item.nodeid)
            started, clock = time.process_time(), time.monotonic()
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            seconds[item.nodeid] = time.process_time() - started
            waiting[item.nodeid] = max(0.0, time.monotonic() - clock - seconds[item.nodeid])
        measured.stop()
        return _Baseline(seconds, waiting, self.failed, measured.get_data().contexts_by_lineno(str(self._path)))

    def _try_in_place(
        self, mutant: Mutant, module: ImportedModule, items: Sequence[pytest.Item], baseline: _Baseline
    ) -> Outcome:
        """Try a mutant of a function in the imported module."""
        reached = {test for line in mutant.statement for test in baseline.reached.get(line, ())}
        if not mutant.in_body or not reached:
            return Outcome.UNREACHED
        chosen = self._in_order([item for item in items if item.nodeid in reached], baseline)

        def first_failure() -> str:
            try:
                module.exchange_functions(mutant.source)
            except CannotExchangeError:
                return self._first_failure_imported(mutant, chosen)
            for item, following in zip(chosen, [*chosen[1:], None], strict=True):
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
                if self.failed:
                    break
            return "".join(self.failed[:1])

        return self._outcome(first_failure, chosen, baseline)

    def _try_imported(self, mutant: Mutant, items: Sequence[pytest.Item], baseline: _Baseline) -> Outcome:
        """Try a mutant that takes effect when the module is imported, with all tests."""
        chosen = self._in_order(items, baseline)
        return self._outcome(lambda: self._first_failure_imported(mutant, chosen), chosen, baseline)

    def _first_failure_imported(self, mutant: Mutant, items: Sequence[pytest.Item]) -> str:
        import_at_next_use(self._name, self._path, mutant.source)
        reports = _Reports()
        code = pytest.main([*self.arguments, "--exitfirst", *(item.nodeid for item in items)], plugins=[reports])
        return "" if code == pytest.ExitCode.OK else "".join(reports.failed[:1]) or "the import"

    def _outcome(self, first_failure: Callable[[], str], chosen: Sequence[pytest.Item], baseline: _Baseline) -> Outcome:
        limit = BASE_SECONDS + TIMES_LONGER * sum(baseline.seconds[item.nodeid] for item in chosen)
        waiting = BASE_WAITING + TIMES_LONGER * sum(baseline.waiting[item.nodeid] for item in chosen)
        try:
            failed = in_fork(first_failure, limit, waiting)
        except TimeoutError:
            return Outcome.TIMED_OUT
        if failed == "":
            return Outcome.SURVIVED
        # If there is no name, the mutant ended the process.
        self._kills[failed or ""] += 1
        return Outcome.KILLED

    def _in_order(self, items: Iterable[pytest.Item], baseline: _Baseline) -> list[pytest.Item]:
        """Sort the tests. Quick tests that have killed mutants before come first."""
        return sorted(items, key=lambda item: baseline.seconds[item.nodeid] / (1 + self._kills[item.nodeid]))


def _coverage_of(path: Path) -> coverage.Coverage:
    """Return a coverage measurement of one module that writes no file."""
    measured = coverage.Coverage(data_file=None, config_file=False, include=[str(path)])
    # These warnings are expected: the module may be imported already, or no line of it may run.
    measured.set_option("run:disable_warnings", ["already-imported", "module-not-measured", "no-data-collected"])
    return measured
