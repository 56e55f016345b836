"""The frameworks that the integrations stand on: there, and in a version that was tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from context_agent.errors import MissingExtraError

DISTRIBUTION = "context-agent"


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Around the imports of a framework: what is missing or outside the extra's range raises `MissingExtraError`.

    The range is the one that this distribution declares for the extra; there is no second list.
    """
    for package, wanted in _declared(name):
        _check(package, wanted, name)
    try:
        yield
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or name, name) from error


def _declared(name: str) -> list[tuple[str, str]]:
    """Package and version range of everything that an extra asks for; nothing where the package is not installed."""
    from packaging.requirements import Requirement

    try:
        lines = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []
    found = [Requirement(line) for line in lines if "extra" in line]
    return [
        (one.name, str(one.specifier))
        for one in found
        if one.marker and one.marker.evaluate({"extra": name}) and one.name != DISTRIBUTION
    ]


def _check(package: str, wanted: str, name: str) -> None:
    from packaging.specifiers import SpecifierSet

    try:
        found = metadata.version(package)
    except metadata.PackageNotFoundError:
        raise MissingExtraError(package, name) from None
    if not SpecifierSet(wanted).contains(found, prereleases=True):
        raise MissingExtraError(package, name, found, wanted)
