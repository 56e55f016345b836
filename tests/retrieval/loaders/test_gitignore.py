"""Rules of a `.gitignore` match what Git matches, whatever they are, and cost little."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from context_agent.errors import DataError
from context_agent.retrieval.loaders.gitignore import MAX_RULES, GitIgnore

PIECES = st.sampled_from(
    [
        *("a", "b", "ab", "x", "A", "1", "é", " ", "  ", "\t", "\r", "\f", "\x85", "\u2028", "#", ".", "-", "!", "^"),
        *("*", "*", "**", "?", "/", "/", "\\", "[", "]", "**/", "/**", "/**/", "\\*", "\\/", "\\]"),
        *("[a-b]", "[!a]", "[^b]", "[z-a]", "[]a]", "[a\\-z]", "[a-", "[[:alpha:]]", "[[:upper:][:digit:]]"),
        *("[[:bad:]]", "[[:a]", "[:", ":]", "{a,b}", "~"),
    ]
)
RULE_LISTS = st.lists(
    st.builds("{}{}".format, st.sampled_from(["", "", "!"]), st.lists(PIECES, max_size=7).map("".join))
)
NAMES = st.sampled_from(
    [
        "a",
        "b",
        "ab",
        "x",
        "aa",
        "abab",
        "A",
        "1",
        "a b",
        " ",
        "a ",
        "é",
        "-",
        "]",
        "[",
        "!",
        "#",
        "a*b",
        "\\",
        "^",
        "z",
        "zx",
    ]
)
PATHS = st.dictionaries(st.lists(NAMES, min_size=1, max_size=4).map("/".join), st.booleans(), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty repository of Git."""
    if shutil.which("git") is None:
        pytest.skip("Git is not installed")
    folder = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "-q", folder], check=True, env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull})
    yield folder
    shutil.rmtree(folder)


def made(root: Path, paths: dict[str, bool]) -> dict[str, bool]:
    """Make the paths, folders where the value is true, and return those that could be made."""
    for entry in root.iterdir():
        if entry.name != ".git":
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    done = {}
    for path, is_folder in paths.items():
        try:
            (root / path if is_folder else (root / path).parent).mkdir(parents=True, exist_ok=True)
            if not is_folder:
                (root / path).touch(exist_ok=False)
        except OSError:  # another path is a file on the way
            continue
        done[path] = is_folder
    return done


def excluded_by_git(root: Path, paths: list[str]) -> list[bool]:
    names = b"".join(os.fsencode(path) + b"\0" for path in paths)
    command = ["git", "-C", str(root), "-c", f"core.excludesFile={os.devnull}", "check-ignore"]
    command += ["--no-index", "-z", "-v", "-n", "--stdin"]
    fields = subprocess.run(command, input=names, capture_output=True, check=False).stdout.split(b"\0")
    return [bool(fields[at]) and not fields[at + 2].startswith(b"!") for at in range(0, 4 * len(paths), 4)]


def excluded(rules: GitIgnore, path: str, is_folder: bool) -> bool:
    """Whether the rules exclude the path or a folder on the way to it."""
    *folders, whole = accumulate(path.split("/"), "{}/{}".format)
    return any(rules.excludes(os.fsencode(folder), is_folder=True) for folder in folders) or bool(
        rules.excludes(os.fsencode(whole), is_folder=is_folder)
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rules=RULE_LISTS, paths=PATHS)
def test_any_rules_exclude_what_git_excludes(repository: Path, rules: list[str], paths: dict[str, bool]) -> None:
    data = "\n".join(rules).encode()
    entries = made(repository, paths)
    (repository / ".gitignore").write_bytes(data)
    compiled = GitIgnore.parse(data)
    assert [excluded(compiled, path, is_folder) for path, is_folder in entries.items()] == excluded_by_git(
        repository, list(entries)
    )


@pytest.mark.parametrize(
    ("data", "path", "expected"),
    [
        (b"[z-a]x\nsecret.txt\n", b"secret.txt", True),
        (b"[unclosed\nsecret.txt\n", b"secret.txt", True),
        (b"secret\\\n[[:none:]]\nsecret.txt\n", b"secret.txt", True),
        (b"\xef\xbb\xbfsecret.txt\r\n", b"secret.txt", True),
        (b"a\x85secret.txt\x0c\n", b"secret.txt", None),
        (b"\xff?\n", b"\xff\xfe", True),
        (b"*.log\n!keep.log\n", b"sub/keep.log", False),
        (b"ab**/c\n", b"abx/y/c", True),
    ],
)
def test_one_rule_that_matches_nothing_leaves_the_others(data: bytes, path: bytes, expected: bool | None) -> None:
    assert GitIgnore.parse(data).excludes(path, is_folder=False) is expected


def test_thousands_of_rules_hold() -> None:
    lines = [f"{'!' * (n % 2)}name-{n}*" if n % 3 else f"/folder-{n}/**/*.txt" for n in range(2_500)]
    rules = GitIgnore.parse("\n".join([*lines, "secret.txt"]).encode())
    assert rules.excludes(b"sub/secret.txt", is_folder=False) is True
    assert rules.excludes(b"nothing", is_folder=False) is None
    assert rules.excludes(b"name-2002x", is_folder=False) is True
    assert rules.excludes(b"name-2003x", is_folder=False) is False
    assert rules.excludes(b"folder-2499/a/b.txt", is_folder=False) is True


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"*a*b\n" * 2**18, "more than 262,144 bytes"),
        (b"a\n" * (MAX_RULES + 1), "10,001 rules, more than 10,000"),
        (b"a" * 1_001, "a rule of more than 1,000 bytes"),
        (b"*a*b\n" * 1_001, "more than 2,000 asterisks"),
        (b"a" + b"?" * 900 + b"\n" + b"b" + b"?" * 900 + b"\n" + b"[cd]" * 201, "more than 2,000 asterisks"),
    ],
)
def test_rules_above_a_bound_are_refused_before_they_are_compiled(data: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        GitIgnore.parse(data)


@pytest.mark.parametrize("rule", [b"[!a]" * 150, b"?" * 150 + b"*", b"*a" * 150, b"/a/**/b" * 50])
def test_the_cost_of_compiling_is_linear(rule: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    def seconds(rules: int) -> float:
        times = []
        for _ in range(3):
            start = time.process_time()
            GitIgnore.parse((rule + b"\n") * rules).excludes(b"a" * 200, is_folder=False)
            times.append(time.process_time() - start)
        return min(times)

    bound = 10 * seconds(3) + 0.02
    assert any(seconds(12) < bound for _ in range(3))
    assert capfd.readouterr() == ("", "")
