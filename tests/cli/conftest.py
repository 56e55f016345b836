"""The installed `ctx1`, run as a user runs it: a process of its own, in a folder of its own."""

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

CTX1 = Path(sys.executable).with_name("ctx1")
Run = Callable[..., subprocess.CompletedProcess[str]]


def passages() -> list[dict[str, Any]]:
    """The demo's corpus: small, linked, and made for this."""
    text = (files("context_agent.cli") / "demo_data" / "corpus.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def ctx1(tmp_path: Path) -> Run:
    """Runs `ctx1` with these arguments and returns what it did."""

    def run(*arguments: object, stdin: str | None = "", cwd: Path = tmp_path, **env: str) -> Any:
        return run_ctx1(*arguments, stdin=stdin, cwd=cwd, **env)

    return run


def run_ctx1(
    *arguments: object, cwd: Path, stdin: str | None = "", **env: str
) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [str(CTX1), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**os.environ, **env},
        check=False,
    )


@pytest.fixture(scope="session")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of Markdown files, as notes are kept."""
    folder = tmp_path_factory.mktemp("user") / "notes"
    folder.mkdir()
    for passage in passages():
        (folder / f"{passage['id']}.md").write_text(f"# {passage['title']}\n\n{passage['text']}\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def index(notes: Path) -> Path:
    """The notes, indexed by `ctx1 index`."""
    folder = notes.parent / "index"
    done = run_ctx1("index", notes, "--path", folder, cwd=notes.parent)
    assert done.returncode == 0, done.stderr
    return folder
