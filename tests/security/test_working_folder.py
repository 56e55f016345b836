"""Commands that run in a folder from someone else. No module in this folder is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = {
    "the worker processes of an evaluation or a run": """
from context_agent._support.child_process import start_process
if __name__ == "__main__":
    process, pipe = start_process(print, (), name="child")
    process.join()
""",
    "the processes of a server": """
from context_agent._support.child_process import start_resource_tracker
if __name__ == "__main__":
    start_resource_tracker()
    from multiprocessing import get_context
    get_context("spawn").Lock()
""",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_module_in_the_working_folder_is_not_imported(program: str, tmp_path: Path) -> None:
    folder, trace = tmp_path / "stranger", tmp_path / "trace"
    folder.mkdir()
    for name in ("multiprocessing", "json", "site", "signal"):
        folder.joinpath(f"{name}.py").write_text(f"open({str(trace)!r}, 'a').write({name!r})\n")
    script = tmp_path / "program.py"
    script.write_text(program)

    subprocess.run([sys.executable, str(script)], cwd=folder, check=True, timeout=60)

    assert not trace.exists()


def test_a_pipe_in_place_of_the_settings_of_matplotlib_is_refused(tmp_path: Path) -> None:
    """matplotlib reads its settings from the working folder when it is imported."""
    os.mkfifo(tmp_path / "matplotlibrc")
    program = """
from context_agent.errors import DataError
from context_agent.web.drawing import canvas
try:
    with canvas():
        pass
except DataError as error:
    print(error)
"""
    process = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60, capture_output=True, text=True
    )
    assert process.stdout.startswith("matplotlibrc is a pipe")
