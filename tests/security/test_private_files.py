"""What holds questions, answers or judgments is readable by its owner alone, whatever the umask says."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from context_agent import MemoryCorpus, ScriptedPolicy, SearchAgent
from context_agent._support.private_files import open_private, private_folder
from context_agent.eval.records import open_run
from context_agent.integrations.feedback import FeedbackLog, judgment
from context_agent.synth_data.json_files import write_rows
from context_agent.testing.actions import search
from tests.support.sample_records import made_records


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """A umask that keeps nobody out."""
    old_umask = os.umask(0)
    yield
    os.umask(old_umask)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_others(folder: Path) -> list[Path]:
    """Paths below the folder that others than the owner may read, without empty files, such as locks."""
    return [path for path in folder.rglob("*") if mode(path) & 0o077 and (path.is_dir() or path.stat().st_size)]


def test_trajectories_and_judgments_are_private(corpus: MemoryCorpus, tmp_path: Path) -> None:
    with SearchAgent(corpus, ScriptedPolicy([search("comets")]), trajectories=tmp_path / "a" / "kept") as agent:
        path = agent.search("a question that is nobody's business?").trajectory
    assert path is not None
    assert FeedbackLog(path.parent).add(judgment(trajectory=path.stem, relevant=["d1"]))
    assert mode(path) == 0o600
    assert open_to_others(tmp_path) == []


def test_the_records_of_an_evaluation_are_private(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", {"windows": [1]}, {}) as log:
        log.add(made_records(1, 1)[0])
    assert mode(tmp_path / "run") == 0o700
    assert mode(tmp_path / "run" / "run.json") == 0o600
    assert mode(tmp_path / "run" / "records.jsonl") == 0o600


def test_tasks_are_private(tmp_path: Path) -> None:
    write_rows(tmp_path / "set" / "tasks.jsonl", [{"question": "q"}])
    assert open_to_others(tmp_path) == []


def test_what_exists_keeps_its_mode(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir(mode=0o755)
    (folder / "file").write_text("x")
    (folder / "file").chmod(0o644)
    private_folder(folder / "below")
    with open_private(folder / "file", "a") as file:
        file.write("y")
    assert [mode(path) for path in (folder, folder / "below", folder / "file")] == [0o755, 0o700, 0o644]
