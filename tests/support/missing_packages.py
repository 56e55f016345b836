"""Tests that need a package which is not installed: without all packages of the extra `dev`, they are skipped.

With these packages, such a test fails, because then the product asks for what it should not need.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement

DISTRIBUTION = "context-agent"
LACKING = re.compile(r"([\w.-]{1,80}) is not installed\. Run `pip install|No module named \\?'?([\w-]{1,80})")
"""What a failure says if a package is missing. The failure may be that of another process."""


def has_dev() -> bool:
    """Return True if all packages of the extra `dev` are installed."""
    try:
        return all(_is_installed(package) for package in _packages("dev"))
    except metadata.PackageNotFoundError:
        return True


def skip_if_lacking(report: pytest.TestReport | pytest.CollectReport, path: Path) -> None:
    """Turn a failure that names a missing package into a skip that names it."""
    if report.failed and (match := LACKING.search(str(report.longrepr))):
        report.outcome = "skipped"
        report.longrepr = (str(path), 0, f"Skipped: {match[1] or match[2]} is not installed")


def need(*modules: str) -> None:
    """Skip the module that calls this, unless these modules are installed.

    They are not imported, because every test process collects every test, and only one of them runs it.
    """
    for name in modules:
        if find_spec(name) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)


def _packages(extra: str) -> Iterator[str]:
    for line in metadata.requires(DISTRIBUTION) or []:
        requirement = Requirement(line)
        if requirement.marker is None or not requirement.marker.evaluate({"extra": extra}):
            continue
        if requirement.name != DISTRIBUTION:
            yield requirement.name
        for inner in requirement.extras if requirement.name == DISTRIBUTION else ():
            yield from _packages(inner)


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
