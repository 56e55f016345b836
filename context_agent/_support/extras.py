"""Checks that the package of an optional extra is installed, in a version that was tested."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from context_agent.errors import MissingExtraError

DISTRIBUTION = "context-agent"


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Check an extra's packages, and run the imports in the block.

    The version ranges are those that this distribution declares for the extra.

    Args:
        name: The name of the extra.

    Raises:
        MissingExtraError: If a package is missing, or if its version is out of range.
    """
    for package, versions in _declared(name):
        _check(package, versions, name)
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or name, name) from error


def _declared(name: str) -> list[tuple[str, str]]:
    """Return the packages of an extra with their version ranges. If this distribution is not installed, return none."""
    from packaging.requirements import Requirement

    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []
    requirements = [Requirement(line) for line in lines if "extra" in line]
    return [
        (requirement.name, str(requirement.specifier))
        for requirement in requirements
        if requirement.marker and requirement.marker.evaluate({"extra": name}) and requirement.name != DISTRIBUTION
    ]


def _check(package: str, versions: str, name: str) -> None:
    from packaging.specifiers import SpecifierSet

    try:
        installed = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise MissingExtraError(package, name) from None
    if not SpecifierSet(versions).contains(installed, prereleases=True):
        raise MissingExtraError(package, name, installed, versions)
