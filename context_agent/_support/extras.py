"""Checks that an integration's framework is installed, in a tested version."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from context_agent.errors import MissingExtraError

DISTRIBUTION = "context-agent"


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Yield a context for a framework's imports. Raises `MissingExtraError` for a package that is missing or out of
    range.

    The ranges are those that this distribution declares for the extra.
    """
    for package, versions in _declared(name):
        _check(package, versions, name)
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or name, name) from error


def _declared(name: str) -> list[tuple[str, str]]:
    """Package and version range of an extra's requirements; none if this distribution is not installed."""
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
