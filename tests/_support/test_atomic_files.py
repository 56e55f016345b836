"""Files and folders that are replaced whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from context_agent._support.atomic_files import is_stream, replace_file, replacing, replacing_folder
from tests.support.descriptors import open_descriptors


def test_a_file_or_folder_is_on_disk_before_it_takes_its_place(
    tmp_path: Path, disk: list[tuple[str, str, int]]
) -> None:
    before = open_descriptors()
    replace_file(tmp_path / "file", "four")
    assert disk == [("sync", ".file.partial", 4), ("move", ".file.partial", 4), ("sync", tmp_path.name, 0)]
    disk.clear()
    with replacing_folder(tmp_path / "new" / "model") as partial:
        (partial / "weights").write_text("five5")
    assert disk == [
        ("sync", "weights", 5),
        ("sync", ".model.partial", 0),
        ("move", ".model.partial", 0),
        ("sync", "new", 0),
    ]
    assert open_descriptors() == before


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file.json"
    replace_file(path, "old")

    def fail() -> None:
        with replacing(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text() == "old"
    assert [entry.name for entry in path.parent.iterdir()] == ["file.json"]
    (path.parent / ".file.json.partial").write_text("left by a killed process")
    replace_file(path, b"new")
    assert path.read_text() == "new"
    assert [entry.name for entry in path.parent.iterdir()] == ["file.json"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
@pytest.mark.parametrize("shared", [False, True])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path, mode: int, shared: bool) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    path.chmod(mode)
    with replacing(path, shared=shared) as file:
        file.write(b"new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_link_that_is_replaced_leaves_a_private_file(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    (tmp_path / "target").chmod(0o644)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    replace_file(tmp_path / "link", "new")
    assert (tmp_path / "target").read_text() == "old"
    assert stat.S_IMODE((tmp_path / "link").lstat().st_mode) == 0o600


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    out = tmp_path / "model"
    with pytest.raises(FileNotFoundError), replacing_folder(out) as partial:
        (partial / "weights").write_text((tmp_path / "missing").read_text())
    assert list(tmp_path.iterdir()) == []
    out.mkdir()
    (tmp_path / ".model.partial").mkdir()
    (tmp_path / ".model.partial" / "old").write_text("left by a killed process")
    with replacing_folder(out) as partial:
        (partial / "weights").write_text("whole")
        assert not (out / "weights").exists()
    assert [path.name for path in out.iterdir()] == ["weights"]
    with pytest.raises(OSError), replacing_folder(out) as partial:  # noqa: PT011 - the number differs by system
        (partial / "weights").write_text("other")
    assert (out / "weights").read_text() == "whole"


def test_two_processes_may_replace_a_shared_file_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "current.json"
    with replacing(path, shared=True) as first, replacing(path, shared=True) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_bytes() == b"first"
    assert path.stat().st_mode & 0o077
    assert [file.name for file in tmp_path.iterdir()] == ["current.json"]


def test_a_device_or_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to("/dev/null")
    for path in (pipe, tmp_path / "link"):
        with pytest.raises(FileExistsError, match="A device or a pipe is in the way") as raised:
            replace_file(path, "text")
        assert raised.value.filename == str(path)
    assert pipe.is_fifo()
    assert {entry.name for entry in tmp_path.iterdir()} == {"pipe", "link"}
    assert is_stream(Path("/dev/stdout"))
    assert not is_stream(tmp_path)
    assert not is_stream(tmp_path / "new")


def test_an_error_of_the_disk_names_the_file_and_other_errors_do_not(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for raised, named in ((OSError(errno.ENOSPC, "full"), True), (OSError(errno.ECONNRESET, "lost"), False)):
        with pytest.raises(OSError, match=raised.strerror) as told, replacing(path):
            raise raised
        assert told.value.filename == (str(path) if named else None)
        with pytest.raises(OSError, match=raised.strerror) as told, replacing_folder(tmp_path / "folder"):
            raise OSError(raised.errno, raised.strerror)
        assert told.value.filename == (str(tmp_path / "folder") if named else None)
