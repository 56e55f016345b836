"""Who may import whom outside the package. Import contracts in pyproject.toml hold the order inside it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from context_agent import MemoryCorpus, SearchAgent, testing
from context_agent.testing.actions import rank_all, search

ROOT = Path(__file__).parents[1]
IMPORT_IN_A_STRING = re.compile(r"^\s*(?:from|import) (tests[\w.]*)(?: import (\w+))?", re.MULTILINE)
"""Programs that a test runs in a process of its own are strings."""


def imported_modules(path: Path) -> set[str]:
    """Return the names of modules under `tests` that a file imports, its embedded programs included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
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
