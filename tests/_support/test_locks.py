from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest

from context_agent._support.locks import NoLocksError, file_lock
from tests.support.locks import without_locks


def test_a_lock_is_free_when_its_block_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError) as failure, file_lock(tmp_path / "lock"):
        raise RuntimeError
    with file_lock(tmp_path / "lock"):
        assert failure, "whose traceback still has the lock"


def test_a_lock_makes_its_folder_which_is_private(tmp_path: Path) -> None:
    with file_lock(tmp_path / "new" / "lock"):
        assert (tmp_path / "new").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(fcntl, "flock", without_locks(number))
    with pytest.raises(NoLocksError, match=f"{tmp_path} has no locks .*Use a folder"), file_lock(tmp_path / ".lock"):
        pass


def test_another_failure_of_a_lock_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", without_locks(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"), file_lock(tmp_path / ".lock"):
        pass
