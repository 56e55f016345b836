"""The file tests/mutants.toml. It names the tests of a module, and the mutants that may survive."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mutants import Mutant

PATH = Path("tests/mutants.toml")


@dataclass(frozen=True, slots=True)
class Listed:
    """A mutant that may survive."""

    function: str
    before: str
    after: str

    def matches(self, mutant: Mutant) -> bool:
        """Return True if the mutant is this one."""
        return (self.function, self.before, self.after) == (mutant.function, mutant.before, mutant.after)


@dataclass(frozen=True, slots=True)
class Register:
    """The entries of tests/mutants.toml for one module."""

    tests: tuple[str, ...]
    listed: tuple[Listed, ...]

    def is_listed(self, mutant: Mutant) -> bool:
        """Return True if the mutant may survive."""
        return any(entry.matches(mutant) for entry in self.listed)

    def stale(self, mutants: Sequence[Mutant]) -> list[Listed]:
        """Return the entries that match no mutant of the module."""
        return [entry for entry in self.listed if not any(entry.matches(mutant) for mutant in mutants)]


def read_register(module: str) -> Register:
    """Read the entries for a module."""
    content = tomllib.loads(PATH.read_text(encoding="utf-8"))
    listed = tuple(
        Listed(entry["function"], entry["before"], entry["after"])
        for entry in content.get("mutant", [])
        if entry["module"] == module
    )
    return Register(tuple(content["tests"].get(module, ()) or _mirrored(Path(module))), listed)


def _mirrored(module: Path) -> list[str]:
    """Return the test file with the module's name. If there is none, return the nearest test folder."""
    inside = Path(*module.parts[1:])
    file = Path("tests") / inside.with_name(f"test_{inside.name}")
    folders = [folder for folder in file.parents if folder.is_dir()]
    return [str(file if file.is_file() else folders[0])]
