"""Who may import whom outside the package. Import contracts in pyproject.toml hold the order inside it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from context_agent import MemoryCorpus, SearchAgent, testing
from context_agent.testing.actions import rank_all, search

ROOT = Path(__file__).parents[1]
with_documentation = pytest.mark.skipif(
    not (ROOT / "docs").exists(), reason="the documentation is not part of the source distribution"
)
IMPORT_IN_A_STRING = re.compile(r"^\s*(?:from|import) (tests[\w.]*)(?: import (\w+))?", re.MULTILINE)
"""Programs that a test runs in a process of its own are strings."""


def imported_modules(path: Path) -> set[str]:
    """Return the names of modules under `tests` that a file imports, its embedded programs included."""
    text = path.read_text(encoding="utf-8")
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)) if "tests" in text else ():
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= {".".join(filter(None, match)) for match in IMPORT_IN_A_STRING.findall(node.value)}
    return {name for name in names if name.startswith("tests.") and (ROOT / f"{name.replace('.', '/')}.py").is_file()}


def python_files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def test_tests_import_only_their_support_code() -> None:
    wrong = {}
    for path in python_files("tests"):
        own = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if others := {name for name in imported_modules(path) - {own} if not name.startswith("tests.support.")}:
            wrong[own] = others
    assert not wrong, "move what they share to context_agent.testing or tests/support"


@pytest.mark.parametrize("folder", ["benchmarks", "context_agent", "examples", "scripts"])
def test_nothing_else_imports_tests(folder: str) -> None:
    assert not {path: names for path in python_files(folder) if (names := imported_modules(path))}


TRAINING_PACKAGES = {"torch", "transformers", "trl", "peft", "accelerate"}
"""The packages of the extras that scripts/test installs with --models alone."""


def loaded_at_import(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that a module imports when it is imported, up to a `pytest.importorskip`."""
    for node in body:
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                yield from (module, *(f"{module}.{alias.name}" for alias in node.names))
            case ast.If(test=test) if "TYPE_CHECKING" not in ast.unparse(test):
                yield from loaded_at_import([*node.body, *node.orelse])
            case ast.Try() | ast.With():
                yield from loaded_at_import(node.body)
            case ast.Expr() | ast.Assign() | ast.For() if "importorskip" in ast.unparse(node):
                return


@cache
def module_files(name: str) -> list[Path]:
    """Return the files of a module of this repository and of the packages that it is in."""
    parts = name.split(".")
    places = [Path(*parts[:length]) for length in range(1, len(parts) + 1)]
    files = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    return [path for file in (*files, Path("benchmarks", *parts).with_suffix(".py")) if (path := ROOT / file).is_file()]


@cache
def direct_imports(path: Path) -> tuple[bool, frozenset[Path]]:
    """Return whether a module imports one of `TRAINING_PACKAGES`, and the files of this repository that it imports."""
    names = set(loaded_at_import(ast.parse(path.read_text(encoding="utf-8")).body))
    trains = any(name.split(".")[0] in TRAINING_PACKAGES for name in names)
    return trains, frozenset(file for name in names for file in module_files(name))


def needs_training_packages(path: Path) -> bool:
    """Return True if a module cannot be imported without one of `TRAINING_PACKAGES`."""
    reached, waiting = {path}, [path]
    while waiting:
        trains, imported = direct_imports(waiting.pop())
        if trains:
            return True
        waiting += imported - reached
        reached |= imported
    return False


def test_tests_that_need_torch_are_skipped_without_it() -> None:
    """scripts/test without --models passes where no torch is installed."""
    files = [path for path in python_files("tests") if path.name.startswith(("test_", "conftest"))]
    assert not [path for path in files if needs_training_packages(path)]


def modules_in_table(package: Path) -> set[str] | None:
    """Return the modules that the docstring of a package lists. If it has no table of modules, return None."""
    _, table, rows = (ast.get_docstring(ast.parse(package.read_text(encoding="utf-8"))) or "").partition("| module |")
    first_cells = (row.split("|")[1] for row in rows.splitlines() if row.startswith("| `"))
    return {name for cell in first_cells for name in re.findall("`([^`]+)`", cell)} if table else None


def test_the_table_of_modules_in_a_package_lists_those_that_exist() -> None:
    tables = {path.parent: modules_in_table(path) for path in python_files("context_agent") if path.stem == "__init__"}
    for folder, listed in tables.items():
        modules = {path.stem for path in folder.glob("*.py")} | {
            path.parent.name for path in folder.glob("*/__init__.py")
        }
        assert listed is None or listed == modules - {"__init__"}, folder
    assert sum(listed is not None for listed in tables.values()) > 5


def defined_names(path: Path) -> set[str]:
    """Return the classes, functions and variables that a module defines at its top level."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


@with_documentation
def test_the_page_that_says_where_things_are_names_what_its_modules_define() -> None:
    rows = re.findall(r"^\| .+\? \| `(.+)` \| `(.+)` \|$", (ROOT / "docs/where-is-it.md").read_text("utf-8"), re.M)
    assert len(rows) == len(set(rows)) == 40
    wrong = [(module, name) for module, name in rows if name not in defined_names(ROOT / f"context_agent/{module}.py")]
    assert not wrong


@with_documentation
def test_the_page_on_architecture_says_how_long_its_reading_path_is() -> None:
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    files = re.findall(r"^\d+\. `(context_agent/.+?\.py)`", page, re.M)
    lines = sum(len((ROOT / file).read_text("utf-8").splitlines()) for file in files)
    (stated,) = re.findall(r"These files have about ([\d,]+) lines", page)
    assert len(files) == 10
    assert abs(lines - int(stated.replace(",", ""))) <= 100


def test_support_code_has_no_tests() -> None:
    assert not [path for path in python_files("tests/support") if path.name.startswith(("test_", "conftest"))]


@pytest.mark.parametrize("name", testing.__all__)
def test_the_public_fakes_are_there_and_documented(name: str) -> None:
    assert getattr(testing, name).__doc__


def test_the_public_fakes_answer_a_question() -> None:
    corpus = MemoryCorpus(testing.people(20), embedder=testing.HashEmbedder())
    policy = testing.ScriptedPolicy([search("a glazier from Ghent"), rank_all])
    with SearchAgent(corpus, policy) as agent:
        result = agent.search("Which glazier came from Ghent?")
    assert "Ghent" in result.documents[0].chunks[0].text
