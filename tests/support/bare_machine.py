"""A program on a machine that lacks packages, as a fork that has imported torch.

The processes that the program starts are real ones. They lack the packages too.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support.fork_servers import MODELS
from tests.support.forked_programs import ForkedProgram, run_path

LACKING = ("chromadb", "tantivy", "re2", "vllm")
BLOCKER = f"""
import sys
from importlib.machinery import PathFinder

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if path is None and name in {LACKING}:
            path = [entry for entry in sys.path if entry.endswith("/site")]
        return PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Bare
"""
"""A sitecustomize that hides packages, unless a folder `site` of the path has them."""
PATIENCE = 1_800
"""Seconds that the program may take on a busy machine."""


def run_on_bare_machine(program: Path, *arguments: str, folder: Path) -> CompletedProcess[str]:
    """Run `python PROGRAM ARGUMENTS`. The folder gets the sitecustomize."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(BLOCKER)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        return ForkedProgram(_run_bare, str(program), arguments, MODELS).completed(PATIENCE)


def _run_bare(path: str) -> None:
    assert not set(LACKING) & sys.modules.keys(), "the fork has already imported what the machine lacks"
    exec(BLOCKER, {})
    run_path(path)
