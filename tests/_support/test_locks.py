from __future__ import annotations

from pathlib import Path

import pytest

from context_agent._support.locks import file_lock


def test_a_lock_is_free_when_its_block_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError) as failure, file_lock(tmp_path / "lock"):
        raise RuntimeError
    with file_lock(tmp_path / "lock"):
        assert failure, "whose traceback still has the lock"


def test_a_lock_makes_its_folder_which_is_private(tmp_path: Path) -> None:
    with file_lock(tmp_path / "new" / "lock"):
        assert (tmp_path / "new").stat().st_mode & 0o077 == 0
