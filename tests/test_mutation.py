"""The program `scripts/mutate`, which finds the changes of a module that its tests miss."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

MODULE = '''
"""What things cost."""

REDUCTION = 2


def price(count: int, each: int = 5) -> int:
    total = count * each
    if total > 10:
        total -= REDUCTION
    return total


def unused(count: int) -> bool:
    return count < 3
'''

TESTS = """
from shop.prices import price


def test_a_price() -> None:
    assert price(1) == 5
    assert price(3) == 13
"""

CONFTEST = """
import gc

def pytest_collection_finish() -> None:
    gc.freeze()
"""

REGISTER = """
[tests]

[[mutant]]
module = "shop/prices.py"
function = "price"
before = "if total > 10:"
after = "if total >= 10:"
reason = "Nothing costs ten."

[[mutant]]
module = "shop/prices.py"
function = "price"
before = "if total > 1000:"
after = "if total >= 1000:"
reason = "It was so once."
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    for name, content in {
        "shop/__init__.py": "",
        "shop/prices.py": MODULE,
        "tests/test_prices.py": TESTS,
        "tests/conftest.py": CONFTEST,
        "tests/mutants.toml": REGISTER,
        "pytest.ini": "[pytest]\naddopts = --import-mode=importlib",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    return tmp_path


def mutate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "mutation"), "shop/prices.py", *arguments]
    # Plug-ins of other packages take a second to load.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_it_prints_the_mutants_that_no_test_notices(shop: Path) -> None:
    pytest.importorskip("libcst", reason="needs the extra dev")
    found = mutate(shop)
    assert found.returncode == 1, found.stderr
    assert re.findall(r"^shop.*:(\d+) (\w+): (.*)\n    - (.*)\n    \+ (.*)", found.stdout, re.MULTILINE) == [
        ("9", "price", "survived", "if total > 10:", "if total > 11:"),
        ("15", "unused", "not reached by a test", "return count < 3", "return count <= 3"),
        ("15", "unused", "not reached by a test", "return count < 3", "return count < 4"),
    ]
    assert "no longer has this mutant: price: if total > 1000:" in found.stdout
    assert re.search(r": 9 of 9 mutants, 5 killed, 0 timed out, 1 listed, 3 survived", found.stdout)


def test_it_passes_when_the_tests_notice_each_change(shop: Path) -> None:
    assert mutate(shop, "--lines", "1-8").returncode == 0


def test_it_wants_tests_that_pass(shop: Path) -> None:
    (shop / "tests" / "test_prices.py").write_text(TESTS.replace("13", "14"))
    failed = mutate(shop)
    assert failed.returncode == 2
    assert "test_a_price" in failed.stderr


FORKS = """
import time
from forks import in_fork

def endless():
    while True:
        pass

def waiting():
    time.sleep(1)
    return "waited"

def polling():
    while True:
        time.sleep(0.01)

print(in_fork(waiting, seconds=0.5))
for work in (endless, polling, lambda: time.sleep(600)):
    try:
        print(in_fork(work, 0.5, waiting=0.2))
    except TimeoutError as error:
        print(error)
"""


def test_a_trial_ends_by_its_processor_time_and_a_busy_machine_does_not_end_it() -> None:
    folder = ROOT / "scripts" / "mutation"
    printed = subprocess.check_output([sys.executable, "-c", FORKS], cwd=folder, text=True, timeout=60)
    assert printed.splitlines()[0] == "waited"
    assert [line.startswith("The work took longer than") for line in printed.splitlines()] == [False, True, True, True]


@cache
def functions_of(module: Path) -> frozenset[str]:
    """Return the names of the functions and classes of a module, each with the names around it."""

    def names(tree: ast.AST, before: str) -> Iterator[str]:
        for node in ast.iter_child_nodes(tree):
            is_named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            name = f"{before}{node.name}" if is_named else before
            if is_named:
                yield name
            yield from names(node, f"{name}." if is_named else before)

    return frozenset(names(ast.parse(module.read_text(encoding="utf-8")), ""))


def test_each_mutant_that_may_survive_has_a_reason() -> None:
    register = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text(encoding="utf-8"))
    for entry in register.get("mutant", []):
        assert entry.keys() == {"module", "function", "before", "after", "reason"}
        assert (ROOT / entry["module"]).is_file()
        assert entry["reason"].endswith(".")
        assert entry["function"] in functions_of(ROOT / entry["module"]) | {""}
    assert all((ROOT / path.partition("::")[0]).exists() for tests in register["tests"].values() for path in tests)
