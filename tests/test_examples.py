"""The examples run as a user runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from context_agent import MemoryCorpus, ScriptedPolicy, SearchAgent
from tests.actions import prune, rank_all, search

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: str) -> str:
    line = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=True, timeout=120).stdout


def test_ask_a_folder(tmp_path: Path) -> None:
    (tmp_path / "rope.txt").write_text("Rope is a film of 1948 directed by Alfred Hitchcock.")
    (tmp_path / "hitchcock.md").write_text("# Alfred Hitchcock\n\nHe received the AFI Life Achievement Award in 1979.")
    (tmp_path / "bread.txt").write_text("Bread is made of flour, water and salt.")
    said = run("ask_a_folder.py", str(tmp_path), "Which award did the director of Rope receive?").splitlines()
    assert {"rope", "Alfred Hitchcock"} <= {line.split("  ")[1].split(":")[0] for line in said[:2]}


def test_watch_the_context(corpus: MemoryCorpus, tmp_path: Path) -> None:
    policy = ScriptedPolicy([search("comets", limit=5), lambda view: prune(view.blocks[0].id), rank_all])
    result = SearchAgent(corpus, policy, trajectories=tmp_path).search("comets?")
    said = run("watch_the_context.py", str(result.trajectory)).splitlines()
    assert said[1].endswith("+5 -0 passages")
    assert said[2].endswith("+0 -1 passages")
    assert said[-1].startswith("ranked: Title")
