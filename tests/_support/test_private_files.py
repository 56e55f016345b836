from __future__ import annotations

from pathlib import Path

import pytest

from context_agent._support.private_files import private_folder


def test_two_processes_may_make_the_same_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_meanwhile = tmp_path / "folder"
    made_meanwhile.mkdir()
    monkeypatch.setattr(Path, "exists", lambda path: path != made_meanwhile)
    assert private_folder(made_meanwhile) == made_meanwhile
