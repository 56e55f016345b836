"""The page on architecture leads through a training run, from its file to its first update."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

from context_agent import train
from context_agent.testing import tiny_runs

pytest.importorskip("trl")

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
PACKAGE = Path(train.__file__).parent
TOY = {"toy/environment", "toy/word_prompts"}
"""The tests train on a toy world. The page names its folder."""

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="the documentation is not part of the source distribution")


def entered_modules(student: Path, out: Path) -> set[str]:
    """Return the modules of `train` whose functions run during a step of a run by rewards."""
    from context_agent.train import reinforcement

    entered = set()

    def enter(frame: FrameType, event: str, _: object) -> None:
        is_function = frame.f_code.co_flags & 1
        if event == "call" and is_function and frame.f_code.co_filename.startswith(str(PACKAGE)):
            entered.add(frame.f_code.co_filename)

    config = tiny_runs.rewards(student, out, rollouts={"steps": 1, "substeps": 1})
    before = sys.getprofile()
    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        reinforcement.train(config, note=lambda _: None)
    finally:
        sys.setprofile(before)
        threading.setprofile(before)
    return {Path(name).relative_to(PACKAGE).with_suffix("").as_posix() for name in entered}


def modules_in(text: str) -> set[str]:
    """Return the modules of `train` that a text names."""
    return {name for name in re.findall(r"`([\w/]+)`", text) if (PACKAGE / f"{name}.py").is_file()}


def test_the_page_names_the_modules_that_a_training_run_passes(student: Path, tmp_path: Path) -> None:
    (section,) = re.findall(
        r"^## A training run\n(.*?)^## ", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    named = modules_in(section)
    entered = entered_modules(student, tmp_path / "out")
    assert entered - named == TOY
    steps = section[: section.index("To understand how")]
    # The command is not in the folder of training.
    assert f"these {1 + len(modules_in(steps))} modules" in steps
    # The command does not run here, and this run has no demonstrations and no subagents.
    assert named - entered == {"lessons", "parl", "rl/demonstrations", "run_file", "sft"}
